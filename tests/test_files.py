"""Files are written completely or not at all, and what the disk refuses is one line."""

import os

import pytest

import riskpath as rp
from riskpath.files import disk_errors, write_file, write_json


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "new" / "a.json"
    assert write_json(path, {"a": [1, 2]}) == path
    assert write_file(path, b"later").read_text() == "later"
    assert [entry.name for entry in path.parent.iterdir()] == ["a.json"]


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_full_disk_keeps_what_was_there_and_leaves_nothing(tmp_path, monkeypatch, call):
    path = write_file(tmp_path / "a.txt", "before")
    monkeypatch.setattr(os, call, full)
    with pytest.raises(rp.RiskpathError, match=r"^cannot write .*a\.txt: No space left on device$"):
        write_file(path, "after")
    assert path.read_text() == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_folders_that_were_made_for_nothing_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(rp.RiskpathError, match="No space left"):
        write_file(tmp_path / "a" / "b" / "c.txt", "text")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["", ".", "a\0b", "x" * 300])
def test_a_path_that_cannot_exist_is_one_line(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(rp.RiskpathError, match=r"^cannot write .*: "):
        write_file(path, "text")
    assert not list(tmp_path.iterdir())


def wrapped(error: Exception) -> Exception:
    outer = RuntimeError("Error at leaf")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(30, "Read-only file system"), "Read-only file system"),
        (OSError("120 requested and 7 written"), "only a part was written; is the disk full?"),
        (wrapped(OSError(28, "No space left on device")), "No space left on device"),
        (ValueError("embedded null byte"), "a path cannot contain a null character"),
        (RuntimeError("Symlink loop from 'a'"), "Too many levels of symbolic links"),
        (rp.RiskpathError("as it is"), None),
        (ValueError("something else"), None),
    ],
)
def test_errors_of_the_disk_become_one_line(error, line):
    with pytest.raises(type(error) if line is None else rp.RiskpathError) as found, disk_errors("cannot do it"):
        raise error
    assert str(found.value) == (str(error) if line is None else f"cannot do it: {line}")
