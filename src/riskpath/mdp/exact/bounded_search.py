"""Searches over one number with a bound: intervals that cannot hold the best value are dropped, the others are halved.

`search_intervals` maximises V(θ) + c(θ), where V falls and c rises: between θ₁ and θ₂ it is at most V(θ₁) + c(θ₂).

`search_thresholds` finds the best thresholds of many CVaR levels, where returns have no common unit.
V(b) = max E[λ(Z − b) + min(Z − b, 0)] is known at the thresholds that were searched. Between two of them, b₁ < b₂,

    W(b) = V(b) + λb ≤ min(W(b₁), W(b₂) + b₂ − b),

because W falls, with a slope of at most 1. That bounds b + V(b)/η for every level η. The result is the global maximum.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from riskpath.mdp.exact.return_graph import ReturnGraph, Utilities
from riskpath.mdp.problem import Progress

FIRST = 129
"""The number of points that a search over intervals begins with."""
MOST = 4_096
"""The largest number of points that it tries."""
WORK = 400_000_000
"""The largest number of points times the outcomes of the problem."""
FIRST_THRESHOLDS, BATCH = 65, 128
"""The number of thresholds that are searched first, and of those searched together afterwards."""

Points = Float[np.ndarray, " _"]


def search_intervals(
    points: Points,
    falling: Callable[[Points], Points],
    rising: Callable[[Points], Points],
    middle: Callable[[Points, Points], Points],
    close: float,
    size: int,
    progress: Progress,
) -> tuple[Points, Points, float]:
    """Return the points that were tried, ascending, V at each of them, and an upper bound of the best V + c.

    Args:
        points: The first points, ascending.
        falling: V, which is expensive.
        rising: c.
        middle: Where two ends of intervals are halved.
        close: Bounds that exceed the best value by less end the search.
        size: The number of outcomes of the problem.
        progress: A function of the points tried and of the largest number of them.
    """
    values = falling(points)
    most = min(MOST, max(FIRST, WORK // max(size, 1)))
    while True:
        best = float((values + rising(points)).max())
        bounds = values[:-1] + rising(points[1:])
        alive = np.flatnonzero(bounds > best + close)
        progress(min(points.size, most), most)
        if alive.size == 0 or points.size + alive.size > most:
            return points, values, max(best, float(bounds.max(initial=-np.inf)))
        new = middle(points[alive], points[alive + 1])
        points, values = np.concatenate([points, new]), np.concatenate([values, falling(new)])
        order = np.argsort(points)
        points, values = points[order], values[order]


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
    batch = np.unique(np.linspace(0, len(z) - 1, FIRST_THRESHOLDS).astype(int))
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
