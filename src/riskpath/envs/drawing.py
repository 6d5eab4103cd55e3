"""The parts that all pictures of environments share: the episode to draw, the dispatch by environment, and helpers.

An environment gets a picture by a function `draw(env, episode)` decorated with `@picture.register(ItsClass)`.
"""

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from riskpath.envs.finite import FiniteProblem, as_finite, state_numbers
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

Image = UInt8[np.ndarray, "H W 3"]
"""A picture as bytes."""


@dataclass
class Episode:
    """An episode so far."""

    observations: list[Any]
    """s_0, …, s_t."""
    rewards: list[float]
    """r_0, …, r_{t−1}."""
    states: list[Any] = field(default_factory=list)
    """The environment's own states at times 0, …, t."""
    actions: list[Any] = field(default_factory=list)
    """a_0, …, a_{t−1}."""


@functools.singledispatch
def picture(env: Any, episode: Episode) -> Image:
    """Draw an episode so far as an image [height, width, 3] of bytes."""
    raise RiskpathError(f"{type(env).__name__} has no picture")


def has_picture(env: Any) -> bool:
    """Tell whether an environment has a picture."""
    return picture.dispatch(type(env)) is not picture.dispatch(object)


def paper(width: int, height: int, background: Image | None = None, footer: int = FOOTER) -> "Canvas":
    """Return a canvas with room below for the text of `finished`; matplotlib is imported for the first picture."""
    from riskpath.envs.canvas import Canvas

    return Canvas(width, height + footer, background)


def finished(canvas: "Canvas", episode: Episode, steps: int, decimals: int = 9) -> Image:
    """Write the time of the episode and its return so far below a picture, and return the picture."""
    height, total = canvas.height - FOOTER / 2, signed(round(sum(episode.rewards), decimals))
    canvas.text((MARGIN + 6, height), f"step {len(episode.rewards)} of {steps}", 15, MUTED, "left")
    canvas.text((canvas.width - MARGIN - 6, height), f"total {total}", 17, INK, "right", weight="bold")
    return canvas.image()


def mark(canvas: "Canvas", place: tuple[float, float], radius: float, inner: float) -> None:
    """Draw a ring: where the episode is now."""
    canvas.disc(place, radius, INK)
    canvas.disc(place, inner, WHITE)


@functools.lru_cache(maxsize=64)
def states_of(env: FiniteProblem) -> list[Any]:
    """Return the states of a problem by number."""
    return list(state_numbers(as_finite(env).mdp()))


def visited(env: FiniteProblem, episode: Episode) -> list[Any]:
    """Return the states of an episode of a problem whose observations are features."""
    names = states_of(env)
    return [names[int(number)] for number, _ in episode.states]


def signed(number: float, decimals: int | None = None) -> str:
    """Return a number with its sign, with a true minus."""
    text = f"{number:+.6g}" if decimals is None else f"{number:+.{decimals}f}"
    return text.replace("-", "−") if number else "0"
