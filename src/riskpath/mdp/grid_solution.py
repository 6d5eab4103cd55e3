"""The results of the grid solver: a value between a simulated lower bound and an upper one, the policy and its law."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from riskpath.mdp.grid_memory import in_units
from riskpath.mdp.grid_policy import GridPolicy
from riskpath.mdp.grid_problem import GridProblem
from riskpath.risk.law import Law
from riskpath.risk.measures import CVaR, RiskMeasure

ATOMS = 4096
"""The number of atoms of the law of simulated returns, about."""


@dataclass(frozen=True, eq=False)
class Simulated:
    """The risk of simulated returns, with the interval of the central limit theorem."""

    value: float
    """β of the sample."""
    interval: tuple[float, float]
    """A 95% interval."""
    law: Law
    """The law of the returns, thinned."""
    episodes: int
    """The number of episodes."""


def measured(returns: Float[np.ndarray, " n"], risk: RiskMeasure) -> Simulated:
    """Return β of a sample; its standard error is that of the mean of u(Z) = ∫ h′(F), the influence function."""
    z = np.sort(returns)
    value = float(risk.value(z))
    spread = float(np.std(influence(z, risk)))
    error = float(1.96 * spread / np.sqrt(len(z)))
    return Simulated(value, (value - error, value + error), thinned(z), len(z))


def influence(z: Float[np.ndarray, " n"], risk: RiskMeasure) -> Float[np.ndarray, " n"]:
    """Return u(z) = ∫^z h′(F(x)) dx at every point of a sorted sample."""
    cdf = np.arange(1, len(z) + 1) / len(z)
    width = min(0.25, 2 / np.sqrt(len(z)))
    low, high = np.clip(cdf - width, 0.0, 1.0), np.clip(cdf + width, 0.0, 1.0)
    slope = (np.asarray(risk.weight(high)) - np.asarray(risk.weight(low))) / (high - low)
    return np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(z))])


def thinned(z: Float[np.ndarray, " n"]) -> Law:
    """Return the law of a sorted sample with about `ATOMS` atoms, the means of equal shares of it."""
    if len(z) <= ATOMS:
        return Law.of_sample(z)
    parts = np.array_split(z, ATOMS)
    return Law([part.mean() for part in parts], [len(part) / len(z) for part in parts])


@dataclass(frozen=True, eq=False)
class GridSolution:
    """The result of `riskpath.solve_grid`."""

    problem: GridProblem = field(repr=False)
    """The problem with its grid."""
    risk: RiskMeasure
    """β."""
    policies: str
    """The class of policies."""
    value: float
    """The value on the grid; the simulated value where the recursion has none (per-step greedy, utility iteration)."""
    lower: float
    """β of simulated returns of `policy` in the continuous problem: what the policy is worth."""
    interval: tuple[float, float]
    """A 95% interval of `lower`."""
    upper: float | None
    """An upper bound or an estimate of the optimum of this class; None if there is none. An estimate is at least
    `lower`."""
    upper_kind: str
    """How `upper` was found: "exact grid", "consistent rounding", "extrapolated estimate" or "none"."""
    law: Law
    """The law of the simulated returns, thinned."""
    policy: GridPolicy = field(repr=False)
    """The policy."""
    report: str
    """How the solver ended, in one line."""
    cells: int = 0
    """The number of cells of the grid."""
    memory_bytes: int = 0
    """The memory of the tables."""
    episodes: int = 0
    """The number of simulated episodes."""
    details: dict[str, Any] = field(default_factory=dict, repr=False)
    """Further numbers of one solver, such as `coarse_value`."""

    @property
    def optimal(self) -> bool:
        """Whether the policy is proven optimal: the grid is exact, so that value and optimum are equal."""
        return self.upper_kind == "exact grid"

    @property
    def goal(self) -> float:
        """The threshold b of the policy: returns below it count."""
        return self.policy.goal

    @property
    def bracket(self) -> float | None:
        """`upper` minus the lower end of `interval`, or None without an upper bound."""
        return None if self.upper is None else self.upper - self.interval[0]

    def describe(self) -> str:
        """Return the value, its bounds and the law of the return as a few lines of text."""
        low, high = self.interval
        lines = [f"{self.risk} of the whole return, {self.policies} policies: {self.value:.6g} ({self.report})"]
        lines += [f"  lower: {self.lower:.6g}, simulated in {self.episodes:,} episodes, 95% in [{low:.6g}, {high:.6g}]"]
        if self.upper is not None:
            lines += [f"  upper: {self.upper:.6g}, {self.upper_kind}"]
        size = f"{self.cells:,} cells × {self.problem.steps} steps × {len(self.problem.actions)} actions"
        lines += [f"  grid: {size}, {in_units(self.memory_bytes)}"]
        levels = ", ".join(f"{100 * q:g}%: {self.law.quantile(q):.4g}" for q in (0.05, 0.25, 0.5, 0.75, 0.95))
        return "\n".join([*lines, f"  return: mean {self.law.mean:.6g}, std {self.law.std:.4g}, quantiles {levels}"])

    def plot(self, ax: Any = None, *, kind: str = "cdf", label: str | None = None, **style: Any) -> Any:
        """Draw the law of the return into matplotlib axes and return the axes, as `Law.plot` does."""
        return self.law.plot(ax, kind=kind, label=label, **style)

    def to_json(self) -> dict[str, Any]:
        """Return the solution as data for JSON."""
        return {
            "problem": self.problem.name,
            "risk": str(self.risk),
            "policies": self.policies,
            "value": self.value,
            "lower": self.lower,
            "interval": list(self.interval),
            "upper": self.upper,
            "upper_kind": self.upper_kind,
            "report": self.report,
            "goal": self.goal,
            "mean": self.law.mean,
            "cells": self.cells,
            "memory_bytes": self.memory_bytes,
            "episodes": self.episodes,
            "law": {"atoms": self.law.atoms.tolist(), "probs": self.law.probs.tolist()},
            **{key: value for key, value in self.details.items() if isinstance(value, (int, float, str))},
        }


@dataclass(frozen=True, eq=False)
class FrontierPoint:
    """The best policy for one CVaR level; it is simulated when its law is first asked for."""

    level: float
    """η."""
    value: float
    """CVaR_η of the best adaptive policy on the grid."""
    policy: GridPolicy = field(repr=False)
    """The policy."""
    episodes: int = 200_000
    """The number of episodes that are simulated."""

    @property
    def goal(self) -> float:
        """The threshold b of the policy."""
        return self.policy.goal

    @cached_property
    def simulated(self) -> Simulated:
        """CVaR_η of simulated returns, with an interval and the law."""
        return measured(self.policy.simulate(self.episodes, 1), CVaR(self.level))

    @property
    def law(self) -> Law:
        """The law of simulated returns, thinned."""
        return self.simulated.law

    @property
    def mean(self) -> float:
        """The mean of simulated returns."""
        return self.law.mean


@dataclass(frozen=True, eq=False)
class GridFrontier:
    """The best adaptive policies for many CVaR levels, all from one backward pass."""

    problem: GridProblem = field(repr=False)
    """The problem with its grid."""
    points: tuple[FrontierPoint, ...]
    """One point for each level, ascending."""

    def describe(self) -> str:
        """Return a table: level, CVaR on the grid and simulated, mean, goal."""
        lines = [" level       CVaR  simulated       mean       goal"]
        for point in self.points:
            numbers = (point.value, point.simulated.value, point.mean, point.goal)
            lines.append(f"{point.level:6.3g} " + " ".join(f"{number:10.4g}" for number in numbers))
        return "\n".join(lines)

    def plot(self, ax: Any = None, *, label: str | None = None, **style: Any) -> Any:
        """Draw the mean against CVaR of every level into matplotlib axes and return the axes."""
        from riskpath.plot.style import as_axes, finish, pick_colours

        ax = as_axes(ax)
        colour = style.pop("color", None) or pick_colours(ax, [label])[0]
        x, y = [point.value for point in self.points], [point.mean for point in self.points]
        ax.plot(x, y, color=colour, label=label, **{"marker": "o", "markersize": 4, **style})
        for point in self.points:
            ax.annotate(
                f"{point.level:g}", (point.value, point.mean), fontsize=7, xytext=(4, -8), textcoords="offset points"
            )
        return finish(ax, "CVaR at the level beside the point", "mean")

    def to_json(self) -> dict[str, Any]:
        """Return the frontier as data for JSON."""
        rows = [
            {
                "level": point.level,
                "value": point.value,
                "simulated": point.simulated.value,
                "interval": list(point.simulated.interval),
                "mean": point.mean,
                "goal": point.goal,
            }
            for point in self.points
        ]
        return {"problem": self.problem.name, "cells": self.problem.cells, "points": rows}
