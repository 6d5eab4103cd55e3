"""The best reward-adaptive policy: it sees time, state and return so far, and transitions may be random.

CVaR is solved to the global optimum through CVaR_η[Z] = max_b {b − E[(b−Z)⁺]/η}: each threshold b gives an
expected-utility problem over (time, state, return so far). The maximum lies at an attainable final return. The outer
problem is not concave, so each of these returns is either searched or excluded by a bound: when b grows by δ the
optimum grows by at most δ, when b falls by δ the optimum grows by at most δ(1/η − 1). Mixtures of the mean with one
CVaR are solved in the same way.

Any other measure is improved by *utility iteration*. Near a law F, moving to G changes β by about
E_G[u] − E_F[u] with u(z) = ∫^z h′(F(x)) dx. The iteration solves the expected-utility problem for u,
computes the next u from the law of the resulting policy, and repeats. For concave h the right side is a lower bound
of the change, so no step makes the policy worse, but the result may be a local maximum; therefore many starts are
iterated together. If all undominated laws can be listed (see `attainable`), the result is compared with the best of
them and is then proven optimal.

All policies here are deterministic. For convex h a randomised policy can be better.
"""

import numpy as np
from jaxtyping import Float

from riskpath.errors import RiskpathError
from riskpath.mdp.attainable import attainable
from riskpath.mdp.dominance import dominance_order
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import Policy
from riskpath.mdp.return_graph import ReturnGraph, Utilities
from riskpath.mdp.solution import Solution
from riskpath.risk.compose import mean_and_cvar
from riskpath.risk.law import Law
from riskpath.risk.measures import RiskMeasure

THRESHOLD_BATCH = 64
"""How many thresholds of CVaR are searched together."""
STARTS = 96
"""How many levels utility iteration starts from, in each of three families of utilities."""
ITERATIONS = 40
"""The largest number of utility iterations."""
PROOF_LIMIT = 4096
"""The largest number of laws combined at one state; beyond it no proof is attempted."""


def solve_adaptive(mdp: FiniteMDP, risk: RiskMeasure) -> Solution:
    """Return the best policy of (time, state, return so far), or the best known one where no proof is possible."""
    graph = ReturnGraph(mdp)
    if (parts := mean_and_cvar(risk)) is not None:
        law, policy, searched = _best_threshold(graph, *parts)
        details = {"thresholds": len(graph.finals), "thresholds_searched": searched}
        return Solution(mdp, risk, "adaptive", float(risk.value(law)), law, policy, True, "optimal", details)
    law, policy = _utility_iteration(graph, risk)
    proof = _prove(mdp, risk)
    if proof is None:
        report, details = "best known, not proven optimal", {}
    else:
        bound, bound_law, bound_policy = proof
        report, details = "proven optimal", {"utility_iteration": float(risk.value(law))}
        if bound > risk.value(law) + 1e-9 * max(1.0, abs(bound)):
            law, policy = bound_law, bound_policy
    return Solution(mdp, risk, "adaptive", float(risk.value(law)), law, policy, proof is not None, report, details)


def _best_threshold(graph: ReturnGraph, weight: float, eta: float) -> tuple[Law, Policy, int]:
    """Return the best policy over all thresholds that the bound does not exclude, searched by descending bound."""
    z = graph.finals

    def utilities(b: Float[np.ndarray, " B"]) -> Utilities:
        tail = b[None, :] - np.maximum(b[None, :] - z[:, None], 0.0) / eta
        return (1 - weight) * z[:, None] + weight * tail

    # An upper bound of the optimum at every threshold, from the optima at those already searched.
    bound = np.full(len(z), np.inf)
    best, best_b, searched = -np.inf, z[0], 0
    up, down = weight, weight * (1 / eta - 1)
    batch = np.unique(np.linspace(0, len(z) - 1, THRESHOLD_BATCH).astype(int))
    while batch.size:
        values = graph.best_response(utilities(z[batch])).value
        searched += batch.size
        if values.max() > best:
            best, best_b = float(values.max()), z[batch[values.argmax()]]
        for index, value in zip(batch, values, strict=True):
            gap = z - z[index]
            bound = np.minimum(bound, value + np.where(gap >= 0, up * gap, -down * gap))
            bound[index] = -np.inf
        remaining = np.flatnonzero(bound > best + 1e-10 * max(1.0, abs(best)))
        batch = remaining[np.argsort(-bound[remaining], kind="stable")][:THRESHOLD_BATCH]
    response = graph.best_response(utilities(np.array([best_b])), prefer_mean=True)
    return response.law(), response.policy(), searched


