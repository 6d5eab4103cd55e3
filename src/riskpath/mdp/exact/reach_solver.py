"""The largest probability to reach a return, and VaR, the largest return that is reached with probability 1 − α.

VaR_α[Z] = sup {b : P(Z < b) ≤ α}. The largest P(Z ≥ b) over all policies that see the return so far falls in b, so the
best VaR is the largest b at which it is 1 − α still. As for CVaR (`goal_solver`) there are three ways: one backward
pass over (time, state, distance to b) for all b, a search over the returns that can occur, or, where rewards must be
rounded, a pass with rewards rounded down and another with rewards rounded up, which bracket the optimum.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from riskpath.mdp.exact.goal_recursion import GoalPolicy, GoalTables, goal_recursion
from riskpath.mdp.exact.goal_solver import MAX_ROUNDED_CELLS, both_ways, exact_returns
from riskpath.mdp.exact.layer_arrays import LayerArrays, coarse_lattice, layer_arrays
from riskpath.mdp.exact.return_graph import ReturnGraph
from riskpath.mdp.exact.return_laws import laws_of_goals
from riskpath.mdp.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import Policy
from riskpath.mdp.problem import Progress
from riskpath.mdp.solution import Solution, solution_of
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

_Optimum = tuple[Law, Policy, dict[str, Any]]
"""The distribution of the best policy, the policy, and numbers about the solution."""


def solve_reach(mdp: FiniteMDP, risk: VaR | ReachProbability, tolerance: float, progress: Progress) -> Solution:
    """Return the policy with the best VaR, or with the largest probability to reach the target."""
    layers = layer_arrays(mdp)
    place = exact_returns(mdp, layers)
    if isinstance(place, ReturnGraph):
        law, policy, details = _in_graph(place, risk)
    elif place is not None:
        low, high = place.bounds(layers)
        tables = goal_recursion(mdp, layers, place, TIE / max(high - low, 1), progress, jump=True)
        law, policy, details = _on_lattice(mdp, tables, risk)
    else:
        return _bracket(mdp, layers, risk, tolerance, progress)
    return solution_of(mdp, risk, law, policy, True, "optimal", details)


def _choose(risk: VaR | ReachProbability, thresholds: np.ndarray, probs: np.ndarray, round_up: bool = True) -> int:
    """Return the index of the best threshold; `thresholds` ascend and `probs` are the probabilities to reach them."""
    if isinstance(risk, VaR):
        return max(int(np.searchsorted(-probs, -(1.0 - float(risk.level)) + SLACK, side="right")) - 1, 0)
    target, slack = float(risk.level), 1e-9 * max(1.0, abs(float(risk.level)))
    if round_up:
        return min(int(np.searchsorted(thresholds, target - slack, side="left")), thresholds.size - 1)
    return max(int(np.searchsorted(thresholds, target + slack, side="right")) - 1, 0)


def _on_lattice(mdp: FiniteMDP, tables: GoalTables, risk: VaR | ReachProbability) -> _Optimum:
    """Return the optimum of a backward pass."""
    thresholds, values = _ascending(tables)
    goal = int(thresholds[_choose(risk, thresholds * tables.lattice.unit, values)])
    law = laws_of_goals(mdp, tables, [goal])[0]
    unit = tables.lattice.unit
    details = {"method": "reach recursion", "unit": unit, "cells": tables.cells, "goal": goal * unit}
    return law, GoalPolicy(tables, goal), details


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
    details = {"method": "search over returns", "thresholds": int(finals.size), "goal": float(finals[low])}
    return response.law(), response.policy(), details


def _bracket(
    mdp: FiniteMDP, layers: list[LayerArrays], risk: VaR | ReachProbability, tolerance: float, progress: Progress
) -> Solution:
    """Solve with rewards rounded down and up; the unit is refined until the bracket is narrow or tables are full."""
    coarse = coarse_lattice(layers, mdp.discount, 1e-9)
    low, high = coarse.bounds(layers)
    whole = max((high - low) * coarse.unit, 1e-9)
    unit = whole / UNITS
    for last in (False, False, True):
        down, up = both_ways(mdp, layers, unit, progress, jump=True)
        lower, upper = _value(down, risk, True), _value(up, risk, False)
        width = (upper - lower) / (whole if isinstance(risk, VaR) else 1.0)
        finer = min(1.3 * width / (0.1 * tolerance), MAX_ROUNDED_CELLS / max(down.cells, 1))
        if width <= 0.1 * tolerance or finer <= 1.5 or last:
            break
        unit /= finer
    law, policy, details = _on_lattice(mdp, down, risk)
    value = max(lower, float(risk.value(law)))
    upper = max(upper, value)
    report = f"within {upper - value:.3g} of the optimum, which is at most {upper:.6g} (rewards rounded)"
    return Solution(mdp, risk, "adaptive", value, law, policy, False, report, details, (value, upper))


def _value(tables: GoalTables, risk: VaR | ReachProbability, round_up: bool) -> float:
    """Return the best value of the problem with rounded rewards."""
    thresholds, probs = _ascending(tables)
    at = _choose(risk, thresholds * tables.lattice.unit, probs, round_up)
    return float(thresholds[at] * tables.lattice.unit if isinstance(risk, VaR) else min(probs[at], 1.0))
