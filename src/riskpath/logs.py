"""What training leaves behind while it runs: callbacks for `train(..., callbacks=[…])`.

A callback is any function of the run and a dictionary of numbers, called after every chunk: `step`, `steps_per_second`,
`loss` once learning has begun, `estimate` (what the agents believe an episode to be worth), and, where one was just
made, the `evaluation` that went into the learning curve. Numbers are lists over lanes where lanes differ.
"""

import json
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
            raise RiskpathError("TensorBoard files need tensorboardX: pip install riskpath[tensorboard]") from None
        self.writer = SummaryWriter(str(folder))

    def __call__(self, run: Any, numbers: dict[str, Any]) -> None:
        """Writes every number."""
        for key, value in numbers.items():
            values = np.ravel(plain(value)) if key != "step" and not isinstance(value, dict) else []
            for lane, one in enumerate(values):
                self.writer.add_scalar(key if len(values) == 1 else f"{key}/lane {lane}", float(one), numbers["step"])
        self.writer.flush()


def plain(value: Any) -> Any:
    """As JSON knows it."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return np.asarray(value).tolist() if hasattr(value, "__array__") else value
