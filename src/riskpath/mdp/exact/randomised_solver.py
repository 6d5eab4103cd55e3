"""The best reward-adaptive policy that may draw one of several deterministic policies at the start of an episode.

β[Z] = const − ∫ h(F(x)) dx. For convex h, β is concave in mixtures of distributions: conditional-gradient steps
converge to the global optimum. A step computes the influence function u of β at the mixture F, finds the best policy
for E[u(Z)], adds its distribution to the mixture and optimises the weights again. Because a concave function lies below
its tangents,

    β* ≤ β(F̂) + max_G E_G[u] − E_F̂[u]

for every F̂; the distance of the mixture from this bound is the duality gap, a proof. For concave h, certainty
equivalents, VaR and expected utilities a deterministic policy is optimal. For other measures the steps start from the
best deterministic policies that utility iteration finds, and the gap proves nothing.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from riskpath.mdp.exact.adaptive_solver import solve_adaptive
from riskpath.mdp.exact.return_graph import ReturnGraph, Utilities
from riskpath.mdp.exact.utility_iteration import cumulative, influences, law_values, utility_iteration
from riskpath.mdp.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import Policy, RandomisedPolicy
from riskpath.mdp.problem import Progress, silent
from riskpath.mdp.solution import Component, Solution, solution_of
from riskpath.risk.measures import DistortionMeasure, RiskMeasure

STEPS = 200
"""The largest number of conditional-gradient steps."""
STARTS = 12
"""Number of best deterministic distributions from which the mixture starts."""
GAP = 1e-7
"""The steps end when the gap is below this fraction of the range of returns."""
EDGE = 1e-6
"""The smallest distance of a distribution function from 0 and 1, where h may be infinitely steep."""
NEGLIGIBLE = 1e-6
"""Components with a smaller probability are dropped."""


def solve_randomised(mdp: FiniteMDP, risk: RiskMeasure, progress: Progress = silent) -> Solution:
    """Return the best randomised policy, or the best known one if β is neither convex nor concave in mixtures."""
    if risk.deterministic:
        found = solve_adaptive(mdp, risk, progress=progress)
        report = f"{found.report}; a deterministic policy is optimal for this measure"
        parts = (Component(1.0, found.law, found.policy),)
        details = {**found.details, "gap": 0.0} if found.optimal else found.details
        return replace(found, report=report, details=details, bounds=None, components=parts)
    graph = ReturnGraph(mdp)
    convex = isinstance(risk, DistortionMeasure) and is_convex(risk)
    visited = utility_iteration(graph, risk, keep=STARTS, progress=progress)
    mixture = _Mixture(graph, risk, visited.probs, visited.utilities, np.eye(visited.probs.shape[1])[0])
    mixture = (mixture if convex else mixture.best_pair()).reweighted()
    gap = np.inf
    spread = max(float(np.ptp(graph.finals)), 1e-12)
    for step in range(STEPS):
        utility = influences(graph.finals, mixture.inner(), risk)
        response = graph.best_response(utility)
        if convex and isinstance(risk, DistortionMeasure):
            best = float(response.value[0] - utility[-1, 0])
            gap = min(gap, _bound(graph.finals, cumulative(mixture.inner()), best, risk) - mixture.value())
            if gap <= GAP * spread:
                break
        larger = mixture.with_law(response.final_probs(), utility).reweighted()
        if larger.value() <= mixture.value() + 1e-12 * spread:
            break
        mixture = larger
        progress(step + 1, STEPS)
    return _solution(mdp, risk, mixture, max(float(gap), 0.0), convex)


def is_convex(risk: DistortionMeasure) -> bool:
    """Return whether h is convex, judged by its slopes at many points."""
    t = np.linspace(0, 1, 2001)
    slopes_of_h = np.diff(np.asarray(risk.weight(t), float))
    return bool(np.diff(slopes_of_h).min() >= -1e-9)


@dataclass(frozen=True)
class _Mixture:
    """K distributions with weights."""

    graph: ReturnGraph
    risk: RiskMeasure
    probs: Float[np.ndarray, "Z K"]
    utilities: Utilities
    weights: Float[np.ndarray, " K"]

    def inner(self, weights: Any = None) -> Float[np.ndarray, "Z 1"]:
        """Return the distribution of the mixture, with its distribution function kept away from 0 and 1."""
        mixed = self.probs @ (self.weights if weights is None else weights)[:, None]
        cdf = np.clip(cumulative(mixed), EDGE, 1 - EDGE)
        return np.diff(cdf, axis=0, prepend=0.0) if isinstance(self.risk, DistortionMeasure) else mixed

    def value(self) -> float:
        return float(law_values(self.graph.finals, self.probs @ self.weights[:, None], self.risk)[0])

    def with_law(self, probs: Float[np.ndarray, "Z 1"], utility: Utilities) -> "_Mixture":
        """Return the mixture with one more distribution, of weight 0."""
        weights = np.append(self.weights, 0.0)
        joined = np.concatenate([self.probs, probs], axis=1), np.concatenate([self.utilities, utility], axis=1)
        return _Mixture(self.graph, self.risk, *joined, weights)

    def best_pair(self) -> "_Mixture":
        """Return the mixture with the weights of the best mixture of two distributions, of some that are tried."""
        count = self.probs.shape[1]
        pairs = [(i, j, share) for i in range(count) for j in range(i) for share in np.linspace(0.1, 0.9, 9)]
        weights = np.concatenate([np.eye(count), np.zeros((count, len(pairs)))], axis=1)
        for column, (i, j, share) in enumerate(pairs, start=count):
            weights[i, column], weights[j, column] = share, 1 - share
        values = law_values(self.graph.finals, self.probs @ weights, self.risk)
        return _Mixture(self.graph, self.risk, self.probs, self.utilities, weights[:, values.argmax()])

    def reweighted(self, rounds: int = 60) -> "_Mixture":
        """Move weight from the worst to the best distribution, with a line search, until nothing is gained."""
        finals = self.graph.finals
        weights = self.weights.copy()

        def loss(w: np.ndarray) -> float:
            return -float(law_values(finals, self.probs @ w[:, None], self.risk)[0])

        now = loss(weights)
        for _ in range(rounds):
            gradient = influences(finals, self.inner(weights), self.risk)[:, 0] @ self.probs  # of β in the weights
            used = np.flatnonzero(weights > 0)
            source, target = used[gradient[used].argmin()], int(gradient.argmax())
            if source == target or gradient[target] - gradient[source] <= 1e-12 * max(1.0, abs(now)):
                break
            direction = np.zeros_like(weights)
            direction[target], direction[source] = 1.0, -1.0
            size, least = _line_search(lambda s: loss(weights + s * direction), float(weights[source]))  # noqa: B023
            if least >= now - 1e-14 * max(1.0, abs(now)):
                break
            weights, now = np.maximum(weights + size * direction, 0.0), least
        keep = weights > NEGLIGIBLE / 10
        weights = weights[keep] / weights[keep].sum()
        return _Mixture(self.graph, self.risk, self.probs[:, keep], self.utilities[:, keep], weights)


def _line_search(loss: Any, largest: float) -> tuple[float, float]:
    """Return the best step in [0, largest] and its loss: a scan, then golden sections around the best point."""
    points = np.linspace(0, largest, 9)
    values = [loss(point) for point in points]
    at = int(np.argmin(values))
    low, high = points[max(at - 1, 0)], points[min(at + 1, 8)]
    golden = (np.sqrt(5) - 1) / 2
    a, b = high - golden * (high - low), low + golden * (high - low)
    at_a, at_b = loss(a), loss(b)
    for _ in range(40):
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - golden * (high - low)
            at_a = loss(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + golden * (high - low)
            at_b = loss(b)
    found = [(values[at], float(points[at])), (at_a, float(a)), (at_b, float(b))]
    least, size = min(found)
    return size, least


def _bound(
    finals: Float[np.ndarray, " Z"], cdf: Float[np.ndarray, "Z 1"], best: float, risk: DistortionMeasure
) -> float:
    """Return the tangent at F̂ at its maximum; `best` is max_G E_G[u] − u(largest return)."""
    inner, gaps = cdf[:-1, 0], np.diff(finals)
    slope = np.asarray(risk.slope(cdf[:-1]))[:, 0]
    return float(finals[-1] - np.asarray(risk.weight(inner)) @ gaps + (slope * inner) @ gaps + best)


def _solution(mdp: FiniteMDP, risk: RiskMeasure, mixture: _Mixture, gap: float, convex: bool) -> Solution:
    """Return the mixture as a solution; its distribution is exact."""
    law, policy, components, draws = mixture_of(
        mixture.graph, mixture.weights, mixture.probs, mixture.utilities, NEGLIGIBLE
    )
    value = float(risk.value(law))
    small = gap <= 1e-5 * max(1.0, float(np.ptp(mixture.graph.finals)))
    report = f"{draws}; duality gap {gap:.2g}" if convex else f"{draws}; best known, not proven optimal"
    bounds = (value, value + gap) if convex else None
    details = {"gap": gap} if convex else {}
    return solution_of(mdp, risk, law, policy, convex and small, report, details, bounds, components)


def mixture_of(
    graph: ReturnGraph,
    weights: Float[np.ndarray, " K"],
    probs: Float[np.ndarray, "Z N"],
    utilities: Float[np.ndarray, "Z N"],
    negligible: float,
) -> tuple[Law, Policy, tuple[Component, ...], str]:
    """Return the distribution, policy, components and description of a draw between best responses to K utilities.

    Components with smaller weights than `negligible` are dropped. Columns after the first K are not used.
    """
    order = np.argsort(-weights, kind="stable")
    order = order[weights[order] > negligible]
    shares = weights[order] / weights[order].sum()
    response = graph.best_response(utilities[:, order])
    components = tuple(
        Component(float(share), Law(graph.finals, probs[:, column]), response.policy(number))
        for number, (share, column) in enumerate(zip(shares, order, strict=True))
    )
    law = Law.mix([part.law for part in components], shares)
    if len(components) == 1:
        return law, components[0].policy, components, "deterministic"
    policy = RandomisedPolicy(tuple((part.prob, part.policy) for part in components))
    return law, policy, components, f"draws one of {len(components)} policies at the start"
