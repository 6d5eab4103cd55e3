"""gymnax environments seen as riskpath ones.

gymnax's `step` starts the next episode by itself and so hides the last observation of the one before. What it is made
of does not: `step_env` for what happens and `is_truncated` for the time limit. These two are called here.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from riskpath.envs.environment import Environment
from riskpath.errors import RiskpathError
from riskpath.types import EnvSpec, Key

UNBOUNDED = 1e6
"""A bound beyond this stands for none: gymnax writes the largest float there."""


class GymnaxEnvironment(Environment):
    """A gymnax environment and its parameters; make one with `from_gymnax`."""

    env: Any = eqx.field(static=True)
    """The environment, which holds no numbers of its own."""
    params: Any
    """Its parameters as arrays, so that each lane may have its own."""
    sizes: EnvSpec
    """What its spaces say."""

    @property
    def spec(self) -> EnvSpec:
        """What its spaces say."""
        return self.sizes

    def reset(self, key: Key) -> tuple[Shaped[Array, "*obs"], Any]:
        """The first observation and state."""
        obs, state = self.env.reset_env(key, self.params)
        return self._observation(obs), jax.tree.map(_array, state)

    def step(
        self, key: Key, state: Any, action: Shaped[Array, "*act"]
    ) -> tuple[Shaped[Array, "*obs"], Any, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Observation, state, reward, terminated, truncated."""
        obs, state, reward, terminated, _ = self.env.step_env(key, state, self._action(action), self.params)
        terminated, truncated = jnp.asarray(terminated, bool), jnp.zeros((), bool)
        if hasattr(self.env, "is_truncated"):
            truncated = ~terminated & jnp.asarray(self.env.is_truncated(state, self.params), bool)
        reward = jnp.asarray(reward, jnp.float32)
        return self._observation(obs), jax.tree.map(_array, state), reward, terminated, truncated

    def action_mask(self, state: Any) -> Bool[Array, " A"]:
        """gymnax knows no unavailable actions."""
        return jnp.ones(self.sizes.num_actions, bool)

    def _observation(self, obs: Any) -> Shaped[Array, "*obs"]:
        return jnp.asarray(obs, self.sizes.observation_dtype)

    def _action(self, action: Shaped[Array, "*act"]) -> Shaped[Array, "*act"]:
        """From [−1, 1] to the bounds, which may depend on the parameters."""
        if not self.sizes.action_size:
            return action
        space = self.env.action_space(self.params)
        low, high = (jnp.broadcast_to(jnp.asarray(x, jnp.float32), space.shape) for x in (space.low, space.high))
        return low + 0.5 * (action.reshape(space.shape) + 1.0) * (high - low)


def from_gymnax(env: Any, params: Any = None) -> GymnaxEnvironment:
    """A gymnax environment as one of riskpath's: `from_gymnax(*gymnax.make("CartPole-v1"))`.

    Environments of the same kind whose parameters differ in numbers can be trained side by side. Before gymnax 1.0,
    a time limit could not be told from an end: there every episode that is cut off counts as ended.

    Args:
        env: The environment itself; a wrapper is refused, as its own `step` would be passed over.
        params: Its parameters; by default `env.default_params`.
    """
    for method in ("reset_env", "step_env", "action_space", "observation_space"):
        if not hasattr(type(env), method):  # a wrapper lends those of the environment inside
            raise RiskpathError(f"from_gymnax needs a {method} and no wrapper around it, got {type(env).__name__}")
    params = jax.tree.map(_array, env.default_params if params is None else params)
    seen, acts = env.observation_space(params), env.action_space(params)
    for space, of in ((seen, "observations"), (acts, "actions")):
        if not (hasattr(space, "n") or hasattr(space, "low")):
            raise RiskpathError(f"from_gymnax knows Discrete and Box spaces only, got {space!r} for {of}")
    numbered, listed = hasattr(seen, "n"), hasattr(acts, "n")
    if not listed and _bounds(acts) is None:
        raise RiskpathError(f"actions must have bounds of at most ±{UNBOUNDED:g}, got {acts.low} and {acts.high}")
    limit = getattr(params, "max_steps_in_episode", None)
    sizes = EnvSpec(
        num_actions=int(acts.n) if listed else 0,
        observation_shape=() if numbered else tuple(seen.shape),
        num_states=int(seen.n) if numbered else None,
        max_episode_steps=None if limit is None else int(np.ceil(limit)),
        action_size=0 if listed else int(np.prod(acts.shape)),
        observation_bounds=None if numbered else _bounds(seen),
    )
    return GymnaxEnvironment(env, params, sizes)


def _bounds(space: Any) -> tuple[tuple[float, float], ...] | None:
    """(lowest, highest) of each entry of a Box, if they are all known."""
    low, high = (np.broadcast_to(np.asarray(x, float), space.shape).ravel() for x in (space.low, space.high))
    known = (np.abs(low) <= UNBOUNDED) & (np.abs(high) <= UNBOUNDED) & (low < high)
    return tuple(zip(low.tolist(), high.tolist(), strict=True)) if known.all() else None


def _array(leaf: Any) -> Any:
    """Numbers as arrays of a type that no operation changes."""
    return jnp.asarray(leaf, jnp.result_type(leaf)) if eqx.is_array_like(leaf) else leaf
