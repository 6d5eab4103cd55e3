"""The best adaptive policies for CVaR at many levels, by one of three ways, depending on the problem.

- Rewards have a common unit: one backward pass over (time, state, distance to the goal), see `goal_recursion`.
- They have none, but few returns can occur: a search over thresholds, see `threshold_search`.
- Otherwise (discounted rewards, long episodes): the backward pass with rewards rounded to a unit, once down and once
  up. For every policy, returns of the first problem are below the true ones, those of the second above. So the two
  results bracket the optimum, and the policy of the first attains the lower end.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from riskpath.errors import RiskpathError
from riskpath.mdp.exact.goal_policy import GoalPolicy, laws_of_goals
from riskpath.mdp.exact.goal_recursion import TIE_WEIGHT, GoalTables, goal_recursion
from riskpath.mdp.exact.lattice import Lattice, coarse_lattice, find_unit, return_bounds
from riskpath.mdp.exact.layer_arrays import LayerArrays, layer_arrays
from riskpath.mdp.exact.return_graph import Response, ReturnGraph
from riskpath.mdp.exact.threshold_search import goal_utilities, search_thresholds
from riskpath.mdp.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import Policy
from riskpath.mdp.problem import Progress
from riskpath.risk.measures import CVaR

MAX_CELLS = 400_000_000
"""The largest number of stored (time, state, distance); each takes one byte, or two beyond 256 actions."""
FEW_CELLS, FEW_NODES = 20_000_000, 50_000
"""With more cells than this, a search over thresholds is faster if there are only a few nodes."""
MAX_ROUNDED_CELLS = 100_000_000
"""The same limit where rewards are rounded, which takes two passes."""
MAX_NODES = 500_000
"""The largest number of (time, state, return so far) for a search over thresholds."""
MAX_FINALS = 50_000
"""The largest number of final returns for a search over thresholds."""
TOLERANCE = 0.01
"""The accepted width of a bracket, as a fraction of the difference between the best and the mean-optimal policy."""
FIRST_UNITS = 1_000
"""The range of returns in units, in the first, coarse pass over rounded rewards."""


@runtime_checkable
class GoalOptima(Protocol):
    """The best policies of some thresholds."""

    @property
    def details(self) -> dict[str, Any]:
        """Numbers about the solution."""
        ...

    def laws(self, goals: Float[np.ndarray, " G"]) -> list[Law]:
        """Return the distribution of the return of the best policy of every threshold."""
        ...

    def policy(self, goal: float) -> Policy:
        """Return the best policy of a threshold."""
        ...


@dataclass(frozen=True, eq=False)
class LevelOptima:
    """The optimum of every level; E levels."""

    goals: Float[np.ndarray, " E"]
    """The best threshold b."""
    lower: Float[np.ndarray, " E"]
    """The value of the policy: max_b {b + V(b)/η}."""
    upper: Float[np.ndarray, " E"]
    """No policy attains more; equal to `lower` if the optimum is exact."""
    optima: GoalOptima
    exact: bool
    """Whether rewards were not rounded."""


def solve_levels(
    mdp: FiniteMDP,
    levels: Sequence[float],
    weight: float = TIE_WEIGHT,
    tolerance: float = TOLERANCE,
    progress: Progress | None = None,
) -> LevelOptima:
    """Return max_b {b + E[λ(Z − b) + min(Z − b, 0)]/η} for every level η; `weight` is λ.

    If rewards must be rounded, the unit is refined until the bracket is below `tolerance` times the difference between
    the best and the mean-optimal policy, or until the tables would exceed `MAX_ROUNDED_CELLS`.
    """
    layers = layer_arrays(mdp)
    place = exact_returns(mdp, layers)
    if isinstance(place, Lattice):
        tables = goal_recursion(mdp, layers, place, weight, progress)
        goals, values = _best(tables, levels)
        return LevelOptima(goals, values, values, _OnLattice(mdp, tables), True)
    if place is None:
        if weight > TIE_WEIGHT:
            raise RiskpathError(
                f"the problem has more than {MAX_NODES:,} combinations of time, state and return so far, too many for "
                "a mixture of mean and CVaR; round the rewards, use discount 1 or shorten the problem"
            )
        return _bracket(mdp, layers, levels, tolerance, progress)
    goals, values, searched = search_thresholds(place, levels, weight)
    return LevelOptima(goals, values, values, _InGraph(place, weight, searched), True)


def exact_returns(mdp: FiniteMDP, layers: list[LayerArrays]) -> ReturnGraph | Lattice | None:
    """Return an exact representation of the returns, a graph or a lattice; None if both are too large."""
    unit = find_unit(layers, mdp.discount)
    lattice = None if unit is None else Lattice(unit, 1.0, "exact")
    cells = MAX_CELLS + 1 if lattice is None else count_cells(layers, lattice)
    if cells > FEW_CELLS:
        with contextlib.suppress(RiskpathError):  # it has more nodes
            graph = ReturnGraph(mdp, layers, MAX_NODES if cells > MAX_CELLS else FEW_NODES)
            if len(graph.finals) <= MAX_FINALS:
                return graph
    return lattice if cells <= MAX_CELLS else None


def _best(tables: GoalTables, levels: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return the best threshold of every level and its objective."""
    found = [tables.best_threshold(level) for level in levels]
    return np.array([goal for goal, _ in found]) * tables.lattice.unit, np.array([value for _, value in found])


