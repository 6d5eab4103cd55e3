"""Mean and risk of learned policies for many levels of CVaR, or for many floors, from one training."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from riskpath.evaluation.bootstrap import Interval
from riskpath.mdp.exact.constrained_solver import RiskFrontier
from riskpath.mdp.exact.frontier import Frontier
from riskpath.plot.notebook import html_table
from riskpath.risk.risk_measure import RiskMeasure


@dataclass(frozen=True, eq=False)
class LearnedFrontier:
    """For every CVaR level the mean and the CVaR of each seed's policy."""

    levels: Float[np.ndarray, " E"]
    """The levels η."""
    means: Float[np.ndarray, "E S"]
    """The mean return of every level's policy, for each seed."""
    values: Float[np.ndarray, "E S"]
    """Its CVaR at that level."""
    exact: Frontier | None = None
    """The exact frontier, if the problem is finite."""
    intervals: list[Interval] | None = None
    """The mean CVaR over seeds with its 95 % interval at every level; None where all figures are exact."""

    def rows(self) -> list[dict[str, float]]:
        """Return for every level the medians of CVaR and mean over seeds and, where known, the best CVaR.

        "low" and "high", where figures come from sampled episodes, are the 95 % interval of the mean CVaR over seeds.
        """
        columns = {"level": self.levels, "cvar": np.median(self.values, axis=1), "mean": np.median(self.means, axis=1)}
        columns |= {"lowest seed": self.values.min(axis=1), "highest seed": self.values.max(axis=1)}
        if self.intervals is not None:
            columns |= {"low": np.array([i.low for i in self.intervals])}
            columns |= {"high": np.array([i.high for i in self.intervals])}
        if self.exact is not None:
            columns["best cvar"] = self.exact.values
        return [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)]

    def plot(self, ax: Any = None, *, label: str | None = "learned", **style: Any) -> Any:
        """Draw the median over seeds into matplotlib axes, beside the exact frontier, and return the axes.

        Where episodes were sampled, the mean over seeds is drawn instead, with its 95 % interval.
        """
        from riskpath.plot import plot_frontier  # here, because matplotlib is optional

        if self.exact is not None:
            ax = self.exact.plot(ax, label="exact", color="0.6")
        values, means, ends = np.median(self.values, axis=1), np.median(self.means, axis=1), None
        if self.intervals is not None:
            values = np.array([one.estimate for one in self.intervals])
            ends = [one.low for one in self.intervals], [one.high for one in self.intervals]
        return plot_frontier(self.levels, values, means, ax, ends=ends, label=label, **style)

    def _repr_html_(self) -> str:
        return html_table(repr(self)[1:-1], self.rows())

    def __repr__(self) -> str:
        seeds = self.values.shape[1]
        return f"<LearnedFrontier: {len(self.levels)} levels, {seeds} seed{'s' * (seeds > 1)}>"


@dataclass(frozen=True, eq=False)
class LearnedFloors:
    """For every floor the mean of each seed's policy and the value of the measure that has the floor."""

    risk: RiskMeasure
    """The measure that has the floor."""
    floors: Float[np.ndarray, " E"]
    """The floors."""
    means: Float[np.ndarray, "E S"]
    """The mean return of every floor's policy, for each seed."""
    values: Float[np.ndarray, "E S"]
    """The value of the measure; below the floor where a policy misses it."""
    exact: RiskFrontier | None = None
    """The exact frontier, if the problem is finite and the agent maximises the mean."""

    def rows(self) -> list[dict[str, float]]:
        """Return for every floor the medians over seeds, the lowest value of the measure and the best mean if known."""
        columns = {"floor": self.floors, "mean": np.median(self.means, axis=1)}
        columns |= {str(self.risk): np.median(self.values, axis=1), "lowest seed": self.values.min(axis=1)}
        if self.exact is not None:
            columns["best mean"] = self.exact.means
        return [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)]

    def plot(self, ax: Any = None, *, label: str | None = "learned", **style: Any) -> Any:
        """Draw the median over seeds into matplotlib axes, beside the exact frontier, and return the axes."""
        from riskpath.plot import plot_floors  # here, because matplotlib is optional

        if self.exact is not None:
            ax = self.exact.plot(ax, label="exact", color="0.6")
        values, means = np.median(self.values, axis=1), np.median(self.means, axis=1)
        return plot_floors(values, means, str(self.risk), ax, label=label, **style)

    def _repr_html_(self) -> str:
        return html_table(repr(self)[1:-1], self.rows())

    def __repr__(self) -> str:
        return f"<LearnedFloors: {len(self.floors)} floors under {self.risk}, {self.values.shape[1]} seeds>"