def _utility_iteration(graph: ReturnGraph, risk: RiskMeasure) -> tuple[Law, Policy]:
    """Return the best policy that utility iteration from many starts visits."""
    utilities = _first_utilities(graph, risk)
    best, best_utility = -np.inf, utilities[:, :1]
    visited: set[bytes] = set()
    for _ in range(ITERATIONS):
        probs = graph.best_response(utilities).final_probs()
        cdf = np.clip(np.cumsum(probs, axis=0), 0.0, 1.0)
        h = np.asarray(risk.weight(cdf))
        values = graph.finals @ np.diff(h, axis=0, prepend=0.0)
        if values.max() > best:
            best, best_utility = float(values.max()), utilities[:, [values.argmax()]]
        new = []
        for column in np.argsort(-values, kind="stable"):
            key = np.round(probs[:, column], 12).tobytes()
            if key not in visited:
                visited.add(key)
                new.append(column)
        if not new:
            break
        utilities = _utility(graph.finals, cdf[:, new], risk)
    response = graph.best_response(best_utility)
    return response.law(), response.policy()


def _utility(z: Float[np.ndarray, " Z"], cdf: Float[np.ndarray, "Z B"], risk: RiskMeasure) -> Utilities:
    """Return u(z) = ∫^z h′(F(x)) dx, which is linear with slope h′(F) between final returns."""
    width = 1e-7
    low, high = np.clip(cdf - width, 0.0, 1.0), np.clip(cdf + width, 0.0, 1.0)
    slope = (np.asarray(risk.weight(high)) - np.asarray(risk.weight(low))) / (high - low)
    rise = slope[:-1] * np.diff(z)[:, None]
    return np.concatenate([np.zeros((1, cdf.shape[1])), np.cumsum(rise, axis=0)])


def _first_utilities(graph: ReturnGraph, risk: RiskMeasure) -> Utilities:
    """Return the first utilities: the mean, caps and floors at many levels, exponentials, and u of a few plain laws."""
    z = graph.finals[:, None]
    levels = graph.finals[np.unique(np.linspace(0, len(z) - 1, STARTS).astype(int))]
    capped, floored = np.minimum(z, levels), np.maximum(z, levels)
    spread = max(float(np.ptp(z)), 1e-12)
    bends = np.concatenate([-np.geomspace(0.5, 50, 8), np.geomspace(0.5, 50, 8)])
    curved = np.expm1(np.clip(bends * (z - z.mean()) / spread, -200, 200)) / bends
    both = capped + floored[:, ::-1]
    uniform = np.linspace(0, 1, len(z))[:, None]
    laws = np.concatenate([np.clip(uniform**power, 0, 1) for power in (0.25, 0.5, 1.0, 2.0, 4.0)], axis=1)
    return np.concatenate([z, capped, floored, both, curved, _utility(graph.finals, laws, risk)], axis=1)


def _prove(mdp: FiniteMDP, risk: RiskMeasure) -> tuple[float, Law, Policy] | None:
    """Return the best value, law and policy of all undominated attainable laws, or None if they cannot be listed."""
    try:
        laws = attainable(mdp, dominance_order(risk), PROOF_LIMIT)
    except RiskpathError:  # a law has too many atoms: the result is not proven
        return None
    if laws is None:
        return None
    values = [float(risk.value(law)) for law, _ in laws]
    index = int(np.argmax(values))
    return values[index], *laws[index]
