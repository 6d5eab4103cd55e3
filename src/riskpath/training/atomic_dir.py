"""A folder that is replaced atomically.

A new version is written beside the old one and takes its place only when it is complete, so that there is always one
that can be loaded, whenever the process is killed.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from riskpath.errors import RiskpathError
from riskpath.files import as_path, disk_errors, new_folders

HEADER, STATE, CURVE = "header.json", "state.eqx", "curve.json"


@contextlib.contextmanager
def replace_folder(place: Path) -> Iterator[Path]:
    """Yield an empty folder to write to, which then takes the place of the old one."""
    part = _beside(place, "part")
    shutil.rmtree(part, ignore_errors=True)  # left by an interrupted save
    with new_folders(place.parent):
        try:
            part.mkdir()
            yield part
            _sync(part)
            _put(part, place)
        except BaseException:  # for example a full disk, which it would keep full
            shutil.rmtree(part, ignore_errors=True)
            raise


def free_folder(path: str | Path, overwrite: bool = True) -> Path:
    """Return where to save; refuse if anything but an older checkpoint is there, or even that."""
    with disk_errors(f"cannot save to {path}"):
        place = as_path(path).resolve()
        if place.exists() and not place.is_dir():
            raise RiskpathError(f"cannot save to {path}: it is a file, and a run is saved as a folder")
        names = {entry.name for entry in place.iterdir()} if place.exists() else set()
    if names and not HEADER in names <= {HEADER, STATE, CURVE}:
        raise RiskpathError(f"cannot save to {path}: it contains other files than a saved run; give a new folder")
    if names and not overwrite:
        raise RiskpathError(
            f"there is a saved run at {path}: continue it with train(load(path)), give another folder, "
            "or replace it with checkpoint=Checkpointer(path, overwrite=True)"
        )
    return place


def find_folder(path: Any) -> Path:
    """Return the folder to load from: the last save, or its backup if the next one was interrupted at its very end."""
    with disk_errors(f"cannot load {path}"):
        place = as_path(path).resolve()
        if place.is_symlink():  # newer Pythons do not refuse a loop of links
            os.stat(place)
        if place.is_file():
            raise RiskpathError(f"{path} is a file; a saved run is a folder")
        for folder in (place, _beside(place, "old"), place / "run"):  # the last one is where the command line saves
            if (folder / HEADER).is_file():
                return folder
        if place.exists():
            raise RiskpathError(f"{path} is not a saved run: it has no {HEADER}")
    raise RiskpathError(f"there is no saved run at {path}")


@contextlib.contextmanager
def synced(path: Path) -> Iterator[Any]:
    """Yield a new file that is flushed to the disk when it is closed."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def digest(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_digest(value: Any) -> str:
    """Return the checksum of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _put(part: Path, place: Path) -> None:
    """Move a complete folder into place; at every moment `find_folder` finds this one or the one before."""
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
    if hasattr(os, "O_DIRECTORY"):  # not available on every platform
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(handle)
        os.close(handle)
