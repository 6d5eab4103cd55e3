"""riskpath environments seen as Gymnasium ones: `gymnasium.make("riskpath/RiskyGrid-v0", forks=5)`.

Gymnasium has no plug-ins (since 1.0), so `import riskpath` registers the names; `gymnasium.make("riskpath:riskpath/…")`
does both at once.
"""

import copy
from typing import Any

import equinox as eqx
import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from riskpath.envs import make
from riskpath.envs.environment import Environment
from riskpath.envs.finite import as_arrays
from riskpath.envs.rendering import Walk, has_picture, picture
from riskpath.errors import RiskpathError
from riskpath.types import EnvSpec, Key


class GymnasiumEnv(gymnasium.Env):
    """Any environment as a Gymnasium one, or one of the library's by name, with any of its fields changed.

    Where actions are numbered, `info["action_mask"]` says which are available, as `action_space.sample` wants to know.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's own way)

    def __init__(self, env: Environment | str, render_mode: str | None = None, **fields: Any):
        self.env = _environment(env, fields)
        self.sizes = self.env.spec
        # Moves between numbered states are looked at one by one, motion is not.
        fps = 30 if self.sizes.num_states is None else 4
        self.metadata = {"render_modes": ["rgb_array"] if has_picture(self.env) else [], "render_fps": fps}
        if render_mode not in (None, *self.metadata["render_modes"]):
            accepted = " or ".join(map(repr, [*self.metadata["render_modes"], None]))
            raise RiskpathError(f"render_mode of {type(self.env).__name__} must be {accepted}, got {render_mode!r}")
        self.render_mode = render_mode
        self.observation_space, self.action_space = _observation_space(self.sizes), _action_space(self.sizes)
        self._host = jax.devices("cpu")[0]  # one step at a time is faster there than on a GPU
        self._world = jax.tree.map(
            lambda x: jax.device_put(x, self._host) if eqx.is_array(x) else x, as_arrays(self.env)
        )
        self._walk: Walk | None = None
        self._over = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A new episode; the same seed gives the same episodes from there on."""
        super().reset(seed=seed)
        key = jax.device_put(jax.random.key(int(self.np_random.integers(2**31))), self._host)
        self._key, state, told = _reset(self._world, key)
        obs, info = self._show(*jax.device_get(told))
        self._walk, self._over = Walk([copy.copy(obs)], [], state), False
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Observation, reward, terminated, truncated, and the actions that are available next."""
        if self._walk is None or self._over:
            raise RiskpathError("the episode is over or has not begun: call reset")
        self._key, state, told = _step(self._world, self._key, self._walk.state, self._read(action))
        obs, mask, reward, terminated, truncated = jax.device_get(told)
        obs, info = self._show(obs, mask)
        self._walk.observations.append(copy.copy(obs))
        self._walk.rewards.append(float(reward))
        self._walk, self._over = self._walk._replace(state=state), bool(terminated | truncated)
        return obs, float(reward), bool(terminated), bool(truncated), info

    def render(self) -> Any:
        """The episode so far as an image [height, width, 3] of bytes."""
        if self.render_mode is None or self._walk is None:
            raise RiskpathError("a picture needs render_mode='rgb_array' and an episode: call reset")
        return picture(self.env, self._walk)

    def _show(self, obs: np.ndarray, mask: np.ndarray) -> tuple[Any, dict[str, Any]]:
        """What a user sees: arrays of their own, which they may change."""
        self._mask = mask
        info = {} if self.sizes.action_size else {"action_mask": mask.astype(np.int8)}
        return int(obs) if self.sizes.num_states is not None else np.array(obs, np.float32), info

    def _read(self, action: Any) -> np.ndarray:
        """An action that the environment would not notice to be wrong is refused."""
        if self.sizes.action_size:
            if np.shape(action) != self.action_space.shape:
                raise RiskpathError(f"an action must have {self.sizes.action_size} entries, got {action}")
            return np.asarray(action, np.float32)
        if action not in self.action_space or not self._mask[action]:
            available = ", ".join(map(str, np.flatnonzero(self._mask)))
            raise RiskpathError(f"action {action} is not available here; there are {available}")
        return np.asarray(action, np.int32)


def _environment(env: Any, fields: dict[str, Any]) -> Environment:
    if isinstance(env, str):
        return make(env, **fields)
    if not isinstance(env, Environment) or fields:
        raise RiskpathError(f"give an environment alone or a name with fields, got a {type(env).__name__} and {fields}")
    return env


def _observation_space(sizes: EnvSpec) -> spaces.Space:
    if sizes.num_states is not None:
        return spaces.Discrete(sizes.num_states)
    if sizes.observation_bounds is None:
        return spaces.Box(-np.inf, np.inf, sizes.observation_shape, np.float32)
    low, high = np.array(sizes.observation_bounds, np.float32).T
    return spaces.Box(low.reshape(sizes.observation_shape), high.reshape(sizes.observation_shape), dtype=np.float32)


def _action_space(sizes: EnvSpec) -> spaces.Space:
    if sizes.action_size:
        return spaces.Box(-1.0, 1.0, (sizes.action_size,), np.float32)
    return spaces.Discrete(sizes.num_actions)


@eqx.filter_jit
def _reset(world: Environment, key: Key) -> tuple[Key, Any, tuple[Any, ...]]:
    """The key of the steps, the state, and what a user is told."""
    key, reset_key = jax.random.split(key)
    obs, state = world.reset(reset_key)
    return key, state, (obs, world.action_mask(state))


@eqx.filter_jit
def _step(world: Environment, key: Key, state: Any, action: Any) -> tuple[Key, Any, tuple[Any, ...]]:
    """The key of the next step, the state, and what a user is told."""
    key, step_key = jax.random.split(key)
    obs, state, *told = world.step(step_key, state, action)
    return key, state, (obs, world.action_mask(state), *told)
