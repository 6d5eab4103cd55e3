"""What training leaves behind while it runs: callbacks for `train(..., callbacks=[…])`.

A callback is any function of the run and a dictionary of numbers, called after every chunk: `step`, `steps_per_second`,
`loss` once learning has begun, `estimate` (what the agents believe an episode to be worth), and, where one was just
made, the `evaluation` that went into the learning curve. Numbers are lists over lanes where lanes differ.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from riskpath.errors import RiskpathError


class JSONLines:
    """One line of JSON for each chunk, appended to a file: a resumed run goes on in it."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
        except OSError as error:
            raise RiskpathError(f"cannot write {path}: {error.strerror}") from None

    def __call__(self, run: Any, numbers: dict[str, Any]) -> None:
        """Appends a line."""
        with self.path.open("a") as file:
            file.write(json.dumps({key: plain(value) for key, value in numbers.items()}) + "\n")


class TensorBoard:
    """Event files for TensorBoard, one curve for each lane; needs the extra `tensorboard`."""

    def __init__(self, folder: str | Path):
        try:
            from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise RiskpathError("TensorBoard files need tensorboardX: pip install tensorboardX") from None
        self.writer = SummaryWriter(str(folder), flush_secs=5)  # its `flush` does not wait for what is queued

    def __call__(self, run: Any, numbers: dict[str, Any]) -> None:
        """Writes every number, those of an evaluation included."""
        for name, one in _scalars({key: value for key, value in numbers.items() if key != "step"}):
            self.writer.add_scalar(name, one, numbers["step"])


def _scalars(numbers: dict[str, Any], inside: str = "") -> Iterator[tuple[str, float]]:
    """Names and numbers, one for each lane; what is not made of numbers is left out."""
    for key, value in numbers.items():
        if isinstance(value, dict):
            yield from _scalars(value, f"{inside}{key}/")
            continue
        try:
            lanes = np.ravel(np.asarray(value, np.float64))
        except (TypeError, ValueError):
            continue
        for lane, one in enumerate(lanes):
            yield f"{inside}{key}" + (f"/lane_{lane}" if len(lanes) > 1 else ""), float(one)


def plain(value: Any) -> Any:
    """As JSON knows it."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return np.asarray(value).tolist() if hasattr(value, "__array__") else value
