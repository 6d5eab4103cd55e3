"""Exact solutions for expected utilities and for certainty equivalents, in the graph of returns.

The best expected utility is one backward pass. A certainty equivalent is sup_b {b + E[v(Z − b)]}: the supremum stands
outside of the maximum over policies, so it is a search over one number. V(b) = max E[v(Z − b)] falls in b, and so, for
b between b₁ and b₂, b + V(b) ≤ b₂ + V(b₁). Intervals whose bound is not above the best value are dropped, the others
are halved.
"""

from dataclasses import dataclass

import numpy as np

from riskpath.mdp.exact.return_graph import ReturnGraph
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.problem import Progress
from riskpath.mdp.solution import Solution
from riskpath.risk.certainty_equivalents import CertaintyEquivalent
from riskpath.risk.utility_measures import Utility

FIRST = 129
"""The number of b that are tried first."""
MOST = 4_096
"""The largest number of b that are tried."""
WORK = 400_000_000
"""The largest number of node outcomes times b in the search."""
CLOSE = 1e-6
"""The search ends when the bracket is narrower than this fraction of the range of returns."""


def solve_utility(mdp: FiniteMDP, risk: Utility) -> Solution:
    """Return the policy with the best expected utility."""
    graph = ReturnGraph(mdp)
    response = graph.best_response(np.asarray(risk.influence(graph.finals, None, None), np.float64)[:, None])
    law = response.law()
    return Solution(mdp, risk, "adaptive", float(risk.value(law)), law, response.policy(), True, "optimal", {})


def solve_equivalent(mdp: FiniteMDP, risk: CertaintyEquivalent, progress: Progress | None = None) -> Solution:
    """Return the policy with the best certainty equivalent."""
    graph = ReturnGraph(mdp)
    search = _Search(graph, risk)
    upper = search.run(progress)
    b = search.best()
    response = graph.best_response(search.utilities(np.array([b])))
    law = response.law()
    for _ in range(20):  # the best b of the policy, its best policy, and so on: neither step is worse
        b = float(risk.now(law.atoms, law.probs))
        better = graph.best_response(search.utilities(np.array([b])))
        if risk.value(better.law()) <= risk.value(law) + 1e-13 * search.span:
            break
        response, law = better, better.law()
    value, policy = float(risk.value(law)), response.policy()
    gap = max(upper - value, 0.0)
    proven = gap <= 10 * CLOSE * search.span
    report = "optimal" if proven else f"within {gap:.3g} of the optimum, which is at most {upper:.6g}"
    details = {"now": b, "tried": search.b.size}
    return Solution(mdp, risk, "adaptive", value, law, policy, proven, report, details, (value, value + gap))


@dataclass
class _Search:
    """The values V(b) that are known; b ascends."""

    graph: ReturnGraph
    risk: CertaintyEquivalent

    def __post_init__(self):
        finals = self.graph.finals
        self.span = max(float(np.ptp(finals)), 1e-12)
        self.b = np.linspace(finals[0], finals[-1], FIRST) if finals.size > 1 else finals.copy()
        self.value = self.graph.values(self.utilities(self.b))

    def utilities(self, b: np.ndarray) -> np.ndarray:
        """Return v(z − b) for every final return and every b."""
        return np.asarray(self.risk.utility(self.graph.finals[:, None] - b[None, :]), np.float64)

    def best(self) -> float:
        """Return the best b of those that were tried."""
        return float(self.b[(self.b + self.value).argmax()])

    def run(self, progress: Progress | None) -> float:
        """Halve intervals until none can contain a better value, and return the upper bound."""
        most = min(MOST, max(FIRST, WORK // max(self.graph.size, 1)))
        while True:
            best = float((self.b + self.value).max())
            bounds = self.b[1:] + self.value[:-1]
            alive = np.flatnonzero(bounds > best + CLOSE * self.span)
            if progress is not None:
                progress(min(self.b.size, most), most)
            if alive.size == 0 or self.b.size + alive.size > most:
                return max(best, float(bounds.max(initial=-np.inf)))
            new = (self.b[alive] + self.b[alive + 1]) / 2
            self.value = np.concatenate([self.value, self.graph.values(self.utilities(new))])
            self.b = np.concatenate([self.b, new])
            order = np.argsort(self.b)
            self.b, self.value = self.b[order], self.value[order]
