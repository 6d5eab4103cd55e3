"""Environments of this library as Gymnasium environments: `gymnasium.make("riskpath/RiskyGrid-v0", forks=5)`.

`import riskpath` registers the names. `gymnasium.make("riskpath:riskpath/RiskyGrid-v0")` imports and makes in one call.
"""

import math
from typing import Any

import equinox as eqx
import jax
import numpy as np

from riskpath.envs import make
from riskpath.envs.environment import Environment
from riskpath.envs.finite import FiniteEnvironment, FiniteProblem, as_arrays
from riskpath.envs.rendering import Episode, has_picture, picture
from riskpath.errors import RiskpathError
from riskpath.extras import needs_extra
from riskpath.types import EnvSpec, Key

with needs_extra("gymnasium", "GymnasiumEnv"):
    import gymnasium
    from gymnasium import spaces


class GymnasiumEnv(gymnasium.Env):
    """An environment of this library as a Gymnasium one; pass it, or a name and any of its fields.

    If actions are discrete, `info["action_mask"]` tells which are available, in the form that `action_space.sample`
    accepts.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's convention)

    def __init__(self, env: Environment | str, render_mode: str | None = None, **fields: Any):
        if not isinstance(env, str) and (not isinstance(env, Environment) or fields):
            given = f"a {type(env).__name__} and {fields}"
            raise RiskpathError(f"give an environment alone or a name with fields, got {given}")
        self.env: Environment = make(env, **fields) if isinstance(env, str) else env
        self.env_spec = self.env.spec
        # Steps between states are shown one by one, motion is shown at full speed.
        fps = 4 if isinstance(self.env, FiniteProblem | FiniteEnvironment) else 30
        self.metadata = {"render_modes": ["rgb_array"] if has_picture(self.env) else [], "render_fps": fps}
        if render_mode not in (None, *self.metadata["render_modes"]):
            accepted = " or ".join(map(repr, [*self.metadata["render_modes"], None]))
            raise RiskpathError(f"render_mode of {type(self.env).__name__} must be {accepted}, got {render_mode!r}")
        self.render_mode = render_mode
        self.observation_space = _observation_space(self.env_spec)
        size = self.env_spec.action_size
        self.action_space = (
            spaces.Box(-1.0, 1.0, (size,), np.float32) if size else spaces.Discrete(self.env_spec.num_actions)
        )
        self._cpu = jax.local_devices(backend="cpu")[0]  # single steps are faster there than on a GPU
        self._arrays = jax.tree.map(
            lambda x: jax.device_put(x, self._cpu) if eqx.is_array(x) else x, as_arrays(self.env)
        )
        self._episode: Episode | None = None
        self._over = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a new episode; the same seed gives the same episodes from there on."""
        super().reset(seed=seed)
        key = jax.device_put(jax.random.key(int(self.np_random.integers(2**31))), self._cpu)
        self._key, state, results = _reset(self._arrays, key)
        observation, self._mask = jax.device_get(results)
        self._episode, self._over = Episode([self._observation(observation)], [], [state]), False
        return self._observation(observation), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return observation, reward, terminated, truncated and the actions that are available next."""
        if self._episode is None or self._over:
            raise RiskpathError("the episode is over or has not begun: call reset")
        episode = self._episode
        taken = self._action(action)
        self._key, state, results = _step(self._arrays, self._key, episode.states[-1], taken)
        observation, self._mask, reward, terminated, truncated = jax.device_get(results)
        episode.observations.append(self._observation(observation))
        episode.rewards.append(float(reward))
        episode.states.append(state)
        episode.actions.append(taken)
        self._over = bool(terminated | truncated)
        return self._observation(observation), float(reward), bool(terminated), bool(truncated), self._info()

    def render(self) -> Any:
        """Return a picture of the episode so far, an image [height, width, 3] of bytes."""
        if self.render_mode is None or self._episode is None:
            raise RiskpathError("a picture needs render_mode='rgb_array' and an episode: call reset")
        return picture(self.env, self._episode)

    def _observation(self, observation: np.ndarray) -> Any:
        """Return an element of the observation space, in an array that nothing else uses."""
        if self.env_spec.num_states is not None:
            return int(observation)
        return np.array(observation, self.observation_space.dtype)

    def _info(self) -> dict[str, Any]:
        return {} if self.env_spec.action_size else {"action_mask": self._mask.astype(np.int8)}

    def _action(self, action: Any) -> np.ndarray:
        """Return an action as an array; refuse one that the compiled program would accept although it is wrong."""
        if self.env_spec.action_size:
            if np.shape(action) != self.action_space.shape:
                raise RiskpathError(f"an action must have {self.env_spec.action_size} entries, got {action}")
            return np.asarray(action, np.float32)
        if action not in self.action_space or not self._mask[action]:
            available = ", ".join(map(str, np.flatnonzero(self._mask)))
            raise RiskpathError(f"action {action} is not available here; there are {available}")
        return np.asarray(action, np.int32)


def _observation_space(spec: EnvSpec) -> spaces.Space:
    if spec.num_states is not None:
        return spaces.Discrete(spec.num_states)
    shape = spec.observation_shape
    if spec.pixels:
        return spaces.Box(0, 255, shape, np.uint8)
    if spec.observation_bounds is None:
        return spaces.Box(-np.inf, np.inf, shape, np.float32)
    low, high = np.array(spec.observation_bounds, np.float32).T  # of every entry, or one pair for all
    low, high = (np.broadcast_to(bound, math.prod(shape)).reshape(shape) for bound in (low, high))
    return spaces.Box(low, high, dtype=np.float32)


@eqx.filter_jit
def _reset(env: Environment, key: Key) -> tuple[Key, Any, tuple[Any, ...]]:
    """Return the key of the next step, the state, and (observation, action mask)."""
    key, reset_key = jax.random.split(key)
    observation, state = env.reset(reset_key)
    return key, state, (observation, env.action_mask(state))


@eqx.filter_jit
def _step(env: Environment, key: Key, state: Any, action: Any) -> tuple[Key, Any, tuple[Any, ...]]:
    """Return the key of the next step, the state, and (observation, action mask, reward, terminated, truncated)."""
    key, step_key = jax.random.split(key)
    observation, state, *outcome = env.step(step_key, state, action)
    return key, state, (observation, env.action_mask(state), *outcome)
