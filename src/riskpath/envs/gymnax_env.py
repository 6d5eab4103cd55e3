"""gymnax environments as environments of this library.

gymnax's `step` starts the next episode by itself, so the last observation of an episode is lost. The two methods that
it consists of do not: `step_env` for the dynamics and `is_truncated` for the time limit. These are called here.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Shaped

from riskpath.envs.environment import Environment, Step
from riskpath.errors import RiskpathError
from riskpath.types import EnvSpec, Key

LARGEST_BOUND = 1e6
"""A bound beyond this is treated as unknown: gymnax writes the largest float where there is none."""


class GymnaxEnvironment(Environment):
    """A gymnax environment and its parameters; make one with `from_gymnax`."""

    env: Any = eqx.field(static=True)
    """The gymnax environment, which holds no numbers of its own."""
    params: Any
    """Its parameters as arrays, so that they may differ between lanes."""
    env_spec: EnvSpec
    """The specification that follows from its spaces."""

    @property
    def spec(self) -> EnvSpec:
        return self.env_spec

    def reset(self, key: Key) -> tuple[Shaped[Array, "*obs"], Any]:
        observation, state = self.env.reset_env(key, self.params)
        return self._observation(observation), jax.tree.map(_as_array, state)

    def step(self, key: Key, state: Any, action: Shaped[Array, "*act"]) -> Step:
        observation, state, reward, terminated, _ = self.env.step_env(key, state, self._action(action), self.params)
        terminated, truncated = jnp.asarray(terminated, bool), jnp.zeros((), bool)
        if hasattr(self.env, "is_truncated"):
            truncated = ~terminated & jnp.asarray(self.env.is_truncated(state, self.params), bool)
        reward = jnp.asarray(reward, jnp.float32)
        return self._observation(observation), jax.tree.map(_as_array, state), reward, terminated, truncated

    def action_mask(self, state: Any) -> Bool[Array, " A"]:
        """Allow every action: gymnax has no action masks."""
        return jnp.ones(self.env_spec.num_actions, bool)

    def _observation(self, observation: Any) -> Shaped[Array, "*obs"]:
        return jnp.asarray(observation, self.env_spec.observation_dtype)

    def _action(self, action: Shaped[Array, "*act"]) -> Shaped[Array, "*act"]:
        """Scale a continuous action from [−1, 1] to the bounds, which may depend on the parameters."""
        if not self.env_spec.action_size:
            return action
        space = self.env.action_space(self.params)
        low, high = (jnp.broadcast_to(jnp.asarray(x, jnp.float32), space.shape) for x in (space.low, space.high))
        return low + 0.5 * (action.reshape(space.shape) + 1.0) * (high - low)


def from_gymnax(env: Any, params: Any = None) -> GymnaxEnvironment:
    """Convert a gymnax environment: `from_gymnax(*gymnax.make("CartPole-v1"))`.

    Environments of the same class whose parameters differ in numbers can be trained together. Before gymnax 1.0 a time
    limit cannot be distinguished from an end: there every episode that is cut off counts as terminated.

    Args:
        env: The environment itself; a wrapper is refused, because its own `step` would not be called.
        params: The parameters; by default `env.default_params`.
    """
    for method in ("reset_env", "step_env", "action_space", "observation_space"):
        if not hasattr(type(env), method):  # an instance of a wrapper has those of the environment inside
            raise RiskpathError(f"from_gymnax needs a {method} and no wrapper around it, got {type(env).__name__}")
    params = jax.tree.map(_as_array, env.default_params if params is None else params)
    observations, actions = env.observation_space(params), env.action_space(params)
    for space, of in ((observations, "observations"), (actions, "actions")):
        if not (hasattr(space, "n") or hasattr(space, "low")):
            raise RiskpathError(f"from_gymnax accepts Discrete and Box spaces only, got {space!r} for {of}")
    numbered, discrete = hasattr(observations, "n"), hasattr(actions, "n")
    if not discrete and _bounds(actions) is None:
        raise RiskpathError(
            f"actions must have bounds of at most ±{LARGEST_BOUND:g}, got {actions.low} and {actions.high}"
        )
    limit = getattr(params, "max_steps_in_episode", None)
    spec = EnvSpec(
        num_actions=int(actions.n) if discrete else 0,
        observation_shape=() if numbered else tuple(observations.shape),
        num_states=int(observations.n) if numbered else None,
        max_episode_steps=None if limit is None else int(np.ceil(limit)),
        action_size=0 if discrete else int(np.prod(actions.shape)),
        observation_bounds=None if numbered else _bounds(observations),
    )
    return GymnaxEnvironment(env, params, spec)


def _bounds(space: Any) -> tuple[tuple[float, float], ...] | None:
    """Return (lowest, highest) of each entry of a Box; None if they are not all known."""
    low, high = (np.broadcast_to(np.asarray(x, float), space.shape).ravel() for x in (space.low, space.high))
    known = (np.abs(low) <= LARGEST_BOUND) & (np.abs(high) <= LARGEST_BOUND) & (low < high)
    return tuple(zip(low.tolist(), high.tolist(), strict=True)) if known.all() else None


def _as_array(leaf: Any) -> Any:
    """Return a number as an array with a fixed type, so that no operation changes it."""
    return jnp.asarray(leaf, jnp.result_type(leaf)) if eqx.is_array_like(leaf) else leaf
