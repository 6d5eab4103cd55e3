"""Gymnasium environments as worlds that the host steps: an id, an env object, a factory, or a vector environment."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from riskpath.envs.environment import Environment
from riskpath.envs.spaces import Translation
from riskpath.envs.vector import HostEnvironment, VectorEnvironment, VectorStep
from riskpath.errors import RiskpathError, in_one_line, one_line
from riskpath.types import EnvSpec

Factory = Callable[[], gymnasium.Env]


def is_gymnasium(env: Any) -> bool:
    """Is it something that only Gymnasium knows how to step?"""
    if isinstance(env, str):  # our own names have neither version nor module
        return "-v" in env or "/" in env or ":" in env or env in gymnasium.registry
    if isinstance(env, type):
        return not issubclass(env, Environment)
    return isinstance(env, gymnasium.Env | VectorEnv | functools.partial) or inspect.isroutine(env)


@dataclass(frozen=True, eq=False)
class GymnasiumSource:
    """A Gymnasium environment, ready to be made as often as needed."""

    translation: Translation
    """How its observations and actions are read."""
    first: np.ndarray
    """An observation that an episode may start with."""
    first_mask: np.ndarray
    """The actions that are available there."""
    factory: Factory | None = None
    """Makes one."""
    vector: VectorEnv | None = None
    """Or the user's own vector environment, which is all there is."""
    name: str | None = None
    """The id it was asked for by, if it was."""
    single_use: bool = False
    """Can no more of it be made than what the user handed over?"""

    @property
    def environment(self) -> Environment:
        """What a program knows of it."""
        return HostEnvironment(self.translation.spec, self.translation)


def gymnasium_source(env: Any) -> GymnasiumSource:
    """What can be made of it, refused in one line before any work if that is nothing."""
    if isinstance(env, VectorEnv):
        translation = Translation(env.single_observation_space, env.single_action_space, _limit(env))
        obs, info = _reset(env, 0)
        mask = info["action_mask"][0] if "action_mask" in info else None
        first = _checked(translation.read_all(obs)[0], translation.spec)
        return GymnasiumSource(translation, first, _mask(mask, translation.spec), vector=env, single_use=True)
    factory, own = _factory(env), isinstance(env, gymnasium.Env)
    with in_one_line("cannot make the environment"):
        sample = env if own else factory()
        if not isinstance(sample, gymnasium.Env):
            raise RiskpathError(f"a factory must return a gymnasium.Env, got a {type(sample).__name__}")
        space = sample.observation_space
        translation = Translation(space, sample.action_space, _limit(sample))
    obs, info = _reset(sample, 0)
    if isinstance(space, spaces.Box) and np.shape(obs) != space.shape:
        raise RiskpathError(f"an observation has shape {np.shape(obs)}; the observation space says {space.shape}")
    with in_one_line(f"cannot read an observation as one of {type(space).__name__}"):
        first = _checked(translation.read(obs), translation.spec)
    mask = _mask(info.get("action_mask"), translation.spec)
    if not own:
        sample.close()
    name = env if isinstance(env, str) else None
    return GymnasiumSource(translation, first, mask, factory, name=name, single_use=own and sample.spec is None)


def _factory(env: Any) -> Factory:
    if isinstance(env, str):
        if ":" not in env:  # else a module has to be imported before the id is known
            try:
                gymnasium.spec(env)
            except gymnasium.error.Error as error:
                raise RiskpathError(f"unknown environment {env!r}: {one_line(error)}") from None
        return functools.partial(gymnasium.make, env)
    if isinstance(env, gymnasium.Env):
        spec, used = env.spec, []

        def again() -> gymnasium.Env:
            if not used:  # the user's own object first; copies of it only if more than one is needed
                used.append(True)
                return _Lent(env)
            if spec is None:
                raise RiskpathError("more than one copy of this environment is needed: give a function that makes one")
            return gymnasium.make(spec)

        return again
    return env


class _Lent(gymnasium.Wrapper):
    """A user's own environment: it stays open."""

    def close(self) -> None:
        """Not ours to close."""


