"""Pictures of environments: the episode so far as an image of bytes. This module holds all of them.

Those of the paper's problems are drawn here, the others in the modules `pictures_…`, whose import registers them.
"""

import functools
import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from riskpath.envs import pictures_of_markets as pictures_of_markets
from riskpath.envs import pictures_of_mazes as pictures_of_mazes
from riskpath.envs import pictures_of_places as pictures_of_places
from riskpath.envs import pictures_over_time as pictures_over_time
from riskpath.envs.drawing import (
    COLOURS,
    FOOTER,
    INK,
    MARGIN,
    MUTED,
    WHITE,
    Episode,
    canvas_of,
    finished,
    has_picture,
    mark,
    paper,
    picture,
    signed,
    states_of,
)
from riskpath.envs.mountain_car import GOAL, MAX_POSITION, MIN_POSITION, RiskyMountainCar
from riskpath.envs.risky_grid import Cell, RiskyGrid
from riskpath.envs.three_state import ThreeState

if TYPE_CHECKING:
    from riskpath.envs.canvas import Canvas

__all__ = ["COLOURS", "FOOTER", "MARGIN", "Episode", "has_picture", "picture"]


@picture.register(RiskyGrid)
def draw_grid(env: RiskyGrid, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the cells with their rewards, the path so far with the rewards received, and the agent."""
    states = states_of(env)
    path = [states[number] for number in episode.observations]
    board = _Board(env, _empty_board(env))
    for cell in path:
        board.cell(cell)  # over the text on the empty board
    board.canvas.line([board.at(cell) for cell in path], max(2.0, board.pitch / 9), INK)
    mark(board.canvas, board.at(path[-1]), board.pitch / 5, board.pitch / 9)
    for cell, reward in zip(path[1:], episode.rewards, strict=True):
        board.text(cell, 0.9, 0.84, signed(reward), INK, "right", "bold")  # beside the path
    return finished(board.canvas, episode, 2 * env.forks)


@functools.lru_cache(maxsize=8)
def _empty_board(env: RiskyGrid) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the cells with their possible rewards; this part of the picture takes the longest, and never changes."""
    board = _Board(env)
    for cell in (env.cell(row, col) for row in range(env.forks + 1) for col in range(env.forks + 1)):
        board.cell(cell)
        if cell.colour != "start":
            rewards = [signed(reward) for prob, reward in env.rewards(cell) if prob]
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
        self.canvas = paper(size * self.pitch + 2 * MARGIN, size * self.pitch + MARGIN, background)

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
    canvas = paper(512, 156)
    places = [(76.0, 84.0), (256.0, 84.0), (436.0, 84.0)]
    here = len(episode.rewards)
    for step, (left, right) in enumerate(itertools.pairwise(places)):
        middle, height = (left[0] + right[0]) / 2, left[1]
        canvas.line([left, right], 6, INK if step < here else COLOURS["start"])
        if step < here:
            canvas.text((middle, height - 20), signed(episode.rewards[step]), 16, INK, weight="bold")
        else:
            canvas.text((middle, height - 20), f"{signed(env.win)} or {signed(env.lose)}", 13, MUTED)
            canvas.text((middle, height + 20), signed(env.safe), 13, MUTED)
    for number, (place, name) in enumerate(zip(places, ("s0", "s1", "end"), strict=True)):
        canvas.disc(place, 36, INK if number == here else COLOURS["goal" if name == "end" else "blue"])
        canvas.text(place, name, 17, WHITE if number == here else INK)
    return finished(canvas, episode, 2)


@picture.register(RiskyMountainCar)
def draw_mountain_car(env: RiskyMountainCar, episode: Episode) -> UInt8[np.ndarray, "H W 3"]:
    """Draw the car on its hill."""
    background = _landscape()
    height, width, _ = background.shape
    canvas = canvas_of(width, height, background)
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
    canvas.text((24, 54), f"total {signed(sum(episode.rewards), 1)}", 17, INK, "left", weight="bold")
    return canvas.image()


@functools.cache
def _landscape() -> UInt8[np.ndarray, "H W 3"]:
    """Draw the sky, the hill and the flag."""
    canvas = canvas_of(600, 400)
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
