"""Mountain car with a risky penalty: Gymnasium's MountainCarContinuous-v0 plus a random cost of every step.

The car's engine is too weak for the hill, so it must swing. With the force a = clip(action, −1, 1):

    v' = clip(v + 0.0015 a − 0.0025 cos 3x, ±0.07),   x' = clip(x + v', −1.2, 0.6),   v' = 0 at the left wall,
    r  = 100 [x' ≥ 0.45 and v' ≥ 0] − 0.1 action² + R_risky,
    R_risky = −c (2 − |a|) with probability 1 / (4 − 3|a|), else 0.

Full force has no risk (a certain −c); no force costs half of that on average, with the largest variance.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from riskpath.envs.environment import Environment, Step
from riskpath.errors import RiskpathError
from riskpath.types import EnvSpec, Key
from riskpath.validation import as_parameter, require_counts

MIN_POSITION, MAX_POSITION, MAX_SPEED, GOAL = -1.2, 0.6, 0.07, 0.45
POWER, GRAVITY, START = 0.0015, 0.0025, (-0.6, -0.4)


class Car(eqx.Module):
    """The state of the car."""

    position: Float[Array, ""]
    velocity: Float[Array, ""]
    time: Int[Array, ""]
    """Steps taken in this episode."""


class RiskyMountainCar(Environment):
    """Mountain car with continuous force and the paper's risky penalty; observes position and velocity."""

    c: float | Array = eqx.field(converter=as_parameter, default=0.0)
    """Weight of the risky penalty; the paper's is in [0, 1], and 0 is Gymnasium's problem."""
    max_episode_steps: int = eqx.field(static=True, default=999)
    """The number of steps after which an episode is cut off."""
    power: float | Array = eqx.field(converter=as_parameter, default=POWER)
    """Acceleration at full force."""
    goal_velocity: float | Array = eqx.field(converter=as_parameter, default=0.0)
    """The smallest velocity at which the goal counts as reached."""

    def __check_init__(self):
        for name in ("c", "power", "goal_velocity"):
            value = getattr(self, name)
            if not hasattr(value, "dtype") and not (isinstance(value, float) and math.isfinite(value)):
                raise RiskpathError(f"{name} must be a finite number, got {value!r}")
        if isinstance(self.c, float) and self.c < 0:
            raise RiskpathError(f"c must be at least 0, got {self.c:g}")
        require_counts(max_episode_steps=self.max_episode_steps)

    @property
    def spec(self) -> EnvSpec:
        bounds = ((MIN_POSITION, MAX_POSITION), (-MAX_SPEED, MAX_SPEED))
        return EnvSpec(
            num_actions=0,
            observation_shape=(2,),
            max_episode_steps=self.max_episode_steps,
            action_size=1,
            observation_bounds=bounds,
        )

    def reset(self, key: Key) -> tuple[Float[Array, "2"], Car]:
        """Place the car at rest in the valley."""
        car = Car(jax.random.uniform(key, (), jnp.float32, *START), jnp.zeros(()), jnp.zeros((), jnp.int32))
        return _observe(car), car

    def step(self, key: Key, state: Car, action: Float[Array, "1"]) -> Step:
        """Move the car; `key` decides whether the penalty is paid."""
        (requested,) = action
        force = jnp.clip(requested, -1.0, 1.0)
        position, velocity, terminated = self.roll(
            state.position, self.accelerate(state.position, state.velocity, force)
        )
        size, probability = self.penalty(force)
        risky = jnp.where(jax.random.uniform(key) < probability, -size, 0.0)
        # Gymnasium clips the force, but the cost is that of the unclipped action.
        reward = jnp.where(terminated, 100.0, 0.0) - 0.1 * requested**2 + risky
        car = Car(position, velocity, state.time + 1)
        return _observe(car), car, reward, terminated, ~terminated & (car.time >= self.max_episode_steps)

    def accelerate(self, position: Float[Array, ""], velocity: Float[Array, ""], force: Float[Array, ""]) -> Array:
        """Return the next velocity from engine, slope and speed limit."""
        return jnp.clip(velocity + (force * self.power - GRAVITY * jnp.cos(3 * position)), -MAX_SPEED, MAX_SPEED)

    def roll(
        self, position: Float[Array, ""], velocity: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""], Bool[Array, ""]]:
        """Move at the new velocity; return position, velocity and whether the goal is reached."""
        position = jnp.clip(position + velocity, MIN_POSITION, MAX_POSITION)
        velocity = jnp.where((position == MIN_POSITION) & (velocity < 0), 0.0, velocity)
        return position, velocity, (position >= GOAL) & (velocity >= self.goal_velocity)

    def penalty(self, force: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the size of the penalty −R_risky and its probability."""
        strength = jnp.abs(force)
        return self.c * (2 - strength), 1 / (4 - 3 * strength)

    def action_mask(self, state: Any) -> Bool[Array, "0"]:
        return jnp.ones((0,), bool)


def _observe(car: Car) -> Float[Array, "2"]:
    return jnp.stack([car.position, car.velocity])
