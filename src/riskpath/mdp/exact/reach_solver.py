"""The largest probability to reach a return, and VaR, the largest return that is reached with probability 1 − α.

VaR_α[Z] = sup {b : P(Z < b) ≤ α}. The largest P(Z ≥ b) over all policies that see the return so far falls in b, so the
best VaR is the largest b at which it is 1 − α still. As for CVaR (`goal_solver`) there are three ways: one backward
pass over (time, state, distance to b) for all b, a search over the returns that can occur, or, where rewards must be
rounded, a pass with rewards rounded down and another with rewards rounded up, which bracket the optimum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from riskpath.mdp.exact.goal_policy import GoalPolicy, laws_of_goals
from riskpath.mdp.exact.goal_recursion import GoalTables, goal_recursion
from riskpath.mdp.exact.goal_solver import MAX_ROUNDED_CELLS, exact_returns
from riskpath.mdp.exact.lattice import Lattice, return_bounds
from riskpath.mdp.exact.layer_arrays import LayerArrays, layer_arrays
from riskpath.mdp.exact.return_graph import ReturnGraph
from riskpath.mdp.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import Policy
from riskpath.mdp.problem import Progress
from riskpath.mdp.solution import Solution
from riskpath.risk.measures import RiskMeasure
from riskpath.risk.quantile_measures import VaR
from riskpath.risk.utility_measures import ReachProbability, reaches

TIE = 1e-10
"""The weight of the mean, for returns whose range is 1: of equally likely policies the one with the larger mean."""
SLACK = 1e-9
"""The accepted error of a probability."""
UNITS = 20_000
"""The largest range of returns, in units, in the first pass over rounded rewards."""
BATCH = 64
"""The number of thresholds that are solved together."""


@dataclass(frozen=True)
class _Optimum:
    """A threshold, the probability to reach it, and the policy that has it."""

    threshold: float
    law: Law
    policy: Policy
    details: dict[str, Any]


def solve_reach(
    mdp: FiniteMDP, risk: VaR | ReachProbability, tolerance: float, progress: Progress | None = None
) -> Solution:
    """Return the policy with the best VaR, or with the largest probability to reach the target."""
    layers = layer_arrays(mdp)
    place = exact_returns(mdp, layers)
    if isinstance(place, ReturnGraph):
        return _exact(mdp, risk, _in_graph(place, risk))
    if place is not None:
        low, high = _range(layers, place)
        tables = goal_recursion(mdp, layers, place, TIE / max(high - low, 1), progress, jump=True)
        return _exact(mdp, risk, _on_lattice(mdp, tables, risk))
    return _bracket(mdp, layers, risk, tolerance, progress)


def _exact(mdp: FiniteMDP, risk: RiskMeasure, found: _Optimum) -> Solution:
    value = float(risk.value(found.law))
    details = {**found.details, "goal": found.threshold}
    return Solution(mdp, risk, "adaptive", value, found.law, found.policy, True, "optimal", details)


def _choose(risk: VaR | ReachProbability, thresholds: np.ndarray, probs: np.ndarray, round_up: bool = True) -> int:
    """Return the index of the best threshold; `thresholds` ascend and `probs` are the probabilities to reach them."""
    if isinstance(risk, VaR):
        return max(int(np.searchsorted(-probs, -(1.0 - float(risk.level)) + SLACK, side="right")) - 1, 0)
    target, slack = float(risk.level), 1e-9 * max(1.0, abs(float(risk.level)))
    if round_up:
        return min(int(np.searchsorted(thresholds, target - slack, side="left")), thresholds.size - 1)
    return max(int(np.searchsorted(thresholds, target + slack, side="right")) - 1, 0)


def _on_lattice(mdp: FiniteMDP, tables: GoalTables, risk: VaR | ReachProbability) -> _Optimum:
    thresholds, values = _ascending(tables)
    goal = int(thresholds[_choose(risk, thresholds * tables.lattice.unit, values)])
    law = laws_of_goals(mdp, tables, [goal])[0]
    details = {"method": "reach recursion", "unit": tables.lattice.unit, "cells": tables.cells}
    return _Optimum(goal * tables.lattice.unit, law, GoalPolicy(tables, goal), details)


def _ascending(tables: GoalTables) -> tuple[np.ndarray, np.ndarray]:
    """Return the thresholds in units, ascending, and the probabilities to reach them; the last one is out of reach."""
    order = np.argsort(tables.thresholds)
    thresholds, values = tables.thresholds[order], tables.values[order]
    return np.append(thresholds, thresholds[-1] + 1), np.append(values, 0.0)


def _in_graph(graph: ReturnGraph, risk: VaR | ReachProbability) -> _Optimum:
    """Search the returns that can occur: the probability to reach them falls, so few have to be solved."""
    finals = graph.finals
    tie = TIE * (finals - finals[0]) / max(float(np.ptp(finals)), 1e-12)

    def utilities(at: np.ndarray) -> Float[np.ndarray, "Z B"]:
        return (finals[:, None] >= finals[at][None, :]) + tie[:, None]

    low, high = 0, finals.size - 1
    if isinstance(risk, ReachProbability):
        reached = reaches(finals, float(risk.level)) > 0
        low = high = int(reached.argmax()) if reached.any() else finals.size - 1
    while high > low:
        at = np.unique(np.linspace(low, high, min(BATCH, high - low + 1)).astype(int))
        enough = graph.values(utilities(at)) >= 1.0 - float(risk.level) - SLACK
        last = int(np.flatnonzero(enough).max()) if enough.any() else 0
        low, high = int(at[last]), int(at[last + 1]) - 1 if last + 1 < at.size else int(at[last])
    response = graph.best_response(utilities(np.array([low])))
    details = {"method": "search over returns", "thresholds": int(finals.size)}
    return _Optimum(float(finals[low]), response.law(), response.policy(), details)


def _bracket(
    mdp: FiniteMDP, layers: list[LayerArrays], risk: VaR | ReachProbability, tolerance: float, progress: Progress | None
) -> Solution:
    """Solve with rewards rounded down and up; the unit is refined until the bracket is narrow or tables are full."""
    coarse = Lattice(1e-9, mdp.discount, "down")
    low, high = _range(layers, coarse)
    whole = max((high - low) * coarse.unit, 1e-9)
    unit = whole / UNITS
    for last in (False, False, True):
        down = goal_recursion(mdp, layers, Lattice(unit, mdp.discount, "down"), 0.0, _part(progress, 0), jump=True)
        up = goal_recursion(mdp, layers, Lattice(unit, mdp.discount, "up"), 0.0, _part(progress, 1), jump=True)
        lower, upper = _value(down, risk, True), _value(up, risk, False)
        width = (upper - lower) / (whole if isinstance(risk, VaR) else 1.0)
        finer = min(1.3 * width / (0.1 * tolerance), MAX_ROUNDED_CELLS / max(down.cells, 1))
        if width <= 0.1 * tolerance or finer <= 1.5 or last:
            break
        unit /= finer
    found = _on_lattice(mdp, down, risk)
    value = max(lower, float(risk.value(found.law)))
    upper = max(upper, value)
    report = f"within {upper - value:.3g} of the optimum, which is at most {upper:.6g} (rewards rounded)"
    details = {**found.details, "goal": found.threshold}
    return Solution(mdp, risk, "adaptive", value, found.law, found.policy, False, report, details, (value, upper))


def _value(tables: GoalTables, risk: VaR | ReachProbability, round_up: bool) -> float:
    """Return the best value of the problem with rounded rewards."""
    thresholds, probs = _ascending(tables)
    at = _choose(risk, thresholds * tables.lattice.unit, probs, round_up)
    return float(thresholds[at] * tables.lattice.unit if isinstance(risk, VaR) else min(probs[at], 1.0))


def _range(layers: list[LayerArrays], lattice: Lattice) -> tuple[int, int]:
    """Return the smallest and the largest return in units."""
    steps = [lattice.in_units(layer.reward, time) for time, layer in enumerate(layers)]
    low, high = return_bounds(layers, steps)[0]
    return int(low.min()), int(high.max())


def _part(progress: Progress | None, number: int) -> Callable[[int, int], None] | None:
    """Return the progress of the first or the second of two passes."""
    if progress is None:
        return None
    return lambda done, total: progress(number * total + done, 2 * total)
