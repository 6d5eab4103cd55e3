"""Which member of a population to play, judged by the returns of held-out episodes.

Where h is concave, β is convex in mixtures of laws and one member is best. Elsewhere a mixture may be better: it is
built by moving weight towards one member after another, and kept only if it is better on episodes that did not choose
it.
"""

import numpy as np
from jaxtyping import Float

from riskpath.risk.measures import RiskMeasure

SHARES = np.linspace(0.0, 1.0, 21)[1:-1]
"""Shares of another member that are tried."""
CLEARLY = 0.003
"""A mixture must gain this share of the spread of returns."""
ROUNDS = 5
"""How often weight is moved at most."""


def mixture_value(risk: RiskMeasure, returns: Float[np.ndarray, "M N"], weights: Float[np.ndarray, " M"]) -> float:
    """Return β of the mixture of the members' empirical laws."""
    used = weights > 0
    atoms = returns[used].ravel()
    probs = np.repeat(weights[used] / returns.shape[1], returns.shape[1])
    order = np.argsort(atoms)
    cdf = np.clip(np.concatenate([[0.0], np.cumsum(probs[order])]), 0.0, 1.0)
    cdf[-1] = 1.0
    return float(np.diff(np.asarray(risk.weight(cdf))) @ atoms[order])


def best_member(risk: RiskMeasure, returns: Float[np.ndarray, "M N"]) -> Float[np.ndarray, " M"]:
    """Return weight 1 for the member with the best value."""
    members = np.eye(len(returns))
    return members[int(np.argmax([mixture_value(risk, returns, member) for member in members]))]


def best_mixture(risk: RiskMeasure, returns: Float[np.ndarray, "M N"]) -> Float[np.ndarray, " M"]:
    """Return the weights of the best mixture; the weight of a single member is 1 where no mixture is clearly better."""
    single = best_member(risk, returns)
    if risk.concave:
        return single
    choosing, checking = returns[:, ::2], returns[:, 1::2]
    weights = best_member(risk, choosing)
    best = mixture_value(risk, choosing, weights)
    for _ in range(ROUNDS):
        tried = [(1 - s) * weights + s * member for member in np.eye(len(returns)) for s in SHARES]
        values = [mixture_value(risk, choosing, one) for one in tried]
        if max(values) <= best:
            break
        best, weights = max(values), tried[int(np.argmax(values))]
    gain = mixture_value(risk, checking, weights) - mixture_value(risk, checking, single)
    return weights if gain > CLEARLY * float(np.std(checking)) else single
