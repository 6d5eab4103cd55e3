"""Which member of a population to play, judged by the returns of held-out episodes.

The member that the agent itself prefers is played unless another one is significantly better: the best of several
samples is flattered, and members often differ by less than the error of a sample.

Where h is concave, β is convex in mixtures of laws and one member is best. Elsewhere a mixture may be better: it is
built by moving weight towards one member after another, and kept only if it is better on episodes that did not choose
it.
"""

import numpy as np
from jaxtyping import Float

from riskpath.mdp.grid_solution import influence
from riskpath.risk.measures import RiskMeasure

SHARES = np.linspace(0.0, 1.0, 21)[1:-1]
"""Shares of another member that are tried."""
CLEARLY = 0.003
"""A mixture must gain this share of the spread of returns."""
ERRORS = 2.0
"""Another member must be better than the preferred one by this many standard errors."""
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


def best_member(
    risk: RiskMeasure, returns: Float[np.ndarray, "M N"], preferred: int | None = None
) -> Float[np.ndarray, " M"]:
    """Return weight 1 for the member with the best value, or for the preferred one if no other is clearly better.

    The n-th episodes of all members are taken to have the same randomness, so their differences are compared.
    """
    members = np.eye(len(returns))
    values = [mixture_value(risk, returns, member) for member in members]
    best = int(np.argmax(values))
    if preferred is None or best == preferred:
        return members[best]
    difference = _influence(risk, returns[best]) - _influence(risk, returns[preferred])
    error = float(np.std(difference)) / returns.shape[1] ** 0.5
    return members[best if values[best] - values[preferred] > ERRORS * error else preferred]


def _influence(risk: RiskMeasure, returns: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return u(z) = ∫ h′(F) of every return: how much an episode counts for β, up to a constant."""
    order = np.argsort(returns)
    counted = np.empty(len(returns))
    counted[order] = influence(returns[order], risk)
    return counted - counted.mean()


def best_mixture(
    risk: RiskMeasure, returns: Float[np.ndarray, "M N"], preferred: int | None = None
) -> Float[np.ndarray, " M"]:
    """Return the weights of the best mixture; the weight of a single member is 1 where no mixture is clearly better."""
    single = best_member(risk, returns, preferred)
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
