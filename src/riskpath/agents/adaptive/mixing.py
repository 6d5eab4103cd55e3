"""Select policies and mixtures of policies by the returns of held-out episodes.

For some measures one candidate is always best (`RiskMeasure.deterministic`), for example where h is concave. For others
a mixture may be better: it is built by moving weight towards one candidate after another, and kept only if it is better
on episodes that did not choose it.
"""

import numpy as np
from jaxtyping import Float

from riskpath.mdp.grid.solution import influence
from riskpath.risk.measures import DistortionMeasure, RiskMeasure

SHARES = np.linspace(0.0, 1.0, 21)[1:-1]
"""The weights of another candidate that are tried."""
DRAWS = np.linspace(0.0, 1.0, 51)[1:-1]
"""The same for a floor, where a larger weight than needed costs in proportion."""
CLEARLY = 0.003
"""The smallest gain of a mixture, as a fraction of the scale of the returns."""
ROUNDS = 5
"""The largest number of times that weight is moved."""
POINTS = 8_193
"""Points between which h is interpolated."""


class MixtureSample:
    """Returns of several candidates, prepared to compute β of many mixtures of them.

    β = ∫ h′(t) F⁻¹(t) dt, with h linear between points that are dense at 0 and 1, where it may be steep.
    """

    def __init__(self, risk: RiskMeasure, returns: Float[np.ndarray, "M N"]):
        order = np.argsort(returns, axis=None)
        self.atoms, self.candidate = returns.ravel()[order], order // returns.shape[1]
        self.risk = risk
        if not isinstance(risk, DistortionMeasure):
            return
        self.points = (1.0 - np.cos(np.linspace(0.0, np.pi, POINTS))) / 2.0
        self.slopes = np.diff(np.asarray(risk.weight(self.points), np.float64)) / np.diff(self.points)

    def value(self, weights: Float[np.ndarray, " M"]) -> float:
        """Return β of a mixture."""
        probs = weights[self.candidate] * (len(weights) / len(self.atoms))
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
    """Return the influence of every return on β, up to a constant."""
    if not isinstance(risk, DistortionMeasure):
        return np.asarray(risk.influence(returns, returns, np.full(len(returns), 1 / len(returns))))
    order = np.argsort(returns)
    counted = np.empty(len(returns))
    counted[order] = influence(returns[order], risk)
    return counted


def best_mixture(
    risk: RiskMeasure, returns: Float[np.ndarray, "M N"], best: int | None = None
) -> Float[np.ndarray, " M"]:
    """Return the weights of the best mixture; the weight of the best candidate is 1 where no mixture is clearly better.

    `best` is the best candidate, if it is known from more episodes than these.
    """
    candidates = np.eye(len(returns))
    if best is None:
        best = int(np.argmax([risk.value(one) for one in returns]))
    if risk.deterministic:
        return candidates[best]
    choosing, checking = MixtureSample(risk, returns[:, ::2]), MixtureSample(risk, returns[:, 1::2])
    weights = max(candidates, key=choosing.value)
    reached = choosing.value(weights)
    for _ in range(ROUNDS):
        tried = [(1 - s) * weights + s * candidate for candidate in candidates for s in SHARES]
        values = [choosing.value(one) for one in tried]
        if max(values) <= reached:
            break
        reached, weights = max(values), tried[int(np.argmax(values))]
    gain = checking.value(weights) - checking.value(candidates[best])
    return weights if gain > CLEARLY * float(np.std(checking.atoms)) else candidates[best]


def best_above_floor(
    risk: RiskMeasure, returns: Float[np.ndarray, "M N"], floor: RiskMeasure, least: float
) -> Float[np.ndarray, " M"]:
    """Return the weights with the largest β of all candidates and draws between two of them that reach a floor.

    Where none of them reaches it, return the weights that come closest.
    """
    values, reached = (np.array([float(measure.value(one)) for one in returns]) for measure in (risk, floor))
    candidates, order = np.eye(len(returns)), np.arange(len(returns))
    no_worse = [(values >= values[m]) & (reached >= reached[m]) for m in order]
    better = [(values > values[m]) | (reached > reached[m]) | (order < m) for m in order]  # of equal ones the first
    kept = [m for m in order if not np.any(no_worse[m] & better[m])]
    tried = [(values[m], reached[m], candidates[m]) for m in kept]
    above, below = ([m for m in kept if (reached[m] >= least) == reaches] for reaches in (True, False))
    for pair in ((a, b) for a in above for b in below):
        objective, floored = (MixtureSample(measure, returns[list(pair)]) for measure in (risk, floor))
        for share in DRAWS:
            both = np.array([share, 1.0 - share])
            tried.append((objective.value(both), floored.value(both), both @ candidates[list(pair)]))
    good = [one for one in tried if one[1] >= least - 1e-9 * max(1.0, abs(least))]
    return max(good, key=lambda one: one[0])[2] if good else max(tried, key=lambda one: one[1::-1])[2]
