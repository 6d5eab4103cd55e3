"""Pictures of environments: the episode so far as an image of bytes.

An environment gets a picture by a function `draw(env, episode)` decorated with `@picture.register(ItsClass)`.
"""

import functools
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from riskpath.envs.american_put import AmericanPut
from riskpath.envs.finite import FiniteProblem, state_numbers
from riskpath.envs.market import MarketProblem
from riskpath.envs.mean_reversion_trading import MeanReversionTrading
from riskpath.envs.mountain_car import GOAL, MAX_POSITION, MIN_POSITION, RiskyMountainCar
from riskpath.envs.option_hedging import OptionHedging
from riskpath.envs.risky_grid import Cell, RiskyGrid
from riskpath.envs.three_state import ThreeState
from riskpath.errors import RiskpathError

if TYPE_CHECKING:
    from riskpath.envs.canvas import Canvas

INK, MUTED, WHITE = "#1f2a36", "#55616e", "#ffffff"
COLOURS = {
    "start": "#dde4ec",
    "free": "#edf0f4",
    "goal": "#8ccb9b",
    "blue": "#86b8ea",
    "yellow": "#f7df72",
    "orange": "#f2a566",
}
"""Colours of cells and states."""
MARGIN, FOOTER = 16, 44
"""Pixels around a picture, and below it for the text."""


@dataclass
class Episode:
    """An episode so far."""

    observations: list[Any]
    """s_0, …, s_t."""
    rewards: list[float]
    """r_0, …, r_{t−1}."""
    state: Any = None
    """The environment's own state at time t."""


