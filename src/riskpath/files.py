"""Files that are written completely or not at all, and errors of the disk in one line."""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from riskpath.errors import RiskpathError, short_repr


def as_path(path: Any) -> Path:
    """Return the path of a file or folder that a user names; refuse anything that is no name."""
    if not isinstance(path, str | os.PathLike):
        raise RiskpathError(f"a file or folder is named by a text or a Path, got {short_repr(path)}")
    return Path(path)


@contextlib.contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Turn an error of the disk, or of a path that no disk can have, into one line: "<what>: <why>"."""
    try:
        yield
    except RiskpathError:
        raise
    except Exception as error:
        if (why := _reason(error)) is None:
            raise
        raise RiskpathError(f"{what}: {why}".replace("\0", "\\0")) from None


def write_file(path: str | Path, content: str | bytes) -> Path:
    """Write a file, and its folder, and return its path; a failure leaves what was there before and nothing else."""
    place = as_path(path)
    part = place.with_name(f".{place.name}.part") if place.name else place
    with disk_errors(f"cannot write {path}"), new_folders(place.parent):
        try:
            with part.open("wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, place)
        except BaseException:
            with contextlib.suppress(OSError, ValueError):
                part.unlink(missing_ok=True)
            raise
    return place


@contextlib.contextmanager
def new_folders(folder: Path) -> Iterator[None]:
    """Make a folder and those above it; remove those that are new and empty if what follows fails."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    if any(one.is_file() for one in (folder, *folder.parents)):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        with contextlib.suppress(OSError, ValueError):
            for one in missing:
                one.rmdir()
        raise


def require_space(place: Path, needed: int) -> None:
    """Refuse to write where the disk has less space than needed."""
    folder = next(one for one in (place, *place.parents) if one.exists())
    if (free := shutil.disk_usage(folder).free) < needed:
        raise RiskpathError(f"no space at {place}: it needs about {needed:,} bytes, and {free:,} are free")


@contextlib.contextmanager
def removed_on_failure(place: Path) -> Iterator[None]:
    """Remove a file or folder, and those above it, if they are new and what another library writes there fails."""
    new = next((one for one in (*reversed(place.parents), place) if not one.exists()), None)
    try:
        yield
    except BaseException:
        if new is not None:
            shutil.rmtree(new, ignore_errors=True)
        raise


def write_json(path: str | Path, content: dict[str, Any] | list[Any]) -> Path:
    """Write JSON to a file and return its path."""
    return write_file(path, json.dumps(content) + "\n")


def read_json(path: str | Path, otherwise: str) -> dict[str, Any]:
    """Return the object in a JSON file; where it holds something else, refuse it: "<path> <otherwise>"."""
    try:
        content = json.loads(as_path(path).read_text())
    except OSError as error:
        raise RiskpathError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise RiskpathError(f"{path} {otherwise}")
    return content


def _reason(error: BaseException) -> str | None:
    """Return why the disk refused; None if it was something else. NumPy and Equinox hide the cause."""
    if isinstance(error, OSError):
        partly = "requested and" in str(error)  # NumPy's words, without a number
        return error.strerror or ("only a part was written; is the disk full?" if partly else str(error))
    if "null byte" in str(error) or "null character" in str(error):
        return "a path cannot contain a null character"
    if "Symlink loop" in str(error):
        return "Too many levels of symbolic links"
    return None if error.__cause__ is None else _reason(error.__cause__)
