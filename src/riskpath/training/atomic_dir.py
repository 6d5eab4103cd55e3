"""A saved run's folder, which is there whole or not at all.

A new save is written beside the old one and takes its place only when it is complete, so whenever the process dies
there is one that can be loaded.
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from riskpath.errors import RiskpathError

HEADER, STATE, CURVE = "header.json", "state.eqx", "curve.json"


@contextlib.contextmanager
def renewed(place: Path) -> Iterator[Path]:
    """An empty folder to write to, which then takes the place of the old one."""
    part = _beside(place, "part")
    shutil.rmtree(part, ignore_errors=True)  # left by a save that was cut short
    part.mkdir(parents=True)
    yield part
    _sync(part)
    _put(part, place)


def free(path: str | Path) -> Path:
    """Where to save, if nothing but an older save would be lost there."""
    place = Path(path).resolve()
    if place.exists() and not place.is_dir():
        raise RiskpathError(f"cannot save to {path}: it is a file, and a run is saved as a folder")
    names = {entry.name for entry in place.iterdir()} if place.exists() else set()
    if names and not HEADER in names <= {HEADER, STATE, CURVE}:
        raise RiskpathError(f"cannot save to {path}: it holds other things than a saved run; give a new folder")
    return place


def found(path: Any) -> Path:
    """The folder to load from: the last save, which was moved aside if the next one was interrupted at its very end."""
    if not isinstance(path, str | os.PathLike):
        raise RiskpathError(f"a run is loaded from a folder, got {path!r}")
    place = Path(path).resolve()
    if place.is_file():
        raise RiskpathError(f"{path} is a file; a saved run is a folder")
    for folder in (place, _beside(place, "old"), place / "run"):  # the last is where the command line puts it
        if (folder / HEADER).is_file():
            return folder
    if place.exists():
        raise RiskpathError(f"{path} is not a saved run: it has no {HEADER}")
    raise RiskpathError(f"there is no saved run at {path}")


@contextlib.contextmanager
def synced(path: Path) -> Iterator[Any]:
    """A new file that is on the disk, not only on its way there, when it is closed."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def digest(path: Path) -> str:
    """What a file holds, in short."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _put(part: Path, place: Path) -> None:
    """Moves a complete save into place; at every moment `found` finds this one or the one before."""
    old = _beside(place, "old")
    if (place / HEADER).is_file():
        shutil.rmtree(old, ignore_errors=True)
        os.rename(place, old)
    elif place.exists():
        place.rmdir()
    os.rename(part, place)
    _sync(place.parent)
    shutil.rmtree(old, ignore_errors=True)


def _beside(place: Path, kind: str) -> Path:
    return place.with_name(f".{place.name}.{kind}")


def _sync(folder: Path) -> None:
    if hasattr(os, "O_DIRECTORY"):  # elsewhere a folder cannot be opened
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(handle)
        os.close(handle)
