"""The result of a sweep: one row for every lane, as a table, as CSV, and summarised over seeds."""

import csv
import importlib
import io
import math
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from riskpath.errors import RiskpathError, did_you_mean
from riskpath.files import write_file
from riskpath.sweeps.axes import label
from riskpath.sweeps.store import SweepFolder
from riskpath.sweeps.sweep_plan import SweepPlan

COLUMNS = ("seed", "value", "low", "high", "mean", "estimate", "episodes", "steps", "seconds")
"""What is known of a lane besides its settings."""


@dataclass(frozen=True)
class Sweep:
    """The trained lanes of a sweep."""

    axes: list[str]
    """The fields that were varied."""
    lanes: list[dict[str, Any]] = field(repr=False)
    """The record of every finished lane; its learning curve under "curve", a list of [step, value]."""
    failed: dict[str, str] = field(default_factory=dict)
    """Cells that failed, and the error."""
    missing: int = 0
    """Lanes that have not been trained, because they failed or the sweep was interrupted."""

    def __repr__(self) -> str:
        left = f", {self.missing} missing" if self.missing else ""
        return f"<Sweep over {', '.join(self.axes)}: {len(self.lanes)} lanes{left}>"

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary for each lane: its settings, its seed, and what was measured.

        "value" is the agent's measure of the return of the greedy policy, with the ends of its 95 % interval: exact,
        with "episodes" None, or sampled. "mean" is the mean of the same return, "estimate" what the agent itself
        expects (discounted), "seconds" the time of the cell in which the lane was trained.
        """
        names = ("combination", *self.axes, *COLUMNS)
        return [{name: lane[name] for name in names} for lane in self.lanes]

    def table(self) -> Any:
        """Return the rows as a pandas DataFrame, or as a list of dictionaries if pandas is not installed."""
        if find_spec("pandas") is None:
            return self.rows()
        pandas = importlib.import_module("pandas")
        return pandas.DataFrame(self.rows(), columns=["combination", *self.axes, *COLUMNS])

    def to_csv(self, path: str | Path) -> Path:
        """Write the rows to a file, and return its path."""
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, ["combination", *self.axes, *COLUMNS])
        writer.writeheader()
        writer.writerows(self.rows())
        return write_file(path, out.getvalue())

    def summary(self, by: str = "value") -> list[dict[str, Any]]:
        """Return one dictionary for each combination: its settings, and a column's mean, least and most over seeds."""
        numbers = [name for name in COLUMNS if name not in ("seed", "episodes")]
        if by not in numbers:
            raise RiskpathError(f"unknown column {by!r}{did_you_mean(by, numbers)}; there are {', '.join(numbers)}")
        found: dict[int, list[dict[str, Any]]] = {}
        for lane in self.lanes:
            found.setdefault(lane["combination"], []).append(lane)
        return [
            {
                "combination": number,
                **{axis: lanes[0][axis] for axis in self.axes},
                "seeds": len(lanes),
                by: float(np.mean([lane[by] for lane in lanes])),
                "least": min(lane[by] for lane in lanes),
                "most": max(lane[by] for lane in lanes),
            }
            for number, lanes in sorted(found.items())
        ]

    def best(self, by: str = "value", at: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the entry of `summary` with the highest mean over seeds.

        Args:
            by: The column that is compared.
            at: Values of some axes, to which the comparison is restricted. Measures and environments are not compared
                with each other: if the sweep has several, say which.
        """
        at, rows = at or {}, self.summary(by)
        for axis in at:
            if axis not in self.axes:
                raise RiskpathError(f"unknown axis {axis!r}{did_you_mean(axis, self.axes)}; there are {self.axes}")
        for axis in self.incomparable:
            if axis not in at and len({str(row[axis]) for row in rows}) > 1:
                raise RiskpathError(
                    f"values of different {axis} cannot be compared: give at={{{axis!r}: …}}, or look at summary()"
                )
        wanted = {axis: {str(value), str(label(value))} for axis, value in at.items()}  # as users or tables write it
        found = [row for row in rows if all(str(row[axis]) in texts for axis, texts in wanted.items())]
        if rows and not found:
            there = "; ".join(f"{axis}: {', '.join(dict.fromkeys(str(row[axis]) for row in rows))}" for axis in at)
            raise RiskpathError(f"no finished lane has {at}; there are {there}")
        found = [row for row in found if not math.isnan(row[by])]
        if not found:
            raise RiskpathError("this sweep has no finished lanes")
        return max(found, key=lambda row: row[by])

    @property
    def incomparable(self) -> list[str]:
        """The axes whose values cannot be compared with each other: those of the measure and the environment."""
        return [axis for axis in self.axes if axis.partition(".")[0] in ("risk", "env")]


def load_sweep(folder: str | Path) -> Sweep:
    """Return the finished part of the sweep in a folder."""
    store = SweepFolder(folder)
    stored = store.configuration()
    try:
        axes = list(stored["over"])
        total = stored["seeds"] * math.prod(len(values) for values in stored["over"].values())
    except (LookupError, TypeError, AttributeError):
        raise RiskpathError(f"{store.path} has a damaged configuration") from None
    lanes = store.lanes()
    return Sweep(axes, [lanes[lane] for lane in sorted(lanes)], store.failed(), total - len(lanes))


def stored_plan(folder: str | Path) -> SweepPlan:
    """Return the sweep that a folder holds, to continue it."""
    return SweepPlan.from_configuration(SweepFolder(folder).configuration())
