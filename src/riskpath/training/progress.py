"""The progress bar of training, and a spinner for other work: quiet where nobody watches."""

import contextlib
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class TrainingBar:
    """Steps, speed, and for each setting what the agents believe they are worth (the median over seeds)."""

    def __init__(self, goal: int):
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
        console = Console(stderr=True)
        self.bar = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)
        self.bar.start()
        self.task = self.bar.add_task("training", total=goal, note="compiling")

    def __call__(self, run: Any, metrics: dict[str, Any]) -> None:
        """After every chunk."""
        if self.bar.disable:
            return
        note = f"{run.steps:,} random steps; compiling"  # the first chunk that learns comes next, and takes a while
        if "loss" in metrics:
            note = f"{run.steps:,} steps, {metrics['steps_per_second']:,.0f} steps/s"
            note += f", estimates {', '.join(f'{np.median(row):.4g}' for row in run.estimates())}"
        self.bar.update(self.task, completed=run.steps, note=note)

    def close(self) -> None:
        """Leaves the terminal as it was."""
        self.bar.stop()


def working(what: str) -> Any:
    """A spinner on a terminal, nothing elsewhere."""
    console = Console(stderr=True)
    return console.status(what) if console.is_terminal else contextlib.nullcontext()
