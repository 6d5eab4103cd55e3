"""Progress on a terminal: a bar for training, and a spinner for other work.

Both are written to stderr, and only if it is a terminal. They use rich; without it, progress is one line of plain text.
"""

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np


class TrainingBar:
    """Shows steps, speed and, for each setting, the value that the agents predict (the median over seeds)."""

    def __init__(self, goal: int):
        self.bar = make_bar("training", goal)
        if self.bar:
            self.bar.update(0, "compiling")

    def __call__(self, run: Any, metrics: dict[str, Any]) -> None:
        """Update the bar after a chunk."""
        if self.bar is None:
            return
        note = f"{run.steps:,} random steps; compiling"  # the next chunk is the first that learns, and is compiled
        if "loss" in metrics:
            note = f"{run.steps:,} steps, {metrics['steps_per_second']:,.0f} steps/s"
            note += f", estimates {', '.join(f'{np.median(row):.4g}' for row in run.estimates())}"
        self.bar.update(run.steps, note)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self.bar:
            self.bar.close()


def working(what: str) -> contextlib.AbstractContextManager[Any]:
    """Return a context that shows a spinner on a terminal while work is done."""
    if find_spec("rich") is None:
        return _plain_spinner(what) if sys.stderr.isatty() else contextlib.nullcontext()
    from rich.console import Console

    console = Console(stderr=True)
    return console.status(what) if console.is_terminal else contextlib.nullcontext()


@contextlib.contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """Return a context with a function `progress(done, total)` that shows a bar on a terminal."""
    bar, total_of_bar = None, 0

    def progress(done: int, total: int) -> None:
        nonlocal bar, total_of_bar
        if bar is None or total != total_of_bar:
            if bar is not None:
                bar.close()
            bar, total_of_bar = make_bar(what, total), total
        if bar is not None:
            bar.update(done, f"{done} of {total} steps")

    try:
        yield progress
    finally:
        if bar is not None:
            bar.close()


def make_bar(what: str, goal: int) -> Any:
    """Return a bar, or None if stderr is not a terminal."""
    if find_spec("rich") is None:
        return _PlainBar(what, goal) if sys.stderr.isatty() else None
    from rich.console import Console

    console = Console(stderr=True)
    return _RichBar(what, goal, console) if console.is_terminal else None


class _RichBar:
    """A bar with the remaining time."""

    def __init__(self, what: str, goal: int, console: Any):
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
        self._progress = Progress(*columns, TimeRemainingColumn(), console=console)
        self._progress.start()
        self._task = self._progress.add_task(what, total=goal, note="")

    def update(self, completed: int, note: str) -> None:
        """Show how much is done, and a note."""
        self._progress.update(self._task, completed=completed, note=note)

    def close(self) -> None:
        """Stop drawing."""
        self._progress.stop()


class _PlainBar:
    """One line of text that is written over itself."""

    def __init__(self, what: str, goal: int):
        self._what, self._goal = what, goal

    def update(self, completed: int, note: str) -> None:
        """Show how much is done, and a note."""
        _overwrite(f"{self._what} {min(1.0, completed / max(1, self._goal)):4.0%}  {note}")

    def close(self) -> None:
        """End the line."""
        print(file=sys.stderr, flush=True)


@contextlib.contextmanager
def _plain_spinner(what: str) -> Iterator[None]:
    """Show a line of text while work is done, and remove it afterwards."""
    _overwrite(f"{what} …")
    try:
        yield
    finally:
        _overwrite("")


def _overwrite(text: str) -> None:
    """Replace the current line of the terminal; a longer text is cut off, because two lines cannot be replaced."""
    width = max(1, shutil.get_terminal_size().columns - 1)
    print(f"\r{text[:width]:{width}}\r{text[:width]}", end="", file=sys.stderr, flush=True)
