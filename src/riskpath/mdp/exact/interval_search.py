"""The largest V(θ) + c(θ) over one number θ, where V falls and c rises: a search with a bound.

Between θ₁ and θ₂ the sum is at most V(θ₁) + c(θ₂). Intervals whose bound is not above the best value are dropped, the
others are halved, until none is left or too many points were tried.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from riskpath.mdp.problem import Progress

FIRST = 129
"""The number of points that a search begins with."""
MOST = 4_096
"""The largest number of points that are tried."""
WORK = 400_000_000
"""The largest number of points times the outcomes of the problem."""

Points = Float[np.ndarray, " _"]


def search_intervals(
    points: Points,
    falling: Callable[[Points], Points],
    rising: Callable[[Points], Points],
    middle: Callable[[Points, Points], Points],
    close: float,
    size: int,
    progress: Progress | None = None,
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
        if progress is not None:
            progress(min(points.size, most), most)
        if alive.size == 0 or points.size + alive.size > most:
            return points, values, max(best, float(bounds.max(initial=-np.inf)))
        new = middle(points[alive], points[alive + 1])
        points, values = np.concatenate([points, new]), np.concatenate([values, falling(new)])
        order = np.argsort(points)
        points, values = points[order], values[order]
