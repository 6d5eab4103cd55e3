"""The folder of a run: nothing else is replaced, and an interrupted save is found."""

import json
import os
from typing import Any

import pytest

import riskpath as rp
from riskpath.cli.config_file import write_options
from riskpath.cli.options import TrainOptions
from riskpath.cli.run_folder import SavedRun, prepared_folder


def put(folder, *names: str) -> None:
    """Write empty files."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")


def names(folder) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_a_new_folder_gets_the_configuration(tmp_path):
    with prepared_folder(tmp_path / "a" / "b", {"steps": 1}, overwrite=False):
        assert (tmp_path / "a" / "b" / "config.json").read_text() == '{"steps": 1}\n'
        put(tmp_path / "a" / "b", "run/header.json", "log.jsonl")
    assert names(tmp_path / "a" / "b") == {"config.json", "run", "log.jsonl"}


@pytest.mark.parametrize("place", ["run", ".run.old"])
def test_a_run_is_replaced_only_on_request(tmp_path, place):
    put(tmp_path, f"{place}/header.json", "log.jsonl", "result.json")
    line = f"riskpath resume {tmp_path} continues it, --overwrite replaces it"
    with pytest.raises(rp.RiskpathError, match=line), prepared_folder(tmp_path, {}, overwrite=False):
        pass
    assert (tmp_path / "log.jsonl").exists()
    with prepared_folder(tmp_path, {}, overwrite=True):
        put(tmp_path, "run/header.json")
        os.utime(tmp_path / "run" / "header.json", (1, 1))
    assert names(tmp_path) == {"run", place, "config.json"}


def fail(out, config: dict[str, Any], overwrite: bool) -> None:
    """Begin a run whose first save fails."""
    with prepared_folder(out, config, overwrite):
        (out / "log.jsonl").write_text("new")
        raise OSError("full")


def test_where_nothing_was_saved_the_folder_is_as_before(tmp_path):
    with pytest.raises(OSError, match="full"):
        fail(tmp_path / "a" / "b", {}, overwrite=False)
    assert not list(tmp_path.iterdir())
    put(tmp_path, "run/header.json", "log.jsonl", "result.json", "config.json")
    with pytest.raises(OSError, match="full"):
        fail(tmp_path, {"new": 1}, overwrite=True)
    assert names(tmp_path) == {"run", "log.jsonl", "result.json", "config.json"}
    assert {file.read_text() for file in tmp_path.glob("*.json*")} == {""}


@pytest.mark.parametrize("name", ["notes.txt", "config.json", "run/notes.txt"])
@pytest.mark.parametrize("overwrite", [True, False])
def test_other_files_are_never_replaced(tmp_path, name, overwrite):
    put(tmp_path, name)
    line = "contains other files than a run"
    with pytest.raises(rp.RiskpathError, match=line), prepared_folder(tmp_path, {}, overwrite):
        pass
    assert (tmp_path / name).read_text() == ""


def test_a_run_that_was_killed_before_its_first_save_is_started_anew(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(write_options(TrainOptions())))
    put(tmp_path, "log.jsonl", ".run.part/state.eqx", "tensorboard/events")
    with prepared_folder(tmp_path, write_options(TrainOptions(steps=5)), overwrite=False):
        put(tmp_path, "run/header.json")
    assert json.loads((tmp_path / "config.json").read_text())["steps"] == 5


@pytest.mark.parametrize(
    ("files", "checkpoint"),
    [
        (["run/header.json"], "run"),
        ([".run.old/header.json"], "run"),  # killed between the two moves of a save
        (["header.json"], "."),
        (["header.json", "run/header.json"], "."),
        ([], "."),
    ],
)
def test_the_checkpoint_is_found_inside_of_a_folder(tmp_path, files, checkpoint):
    put(tmp_path, *files)
    assert SavedRun(tmp_path).checkpoint == tmp_path / checkpoint


@pytest.mark.parametrize(
    "config", ["", "[]", '{"env": "ThreeState"}', '{"env": 1, "set": []}', '{"env": "x", "set": [1]}']
)
def test_a_damaged_configuration_is_ignored(tmp_path, config):
    put(tmp_path, "run/header.json")
    (tmp_path / "config.json").write_text(config)
    assert SavedRun(tmp_path).config == {}


def test_an_environment_that_needs_an_import_must_be_named_on_the_command_line(tmp_path):
    put(tmp_path, "run/header.json")
    (tmp_path / "config.json").write_text('{"env": "os:Own-v0", "set": []}')
    with pytest.raises(
        rp.RiskpathError, match="was trained on os:Own-v0, which has to be imported: give --env os:Own-v0"
    ):
        SavedRun(tmp_path).load()
