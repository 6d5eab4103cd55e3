"""Pictures of environments: an episode so far as an image of bytes, drawn with NumPy.

A shape is given by the signed distance to its edge in pixels; clipped, that is how much of a pixel it covers, so edges
are smooth. An environment gets a picture by `@picture.register(Itself)`.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from riskpath.envs import mountain_car
from riskpath.envs.finite import FiniteProblem, state_numbers
from riskpath.envs.mountain_car import RiskyMountainCar
from riskpath.envs.risky_grid import Cell, RiskyGrid
from riskpath.envs.three_state import ThreeState
from riskpath.errors import RiskpathError

INK, MUTED, PAPER = 0x1F2A36, 0x5F6B78, 0xFFFFFF
CELLS = {
    "start": 0xDFE5EC,
    "free": 0xEEF1F4,
    "goal": 0x8CCB9B,
    "blue": 0x86B8EA,
    "yellow": 0xF7DF72,
    "orange": 0xF2A566,
}
FOOTER = 40

Point = tuple[float, float]


class Walk(NamedTuple):
    """An episode so far."""

    observations: list[Any]
    """s_0, …, s_t."""
    rewards: list[float]
    """r_0, …, r_{t−1}."""
    state: Any
    """The environment's own state at time t."""


@functools.singledispatch
def picture(env: Any, walk: Walk) -> UInt8[np.ndarray, "H W 3"]:
    """An episode so far as an image [height, width, 3] of bytes."""
    raise RiskpathError(f"{type(env).__name__} has no picture")


def has_picture(env: Any) -> bool:
    """Can it be drawn?"""
    return picture.dispatch(type(env)) is not picture.dispatch(object)


