"""Pictures of the trading problems: the path of the price, and the position held."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from riskpath.envs.american_put import AmericanPut
from riskpath.envs.drawing import COLOURS, MUTED, Episode, finished, mark, paper, picture, signed
from riskpath.envs.market import MarketProblem
from riskpath.envs.mean_reversion_trading import MeanReversionTrading
from riskpath.envs.option_hedging import OptionHedging

if TYPE_CHECKING:
    from riskpath.envs.canvas import Canvas


@picture.register(MarketProblem)
def draw_market(env: MarketProblem, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the path of the price with the rewards received, and the position as bars below it."""
    left, right, top, bottom = 64, 492, 48, 248
    canvas = paper(512, 322)
    low, high = env.view

    def at(step: float, price: float) -> tuple[float, float]:
        share = min(max((price - low) / (high - low), 0.0), 1.0)
        return left + (right - left) * step / env.steps, bottom - (bottom - top) * share

    canvas.box((left - 8, top - 10), (right - left + 16, bottom - top + 20), 8, COLOURS["free"])
    for share in (0.0, 0.5, 1.0):
        price = low + share * (high - low)
        canvas.text((left - 16, at(0, price)[1]), f"{price:.3g}", 13, MUTED, "right")
    reference, name = _reference(env)
    canvas.line([at(0, reference), at(env.steps, reference)], 1.5, COLOURS["orange"])
    canvas.text((right, at(0, reference)[1] - 11), name, 13, MUTED, "right")
    path = [at(float(seen[-1]), float(seen[0])) for seen in episode.observations]
    canvas.line(path, 3, "#2f6da8")
    for place in path:
        canvas.disc(place, 4, "#2f6da8")
    mark(canvas, path[-1], 8, 4)
    _positions(canvas, episode, at, 292)
    if episode.rewards:
        canvas.text((right, 20), f"last reward {signed(episode.rewards[-1], 4)}", 13, MUTED, "right")
    return finished(canvas, episode, env.steps, decimals=4)


def _reference(env: MarketProblem) -> tuple[float, str]:
    """Return the price that matters, and its name."""
    if isinstance(env, MeanReversionTrading):
        return float(env.theta), "mean price"
    assert isinstance(env, AmericanPut | OptionHedging)
    return float(env.strike), "strike"


def _positions(canvas: "Canvas", episode: Episode, at: Any, middle: float) -> None:
    """Draw the position at every step as a bar, if the problem has one."""
    held = [float(seen[1]) for seen in episode.observations if len(seen) > 2]
    if not held:
        return
    canvas.text((48, middle), "held", 13, MUTED, "right")
    scale = 26 / max(1.0, *map(abs, held))
    for seen, amount in zip(episode.observations, held, strict=True):
        size = abs(amount) * scale
        corner = (at(float(seen[-1]), 1.0)[0] - 5, middle - size if amount > 0 else middle)
        canvas.box(corner, (10, max(size, 1.0)), 1, COLOURS["blue"] if amount >= 0 else COLOURS["orange"])
