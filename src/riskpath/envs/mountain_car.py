"""Mountain car with a risky penalty: Gymnasium's MountainCarContinuous-v0 plus a chance to pay for every step.

The car's engine is too weak for the hill, so it must swing. With the force a = clip(action, −1, 1):

    v' = clip(v + 0.0015 a − 0.0025 cos 3x, ±0.07),   x' = clip(x + v', −1.2, 0.6),   v' = 0 at the left wall,
    r  = 100 [x' ≥ 0.45 and v' ≥ 0] − 0.1 action² + R_risky,
    R_risky = −c (2 − |a|) with probability 1 / (4 − 3|a|), else 0.

Full force is riskless (a certain −c); coasting costs half of that on average, with the largest variance.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8

from riskpath.envs.environment import Environment
from riskpath.errors import RiskpathError
from riskpath.types import EnvSpec, Key
from riskpath.validation import require_counts

MIN_POSITION, MAX_POSITION, MAX_SPEED, GOAL = -1.2, 0.6, 0.07, 0.45
POWER, GRAVITY, START = 0.0015, 0.0025, (-0.6, -0.4)


class Car(eqx.Module):
    """Where the car is, how fast, and when."""

    position: Float[Array, ""]
    velocity: Float[Array, ""]
    time: Int[Array, ""]
    """Steps taken in this episode."""


class RiskyMountainCar(Environment):
    """Mountain car with continuous force and the paper's risky penalty; it observes position and velocity."""

    c: float | Array = 0.0
    """Weight of the risky penalty; the paper's is in [0, 1], and 0 is Gymnasium's problem."""
    max_episode_steps: int = eqx.field(static=True, default=999)
    """After how many steps an episode is cut off."""
    power: float | Array = POWER
    """Acceleration at full force."""
    goal_velocity: float | Array = 0.0
    """The least velocity that counts as arriving."""

    def __check_init__(self):
        if isinstance(self.c, int | float) and not (math.isfinite(self.c) and self.c >= 0):
            raise RiskpathError(f"c must be a finite number, at least 0, got {self.c}")
        require_counts(max_episode_steps=self.max_episode_steps)

    @property
    def spec(self) -> EnvSpec:
        """Two numbers observed, one force to choose."""
        bounds = ((MIN_POSITION, MAX_POSITION), (-MAX_SPEED, MAX_SPEED))
        return EnvSpec(
            num_actions=0,
            observation_shape=(2,),
            max_episode_steps=self.max_episode_steps,
            action_size=1,
            observation_bounds=bounds,
        )

    def reset(self, key: Key) -> tuple[Float[Array, "2"], Car]:
        """At rest, somewhere in the valley."""
        car = Car(jax.random.uniform(key, (), jnp.float32, *START), jnp.zeros(()), jnp.zeros((), jnp.int32))
        return _observe(car), car

    def step(
        self, key: Key, state: Car, action: Float[Array, "1"]
    ) -> tuple[Float[Array, "2"], Car, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """One step of the car; `key` decides whether the penalty falls due."""
        (pushed,) = action
        force = jnp.clip(pushed, -1.0, 1.0)
        position, velocity, terminated = self.roll(
            state.position, self.accelerate(state.position, state.velocity, force)
        )
        size, probability = self.penalty(force)
        risky = jnp.where(jax.random.uniform(key) < probability, -size, 0.0)
        # Gymnasium clips the force, but charges for the action as given.
        reward = jnp.where(terminated, 100.0, 0.0) - 0.1 * pushed**2 + risky
        car = Car(position, velocity, state.time + 1)
        return _observe(car), car, reward, terminated, ~terminated & (car.time >= self.max_episode_steps)

    def accelerate(self, position: Float[Array, ""], velocity: Float[Array, ""], force: Float[Array, ""]) -> Array:
        """The next velocity: engine, slope, limit."""
        return jnp.clip(velocity + (force * self.power - GRAVITY * jnp.cos(3 * position)), -MAX_SPEED, MAX_SPEED)

    def roll(
        self, position: Float[Array, ""], velocity: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""], Bool[Array, ""]]:
        """Position, velocity and whether the goal is reached, after moving at the new velocity."""
        position = jnp.clip(position + velocity, MIN_POSITION, MAX_POSITION)
        velocity = jnp.where((position == MIN_POSITION) & (velocity < 0), 0.0, velocity)
        return position, velocity, (position >= GOAL) & (velocity >= self.goal_velocity)

    def penalty(self, force: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """What R_risky takes away, and with what probability."""
        strength = jnp.abs(force)
        return self.c * (2 - strength), 1 / (4 - 3 * strength)

    def action_mask(self, state: Any) -> Bool[Array, "0"]:
        """Actions are not numbered."""
        return jnp.ones((0,), bool)


def _observe(car: Car) -> Float[Array, "2"]:
    return jnp.stack([car.position, car.velocity])


def picture(state: Car, size: int = 600) -> UInt8[np.ndarray, "H W 3"]:
    """The car on its hill, `size` pixels wide and two thirds as high."""
    width, rows = size, round(size * 2 / 3)
    scale = width / (MAX_POSITION - MIN_POSITION)
    x = MIN_POSITION + (np.arange(width)[None, :] + 0.5) / scale
    y = (rows - np.arange(rows)[:, None] - 0.5) / scale
    image = _colour(0xEAF3FA) + (_colour(0xBFDCEF) - _colour(0xEAF3FA)) * (y / y.max())[..., None] + 0 * x[..., None]

    def paint(distance: np.ndarray, colour: int) -> None:
        """Fills where the distance to a shape's edge is negative; the edge itself is smooth."""
        nonlocal image
        cover = np.clip(0.5 - distance * scale, 0, 1)[..., None]
        image = image + cover * (_colour(colour) - image)

    def hill(depth: float) -> np.ndarray:
        return (y - _height(x) + depth) / np.hypot(1, _slope(x))

    def box(x: np.ndarray, y: np.ndarray, half: tuple[float, float], radius: float) -> np.ndarray:
        across, up = np.abs(x) - half[0] + radius, np.abs(y) - half[1] + radius
        return np.hypot(np.maximum(across, 0), np.maximum(up, 0)) + np.minimum(np.maximum(across, up), 0) - radius

    foot = _height(GOAL)
    paint(box(x - GOAL, y - foot - 0.06, (0.004, 0.08), 0.0), 0x5B6770)
    tip = np.maximum((x - GOAL) * 0.35 + np.abs(y - foot - 0.112) - 0.028, GOAL - x)
    paint(tip, 0xD9483B)
    paint(hill(0.0), 0x6FA66A)
    paint(hill(0.018), 0x8A6F55)
    paint(hill(0.1), 0x7B624B)
    # The car's own axes: along the slope, and up from the road.
    at = float(state.position)
    angle = math.atan(_slope(at))
    along = (x - at) * math.cos(angle) + (y - _height(at)) * math.sin(angle)
    up = (y - _height(at)) * math.cos(angle) - (x - at) * math.sin(angle)
    paint(box(along, up - 0.071, (0.032, 0.024), 0.014), 0x24507A)
    paint(box(along, up - 0.075, (0.024, 0.013), 0.008), 0xDDEBF5)
    paint(box(along, up - 0.042, (0.062, 0.021), 0.012), 0x2F6DA8)
    for wheel in (-0.036, 0.036):
        paint(np.hypot(along - wheel, up - 0.02) - 0.02, 0x2B3036)
        paint(np.hypot(along - wheel, up - 0.02) - 0.009, 0xC9D1D8)
    return np.round(image).astype(np.uint8)


def _height(x: Any) -> Any:
    """The hill, as Gymnasium draws it."""
    return np.sin(3 * x) * 0.45 + 0.55


def _slope(x: Any) -> Any:
    return np.cos(3 * x) * 1.35


def _colour(code: int) -> np.ndarray:
    return np.array([code >> 16, code >> 8 & 255, code & 255], float)
