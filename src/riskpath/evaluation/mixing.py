"""Policies and mixtures of policies, judged by the returns of held-out episodes.

For some measures one member is always best (`RiskMeasure.deterministic`), for example where h is concave. For others a
mixture may be better: it is built by moving weight towards one member after another, and kept only if it is better on
episodes that did not choose it.
"""

import numpy as np
from jaxtyping import Float

from riskpath.mdp.grid_solution import influence
from riskpath.risk.measures import DistortionMeasure, RiskMeasure

SHARES = np.linspace(0.0, 1.0, 21)[1:-1]
"""Shares of another member that are tried."""
CLEARLY = 0.003
"""A mixture must gain this share of the spread of returns."""
ROUNDS = 5
"""How often weight is moved at most."""
POINTS = 8_193
"""Points between which h is interpolated."""


class MixtureSample:
    """Returns of several members, prepared to compute β of many mixtures of them.

    β = ∫ h′(t) F⁻¹(t) dt, with h linear between points that lie closely where it may be steep, at 0 and 1.
    """

    def __init__(self, risk: RiskMeasure, returns: Float[np.ndarray, "M N"]):
        order = np.argsort(returns, axis=None)
        self.atoms, self.member = returns.ravel()[order], order // returns.shape[1]
        self.risk = risk
        if not isinstance(risk, DistortionMeasure):
            return
        self.points = (1.0 - np.cos(np.linspace(0.0, np.pi, POINTS))) / 2.0
        self.slopes = np.diff(np.asarray(risk.weight(self.points), np.float64)) / np.diff(self.points)

    def value(self, weights: Float[np.ndarray, " M"]) -> float:
        """Return β of a mixture."""
        probs = weights[self.member] * (len(weights) / len(self.atoms))
        if not isinstance(self.risk, DistortionMeasure):
            return float(self.risk.of(self.atoms, probs))
        up_to = np.cumsum([np.append(0.0, probs), np.append(0.0, probs * self.atoms)], axis=1)  # ∫ dF, ∫ F⁻¹
        return float(self.slopes @ np.diff(np.interp(self.points, *up_to)))


def advantage(
    risk: RiskMeasure, returns: Float[np.ndarray, " N"], others: Float[np.ndarray, " N"]
) -> tuple[float, float]:
    """Return β of a sample minus that of another one, and its standard error.

    The n-th episodes of both are taken to have the same randomness: the error is that of their differences.
    """
    difference = _influence(risk, returns) - _influence(risk, others)
    return float(risk.value(returns) - risk.value(others)), float(np.std(difference)) / len(returns) ** 0.5


def _influence(risk: RiskMeasure, returns: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return the influence of every return: how much an episode counts for β, up to a constant."""
    if not isinstance(risk, DistortionMeasure):
        return np.asarray(risk.influence(returns, returns, np.full(len(returns), 1 / len(returns))))
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
    if best is None:
        best = int(np.argmax([risk.value(one) for one in returns]))
    if risk.deterministic:
        return members[best]
    choosing, checking = MixtureSample(risk, returns[:, ::2]), MixtureSample(risk, returns[:, 1::2])
    weights = max(members, key=choosing.value)
    reached = choosing.value(weights)
    for _ in range(ROUNDS):
        tried = [(1 - s) * weights + s * member for member in members for s in SHARES]
        values = [choosing.value(one) for one in tried]
        if max(values) <= reached:
            break
        reached, weights = max(values), tried[int(np.argmax(values))]
    gain = checking.value(weights) - checking.value(members[best])
    return weights if gain > CLEARLY * float(np.std(checking.atoms)) else members[best]
