"""The results of the grid solver: a value between a simulated lower and an upper bound, a policy, its distribution."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from riskpath.mdp.grid.market_policy import MarketPolicy
from riskpath.mdp.grid.policy import GridPolicy
from riskpath.mdp.grid.problem import GridProblem
from riskpath.mdp.law import Law
from riskpath.memory import in_units
from riskpath.plot.notebook import html_lines
from riskpath.risk.compose import as_distortion
from riskpath.risk.measures import RiskMeasure

ATOMS = 4096
"""The approximate number of atoms of the distribution of simulated returns."""


def measured(returns: Float[np.ndarray, " n"], risk: RiskMeasure) -> tuple[float, tuple[float, float]]:
    """Return β of a sample and a 95% interval; the standard error is that of the mean of the influence function."""
    z = np.sort(returns)
    value = float(risk.value(z))
    error = float(1.96 * np.std(influence(z, risk)) / np.sqrt(len(z)))
    return value, (value - error, value + error)


def influence(z: Float[np.ndarray, " n"], risk: RiskMeasure) -> Float[np.ndarray, " n"]:
    """Return u(z) = ∫^z h′(F(x)) dx at every point of a sorted sample."""
    cdf = np.arange(1, len(z) + 1) / len(z)
    width = min(0.25, 2 / np.sqrt(len(z)))
    slope = np.asarray(as_distortion(risk, "a sample of a grid").slope(cdf, width))
    return np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(z))])


def thinned(z: Float[np.ndarray, " n"]) -> Law:
    """Return the distribution of a sorted sample with about `ATOMS` atoms, the means of equal fractions of it."""
    if len(z) <= ATOMS:
        return Law.of_sample(z)
    parts = np.array_split(z, ATOMS)
    return Law([part.mean() for part in parts], [len(part) / len(z) for part in parts])


@dataclass(frozen=True, eq=False)
class GridSolution:
    """The result of `riskpath.solve` on a grid."""

    problem: GridProblem = field(repr=False)
    """The problem with its grid."""
    risk: RiskMeasure
    """β."""
    policies: str
    """The class of policies."""
    value: float
    """The exact value where the grid is exact or bounded by rounding; otherwise `lower`."""
    lower: float
    """The simulated value of `policy` in the continuous problem."""
    interval: tuple[float, float]
    """A 95% interval of `lower`."""
    upper: float | None
    """An upper bound of the optimum of this class; None if none is known."""
    upper_kind: str
    """Why `upper` is a bound: "exact grid", "consistent rounding", "information relaxation"; "none" without one."""
    law: Law
    """The distribution of the simulated returns, thinned."""
    policy: GridPolicy | MarketPolicy = field(repr=False)
    """The policy."""
    report: str
    """The outcome of the solver, in one line; where the bracket is wide, what a narrower one needs."""
    upper_interval: tuple[float, float] | None = None
    """A 95% interval of `upper` if it is an average over paths."""
    estimate: float | None = None
    """The value on the grid where it is no bound: an estimate of the optimum."""
    touched: dict[str, dict[str, float]] = field(default_factory=dict)
    """For each axis the fraction of episodes of `policy` that reach one of its ends, and the value at stake there."""
    cells: int = 0
    """The number of cells of the grid."""
    memory_bytes: int = 0
    """The memory of the tables."""
    episodes: int = 0
    """The number of simulated episodes."""

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
        """The upper end of `upper` minus the lower end of `interval`, or None without an upper bound."""
        if self.upper is None:
            return None
        return (self.upper if self.upper_interval is None else self.upper_interval[1]) - self.interval[0]

    def describe(self) -> str:
        """Return the value, its bounds and the return distribution as a few lines of text."""
        low, high = self.interval
        lines = [f"{self.risk} of the whole return, {self.policies} policies: {self.value:.6g} ({self.report})"]
        lines += [f"  lower: {self.lower:.6g}, simulated in {self.episodes:,} episodes, 95% in [{low:.6g}, {high:.6g}]"]
        if self.upper is not None:
            ends = self.upper_interval
            interval = "" if ends is None else f", 95% in [{ends[0]:.6g}, {ends[1]:.6g}]"
            lines += [f"  upper: {self.upper:.6g}, {self.upper_kind}{interval}"]
        elif self.estimate is not None:
            lines += [f"  no upper bound; the value on the grid is {self.estimate:.6g}, an estimate"]
        if self.touched:
            shares = ", ".join(f"{name} {end['share']:.2g} ({end['value']:.2g})" for name, end in self.touched.items())
            lines += [f"  episodes that reach an end of an axis, and the value at stake: {shares}"]
        size = f"{self.cells:,} cells × {self.problem.steps} steps × {len(self.problem.actions)} actions"
        lines += [f"  grid: {size}, {in_units(self.memory_bytes)}"]
        levels = ", ".join(f"{100 * q:g}%: {self.law.quantile(q):.4g}" for q in (0.05, 0.25, 0.5, 0.75, 0.95))
        return "\n".join([*lines, f"  return: mean {self.law.mean:.6g}, std {self.law.std:.4g}, quantiles {levels}"])

    def plot(self, ax: Any = None, *, kind: str = "cdf", label: str | None = None, **style: Any) -> Any:
        """Draw the return distribution into matplotlib axes and return the axes, as `Law.plot` does."""
        return self.law.plot(ax, kind=kind, label=label, **style)

    def _repr_html_(self) -> str:
        title, *lines = self.describe().splitlines()
        return html_lines(title, lines)

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
            "upper_interval": None if self.upper_interval is None else list(self.upper_interval),
            "estimate": self.estimate,
            "touched": self.touched,
            "report": self.report,
            "goal": self.goal,
            "mean": self.law.mean,
            "cells": self.cells,
            "memory_bytes": self.memory_bytes,
            "episodes": self.episodes,
            "law": {"atoms": self.law.atoms.tolist(), "probs": self.law.probs.tolist()},
        }
