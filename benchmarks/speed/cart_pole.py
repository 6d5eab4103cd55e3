"""CartPole-v1 in JAX, after Barto, Sutton and Anderson (1983) with Gymnasium's constants."""

from typing import Any

import jax
import jax.numpy as jnp

import riskpath as rp


class CartPole(rp.Environment):
    """Balance a pole on a cart; every step earns 1, for at most 500 steps."""

    max_steps: int = 500

    @property
    def spec(self) -> rp.EnvSpec:
        return rp.EnvSpec(num_actions=2, observation_shape=(4,), max_episode_steps=self.max_steps)

    def reset(self, key: Any) -> tuple[Any, Any]:
        state = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        return state, (state, jnp.zeros((), jnp.int32))

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        (x, speed, angle, turn), time = state
        force = jnp.where(action == 1, 10.0, -10.0)
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        push = (force + 0.05 * turn**2 * sin) / 1.1
        angular = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        acceleration = push - 0.05 * angular * cos / 1.1
        changes = jnp.stack([speed, acceleration, turn, angular])
        after, time = jnp.stack([x, speed, angle, turn]) + 0.02 * changes, time + 1
        fallen = (jnp.abs(after[0]) > 2.4) | (jnp.abs(after[2]) > 12 * 2 * jnp.pi / 360)
        return after, (after, time), jnp.ones(()), fallen, ~fallen & (time >= self.max_steps)

    def action_mask(self, state: Any) -> Any:
        return jnp.ones(2, bool)