@functools.singledispatch
def picture(env: Any, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
    """Draw an episode so far as an image [height, width, 3] of bytes."""
    raise RiskpathError(f"{type(env).__name__} has no picture")


def has_picture(env: Any) -> bool:
    """Tell whether an environment has a picture."""
    return picture.dispatch(type(env)) is not picture.dispatch(object)


@picture.register(RiskyGrid)
def draw_grid(env: RiskyGrid, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the cells with their rewards, the path so far with the rewards received, and the agent."""
    states = _states(env)
    path = [states[number] for number in episode.observations]
    board = _Board(env, _empty_board(env))
    for cell in path:
        board.cell(cell)  # over the text on the empty board
    board.canvas.line([board.at(cell) for cell in path], max(2.0, board.pitch / 9), INK)
    board.canvas.disc(board.at(path[-1]), board.pitch / 5, INK)
    board.canvas.disc(board.at(path[-1]), board.pitch / 9, WHITE)
    for cell, reward in zip(path[1:], episode.rewards, strict=True):
        board.text(cell, 0.9, 0.84, _signed(reward), INK, "right", "bold")  # beside the path
    _footer(board.canvas, len(episode.rewards), 2 * env.forks, sum(episode.rewards))
    return board.canvas.image()


@functools.lru_cache(maxsize=8)
def _empty_board(env: RiskyGrid) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the cells with their possible rewards; this part of the picture takes the longest, and never changes."""
    board = _Board(env)
    for cell in (env.cell(row, col) for row in range(env.forks + 1) for col in range(env.forks + 1)):
        board.cell(cell)
        if cell.colour != "start":
            rewards = [_signed(reward) for prob, reward in env.rewards(cell) if prob]
            lines = [" or ".join(rewards)] if board.pitch >= 96 else rewards
            for line, text in enumerate(lines):
                down = 0.5 + (line - (len(lines) - 1) / 2) * 1.3 * board.letters / board.pitch
                board.text(cell, 0.5, down, text, MUTED)
    return board.canvas.image()


class _Board:
    """A canvas with square cells."""

    def __init__(self, env: RiskyGrid, background: UInt8[np.ndarray, "H W 3"] | None = None):
        size = env.forks + 1
        self.pitch = max(6, 480 // size // 2 * 2)  # even, because video encoders need an even size of the picture
        self.letters = min(16, self.pitch / 7)
        self.canvas = _canvas(size * self.pitch + 2 * MARGIN, size * self.pitch + MARGIN + FOOTER, background)

    def at(self, cell: Cell, right: float = 0.5, down: float = 0.5) -> tuple[float, float]:
        """Return the pixel at a fraction of a cell."""
        return MARGIN + (cell.col + right) * self.pitch, MARGIN + (cell.row + down) * self.pitch

    def cell(self, cell: Cell) -> None:
        """Draw a cell, with the names of start and goal."""
        (left, top), gap = self.at(cell, 0, 0), max(1, self.pitch // 32)
        side = self.pitch - 2 * gap
        self.canvas.box((left + gap, top + gap), (side, side), self.pitch / 10, COLOURS[cell.colour])
        if cell.colour in ("start", "goal"):
            self.text(cell, 0.5, 0.17, cell.colour, INK, weight="bold")

    def text(self, cell: Cell, right: float, down: float, text: str, colour: str, *style: str, **named: str) -> None:
        """Write into a cell, if text fits."""
        if self.pitch >= 60:
            self.canvas.text(self.at(cell, right, down), text, self.letters, colour, *style, **named)


@picture.register(ThreeState)
def draw_three_state(env: ThreeState, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the three states in a row; between them the possible rewards, or the one received."""
    canvas = _canvas(512, 156 + FOOTER)
    places = [(76.0, 84.0), (256.0, 84.0), (436.0, 84.0)]
    here = len(episode.rewards)
    for step, (left, right) in enumerate(itertools.pairwise(places)):
        middle, height = (left[0] + right[0]) / 2, left[1]
        canvas.line([left, right], 6, INK if step < here else COLOURS["start"])
        if step < here:
            canvas.text((middle, height - 20), _signed(episode.rewards[step]), 16, INK, weight="bold")
        else:
            canvas.text((middle, height - 20), f"{_signed(env.win)} or {_signed(env.lose)}", 13, MUTED)
            canvas.text((middle, height + 20), _signed(env.safe), 13, MUTED)
    for number, (place, name) in enumerate(zip(places, ("s0", "s1", "end"), strict=True)):
        canvas.disc(place, 36, INK if number == here else COLOURS["goal" if name == "end" else "blue"])
        canvas.text(place, name, 17, WHITE if number == here else INK)
    _footer(canvas, here, 2, sum(episode.rewards))
    return canvas.image()


@picture.register(RiskyMountainCar)
def draw_mountain_car(env: RiskyMountainCar, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the car on its hill."""
    background = _landscape()
    height, width, _ = background.shape
    canvas = _canvas(width, height, background)
    position = float(episode.observations[-1][0])
    angle = math.atan(_slope(position))
    car = canvas.affine().rotate(angle).translate(position, _height(position)) + _world(canvas)
    canvas.box((-0.032, 0.047), (0.064, 0.052), 0.016, "#24507a", car)
    canvas.box((-0.024, 0.062), (0.048, 0.028), 0.008, "#ddebf5", car)
    canvas.box((-0.062, 0.021), (0.124, 0.042), 0.014, "#2f6da8", car)
    for wheel in (-0.036, 0.036):
        canvas.disc((wheel, 0.02), 0.02, "#2b3036", car)
        canvas.disc((wheel, 0.02), 0.009, "#c9d1d8", car)
    canvas.text((24, 30), f"step {len(episode.rewards)} of {env.max_episode_steps}", 15, MUTED, "left")
    canvas.text((24, 54), f"total {_signed(sum(episode.rewards), 1)}", 17, INK, "left", weight="bold")
    return canvas.image()


@picture.register(MarketProblem)
def draw_market(env: MarketProblem, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the path of the price with the rewards received, and the position as bars below it."""
    left, right, top, bottom = 64, 492, 48, 248
    canvas = _canvas(512, 322 + FOOTER)
    low, high = env.view

    def at(step: float, price: float) -> tuple[float, float]:
        share = min(max((price - low) / (high - low), 0.0), 1.0)
        return left + (right - left) * step / env.length, bottom - (bottom - top) * share

    canvas.box((left - 8, top - 10), (right - left + 16, bottom - top + 20), 8, COLOURS["free"])
    for share in (0.0, 0.5, 1.0):
        price = low + share * (high - low)
        canvas.text((left - 16, at(0, price)[1]), f"{price:.3g}", 13, MUTED, "right")
    reference, name = _reference(env)
    canvas.line([at(0, reference), at(env.length, reference)], 1.5, COLOURS["orange"])
    canvas.text((right, at(0, reference)[1] - 11), name, 13, MUTED, "right")
    path = [at(float(seen[-1]), float(seen[0])) for seen in episode.observations]
    canvas.line(path, 3, "#2f6da8")
    for place in path:
        canvas.disc(place, 4, "#2f6da8")
    canvas.disc(path[-1], 8, INK)
    canvas.disc(path[-1], 4, WHITE)
    _positions(canvas, episode, at, 292)
    if episode.rewards:
        canvas.text((right, 20), f"last reward {_signed(episode.rewards[-1], 4)}", 13, MUTED, "right")
    _footer(canvas, len(episode.rewards), env.length, round(sum(episode.rewards), 4))
    return canvas.image()


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


@functools.cache
def _landscape() -> UInt8[np.ndarray, "H W 3"]:
    """Draw the sky, the hill and the flag."""
    canvas = _canvas(600, 400)
    canvas.gradient("#b3d6ec", "#f1f7fb")
    world, top = _world(canvas), _height(GOAL)
    canvas.line([(GOAL, top), (GOAL, top + 0.15)], 3, "#5b6770", world)
    canvas.polygon([(GOAL, top + 0.15), (GOAL + 0.085, top + 0.12), (GOAL, top + 0.09)], "#d9483b", world)
    for depth, colour in ((0.0, "#6fa66a"), (0.02, "#8a6f55"), (0.09, "#7b624b")):
        canvas.polygon(_hill(depth), colour, world)
    return canvas.image()


def _world(canvas: "Canvas") -> Any:
    """Return the transform from positions and heights, which start at the lower left corner, to pixels."""
    return canvas.affine().translate(-MIN_POSITION, 0).scale(canvas.width / (MAX_POSITION - MIN_POSITION))


def _hill(depth: float) -> np.ndarray:
    """Return the outline of the ground that lies at least `depth` below the surface."""
    x = np.linspace(MIN_POSITION - 0.2, MAX_POSITION + 0.2, 161)
    slope = _slope(x)
    length = np.hypot(1, slope)
    surface = np.stack([x + depth * slope / length, _height(x) - depth / length], axis=1)
    return np.concatenate([surface, [(x[-1], -0.2), (x[0], -0.2)]])


def _height(x: Any) -> Any:
    """Return the height of the hill, the same as in Gymnasium's picture."""
    return np.sin(3 * x) * 0.45 + 0.55


def _slope(x: Any) -> Any:
    return np.cos(3 * x) * 1.35


def _canvas(width: int, height: int, background: UInt8[np.ndarray, "H W 3"] | None = None) -> "Canvas":
    """Return a canvas; matplotlib is imported here, for the first picture."""
    from riskpath.envs.canvas import Canvas

    return Canvas(width, height, background)


def _footer(canvas: "Canvas", step: int, steps: int, total: float) -> None:
    """Write how far the episode is, and its return so far."""
    height = canvas.height - FOOTER / 2
    canvas.text((MARGIN + 6, height), f"step {step} of {steps}", 15, MUTED, "left")
    canvas.text((canvas.width - MARGIN - 6, height), f"total {_signed(total)}", 17, INK, "right", weight="bold")


@functools.lru_cache(maxsize=64)
def _states(env: FiniteProblem) -> list[Any]:
    """Return the states of a problem by number."""
    return list(state_numbers(env.mdp()))


def _signed(number: float, decimals: int | None = None) -> str:
    """Return a number with its sign, with a true minus."""
    text = f"{number:+.6g}" if decimals is None else f"{number:+.{decimals}f}"
    return text.replace("-", "−") if number else "0"
