"""A sweep on disk: `sweep.json` says what it is, `cells/` holds a file for every finished cell.

Every file is written completely or not at all. A file has a checksum; a damaged one, a folder of another sweep and a
folder with other files are refused in one line, and nothing in them is changed.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from riskpath.errors import RiskpathError
from riskpath.files import as_path, disk_errors, read_json, write_json
from riskpath.training.atomic_dir import json_digest

MANIFEST, CELLS, FAILED, TABLE = "sweep.json", "cells", "failed.json", "sweep.csv"
FORMAT = "riskpath sweep 1"
Lane = tuple[int, int]
"""The number of a combination, and the number of a seed."""


def difference(before: Any, now: Any, name: str = "") -> str:
    """Return the first difference between two configurations in words; "" if there is none."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**before, **now}:  # a key with a dollar names the kind of a value, not a field
            if found := difference(before.get(key), now.get(key), name if key.startswith("$") else key):
                return found
        return ""
    if isinstance(before, list) and isinstance(now, list):
        if len(before) != len(now):
            return f"{name} with {len(before)} entries, not {len(now)}"
        return next((found for pair in zip(before, now, strict=True) if (found := difference(*pair, name))), "")
    return "" if before == now else f"{name} {before!r}, not {now!r}"


class SweepFolder:
    """The folder of a sweep."""

    def __init__(self, path: str | Path):
        self.path = as_path(path)

    def begin(self, configuration: dict[str, Any], width: Callable[[], int]) -> int:
        """Write the configuration to a new folder; in one with the same configuration, a sweep continues.

        Return the number of lanes that each device trains at a time: the one stored when the sweep began, or `width()`.
        """
        now = json.loads(json.dumps(configuration))
        with disk_errors(f"cannot use {self.path}"):
            if (self.path / MANIFEST).exists():
                if found := difference(self.configuration(), now):
                    raise RiskpathError(f"{self.path} holds another sweep ({found}): give another folder")
                return self._manifest()["width"]
            if self.path.exists() and not self.path.is_dir():
                raise RiskpathError(f"{self.path} is a file; a sweep is kept in a folder")
            if self.path.exists() and any(entry.suffix != ".part" for entry in self.path.iterdir()):
                raise RiskpathError(f"{self.path} contains other files than a sweep; give a new folder")
        lanes = width()
        write_json(self.path / MANIFEST, {"format": FORMAT, "width": lanes, "configuration": now})
        return lanes

    def configuration(self) -> dict[str, Any]:
        """Return the configuration of the sweep."""
        return self._manifest()["configuration"]

    def _manifest(self) -> dict[str, Any]:
        file = self.path / MANIFEST
        with disk_errors(f"cannot read {self.path}"):
            if not file.is_file():
                raise RiskpathError(f"there is no sweep in {self.path}: it has no {MANIFEST}")
        content = read_json(file, "is damaged: give another folder")
        kinds = {"configuration": dict, "width": int}
        if content.get("format") != FORMAT or not all(isinstance(content.get(k), kinds[k]) for k in kinds):
            raise RiskpathError(f"{file} is not that of a sweep")
        return content

    def lanes(self) -> dict[Lane, dict[str, Any]]:
        """Return the record of every finished lane."""
        found: dict[Lane, dict[str, Any]] = {}
        for file in sorted((self.path / CELLS).glob("*.json")):
            content = read_json(file, "is damaged: remove it to train its lanes again")
            if content.get("digest") != json_digest(content.get("lanes")):
                raise RiskpathError(f"{file} is damaged: remove it to train its lanes again")
            for lane in content["lanes"]:
                found.setdefault((lane["combination"], lane["seed"]), lane)
        return found

    def add(self, name: str, content: dict[str, Any]) -> None:
        write_json(self.path / CELLS / f"{name}.json", {**content, "digest": json_digest(content["lanes"])})

    def failed(self) -> dict[str, str]:
        """Return the cells that failed when the sweep was last run, and why."""
        file = self.path / FAILED
        return read_json(file, "is damaged: remove it") if file.exists() else {}

    def set_failed(self, failed: dict[str, str]) -> None:
        """Store which cells failed."""
        if failed or (self.path / FAILED).exists():
            write_json(self.path / FAILED, failed)