@picture.register(RiskyGrid)
def _(env: RiskyGrid, walk: Walk) -> UInt8[np.ndarray, "H W 3"]:
    """The cells with what they pay, the way so far with what it paid, and the agent."""
    size, margin = env.forks + 1, 16
    pitch = max(6, 480 // size // 2 * 2)  # even, as videos want the whole picture to be
    canvas = Canvas(size * pitch + 2 * margin, size * pitch + 2 * margin + FOOTER)

    def at(cell: Cell, right: float = 0.0, down: float = 0.0) -> Point:
        return margin + (cell.col + 0.5 + right) * pitch, margin + (cell.row + 0.5 + down) * pitch

    names = _states(env)
    way = [names[number] for number in walk.observations]
    earned = dict(zip(way[1:], walk.rewards, strict=True))
    for cell in (env.cell(row, col) for row in range(size) for col in range(size)):
        canvas.box(at(cell), pitch / 2 - max(1, pitch // 32), pitch / 10, CELLS[cell.colour])
    canvas.path([at(cell) for cell in way], max(1, pitch / 16), INK)
    canvas.disc(at(way[-1]), pitch / 5, INK)
    canvas.disc(at(way[-1]), pitch / 9, PAPER)
    if pitch >= 60:  # below that, words do not fit
        letters = min(18, pitch // 6)
        for cell in names:
            if cell.colour in ("start", "goal"):
                canvas.text(at(cell, down=-0.34), cell.colour, letters, INK)
            if cell in earned:  # beside the way, which goes through the middle
                canvas.text(at(cell, 0.27, 0.34), _signed(earned[cell]), letters, INK)
            elif cell not in way:
                canvas.text(
                    at(cell), " or ".join(_signed(reward) for prob, reward in env.rewards(cell) if prob), letters, MUTED
                )
    canvas.footer(len(walk.rewards), 2 * env.forks, sum(walk.rewards))
    return canvas.bytes()


@picture.register(ThreeState)
def _(env: ThreeState, walk: Walk) -> UInt8[np.ndarray, "H W 3"]:
    """The three states in a row; between them what the bets pay, or what they paid."""
    canvas = Canvas(512, 160 + FOOTER)
    places = [(76.0, 80.0), (256.0, 80.0), (436.0, 80.0)]
    here = len(walk.rewards)
    for step, (left, right) in enumerate(itertools.pairwise(places)):
        middle = (left[0] + right[0]) / 2
        canvas.path([left, right], 3, INK if step < here else CELLS["start"])
        if step < here:
            canvas.text((middle, 60), _signed(walk.rewards[step]), 16, INK)
        else:
            canvas.text((middle, 60), f"{_signed(env.win)} or {_signed(env.lose)}", 14, MUTED)
            canvas.text((middle, 100), _signed(env.safe), 14, MUTED)
    for number, (place, name) in enumerate(zip(places, ("s0", "s1", "end"), strict=True)):
        canvas.disc(place, 36, INK if number == here else CELLS["goal" if name == "end" else "blue"])
        canvas.text(place, name, 18, PAPER if number == here else INK)
    canvas.footer(here, 2, sum(walk.rewards))
    return canvas.bytes()


@picture.register(RiskyMountainCar)
def _(env: RiskyMountainCar, walk: Walk) -> UInt8[np.ndarray, "H W 3"]:
    """The car on its hill."""
    return mountain_car.picture(walk.state)


class Canvas:
    """White paper to draw on; places are (x, y) in pixels from the upper left corner."""

    def __init__(self, width: int, height: int):
        self.image = np.full((height, width, 3), 255.0)

    def bytes(self) -> UInt8[np.ndarray, "H W 3"]:
        """The finished picture."""
        return np.round(self.image).astype(np.uint8)

    def box(self, centre: Point, half: float, radius: float, colour: int) -> None:
        """A square with rounded corners."""

        def distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            across, down = np.abs(x - centre[0]) - half + radius, np.abs(y - centre[1]) - half + radius
            outside = np.hypot(np.maximum(across, 0), np.maximum(down, 0))
            return outside + np.minimum(np.maximum(across, down), 0) - radius

        self._blend(*self._cover([centre], half, distance), colour)

    def disc(self, centre: Point, radius: float, colour: int) -> None:
        """A filled circle."""
        distance = lambda x, y: np.hypot(x - centre[0], y - centre[1]) - radius  # noqa: E731
        self._blend(*self._cover([centre], radius, distance), colour)

    def path(self, points: list[Point], radius: float, colour: int) -> None:
        """A line through points with round ends; `radius` is half its width."""

        def distance(start: Point, end: Point, x: np.ndarray, y: np.ndarray) -> np.ndarray:
            (a, b), (c, d) = start, end
            along = np.clip(((x - a) * (c - a) + (y - b) * (d - b)) / ((c - a) ** 2 + (d - b) ** 2), 0, 1)
            return np.hypot(x - a - along * (c - a), y - b - along * (d - b)) - radius

        whole = np.zeros(self.image.shape[:2])  # blended at once: overlapping ends would show
        for start, end in itertools.pairwise(points):
            rows, columns, cover = self._cover([start, end], radius, functools.partial(distance, start, end))
            whole[rows, columns] = np.maximum(whole[rows, columns], cover)
        self._blend(slice(None), slice(None), whole, colour)

    def text(self, centre: Point, text: str, size: int, colour: int, anchor: str = "mm") -> None:
        """Words, with their middle (or what Pillow's `anchor` says) at a place."""
        from PIL import Image, ImageDraw  # only letters need it

        mask = Image.new("L", (self.image.shape[1], 2 * size))
        ImageDraw.Draw(mask).text((centre[0], size), text, fill=255, font=_font(size), anchor=anchor)
        top = round(centre[1]) - size
        self._blend(slice(top, top + 2 * size), slice(None), np.asarray(mask) / 255, colour)

    def footer(self, step: int, steps: int, total: float) -> None:
        """How far the episode is, and what it brought."""
        height, width, _ = self.image.shape
        self.text((24, height - 28), f"step {step} of {steps}", 16, MUTED, anchor="lm")
        self.text((width - 24, height - 28), f"total {_signed(total)}", 18, INK, anchor="rm")

    def _cover(
        self, points: list[Point], reach: float, distance: Callable[..., np.ndarray]
    ) -> tuple[slice, slice, np.ndarray]:
        """How much of each pixel a shape covers, looking only at those within `reach` of the points."""
        height, width, _ = self.image.shape
        (left, top), (right, bottom) = np.min(points, axis=0) - reach - 1, np.max(points, axis=0) + reach + 2
        rows, columns = (
            slice(max(0, int(top)), min(height, int(bottom))),
            slice(max(0, int(left)), min(width, int(right))),
        )
        y, x = np.mgrid[rows, columns] + 0.5
        return rows, columns, np.clip(0.5 - distance(x, y), 0, 1)

    def _blend(self, rows: slice, columns: slice, cover: np.ndarray, colour: int) -> None:
        paint = np.array([colour >> 16, colour >> 8 & 255, colour & 255], float)
        part = self.image[rows, columns]
        part += cover[..., None] * (paint - part)


@functools.lru_cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


@functools.lru_cache(maxsize=64)
def _states(env: FiniteProblem) -> list[Any]:
    """The states of a problem by number."""
    return list(state_numbers(env.mdp()))


def _signed(number: float) -> str:
    return f"{number:+.6g}" if number else "0"
