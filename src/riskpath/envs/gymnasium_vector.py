"""Gymnasium environments in training: an id, an environment, a function that makes one, or a vector environment.

`gymnasium_source` checks what a user passed and describes how to make more of it; `GymnasiumVector` steps a batch of
them. Observations, rewards and action masks are checked at every step, because a compiled program would learn from
invalid ones without an error.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from riskpath.envs.environment import Environment
from riskpath.envs.spaces import Translation
from riskpath.envs.vector import HostEnvironment, VectorEnvironment, VectorStep
from riskpath.errors import RiskpathError, in_one_line, one_line
from riskpath.extras import needs_extra
from riskpath.types import EnvSpec

with needs_extra("gymnasium", "a Gymnasium environment"):
    import gymnasium
    from gymnasium import spaces
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

Factory = Callable[[], gymnasium.Env]


def is_gymnasium(env: Any) -> bool:
    """Tell whether an environment has to be stepped by Gymnasium."""
    if isinstance(env, str):  # names of this library have neither a version nor a module
        return "-v" in env or "/" in env or ":" in env or env in gymnasium.registry
    if isinstance(env, type):
        return not issubclass(env, Environment)
    return isinstance(env, gymnasium.Env | VectorEnv | functools.partial) or inspect.isroutine(env)


@dataclass(frozen=True, eq=False)
class GymnasiumSource:
    """A Gymnasium environment that passed the checks, and how to make more of it."""

    translation: Translation
    """Converts its observations and actions."""
    first: np.ndarray
    """An observation at the start of an episode."""
    first_mask: np.ndarray
    factory: Factory | None = None
    vector: VectorEnv | None = None
    """The user's own vector environment, if there is no factory."""
    name: str | None = None
    """Its Gymnasium id, if the user passed one."""
    single_use: bool = False
    """Whether the user's own object is the only one: no more can be made."""

    @property
    def environment(self) -> Environment:
        """Return its stand-in for compiled programs."""
        return HostEnvironment(self.translation.spec, self.translation)


def gymnasium_source(env: Any) -> GymnasiumSource:
    """Check an environment by one reset, and return how to make more of it."""
    if isinstance(env, VectorEnv):
        translation = Translation(env.single_observation_space, env.single_action_space, _time_limit(env))
        observations, info = _reset(env, 0)
        first = _check_observation(translation.read_all(observations)[0], translation.spec)
        mask = _action_masks(info, np.arange(env.num_envs) == 0, translation)[0]
        return GymnasiumSource(translation, first, mask, vector=env, single_use=True)
    factory, own = _factory(env), isinstance(env, gymnasium.Env)
    with in_one_line("cannot make the environment"):
        sample = env if own else factory()
        if not isinstance(sample, gymnasium.Env):
            raise RiskpathError(f"a factory must return a gymnasium.Env, got a {type(sample).__name__}")
        space = sample.observation_space
        translation = Translation(space, sample.action_space, _time_limit(sample))
    observation, info = _reset(sample, 0)
    if isinstance(space, spaces.Box) and np.shape(observation) != space.shape:
        raise RiskpathError(
            f"an observation has shape {np.shape(observation)}; the observation space says {space.shape}"
        )
    with in_one_line(f"cannot read an observation as one of {type(space).__name__}"):
        first = _check_observation(translation.read(observation), translation.spec)
    mask = _action_mask(info.get("action_mask"), translation)
    if not own:
        sample.close()
    name = env if isinstance(env, str) else None
    return GymnasiumSource(translation, first, mask, factory, name=name, single_use=own and sample.spec is None)


def require_copies(sources: Sequence[GymnasiumSource]) -> None:
    """Refuse to evaluate in a user's only environment: it is in the middle of a training episode."""
    if any(source.single_use for source in sources):
        raise RiskpathError(
            "evaluation needs environments of its own: give env=…, an id or a function that makes one environment"
        )


