"""The whole trade-off between mean and CVaR: the best policy of every level, from one backward pass."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from jaxtyping import Float

from riskpath.errors import RiskpathError, short_repr
from riskpath.mdp.exact.goal_solver import TOLERANCE, GoalOptima, solve_levels
from riskpath.mdp.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import Policy
from riskpath.mdp.problem import Progress, require_exact_steps, silent
from riskpath.plot.notebook import html_table
from riskpath.risk.measures import CVaR

LEVELS = (0.01, 0.02, *(round(0.05 * i, 2) for i in range(1, 21)))
"""The levels of a frontier if none are given."""


@dataclass(frozen=True, eq=False)
class Frontier:
    """For every CVaR level the best value and the policy that attains it, with its mean, goal and distribution."""

    name: str
    """The name of the problem."""
    levels: Float[np.ndarray, " E"]
    """The levels η."""
    goals: Float[np.ndarray, " E"]
    """The best threshold b of every level: the policy avoids returns below it."""
    upper: Float[np.ndarray, " E"]
    """An upper bound or an estimate of the best CVaR of every level."""
    upper_kind: str
    """How `upper` was found: "exact" if the policies attain it, "upper bound", or "value on the grid"."""
    optima: GoalOptima = field(repr=False)
    """Makes the distributions and policies."""

    @property
    def exact(self) -> bool:
        """Whether the values are the exact optima."""
        return self.upper_kind == "exact"

    @cached_property
    def laws(self) -> tuple[Law, ...]:
        """The distribution of the return of every level's policy."""
        distinct, place = np.unique(self.goals, return_inverse=True)
        laws = self.optima.laws(distinct)
        return tuple(laws[i] for i in place)

    @cached_property
    def values(self) -> Float[np.ndarray, " E"]:
        """The CVaR of every level's policy, which is the best one if the optimum is exact."""
        pairs = zip(self.laws, self.levels, strict=True)
        return np.array([law.risk(CVaR(float(level))) for law, level in pairs])

    @cached_property
    def means(self) -> Float[np.ndarray, " E"]:
        """The mean return of every level's policy."""
        return np.array([law.mean for law in self.laws])

    def policy(self, level: float) -> Policy:
        """Return the policy of one of the levels."""
        return self.optima.policy(float(self.goals[self._index(level)]))

    def law(self, level: float) -> Law:
        """Return the distribution of the return of one of the levels."""
        return self.laws[self._index(level)]

    def rows(self) -> list[dict[str, float]]:
        """Return level, best CVaR, mean and goal of every level; where the optimum is not exact also an upper bound."""
        columns = {"level": self.levels, "cvar": self.values, "mean": self.means, "goal": self.goals}
        if not self.exact:
            columns[self.upper_kind] = self.upper
        return [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Return the frontier as data for JSON."""
        return {"problem": self.name, "exact": self.exact, **self.optima.details, "rows": self.rows()}

    def plot(self, ax: Any = None, *, label: str | None = None, **style: Any) -> Any:
        """Draw mean and CVaR of every level into matplotlib axes and return the axes; needs `riskpath[plot]`."""
        from riskpath.plot import plot_frontier  # here, because matplotlib is optional

        return plot_frontier(self.levels, self.values, self.means, ax, label=label, **style)

    def _repr_html_(self) -> str:
        return html_table(repr(self)[1:-1], self.rows())

    def __repr__(self) -> str:
        ends = f"cvar:{self.levels[0]:g} … cvar:{self.levels[-1]:g}"
        return f"<Frontier of {self.name}: {len(self.levels)} levels, {ends}>"

    def _index(self, level: float) -> int:
        close = np.flatnonzero(np.isclose(self.levels, level, rtol=0, atol=1e-12))
        if not close.size:
            known = ", ".join(f"{known:g}" for known in self.levels)
            raise RiskpathError(f"the frontier has no level {short_repr(level)}; its levels are {known}")
        return int(close[0])


def finite_frontier(
    mdp: FiniteMDP, levels: Sequence[float], tolerance: float = TOLERANCE, progress: Progress = silent
) -> Frontier:
    """Return the frontier of a finite problem."""
    require_exact_steps(mdp.max_episode_steps)
    answer = solve_levels(mdp, levels, tolerance=tolerance, progress=progress)
    kind = "exact" if answer.exact else "upper bound"
    return Frontier(mdp.name, np.array(levels), answer.goals, answer.upper, kind, answer.optima)


def check_levels(levels: Any) -> list[float]:
    """Return CVaR levels as a list of floats, or refuse them."""
    listed: Any = [levels] if isinstance(levels, Real) else levels
    if isinstance(listed, str) or not isinstance(listed, Sequence | np.ndarray) or len(listed) == 0:
        raise RiskpathError(f"levels must be numbers in (0, 1], got {short_repr(levels)}")
    for level in listed:
        if isinstance(level, bool) or not isinstance(level, Real) or not _in_range(level):
            raise RiskpathError(f"a CVaR level must be in (0, 1], got {short_repr(level)}")
    return sorted({float(level) for level in listed})


def _in_range(level: Any) -> bool:
    return 0 < level <= 1
