"""The best adaptive policies for CVaR at many levels, by one of three ways, depending on the problem.

- Rewards have a common unit: one backward pass over (time, state, distance to the goal), see `goal_recursion`.
- They have none, but few returns can occur: a search over thresholds, see `bounded_search`.
- Otherwise (discounted rewards, long episodes): the backward pass with rewards rounded to a unit, once down and once
  up. For every policy, returns of the first problem are below the true ones, those of the second above. So the two
  results bracket the optimum, and the policy of the first attains the lower end.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from riskpath.errors import RiskpathError
from riskpath.mdp.exact.bounded_search import goal_utilities, search_thresholds
from riskpath.mdp.exact.goal_recursion import TIE_WEIGHT, GoalPolicy, GoalTables, goal_recursion
from riskpath.mdp.exact.layer_arrays import Lattice, LayerArrays, coarse_lattice, find_unit, layer_arrays, return_bounds
from riskpath.mdp.exact.return_graph import Response, ReturnGraph
from riskpath.mdp.exact.return_laws import laws_of_goals
from riskpath.mdp.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import Policy
from riskpath.mdp.problem import Progress, silent
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


@dataclass(frozen=True, eq=False)
class GoalOptima:
    """The best policies of some thresholds b, the distributions of their returns, and numbers about the solution."""

    details: dict[str, Any]
    laws: Callable[[Float[np.ndarray, " G"]], list[Law]]
    policy: Callable[[float], Policy]


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
    progress: Progress = silent,
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
        return LevelOptima(goals, values, values, _on_lattice(mdp, tables), True)
    if place is None:
        if weight > TIE_WEIGHT:
            raise RiskpathError(
                f"the problem has more than {MAX_NODES:,} combinations of time, state and return so far, too many for "
                "a mixture of mean and CVaR; round the rewards, use discount 1 or shorten the problem"
            )
        return _bracket(mdp, layers, levels, tolerance, progress)
    goals, values, searched = search_thresholds(place, levels, weight)
    return LevelOptima(goals, values, values, _in_graph(place, weight, searched), True)


def exact_returns(mdp: FiniteMDP, layers: list[LayerArrays]) -> ReturnGraph | Lattice | None:
    """Return an exact representation of the returns, a graph or a lattice; None if both are too large."""
    unit = find_unit(layers, mdp.discount)
    lattice, cells = None, MAX_CELLS + 1
    if unit is not None:
        lattice = Lattice(unit, 1.0, "exact")
        cells = sum(int((high - low + 1).sum()) for low, high in return_bounds(layers, lattice.steps(layers)))
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


def _bracket(
    mdp: FiniteMDP, layers: list[LayerArrays], levels: Sequence[float], tolerance: float, progress: Progress
) -> LevelOptima:
    """Solve the problem with rounded rewards, with a unit that a coarse pass chooses."""
    coarse = coarse_lattice(layers, mdp.discount, 1e-6)
    low, high = coarse.bounds(layers)
    unit = max(float(high - low) * coarse.unit, 1e-9) / FIRST_UNITS
    for last in (False, False, True):
        down, up = both_ways(mdp, layers, unit, progress)
        goals, lower = _best(down, levels)
        upper, optima = np.maximum(_best(up, levels)[1], lower), _on_lattice(mdp, down)
        # A width is relative to the gain over the mean-optimal policy, or to a part of its standard deviation.
        mean_optimal = optima.laws(_best(down, [1.0])[0])[0]
        plain = np.array([mean_optimal.risk(CVaR(float(level))) for level in levels])
        width = float(((upper - lower) / np.maximum(lower - plain, max(0.1 * mean_optimal.std, 1e-12))).max())
        finer = width / tolerance
        if finer <= 1.0 or last:
            break
        # The bracket is about proportional to the unit, the number of cells to its inverse.
        unit /= min(1.3 * finer, max(1.0, MAX_ROUNDED_CELLS / max(down.cells, 1)))
    return LevelOptima(goals, lower, upper, optima, False)


def both_ways(
    mdp: FiniteMDP, layers: list[LayerArrays], unit: float, progress: Progress, jump: bool = False
) -> tuple[GoalTables, GoalTables]:
    """Return the tables of rewards rounded down, and of rewards rounded up."""
    down = lambda done, total: progress(done, 2 * total)
    up = lambda done, total: progress(total + done, 2 * total)
    return (
        goal_recursion(mdp, layers, Lattice(unit, mdp.discount, "down"), 0.0, down, jump),
        goal_recursion(mdp, layers, Lattice(unit, mdp.discount, "up"), 0.0, up, jump),
    )


def _on_lattice(mdp: FiniteMDP, tables: GoalTables) -> GoalOptima:
    """Return the optima of the goal recursion."""
    in_units = lambda goal: round(float(goal) / tables.lattice.unit)
    return GoalOptima(
        {"method": "goal recursion", "unit": tables.lattice.unit, "cells": tables.cells},
        lambda goals: laws_of_goals(mdp, tables, [in_units(goal) for goal in goals]),
        lambda goal: GoalPolicy(tables, in_units(goal)),
    )


def _in_graph(graph: ReturnGraph, weight: float, searched: int) -> GoalOptima:
    """Return the optima of the search over thresholds."""

    def respond(goals: Sequence[float] | np.ndarray) -> Response:
        return graph.best_response(goal_utilities(graph.finals, np.asarray(goals), weight))

    details = {"method": "search over thresholds", "thresholds": len(graph.finals), "thresholds_searched": searched}
    laws = lambda goals: [Law(graph.finals, probs) for probs in respond(goals).final_probs().T]
    return GoalOptima(details, laws, lambda goal: respond([goal]).policy())