def count_cells(layers: list[LayerArrays], lattice: Lattice) -> int:
    """Return the number of cells that an exact backward pass stores."""
    steps = [lattice.in_units(layer.reward, time) for time, layer in enumerate(layers)]
    return sum(int((high - low + 1).sum()) for low, high in return_bounds(layers, steps))


def _bracket(
    mdp: FiniteMDP, layers: list[LayerArrays], levels: Sequence[float], tolerance: float, progress: Progress | None
) -> LevelOptima:
    """Solve the problem with rounded rewards, with a unit that a coarse pass chooses."""
    coarse = coarse_lattice(layers, mdp.discount, 1e-6)
    low, high = return_bounds(layers, [coarse.in_units(layer.reward, time) for time, layer in enumerate(layers)])[0]
    unit = max(float(high.max() - low.min()) * coarse.unit, 1e-9) / FIRST_UNITS
    for last in (False, False, True):
        tables, optima = _both_ways(mdp, layers, unit, levels, progress)
        finer = _width(tables, optima, levels) / tolerance
        if finer <= 1.0 or last:
            break
        # The bracket is about proportional to the unit, the number of cells to its inverse.
        unit /= min(1.3 * finer, max(1.0, MAX_ROUNDED_CELLS / max(tables.cells, 1)))
    return optima


def _width(tables: GoalTables, optima: LevelOptima, levels: Sequence[float]) -> float:
    """Return the largest width of a bracket relative to the best policy's gain over the mean-optimal one.

    Where the gain is small, a tenth of the standard deviation of the return replaces it.
    """
    mean_optimal = optima.optima.laws(_best(tables, [1.0])[0])[0]
    plain = np.array([mean_optimal.risk(CVaR(float(level))) for level in levels])
    width = optima.upper - optima.lower
    return float((width / np.maximum(optima.lower - plain, max(0.1 * mean_optimal.std, 1e-12))).max())


def _both_ways(
    mdp: FiniteMDP, layers: list[LayerArrays], unit: float, levels: Sequence[float], progress: Progress | None
) -> tuple[GoalTables, LevelOptima]:
    """Return the tables of rewards rounded down, and the bracket."""
    tables = goal_recursion(mdp, layers, Lattice(unit, mdp.discount, "down"), 0.0, half(progress, 0))
    goals, lower = _best(tables, levels)
    upper = _best(goal_recursion(mdp, layers, Lattice(unit, mdp.discount, "up"), 0.0, half(progress, 1)), levels)[1]
    return tables, LevelOptima(goals, lower, np.maximum(upper, lower), _OnLattice(mdp, tables), False)


def half(progress: Progress | None, number: int) -> Progress | None:
    """Return the progress of the first (0) or the second (1) of two passes."""
    return None if progress is None else lambda done, total: progress(number * total + done, 2 * total)


@dataclass(frozen=True, eq=False)
class _OnLattice:
    """Optima from the goal recursion."""

    mdp: FiniteMDP
    tables: GoalTables

    @property
    def details(self) -> dict[str, Any]:
        return {"method": "goal recursion", "unit": self.tables.lattice.unit, "cells": self.tables.cells}

    def laws(self, goals: Float[np.ndarray, " G"]) -> list[Law]:
        return laws_of_goals(self.mdp, self.tables, [self._in_units(goal) for goal in goals])

    def policy(self, goal: float) -> Policy:
        return GoalPolicy(self.tables, self._in_units(goal))

    def _in_units(self, goal: float) -> int:
        return round(float(goal) / self.tables.lattice.unit)


@dataclass(frozen=True, eq=False)
class _InGraph:
    """Optima from the search over thresholds."""

    graph: ReturnGraph
    weight: float
    searched: int

    @property
    def details(self) -> dict[str, Any]:
        found = {"thresholds": len(self.graph.finals), "thresholds_searched": self.searched}
        return {"method": "search over thresholds", **found}

    def laws(self, goals: Float[np.ndarray, " G"]) -> list[Law]:
        probs = self._respond(goals).final_probs()
        return [Law(self.graph.finals, probs[:, column]) for column in range(len(goals))]

    def policy(self, goal: float) -> Policy:
        return self._respond(np.array([goal])).policy()

    def _respond(self, goals: Float[np.ndarray, " G"]) -> Response:
        return self.graph.best_response(goal_utilities(self.graph.finals, np.asarray(goals), self.weight))
