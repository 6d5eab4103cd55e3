"""The axes of the solver of market problems: chosen from simulated episodes, wide enough that their ends do not bind.

The prices cover every simulated path and are dense enough for one move. The positions are wider than what the policy
visits. The returns cover what the policy visits, and thresholds so far that the mean alone bounds all others.
"""

import numpy as np

from riskpath.mdp.grid.chance import PriceAxis
from riskpath.mdp.grid.form import Form, size_class
from riskpath.mdp.grid.play import Played
from riskpath.mdp.grid.rows import Window
from riskpath.mdp.grid.tail import Axes
from riskpath.mdp.grid.utility import KinkedUtility

SCOUTS = 4096
"""The number of paths and episodes that choose the axes."""
AROUND = 0.2
"""How far the prices reach beyond those of the scouts, as a fraction of their range."""
PRICES = {True: (0.45, 161), False: (0.04, 2561)}
"""With positions, and without: the distance of two prices (in standard deviations of a move), the most prices."""
POSITIONS = (9, 17, 33, 65, 129, 257)
"""The numbers of positions of a table, of which few are compiled."""
PARTS = (1, 2, 4, 8)
"""How many times finer returns can be along paths."""
MARGIN = 1.8
"""The ratio of the axis of positions to the range that the policy visits."""


def price_axis(form: Form, finer: float = 1.0, wider: float = 1.0) -> PriceAxis:
    """Return the axis of prices."""
    if form.price is None:
        return PriceAxis(0.0, 1.0, 1, False)
    given = list(form.problem.axes.values())[form.price]
    prices = form.paths(SCOUTS, 17)[0]
    curved = bool(given[0] > 0 and prices.min() > 0 and np.ptp(np.diff(np.log(given))) < np.ptp(np.diff(given)))
    to = np.log if curved else np.asarray
    low, high = (float(to(x)) for x in (prices.min(), prices.max()))
    middle, half = (low + high) / 2, (0.5 + AROUND) * max(high - low, 1e-6) * wider
    noise = np.asarray([[-1.0, 1.0]], np.float32)
    after = form.moves(0, np.full((1,), form.start_price, np.float32), noise, np.full((1, 1), form.start, np.int32))[0]
    low, high = (float(to(x)) for x in np.asarray(after)[0])
    gap, most = PRICES[len(form.lattice) > 1]
    count = size_class(max(24, round(finer * min(most, 4 * half / max(gap * (high - low), 1e-12))))) + 1
    return PriceAxis(middle - half, 2 * half / (count - 1), count, curved)


def choose_axes(
    form: Form, prices: PriceAxis, played: list[Played], window: tuple[float, float], count: int, step: float = np.inf
) -> Axes:
    """Return axes around what the last episodes visit; the first ones are mean-optimal.

    `window` are the ends of the returns, `step` the distance of two returns along paths, at most.
    """
    lots, width, (low, high) = len(form.lattice), form.width(prices), window
    wide = (high - low) / (count - 2)
    returns = Window(float(np.floor(low / wide) * wide), float(wide))
    parts = next((n for n in PARTS if wide / n <= step), PARTS[-1])
    if not form.problem.endless:
        return Axes(prices, width, 0, lots, 1, returns, count, parts)
    first, last = (int(x) for x in np.quantile(played[-1].positions, [0.0001, 0.9999]))
    usual = np.quantile(played[0].positions, [0.02, 0.98])  # a policy that hardly trades says too little
    first, last = (round(form.start + MARGIN * (end - form.start)) for end in (first - 2, last + 2))
    first, last = min(first, int(usual[0])), max(last, int(usual[1]))
    return Axes(prices, width, *choose_positions(form, first, last), returns, count, parts)


def choose_positions(form: Form, first: int, last: int) -> tuple[int, int, int]:
    """Return the first position, the number of positions, and their stride on the lattice."""
    lots = len(form.lattice)
    every = max(1, -(-(last - first) // (POSITIONS[-1] - 1)))
    positions = next(n for n in POSITIONS if every * (n - 1) >= last - first)
    positions = min(positions, (lots - 1) // every + 1)
    first -= (every * (positions - 1) - (last - first)) // 2
    return max(0, min(first, lots - 1 - every * (positions - 1))), positions, every


def choose_returns(
    form: Form, utility: KinkedUtility, most: float, value: float, played: Played
) -> tuple[float, float]:
    """Return the ends of the returns from mean-optimal episodes, the largest mean and a value that is reached.

    They are so wide that thresholds beyond them are worth less than `value`: at most −x + (slope + tail)·(x + M).
    """
    low, high = (float(k) for k in np.quantile(played.totals[:-1] - played.totals[-1:], [0.0005, 0.9995]))
    wider = 0.15 * max(high - low, 1e-6 * max(1.0, abs(low), abs(high)))
    low, high = min(low, 0.0) - wider, max(high, 0.0) + wider
    potential, steep = form.problem.start_potential, float(utility.slope + utility.tail)
    if steep > 1:
        low = min(low, (value - potential - steep * (most - potential)) / (steep - 1) - 0.05 * (high - low))
    return low, high