class GymnasiumVector(VectorEnvironment):
    """A vector environment with SAME_STEP autoreset."""

    def __init__(self, sources: Sequence[GymnasiumSource], each: int, workers: bool = False, limit: int | None = None):
        """`each` environments for every one of `sources`, in worker processes if asked, cut off after `limit` steps."""
        self.translation = sources[0].translation
        self.spec, self.num_envs = self.translation.spec, len(sources) * each
        shape = self.translation.observation_space.shape
        seen = "an observation" if shape is None else f"an observation of shape {shape}"
        self._promise = f"; step returns {seen}, reward, terminated, truncated and a dictionary"
        if sources[0].vector is not None:
            self._vector, self._own = sources[0].vector, False
            _check_vector(self._vector, self.num_envs)
            return
        factories = [_limited(one.factory, limit) for one in sources for _ in range(each)]
        # Spawned, not forked: JAX has threads, which a fork would not bring along.
        kind = functools.partial(AsyncVectorEnv, context="spawn") if workers else SyncVectorEnv
        with in_one_line(f"cannot make {self.num_envs} environments"):
            self._vector, self._own = kind(factories, autoreset_mode=AutoresetMode.SAME_STEP), True

    def reset(self, keys: Any) -> tuple[np.ndarray, np.ndarray]:
        """Seeds are drawn from the keys; later episodes follow from them."""
        seeds = np.asarray(jax.vmap(lambda key: jax.random.randint(key, (), 0, 2**31 - 1))(keys))
        obs, info = _reset(self._vector, seeds.tolist())
        return self._read(obs), self._masks(info, np.ones(self.num_envs, bool))

    def step(self, action: np.ndarray, env_keys: Any, reset_keys: Any) -> VectorStep:
        """Gymnasium's own randomness; the keys are not needed."""
        with in_one_line("the environment failed in step", self._promise):
            obs, reward, terminated, truncated, info = self._vector.step(self.translation.write(action))
            seen, reward = self._read(obs), np.asarray(reward, np.float32)
            mask = self._masks(info, np.ones(self.num_envs, bool))
            final, final_mask, done = seen, mask, terminated | truncated
            if done.any():
                final, final_mask = seen.copy(), mask.copy()
                ended = info.get("final_info", {})
                for i in np.flatnonzero(done):
                    final[i] = _checked(self.translation.read(info["final_obs"][i]), self.spec)
                final_mask[done] = self._masks(ended, done)[done]
        return VectorStep(
            final, final_mask, reward, np.asarray(terminated), np.asarray(truncated & ~terminated), seen, mask
        )

    def _read(self, obs: Any) -> np.ndarray:
        return _checked(self.translation.read_all(obs), self.spec)

    def _masks(self, info: dict[str, Any], wanted: np.ndarray) -> np.ndarray:
        """`info["action_mask"]` where the environment gives one."""
        masks = np.ones((self.num_envs, self.spec.num_actions), bool)
        if "action_mask" in info:
            for i in np.flatnonzero(wanted & np.asarray(info.get("_action_mask", wanted), bool)):
                masks[i] = _mask(info["action_mask"][i], self.spec)
        return masks

    def close(self) -> None:
        """Worker processes end; what the user handed over stays open."""
        if self._own:
            self._vector.close()


def require_copies(sources: Sequence[GymnasiumSource]) -> None:
    """Refuses to evaluate in the only environments there are: those are in the middle of their training."""
    if any(one.single_use for one in sources):
        raise RiskpathError(
            "evaluation needs environments of its own: give env=…, an id or a function that makes one environment"
        )


def _limited(factory: Any, limit: int | None) -> Factory:
    return factory if limit is None else functools.partial(_with_limit, factory, limit)


def _with_limit(factory: Factory, limit: int) -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(factory(), limit)


def _limit(env: gymnasium.Env | VectorEnv) -> int | None:
    """Of its specification, or of a wrapper around a class that has none."""
    if env.spec is not None:
        return env.spec.max_episode_steps
    limits: list[int] = []
    while isinstance(env, gymnasium.Wrapper):
        limits += [env._max_episode_steps] if isinstance(env, gymnasium.wrappers.TimeLimit) else []
        env = env.env
    return min(limits, default=None)


def _check_vector(vector: VectorEnv, count: int) -> None:
    if vector.num_envs != count:
        raise RiskpathError(
            f"the vector environment has {vector.num_envs} environments; settings × seeds × envs are {count}"
        )
    if vector.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
        raise RiskpathError("make the vector environment with autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP")


def _reset(env: Any, seed: Any) -> tuple[Any, dict[str, Any]]:
    with in_one_line("the environment failed in reset"):
        told = env.reset(seed=seed)
    if not (isinstance(told, tuple) and len(told) == 2 and isinstance(told[1], dict)):
        raise RiskpathError(f"reset must return an observation and a dictionary, got a {type(told).__name__}")
    return told


def _checked(seen: np.ndarray, spec: EnvSpec) -> np.ndarray:
    """Observations as they were read; a program would take anything, and learn nothing from it."""
    if spec.num_states is not None and not ((seen >= 0) & (seen < spec.num_states)).all():
        raise RiskpathError(f"an observation is outside of its space, which has {spec.num_states} states")
    if not np.isfinite(seen).all():
        raise RiskpathError("an observation of the environment is not a finite number")
    return seen


def _mask(told: Any, spec: EnvSpec) -> np.ndarray:
    """Which actions are available; a mask without any action means no restriction."""
    if told is None or not spec.num_actions or not np.any(told):
        return np.ones(spec.num_actions, bool)
    if np.shape(told) != (spec.num_actions,):
        raise RiskpathError(f"an action mask has shape {np.shape(told)}; there are {spec.num_actions} actions")
    return np.asarray(told, bool)
