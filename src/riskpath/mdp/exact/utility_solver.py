"""Exact solutions for expected utilities and for certainty equivalents, in the graph of returns.

The best expected utility is one backward pass. A certainty equivalent is sup_b {b + E[v(Z − b)]}: the supremum stands
outside of the maximum over policies, and V(b) = max E[v(Z − b)] falls in b, so `interval_search` finds the best b.
"""

import numpy as np

from riskpath.mdp.exact.interval_search import FIRST, search_intervals
from riskpath.mdp.exact.return_graph import ReturnGraph, Utilities
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.problem import Progress
from riskpath.mdp.solution import Solution, solution_of
from riskpath.risk.certainty_equivalents import CertaintyEquivalent
from riskpath.risk.utility_measures import Utility

CLOSE = 1e-6
"""The search ends when the bracket is narrower than this fraction of the range of returns."""


def solve_utility(mdp: FiniteMDP, risk: Utility) -> Solution:
    """Return the policy with the best expected utility."""
    graph = ReturnGraph(mdp)
    response = graph.best_response(np.asarray(risk.influence(graph.finals, None, None), np.float64)[:, None])
    return solution_of(mdp, risk, response.law(), response.policy(), True, "optimal")


def solve_equivalent(mdp: FiniteMDP, risk: CertaintyEquivalent, progress: Progress | None = None) -> Solution:
    """Return the policy with the best certainty equivalent."""
    graph = ReturnGraph(mdp)
    finals = graph.finals
    span = max(float(np.ptp(finals)), 1e-12)

    def utilities(b: np.ndarray) -> Utilities:
        return np.asarray(risk.utility(finals[:, None] - b[None, :]), np.float64)

    tried, values, upper = search_intervals(
        np.linspace(finals[0], finals[-1], FIRST) if finals.size > 1 else finals,
        lambda b: graph.values(utilities(b)),
        rising=lambda b: b,
        middle=lambda low, high: (low + high) / 2,
        close=CLOSE * span,
        size=graph.size,
        progress=progress,
    )
    b = float(tried[(tried + values).argmax()])
    response = graph.best_response(utilities(np.array([b])))
    law = response.law()
    for _ in range(20):  # the best b of the policy, its best policy, and so on: neither step is worse
        b = float(risk.now(law.atoms, law.probs))
        better = graph.best_response(utilities(np.array([b])))
        if risk.value(better.law()) <= risk.value(law) + 1e-13 * span:
            break
        response, law = better, better.law()
    value = float(risk.value(law))
    gap = max(upper - value, 0.0)
    proven = gap <= 10 * CLOSE * span
    report = "optimal" if proven else f"within {gap:.3g} of the optimum, which is at most {upper:.6g}"
    details, bounds = {"now": b, "tried": tried.size}, (value, value + gap)
    return solution_of(mdp, risk, law, response.policy(), proven, report, details, bounds)
