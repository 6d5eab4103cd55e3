"""Callbacks for `train(..., callbacks=[…])` that log training while it runs.

A callback is a function of the run and a dictionary of numbers. It is called after every chunk with `step`,
`steps_per_second`, `loss` once learning has started, `estimate` (the value that each agent predicts for an episode)
and, if an evaluation was just made, the `evaluation` that became a point of the learning curve. Numbers that differ
between lanes are lists over lanes.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from riskpath.files import as_path, disk_errors, write_file
from riskpath.hyperparameters import plain
from riskpath.training.run import Run


class JSONLines:
    """Appends one line of JSON to a file after each chunk."""

    def __init__(self, path: str | Path, resume_at: int | None = None):
        """Open the file.

        Args:
            path: The file; lines that it has already are kept.
            resume_at: The step at which a run is continued. Lines of later steps are dropped: the run had written them
                after its last checkpoint, and writes them again.
        """
        self.path = as_path(path)
        with disk_errors(f"cannot write {path}"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
            if resume_at is not None:
                self._drop_after(resume_at)

    def __call__(self, run: Run | None, numbers: dict[str, Any]) -> None:
        """Append a line."""
        with disk_errors(f"cannot write {self.path}"), self.path.open("a") as file:
            file.write(json.dumps(plain(numbers)) + "\n")

    def _drop_after(self, step: int) -> None:
        """Replace the file by its lines up to a step; an interruption leaves the old file or the new one."""
        lines = self.path.read_text(errors="replace").splitlines(keepends=True)
        kept = [line for line in lines if _is_up_to(line, step)]
        if kept != lines:
            write_file(self.path, "".join(kept))


def _is_up_to(line: str, step: int) -> bool:
    """Tell whether a line is complete and not of a later step; a killed run may leave half a line."""
    try:
        return line.endswith("\n") and json.loads(line)["step"] <= step
    except (ValueError, KeyError, TypeError):
        return False


def scalars(numbers: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield names and numbers, one for each lane; values that are not numbers are left out."""
    for key, value in numbers.items():
        if isinstance(value, dict):
            yield from scalars(value, f"{prefix}{key}/")
            continue
        try:
            lanes = np.ravel(np.asarray(value, np.float64))
        except (TypeError, ValueError):
            continue
        for lane, one in enumerate(lanes):
            yield f"{prefix}{key}" + (f"/lane_{lane}" if len(lanes) > 1 else ""), float(one)
