"""Callbacks for `train(..., callbacks=[…])` that log training while it runs.

A callback is a function of the run and a dictionary of numbers. It is called after every chunk with `step`,
`steps_per_second`, `loss` once learning has started, `estimate` (the value that each agent predicts for an episode)
and, if an evaluation was just made, the `evaluation` that became a point of the learning curve. Numbers that differ
between lanes are lists over lanes.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from riskpath.errors import RiskpathError
from riskpath.extras import require_extra


class JSONLines:
    """Appends one line of JSON to a file after each chunk."""

    def __init__(self, path: str | Path, resume_at: int | None = None):
        """Open the file.

        Args:
            path: The file; lines that it has already are kept.
            resume_at: The step at which a run is continued. Lines of later steps are dropped: the run had written them
                after its last checkpoint, and writes them again.
        """
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
            if resume_at is not None:
                self._drop_after(resume_at)
        except OSError as error:
            raise RiskpathError(f"cannot write {path}: {error.strerror}") from None

    def __call__(self, run: Any, numbers: dict[str, Any]) -> None:
        """Append a line."""
        with self.path.open("a") as file:
            file.write(json.dumps({key: plain(value) for key, value in numbers.items()}) + "\n")

    def _drop_after(self, step: int) -> None:
        """Replace the file by its lines up to a step; an interruption leaves the old file or the new one."""
        lines = self.path.read_text(errors="replace").splitlines(keepends=True)
        kept = [line for line in lines if _is_up_to(line, step)]
        if kept != lines:
            draft = self.path.with_name(f".{self.path.name}.part")
            with draft.open("w") as file:
                file.writelines(kept)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self.path)


def _is_up_to(line: str, step: int) -> bool:
    """Tell whether a line is complete and not of a later step; a killed run may leave half a line."""
    try:
        return line.endswith("\n") and json.loads(line)["step"] <= step
    except (ValueError, KeyError, TypeError):
        return False


class TensorBoard:
    """Writes event files for TensorBoard, one curve for each lane; needs the package tensorboardX."""

    def __init__(self, folder: str | Path, resume_at: int | None = None):
        """Open the folder.

        Args:
            folder: Where the event files go.
            resume_at: The step at which a run is continued; TensorBoard hides events of later steps.
        """
        SummaryWriter = require_extra("tensorboardX", "tensorboard", "TensorBoard").SummaryWriter
        purge_step = None if resume_at is None else resume_at + 1
        # Its `flush` does not wait for queued events, so they are written every few seconds.
        self.writer = SummaryWriter(str(folder), flush_secs=5, purge_step=purge_step)

    def __call__(self, run: Any, numbers: dict[str, Any]) -> None:
        """Write every number, including those of an evaluation."""
        for name, one in scalars({key: value for key, value in numbers.items() if key != "step"}):
            self.writer.add_scalar(name, one, numbers["step"])


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


def plain(value: Any) -> Any:
    """Return a value with arrays as lists, for JSON."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return np.asarray(value).tolist() if hasattr(value, "__array__") else value
