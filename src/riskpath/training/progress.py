"""Progress on a terminal: a bar for training and for counted work, and a spinner for other work.

All are written to stderr by rich, and only if rich is installed and stderr is a terminal. Work that is done inside of
other work, such as an evaluation during training, is a note on the bar that is shown.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from riskpath.training.run_state import RunState

MOST_ROWS = 8
"""The largest number of rows: more lanes are shown as one row for each setting."""
_SHOWN: list[Any] = []
"""The bars that are shown now, the outermost first."""


class Pace:
    """Estimates the remaining time from the work since `begin`, which is called after compilation."""

    def __init__(self, goal: int, done: int = 0):
        self._goal = goal
        self.begin(done)

    def begin(self, done: int) -> None:
        """Count from now on."""
        self._done, self._at = done, time.monotonic()

    def left(self, done: int) -> float | None:
        """Return the remaining seconds; None if nothing was done since `begin`."""
        speed = self.speed(done)
        return None if speed is None else max(0, self._goal - done) / speed

    def speed(self, done: int) -> float | None:
        """Return the work per second; None if nothing was done since `begin`."""
        return None if done <= self._done else (done - self._done) / max(1e-9, time.monotonic() - self._at)


class TrainingBar:
    """Shows steps, speed, the time left and, for each lane, the latest training episodes."""

    def __init__(self, goal: int, start: int = 0):
        self.bar = make_bar("training", goal)
        if self.bar:
            self.bar.update(start, "compiling")

    def __call__(self, run: RunState, record: dict[str, Any]) -> None:
        """Update the bar after a chunk."""
        if self.bar is None:
            return
        if "loss" not in record:  # the next chunk is the first that learns, and is compiled
            self.bar.update(run.steps, f"{run.steps:,} random steps; compiling")
            return
        speed = f", {record['steps_per_second']:,.0f} steps/s" if "seconds_left" in record else ""
        note = f"{run.steps:,} steps{speed}"
        self.bar.update(run.steps, note, record.get("seconds_left"), episode_rows(run, record))

    def advance(self, steps: int, left: float | None) -> None:
        """Show the steps within a chunk."""
        if self.bar:
            self.bar.update(steps, f"{steps:,} steps", left)

    def close(self) -> None:
        if self.bar:
            self.bar.close()


def episode_rows(run: RunState, record: dict[str, Any]) -> list[list[str]]:
    """Return a table of the latest training episodes, its headings first: a row for each lane, or for each setting."""
    if "ep_rew_mean" not in record:
        return []
    risks, seeds = [str(agent.risk) for agent in run.agents], run.seeds
    discounted = "discounted " if any(float(agent.discount) != 1 for agent in run.agents) else ""
    measure = discounted + (risks[0] if len(set(risks)) == 1 else "measure")
    columns = {"return": "ep_rew_mean", measure: "ep_rew_risk", "length": "ep_len_mean", "own estimate": "estimate"}
    figures = {name: np.reshape(record[key], (-1, seeds)) for name, key in columns.items() if key in record}
    alone = len(risks) == 1
    names = ["" if alone else risk if len(set(risks)) == len(risks) else f"setting {i}" for i, risk in enumerate(risks)]
    rows = [["last 100 episodes", *figures]]
    if len(risks) * seeds <= MOST_ROWS:
        for setting, name in enumerate(names):
            for seed in range(seeds):
                label = ", ".join(part for part in (name, f"seed {run.first_seed + seed}") if part)
                rows.append([label, *(f"{values[setting, seed]:.4g}" for values in figures.values())])
        return rows
    for setting, name in enumerate(names[:MOST_ROWS]):
        spans = (f"{values[setting].min():.4g} to {values[setting].max():.4g}" for values in figures.values())
        rows.append([name or f"{seeds} seeds", *spans])
    more = len(names) - MOST_ROWS
    return [*rows, [f"and {more} more settings"]] if more > 0 else rows


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Show a spinner on a terminal while work is done, or a note on the bar that is shown."""
    if _SHOWN:
        _SHOWN[-1].aside(what)
        yield
        return
    console = _terminal()
    with contextlib.nullcontext() if console is None else console.status(what):
        yield


@contextlib.contextmanager
def counting(what: str, unit: str = "steps") -> Iterator[Callable[[int, int], None]]:
    """Return a context with a function `progress(done, total)` that shows a bar on a terminal."""
    bar, total_of_bar, pace, drawn = None, 0, Pace(0), -1.0
    outer = _SHOWN[-1] if _SHOWN else None

    def progress(done: int, total: int) -> None:
        nonlocal bar, total_of_bar, pace, drawn
        note, now = f"{done:,} of {total:,} {unit}", time.monotonic()
        if total == total_of_bar and done < total and now - drawn < 0.1:  # to draw takes longer than a step
            return
        drawn = now
        if outer is not None:
            outer.aside(f"{what}: {note}")
            return
        if total != total_of_bar:
            if bar is not None:
                bar.close()
            bar, total_of_bar, pace = make_bar(what, total, transient=True), total, Pace(total)
        if bar is not None:
            bar.update(done, note, pace.left(done))

    try:
        yield progress
    finally:
        if bar is not None:
            bar.close()


def make_bar(what: str, goal: int, transient: bool = False) -> Any:
    """Return a bar, or None if it cannot be shown; a transient one disappears when it is closed."""
    console = _terminal()
    return None if console is None else _Bar(what, goal, console, transient)


def _terminal() -> Any:
    """Return the console of rich for stderr; None if that is not a terminal, or without rich."""
    if find_spec("rich") is None:
        return None
    from rich.console import Console

    console = Console(stderr=True)
    return console if console.is_terminal else None


class _Bar:
    """A bar with the time left, which counts down, and rows of figures below it."""

    def __init__(self, what: str, goal: int, console: Any, transient: bool):
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.percentage:.0f}%"))
        self._progress = Progress(*columns, TextColumn("{task.fields[note]}", markup=False), console=console)
        self._task = self._progress.add_task(what, total=goal, note="")
        self._note, self._ends, self._rows = "", None, list[list[str]]()
        self._live = Live(console=console, get_renderable=self._picture, refresh_per_second=4, transient=transient)
        self._live.start()
        _SHOWN.append(self)

    def update(self, done: int, note: str, left: float | None = None, rows: Sequence[Sequence[str]] = ()) -> None:
        """Show progress, a note, the remaining time, and rows of figures."""
        self._ends = None if left is None else time.monotonic() + left
        self._note, self._rows = note, [*map(list, rows)] or self._rows
        self._progress.update(self._task, completed=done)
        self._live.refresh()

    def aside(self, note: str) -> None:
        """Show what is done in between, until the next update."""
        self._note, self._ends = note, None

    def close(self) -> None:
        self._live.stop()
        _SHOWN.remove(self)

    def _picture(self) -> Any:
        from rich.console import Group
        from rich.padding import Padding
        from rich.table import Table

        left = "" if self._ends is None else f", {duration(max(0.0, self._ends - time.monotonic()))} left"
        self._progress.update(self._task, note=self._note + left)
        if not self._rows:
            return self._progress
        table = Table.grid(padding=(0, 3, 0, 0))
        for column, _ in enumerate(self._rows[0]):
            table.add_column(justify="right" if column else "left", no_wrap=True)
        for place, row in enumerate(self._rows):
            table.add_row(*row, style="dim" if place == 0 else "")
        return Group(self._progress, Padding(table, (0, 0, 0, 2)))


def duration(seconds: float) -> str:
    """Return a time in words: seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3600:.1f} h"
