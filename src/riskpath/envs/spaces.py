"""Gymnasium's spaces in the agents' words: observations as a number or an array, actions as a number or a vector."""

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim, flatten

from riskpath.errors import RiskpathError
from riskpath.types import EnvSpec

_FLAT = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class Translation:
    """Reads the observations of one environment and writes its actions."""

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, max_episode_steps: int | None = None
    ):
        self.observation_space, self.action_space = observation_space, action_space
        self.max_episode_steps = max_episode_steps
        _check_observations(observation_space)
        _check_actions(action_space)

    @property
    def spec(self) -> EnvSpec:
        """Sizes."""
        actions = self.action_space
        numbered = int(actions.n) if isinstance(actions, spaces.Discrete) else 0
        size = 0 if numbered else math.prod(actions.shape or ())
        space = self.observation_space
        if isinstance(space, spaces.Discrete):
            return EnvSpec(numbered, (), int(space.n), self.max_episode_steps, size)
        shape = space.shape if isinstance(space, spaces.Box) else (flatdim(space),)
        shape = tuple(shape or (1,))
        if self._pixels:
            return EnvSpec(numbered, shape, None, self.max_episode_steps, size, pixels=True)
        return EnvSpec(numbered, shape, None, self.max_episode_steps, size, _bounds(space))

    @property
    def _pixels(self) -> bool:
        """Is an observation an image of bytes?"""
        space = self.observation_space
        return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3)

    @property
    def _kind(self) -> Any:
        """What observations are stored as."""
        return np.uint8 if self._pixels else np.float32

    def read(self, observation: Any) -> np.ndarray:
        """An observation of the environment as the agent sees it."""
        space = self.observation_space
        if isinstance(space, spaces.Discrete):
            return np.asarray(observation - space.start, np.int32)
        if isinstance(space, spaces.Box):
            return np.asarray(observation, self._kind).reshape(space.shape or (1,))
        return np.asarray(flatten(space, observation), np.float32)

    def read_all(self, observations: Any) -> np.ndarray:
        """The same for a row of them."""
        space = self.observation_space
        if isinstance(space, spaces.Discrete | spaces.Box):
            if isinstance(space, spaces.Discrete):
                return np.asarray(observations, np.int32) - np.int32(space.start)
            observations = np.asarray(observations, self._kind)
            return observations.reshape(len(observations), *(space.shape or (1,)))
        return np.stack([self.read(one) for one in gymnasium.vector.utils.iterate(_row_of(space), observations)])

    def write(self, action: np.ndarray) -> Any:
        """An agent's action, or a row of them, as the environment wants it."""
        space = self.action_space
        if isinstance(space, spaces.Discrete):
            return action + space.start
        assert isinstance(space, spaces.Box)
        lead = action.shape[:-1]
        share = (np.clip(action, -1.0, 1.0).reshape(*lead, *space.shape) + 1.0) / 2.0
        return (space.low + share * (space.high - space.low)).astype(space.dtype)


def _row_of(space: spaces.Space) -> spaces.Space:
    """The space of a row whose length does not matter: iterating looks at the entries only."""
    return gymnasium.vector.utils.batch_space(space, 1)


def _check_observations(space: spaces.Space) -> None:
    parts = [space]
    while parts:
        part = parts.pop()
        if isinstance(part, spaces.Dict):
            parts += list(part.spaces.values())
        elif isinstance(part, spaces.Tuple):
            parts += list(part.spaces)
        elif not isinstance(part, _FLAT):
            raise RiskpathError(
                f"cannot read observations from {type(part).__name__}; Box, Discrete, MultiDiscrete, MultiBinary, "
                "and Dict or Tuple of these are read: wrap the environment in gymnasium.wrappers.TransformObservation"
            )


def _check_actions(space: spaces.Space) -> None:
    if isinstance(space, spaces.Discrete):
        return
    if not isinstance(space, spaces.Box):
        raise RiskpathError(
            f"cannot act in {type(space).__name__}; Discrete and Box are known: "
            "wrap the environment in gymnasium.wrappers.TransformAction"
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise RiskpathError(
            "actions need bounds to be scaled to, but this Box has none: use gymnasium.wrappers.RescaleAction"
        )


def _bounds(space: spaces.Space) -> tuple[tuple[float, float], ...] | None:
    """What maps each entry to [−1, 1], where all bounds are known and worth the name."""
    if not isinstance(space, spaces.Box):
        return None
    low, high = (np.ravel(x).astype(np.float64) for x in (space.low, space.high))
    width = high - low
    if not (np.isfinite(width).all() and (width > 0).all() and (np.abs([low, high]) < 1e6).all()):
        return None
    if (low == low[0]).all() and (high == high[0]).all():
        low, high = low[:1], high[:1]  # one pair does for all
    return tuple((float(a), float(b)) for a, b in zip(low, high, strict=True))
