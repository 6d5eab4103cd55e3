"""Exploration with continuous actions: Ornstein-Uhlenbeck noise, or a random action held for a while.

Every episode draws at its start whether it uses one of them, and which.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from riskpath.agents.agent import Mode
from riskpath.agents.config import ActionNoise
from riskpath.types import Key, TimeStep


class Noise(eqx.Module):
    """The exploration state of one episode."""

    kind: Float[Array, ""]
    """Uniform in [0, 1], drawn at the start: greedy, Ornstein-Uhlenbeck or held actions."""
    ou: Float[Array, " C"]
    held: Float[Array, " C"]
    holding: Bool[Array, ""]
    """Whether it replaces the agent's own."""


def no_noise(size: int) -> Noise:
    """Return the exploration state before the first step of an episode."""
    return Noise(jnp.zeros(()), jnp.zeros((size,)), jnp.zeros((size,)), jnp.zeros((), bool))


def explore(
    t: ActionNoise,
    action: Float[Array, " C"],
    noise: Noise,
    time_step: TimeStep,
    *,
    key: Key,
    mode: Mode,
) -> tuple[Float[Array, " C"], Noise]:
    """Return the agent's own action with exploration; in the warm-up the exploration alone."""
    kind_key, ou_key, turn_key, held_key, coin_key = jax.random.split(key, 5)
    first = time_step.time == 0
    kind = jnp.where(first, jax.random.uniform(kind_key), noise.kind)
    ou = (1.0 - t.theta) * noise.ou + t.sigma * jax.random.normal(ou_key, action.shape)
    turn = first | (jax.random.uniform(turn_key) < 1.0 / t.hold_steps)
    held = jnp.where(turn, jax.random.uniform(held_key, action.shape, minval=-1.0, maxval=1.0), noise.held)
    holding = jnp.where(turn, jax.random.uniform(coin_key) < 0.5, noise.holding)
    only = jnp.asarray(mode.warms_up)
    base, greedy = jnp.where(only, 0.0, action), 1.0 - jnp.where(only, 1.0, jnp.asarray(t.episodes, jnp.float32))
    with_ou = jnp.clip(base + ou, -1.0, 1.0)
    with_held = jnp.where(holding | only, held, base)
    explored = jnp.where(kind < greedy, base, jnp.where(kind < greedy + t.ou_episodes, with_ou, with_held))
    return jnp.where(mode.explores, explored, action), Noise(kind, ou, held, holding)
