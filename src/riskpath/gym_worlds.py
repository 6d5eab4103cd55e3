"""Gymnasium environments as worlds that the host steps: an id, an env object, a factory, or a vector environment."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from riskpath.envs.spaces import Translation
from riskpath.errors import RiskpathError
from riskpath.host import Outside, Seen, Worlds

Factory = Callable[[], gymnasium.Env]


def is_foreign(env: Any) -> bool:
    """Is it something that only Gymnasium knows how to step?"""
    if isinstance(env, str):  # our own names have neither version nor module
        return "-v" in env or "/" in env or ":" in env or env in gymnasium.registry
    return (
        isinstance(env, gymnasium.Env | VectorEnv)
        or inspect.isroutine(env)
        or isinstance(env, functools.partial | type)
    )


def foreign(env: Any, **options: Any) -> "Foreign":
    """What can be made of it, refused in one line before any work if that is nothing."""
    if isinstance(env, VectorEnv):
        return Foreign(None, env, _translation_of_row(env), None)
    factory = _factory(env, options)
    try:
        sample = env if isinstance(env, gymnasium.Env) else factory()
    except RiskpathError:
        raise
    except Exception as error:  # whatever a user's constructor raises, it is the user's to know
        raise RiskpathError(f"cannot make the environment: {_one_line(error)}") from error
    if not isinstance(sample, gymnasium.Env):
        raise RiskpathError(f"a factory must return a gymnasium.Env, got a {type(sample).__name__}")
    limit = sample.spec.max_episode_steps if sample.spec is not None else None
    found = Foreign(factory, None, Translation(sample.observation_space, sample.action_space, limit), _name(env))
    if sample is not env:
        sample.close()
    return found


class Foreign:
    """A Gymnasium environment, ready to be made as often as needed."""

    def __init__(self, factory: Factory | None, row: VectorEnv | None, translation: Translation, name: str | None):
        self.factory, self.row, self.translation = factory, row, translation
        self.name = name
        """The id it was asked for by, if it was."""

    @functools.cached_property
    def first_observation(self) -> np.ndarray:
        """One that an episode may start with."""
        row = self.row or GymnasiumWorlds([self], 1)
        if isinstance(row, VectorEnv):  # the user's own, which is in the middle of something
            return self.translation.read(self.translation.observation_space.sample())
        obs = row.reset(jax.random.split(jax.random.key(0), 1))[0][0]
        row.close()
        return obs

    @property
    def world(self) -> Outside:
        """What a program knows of it."""
        return Outside(self.translation.spec, self.translation)


def _name(env: Any) -> str | None:
    return env if isinstance(env, str) else None


def _factory(env: Any, options: dict[str, Any]) -> Factory:
    if isinstance(env, str):
        try:
            gymnasium.spec(env.split(":")[-1]) if ":" not in env else None
        except gymnasium.error.Error as error:
            raise RiskpathError(f"unknown environment {env!r}: {_one_line(error)}") from None
        return functools.partial(gymnasium.make, env, **options)
    if isinstance(env, gymnasium.Env):
        spec, used = env.spec, []

        def again() -> gymnasium.Env:
            if not used:  # the user's own object first; copies of it only if more than one is needed
                used.append(True)
                return env
            if spec is None:
                raise RiskpathError("more than one copy of this environment is needed: give a function that makes one")
            return gymnasium.make(spec)

        return again
    return env


class GymnasiumWorlds(Worlds):
    """A vector environment with SAME_STEP autoreset."""

    def __init__(self, found: Sequence[Foreign], each: int, workers: bool = False, limit: int | None = None):
        """`each` environments for every one of `found`, in worker processes if asked, cut off after `limit` steps."""
        self.translation = found[0].translation
        self.spec, self.count = self.translation.spec, len(found) * each
        if found[0].row is not None:
            self._row, self._own = found[0].row, False
            _check_row(self._row, self.count)
            return
        factories = [_limited(one.factory, limit) for one in found for _ in range(each)]
        # Spawned, not forked: JAX has threads, which a fork would not bring along.
        kind = functools.partial(AsyncVectorEnv, context="spawn") if workers else SyncVectorEnv
        try:
            self._row, self._own = kind(factories, autoreset_mode=AutoresetMode.SAME_STEP), True
        except RiskpathError:
            raise
        except Exception as error:
            raise RiskpathError(f"cannot make {self.count} environments: {_one_line(error)}") from error

    def reset(self, keys: Any) -> tuple[np.ndarray, np.ndarray]:
        """Seeds are drawn from the keys; later episodes follow from them."""
        seeds = np.asarray(jax.vmap(lambda key: jax.random.randint(key, (), 0, 2**31 - 1))(keys))
        try:
            obs, info = self._row.reset(seed=seeds.tolist())
        except Exception as error:
            raise RiskpathError(f"the environment failed in reset: {_one_line(error)}") from error
        return self.translation.read_all(obs), self._masks(info, np.ones(self.count, bool))

    def step(self, action: np.ndarray, env_keys: Any, reset_keys: Any) -> Seen:
        """Gymnasium's own randomness; the keys are not needed."""
        try:
            obs, reward, terminated, truncated, info = self._row.step(self.translation.write(action))
        except Exception as error:
            raise RiskpathError(f"the environment failed in step: {_one_line(error)}") from error
        seen = self.translation.read_all(obs)
        mask = self._masks(info, np.ones(self.count, bool))
        final, final_mask, done = seen, mask, terminated | truncated
        if done.any():
            final, final_mask = seen.copy(), mask.copy()
            ended = info.get("final_info", {})
            for i in np.flatnonzero(done):
                final[i] = self.translation.read(info["final_obs"][i])
            final_mask[done] = self._masks(ended, done)[done]
        reward = np.asarray(reward, np.float32)
        return Seen(final, final_mask, reward, np.asarray(terminated), np.asarray(truncated & ~terminated), seen, mask)

    def _masks(self, info: dict[str, Any], wanted: np.ndarray) -> np.ndarray:
        """`info["action_mask"]` where the environment gives one; a mask without any action means no restriction."""
        masks = np.ones((self.count, self.spec.num_actions), bool)
        if self.spec.num_actions and "action_mask" in info:
            for i in np.flatnonzero(wanted & np.asarray(info.get("_action_mask", wanted), bool)):
                told = np.asarray(info["action_mask"][i], bool)
                masks[i] = told if told.any() else True
        return masks

    def close(self) -> None:
        """Worker processes end; what the user handed over stays open."""
        if self._own:
            self._row.close()


def _limited(factory: Any, limit: int | None) -> Factory:
    return factory if limit is None else functools.partial(_with_limit, factory, limit)


def _with_limit(factory: Factory, limit: int) -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(factory(), limit)


def _translation_of_row(row: VectorEnv) -> Translation:
    limit = row.spec.max_episode_steps if row.spec is not None else None
    return Translation(row.single_observation_space, row.single_action_space, limit)


def _check_row(row: VectorEnv, count: int) -> None:
    if row.num_envs != count:
        raise RiskpathError(
            f"the vector environment has {row.num_envs} environments; settings × seeds × envs are {count}"
        )
    if row.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
        raise RiskpathError("make the vector environment with autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP")


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
