"""Pictures of cars: the mountain car on its hill, and one that follows another on a road."""

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from riskpath.envs.drawing import INK, MUTED, WHITE, Episode, Image, finished, paper, picture, signed
from riskpath.envs.driving import DT, LENGTH, PER_ACTION, SPEED, STEPS, Driving
from riskpath.envs.mountain_car import GOAL, MAX_POSITION, MIN_POSITION, RiskyMountainCar

if TYPE_CHECKING:
    from riskpath.envs.canvas import Canvas


@picture.register(RiskyMountainCar)
def draw_mountain_car(env: RiskyMountainCar, episode: Episode) -> Image:
    """Draw the car on its hill."""
    background = _landscape()
    height, width, _ = background.shape
    canvas = paper(width, height, background, footer=0)
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
def _landscape() -> Image:
    """Draw the sky, the hill and the flag."""
    canvas = paper(600, 400, footer=0)
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


@picture.register(Driving)
def draw_driving(env: Driving, episode: Episode) -> Image:
    """Draw the road from above, with both cars and the way of the follower relative to the leader."""
    width, middle = 640, 90
    canvas = paper(width, 2 * middle)
    times = [int(state.time) for state in episode.states]
    leader, cars = np.asarray(episode.states[-1].leader)[times], np.stack([state.car for state in episode.states])
    (x, y, _, heading), (lead, _, side) = cars[-1], leader[-1]
    centre, scale = (x + lead) / 2, min(9.0, 520 / max(abs(lead - x), 1.0))
    across = lambda place: float(width / 2 + scale * (place - centre))
    canvas.box((0, 0), (width, 2 * middle), 0, "#dcebd6")
    canvas.box((0, middle - 4 * scale), (width, 8 * scale), 0, "#b9c1c9")
    dash = 4 * LENGTH
    ground = centre + SPEED * DT * times[-1]  # the stripes of the road stand still there
    for number in range(-20, 20):
        left = across(centre - ground % dash + number * dash)
        canvas.line([(left, middle), (left + scale * dash / 2, middle)], 2, WHITE)
    behind = cars[:, 0] - leader[:, 0] + lead
    way = [(across(place), float(middle - scale * beside)) for place, beside in zip(behind, cars[:, 1], strict=True)]
    canvas.line(way, 2, MUTED)
    for place, beside, angle, colour in ((lead, side, 0.0, "#d9483b"), (x, y, float(heading), "#2f6da8")):
        up = canvas.height - middle + scale * float(beside)
        car = canvas.affine().rotate(angle).scale(scale).translate(across(place), up)
        canvas.box((-LENGTH / 2, -LENGTH / 4), (LENGTH, LENGTH / 2), 0.4, colour, car)
        canvas.box((-LENGTH / 8, -LENGTH / 5), (LENGTH / 3, LENGTH / 2.5), 0.3, "#ddebf5", car)
    canvas.text((width / 2, 22), f"{lead - x - LENGTH:.1f} m between the cars", 15, INK)
    return finished(canvas, episode, STEPS // PER_ACTION, decimals=1)
