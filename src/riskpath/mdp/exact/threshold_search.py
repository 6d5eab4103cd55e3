"""The best thresholds of many CVaR levels, where returns have no common unit: a search with a bound.

V(b) = max E[λ(Z − b) + min(Z − b, 0)] is known at the thresholds that were searched. Between two of them, b₁ < b₂,

    W(b) = V(b) + λb ≤ min(W(b₁), W(b₂) + b₂ − b),

because W falls, with a slope of at most 1. That bounds b + V(b)/η for every level η. Intervals whose bound is not
above the best value found are dropped, the others are halved: the result is the global maximum.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from riskpath.mdp.exact.return_graph import ReturnGraph, Utilities

FIRST = 65
"""The number of thresholds that are searched first."""
BATCH = 128
"""The number of thresholds that are searched together afterwards."""


def goal_utilities(finals: Float[np.ndarray, " Z"], thresholds: Float[np.ndarray, " B"], weight: float) -> Utilities:
    """Return λ(z − b) + min(z − b, 0) for every final return z and threshold b."""
    distance = finals[:, None] - thresholds[None, :]
    return weight * distance + np.minimum(distance, 0.0)


def search_thresholds(
    graph: ReturnGraph, levels: Sequence[float], weight: float
) -> tuple[Float[np.ndarray, " E"], Float[np.ndarray, " E"], int]:
    """Return the best threshold b of every level, b + V(b)/η there, and the number of thresholds searched."""
    z, eta = graph.finals, np.asarray(levels, float)[:, None]
    value = np.full(len(z), np.nan)  # V at the final returns that were searched
    batch = np.unique(np.linspace(0, len(z) - 1, FIRST).astype(int))
    tolerance = 1e-12 * max(1.0, float(np.abs(z).max()))
    while True:
        value[batch] = graph.values(goal_utilities(z, z[batch], weight))
        known = np.flatnonzero(~np.isnan(value))
        objective = z[known] + value[known] / eta
        best = objective.max(axis=1)
        low, high = known[:-1], known[1:]
        open_ = high - low > 1
        low, high = low[open_], high[open_]
        excess = (_bound(z, value, low, high, eta, weight) - best[:, None]).max(axis=0, initial=-np.inf)
        alive = np.flatnonzero(excess > tolerance / eta.min())
        if alive.size == 0:
            chosen = known[objective.argmax(axis=1)]
            return z[chosen], best, known.size
        alive = alive[np.argsort(-excess[alive], kind="stable")][:BATCH]
        batch = (low[alive] + high[alive]) // 2


def _bound(
    z: np.ndarray, value: np.ndarray, low: np.ndarray, high: np.ndarray, eta: np.ndarray, weight: float
) -> Float[np.ndarray, "E I"]:
    """Return an upper bound of b + V(b)/η over each interval (low, high) of thresholds, for each level."""
    left, right = value[low] + weight * z[low], value[high] + weight * z[high]  # W at both ends
    kink = z[high] - (left - right)
    at_low = z[low] + (left - weight * z[low]) / eta
    at_kink = kink + (left - weight * kink) / eta
    at_high = z[high] + (right - weight * z[high]) / eta
    return np.maximum(np.maximum(at_low, at_kink), at_high)
