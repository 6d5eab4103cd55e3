"""Policies and mixtures of policies, judged by the returns of held-out episodes.

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


def advantage(
    risk: RiskMeasure, returns: Float[np.ndarray, " N"], others: Float[np.ndarray, " N"]
) -> tuple[float, float]:
    """Return β of a sample minus that of another one, and its standard error.

    The n-th episodes of both are taken to have the same randomness: the error is that of their differences.
    """
    difference = _influence(risk, returns) - _influence(risk, others)
    return float(risk.value(returns) - risk.value(others)), float(np.std(difference)) / len(returns) ** 0.5


def _influence(risk: RiskMeasure, returns: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return u(z) = ∫ h′(F) of every return: how much an episode counts for β, up to a constant."""
    order = np.argsort(returns)
    counted = np.empty(len(returns))
    counted[order] = influence(returns[order], risk)
    return counted


def best_mixture(
    risk: RiskMeasure, returns: Float[np.ndarray, "M N"], best: int | None = None
) -> Float[np.ndarray, " M"]:
    """Return the weights of the best mixture; the weight of the best member is 1 where no mixture is clearly better.

    Args:
        risk: The measure β.
        returns: Returns of every member.
        best: The best member, if it is known from more episodes than these.
    """
    members = np.eye(len(returns))
    value = lambda sample, weights: mixture_value(risk, sample, weights)  # noqa: E731
    single = members[np.argmax([value(returns, member) for member in members]) if best is None else best]
    if risk.concave:
        return single
    choosing, checking = returns[:, ::2], returns[:, 1::2]
    weights = max(members, key=lambda member: value(choosing, member))
    reached = value(choosing, weights)
    for _ in range(ROUNDS):
        tried = [(1 - s) * weights + s * member for member in members for s in SHARES]
        values = [value(choosing, one) for one in tried]
        if max(values) <= reached:
            break
        reached, weights = max(values), tried[int(np.argmax(values))]
    gain = value(checking, weights) - value(checking, single)
    return weights if gain > CLEARLY * float(np.std(checking)) else single