class GymnasiumVector(VectorEnvironment):
    """A batch of Gymnasium environments with SAME_STEP autoreset."""

    draws_from_keys = False

    def __init__(self, sources: Sequence[GymnasiumSource], each: int, workers: bool = False, limit: int | None = None):
        """Make `each` environments of every source, in worker processes if asked, cut off after `limit` steps."""
        self.translation = sources[0].translation
        self.spec, self.num_envs = self.translation.spec, len(sources) * each
        self._all = np.ones(self.num_envs, bool)
        self._masked = ~self._all  # which environments gave an action mask in reset
        self._every_action = np.repeat(self.translation.every_action[None], self.num_envs, axis=0)
        shape = self.translation.observation_space.shape
        observation = "an observation" if shape is None else f"an observation of shape {shape}"
        self._hint = f"; step returns {observation}, reward, terminated, truncated and a dictionary"
        if sources[0].vector is not None:
            self._vector, self._owned = sources[0].vector, False
            _check_vector(self._vector, self.num_envs)
            return
        factories: Any = [source.factory for source in sources for _ in range(each)]
        if limit is not None:
            factories = [functools.partial(_make_with_limit, factory, limit) for factory in factories]
        # Spawned, not forked: a fork would not copy the threads of JAX.
        kind = functools.partial(AsyncVectorEnv, context="spawn") if workers else SyncVectorEnv
        with in_one_line(f"cannot make {self.num_envs} environments"):
            # Observations are copied by `_observations`, once.
            self._vector, self._owned = kind(factories, copy=False, autoreset_mode=AutoresetMode.SAME_STEP), True

    def reset(self, keys: Any) -> tuple[np.ndarray, np.ndarray]:
        """Reset all environments with seeds drawn from the keys; later episodes follow from these seeds."""
        return self.begin(seeds_of(keys))

    def begin(self, seeds: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Reset all environments with these seeds."""
        observations, info = _reset(self._vector, seeds)
        self._masked = self._gives_mask(info)
        return self._observations(observations), self._action_masks(info)

    def step(self, action: np.ndarray, env_keys: Any, reset_keys: Any) -> VectorStep:
        """Step all environments; they draw their own random numbers, so the keys are not used."""
        with in_one_line("the environment failed in step", self._hint):
            observations, reward, terminated, truncated, info = self._vector.step(self.translation.write(action))
            observation, done = self._observations(observations), terminated | truncated
            if (self._masked & ~self._gives_mask(info)).any():
                raise RiskpathError("the environment gives an action mask in reset but not in step: both must give it")
            mask = self._action_masks(info)
            final, final_mask = observation, mask
            if done.any():
                final, final_mask = observation.copy(), mask.copy()
                for i in np.flatnonzero(done):
                    final[i] = _check_observation(self.translation.read(info["final_obs"][i]), self.spec)
                final_mask[done] = _action_masks(info.get("final_info", {}), done, self.translation, ended=True)[done]
            reward = np.asarray(reward, np.float32)
            if not np.isfinite(reward).all():
                wrong = reward[~np.isfinite(reward)][0]
                raise RiskpathError(f"a reward of the environment is not a finite number: {wrong}")
        terminated, truncated = np.asarray(terminated), np.asarray(truncated & ~terminated)
        return VectorStep(final, final_mask, reward, terminated, truncated, observation, mask)

    def close(self) -> None:
        """Close the environments and end worker processes; a user's own vector environment stays open."""
        if self._owned:
            self._vector.close()

    def _observations(self, observations: Any) -> np.ndarray:
        return _check_observation(self.translation.read_all(observations).copy(), self.spec)

    def _gives_mask(self, info: dict[str, Any]) -> np.ndarray:
        """Return which environments give an action mask that matters."""
        given = info.get("_action_mask", self._all) if "action_mask" in info else ~self._all
        return np.asarray(given, bool) & bool(self.translation.every_action.size)

    def _action_masks(self, info: dict[str, Any]) -> np.ndarray:
        return _action_masks(info, self._all, self.translation) if "action_mask" in info else self._every_action


def seeds_of(keys: Any) -> list[int]:
    """Return a seed for Gymnasium for every key."""
    return np.asarray(jax.vmap(lambda key: jax.random.randint(key, (), 0, 2**31 - 1))(keys)).tolist()


def _factory(env: Any) -> Factory:
    """Return a function that makes one environment."""
    if isinstance(env, str):
        if ":" not in env:  # otherwise a module has to be imported before the id exists
            try:
                gymnasium.spec(env)
            except gymnasium.error.Error as error:
                hint = f"if a package registers it, name the package: 'package:{env}'"
                raise RiskpathError(f"unknown environment {env!r}: {one_line(error)}; {hint}") from None
        return functools.partial(gymnasium.make, env)
    return _factory_of_copies(env) if isinstance(env, gymnasium.Env) else env


def _factory_of_copies(env: gymnasium.Env) -> Factory:
    """Return a function whose first result is the user's own environment; further ones are copies of it."""
    used = []

    def make() -> gymnasium.Env:
        if not used:
            used.append(True)
            return _StaysOpen(env)
        if env.spec is None:
            raise RiskpathError("more than one copy of this environment is needed: give a function that makes one")
        return gymnasium.make(env.spec)

    return make


class _StaysOpen(gymnasium.Wrapper):
    """A user's own environment: closing the batch does not close it."""

    def close(self) -> None:
        """Do nothing."""


def _make_with_limit(factory: Factory, limit: int) -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(factory(), limit)


def _time_limit(env: gymnasium.Env | VectorEnv) -> int | None:
    """Return the time limit of an environment: that of its specification, or of the wrappers around it."""
    if env.spec is not None:
        return env.spec.max_episode_steps
    if isinstance(env, SyncVectorEnv):
        return _time_limit(env.envs[0])
    limits: list[int] = []
    while isinstance(env, gymnasium.Wrapper):
        limits += [env._max_episode_steps] if isinstance(env, gymnasium.wrappers.TimeLimit) else []
        env = env.env
    return min(limits, default=None)


def _check_vector(vector: VectorEnv, count: int) -> None:
    if vector.num_envs != count:
        raise RiskpathError(
            f"the vector environment has {vector.num_envs} environments; settings × seeds × num_envs are {count}"
        )
    if vector.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
        raise RiskpathError("make the vector environment with autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP")


def _reset(env: Any, seed: Any) -> tuple[Any, dict[str, Any]]:
    with in_one_line("the environment failed in reset"):
        result = env.reset(seed=seed)
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
        raise RiskpathError(f"reset must return an observation and a dictionary, got a {type(result).__name__}")
    return result


def _check_observation(observation: np.ndarray, spec: EnvSpec) -> np.ndarray:
    """Return observations if they are state numbers of the problem, or finite numbers."""
    if spec.num_states is not None and not ((observation >= 0) & (observation < spec.num_states)).all():
        raise RiskpathError(f"an observation is outside of its space, which has {spec.num_states} states")
    if not np.isfinite(observation).all():
        raise RiskpathError("an observation of the environment is not a finite number")
    return observation


def _action_masks(
    info: dict[str, Any], needed: np.ndarray, translation: Translation, ended: bool = False
) -> np.ndarray:
    """Return the action masks [K, A] of the needed environments; every action is allowed where there is none."""
    masks = np.repeat(translation.every_action[None], len(needed), axis=0)
    if "action_mask" in info:
        for i in np.flatnonzero(needed & np.asarray(info.get("_action_mask", needed), bool)):
            masks[i] = _action_mask(info["action_mask"][i], translation, ended)
    return masks


def _action_mask(mask: Any, translation: Translation, ended: bool = False) -> np.ndarray:
    """Return an action mask as an array; one that is all zero is accepted only where the episode has `ended`."""
    every = translation.every_action
    if mask is None or not every.size:
        return every
    mask = translation.read_mask(mask)
    left = bool(mask.any(axis=-1).all())  # in every head, if there are several
    if left or ended:
        return mask if left else every
    raise RiskpathError("an action mask must leave at least one action available")
