"""Conversion between Gymnasium spaces and the arrays of agents.

An agent sees an observation as a state number or as an array; its action is a number, a vector with entries in
[−1, 1], or a vector of numbers.

An action may consist of several discrete choices: `MultiDiscrete`, `MultiBinary`, and `Dict` or `Tuple` of discrete.
Where there are few combinations, each is one action, so that any dependence between the choices can be learned. Where
there are many, each choice has a head of its own, and the value of a joint action is the sum of its parts.
"""

import functools
import math
from typing import Any

import numpy as np

from riskpath.envs.plain_spaces import build_element, choice_numbers, choice_sizes, describe_space
from riskpath.errors import RiskpathError, short_repr
from riskpath.extras import needs_extra
from riskpath.risk.inverse import namespace
from riskpath.types import EnvSpec

with needs_extra("gymnasium", "a Gymnasium environment"):
    import gymnasium
    from gymnasium import spaces
    from gymnasium.spaces.utils import flatdim, flatten

FLAT_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
"""The spaces whose elements become arrays without looking inside."""
LARGEST_BOUND = 1e6
"""A bound beyond this is treated as unknown: environments write the largest float where there is none."""

MOST_COMBINATIONS = 128
"""Up to this many combinations each is one action. Every agent can choose among them, and exploration tries each one
hundreds of times in a training of 40,000 steps; beyond it a critic would hardly see most combinations."""


class JointActions:
    """The discrete choices of an action space, in order, and how an action is put together from their numbers."""

    def __init__(self, space: spaces.Space):
        self.plain = describe_space(space)
        """The space as plain data."""
        self.sizes = tuple(choice_sizes(self.plain))
        """The number of options of each choice."""
        self.one_number = math.prod(self.sizes) <= MOST_COMBINATIONS
        """Whether a joint action is one number; otherwise it is a vector with one number for each choice."""

    def parts(self, action: Any) -> Any:
        """Return the number of every choice, [..., H], from actions of the agent; also inside a compiled program."""
        if not self.one_number:
            return action
        numbers = []
        for size in reversed(self.sizes):
            numbers.append(action % size)
            action = action // size
        xp, _ = namespace(action)
        return xp.stack(numbers[::-1], axis=-1)

    def number(self, parts: np.ndarray) -> np.ndarray:
        """Return the agent's action with these numbers of choices: the inverse of `parts`."""
        return np.asarray(np.ravel_multi_index(tuple(parts), self.sizes)) if self.one_number else parts

    def write(self, action: np.ndarray) -> Any:
        """Return an action of the agent, or a batch of them, as an element of the space, or a batch of elements."""
        return build_element(self.plain, np.asarray(self.parts(action), np.int64))

    def read(self, action: Any) -> np.ndarray:
        """Return an element of the space as an action of the agent."""
        return self.number(np.array(choice_numbers(self.plain, action), np.int32))

    def mask(self, given: Any) -> np.ndarray:
        """Return which actions are available, from one mask for each choice, or one for all combinations."""
        rows = list(given.values()) if isinstance(given, dict) else list(given)
        if self.one_number and len(rows) == math.prod(self.sizes) and np.ndim(rows[0]) == 0:
            return yes_or_no(given)
        if [np.shape(row) for row in rows] != [(size,) for size in self.sizes]:
            raise RiskpathError(f"an action mask of this space has a part for each choice, of lengths {self.sizes}")
        if self.one_number:
            grid = np.ones(self.sizes, bool)
            for axis, row in enumerate(rows):
                grid &= yes_or_no(row).reshape([-1 if i == axis else 1 for i in range(len(rows))])
            return grid.ravel()
        return self.padded([yes_or_no(row) for row in rows])

    def padded(self, rows: list[np.ndarray]) -> np.ndarray:
        """Return masks of all choices as one array; options that do not exist are not available."""
        table = np.zeros((len(rows), max(self.sizes)), bool)
        for place, row in enumerate(rows):
            table[place, : len(row)] = row
        return table

    def every(self) -> np.ndarray:
        """Return the mask in which every action is available."""
        if self.one_number:
            return np.ones(math.prod(self.sizes), bool)
        return self.padded([np.ones(size, bool) for size in self.sizes])


class Translation:
    """The conversion of one environment's observations to arrays, and of an agent's actions to its action space."""

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, max_episode_steps: int | None = None
    ):
        self.observation_space, self.action_space = observation_space, action_space
        self.max_episode_steps = max_episode_steps
        _check_observation_space(observation_space)
        _check_action_space(action_space)
        several = is_discrete(action_space) and not isinstance(action_space, spaces.Discrete)
        self.joint = JointActions(action_space) if several else None
        """The discrete choices of an action, if there are several."""

    # Equal conversions are equal, so that training in the same environment again compiles nothing.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Translation) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(tuple((type(part), getattr(part, "shape", part)) for part in self._parts))

    @property
    def _parts(self) -> tuple[Any, ...]:
        return self.observation_space, self.action_space, self.max_episode_steps

    @functools.cached_property
    def spec(self) -> EnvSpec:
        """Return the specification that follows from the two spaces."""
        actions, space, joint = self.action_space, self.observation_space, self.joint
        sizes: dict[str, Any] = {"num_actions": 0, "max_episode_steps": self.max_episode_steps}
        if isinstance(actions, spaces.Discrete):
            sizes["num_actions"] = int(actions.n)
        elif joint is not None:
            sizes["num_actions"] = self.every_action.size
            sizes["action_heads"] = () if joint.one_number else joint.sizes
        else:
            sizes["action_size"] = math.prod(actions.shape or ())
        if isinstance(space, spaces.Discrete):
            return EnvSpec(observation_shape=(), num_states=int(space.n), **sizes)
        shape = tuple((space.shape if isinstance(space, spaces.Box) else (flatdim(space),)) or (1,))
        if self._pixels:
            return EnvSpec(observation_shape=shape, pixels=True, **sizes)
        return EnvSpec(observation_shape=shape, observation_bounds=_observation_bounds(space), **sizes)

    @functools.cached_property
    def every_action(self) -> np.ndarray:
        """Return the mask in which every action is available; with heads it has a row for each."""
        if self.joint is not None:
            return self.joint.every()
        return np.ones(int(self.action_space.n) if isinstance(self.action_space, spaces.Discrete) else 0, bool)

    def read_mask(self, mask: Any) -> np.ndarray:
        """Return an action mask of the environment as the agent sees it."""
        mask = yes_or_no(mask) if self.joint is None else self.joint.mask(mask)
        if mask.shape != self.every_action.shape:
            raise RiskpathError(f"an action mask has shape {mask.shape}; there are {self.spec.num_actions} actions")
        return mask

    @property
    def _pixels(self) -> bool:
        space = self.observation_space
        return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3)

    @property
    def _dtype(self) -> Any:
        return np.uint8 if self._pixels else np.float32

    def read(self, observation: Any) -> np.ndarray:
        """Return an observation of the environment as the agent sees it."""
        space = self.observation_space
        if isinstance(space, spaces.Discrete):
            return np.asarray(observation - space.start, np.int32)
        if isinstance(space, spaces.Box):
            return np.asarray(observation, self._dtype).reshape(space.shape or (1,))
        return np.asarray(flatten(space, observation), np.float32)

    def read_all(self, observations: Any) -> np.ndarray:
        """Return a batch of observations, as vector environments return them, as the agent sees them."""
        space = self.observation_space
        if isinstance(space, spaces.Discrete):
            return np.asarray(observations, np.int32) - np.int32(space.start)
        if isinstance(space, spaces.Box):
            observations = np.asarray(observations, self._dtype)
            return observations.reshape(len(observations), *(space.shape or (1,)))
        batch = gymnasium.vector.utils.batch_space(space, 1)  # `iterate` reads its parts only, not its length
        return np.stack([self.read(one) for one in gymnasium.vector.utils.iterate(batch, observations)])

    def write(self, action: np.ndarray) -> Any:
        """Return an action of the agent, or a batch of them, as the environment expects it."""
        if self.joint is not None:
            return self.joint.write(np.asarray(action))
        scaled = self.scale(action)
        return scaled if isinstance(self.action_space, spaces.Discrete) else scaled.astype(self.action_space.dtype)

    def read_actions(self, actions: np.ndarray) -> np.ndarray:
        """Return logged actions of the environment as the agent would choose them."""
        space = self.action_space
        if self.joint is not None:
            return np.stack([self.joint.read(action) for action in actions])
        if isinstance(space, spaces.Discrete):
            return np.asarray(actions, np.int32) - np.int32(space.start)
        assert isinstance(space, spaces.Box)
        middle, half = (space.high + space.low) / 2, (space.high - space.low) / 2
        return np.clip((actions - middle) / half, -1.0, 1.0).reshape(len(actions), -1).astype(np.float32)

    def scale(self, action: Any) -> Any:
        """Return the same numbers, but of the agent's own type: also inside of a compiled program.

        An action that consists of several choices becomes a vector of their numbers, from 0 on.
        """
        space = self.action_space
        if self.joint is not None:
            return self.joint.parts(action)
        if isinstance(space, spaces.Discrete):
            return action + int(space.start) if space.start else action
        assert isinstance(space, spaces.Box)
        share = (action.clip(-1.0, 1.0).reshape(*action.shape[:-1], *space.shape) + 1.0) / 2.0
        return space.low + share * (space.high - space.low)


def yes_or_no(mask: Any) -> np.ndarray:
    """Return an action mask as an array of booleans; its entries must be 0 or 1."""
    entries = np.asarray(mask)
    if entries.dtype != bool and not np.isin(entries, (0, 1)).all():
        raise RiskpathError(f"entries of an action mask must be 0 or 1, got {short_repr(entries.tolist())}")
    return entries.astype(bool)


def is_discrete(space: spaces.Space) -> bool:
    """Tell whether a space consists of discrete choices alone."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return len(inner) > 0 and all(map(is_discrete, inner))
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)


def _check_observation_space(space: spaces.Space) -> None:
    parts = [space]
    while parts:
        part = parts.pop()
        if isinstance(part, spaces.Dict):
            parts += list(part.spaces.values())
        elif isinstance(part, spaces.Tuple):
            parts += list(part.spaces)
        elif not isinstance(part, FLAT_SPACES):
            raise RiskpathError(
                f"cannot read observations from {type(part).__name__}; Box, Discrete, MultiDiscrete, MultiBinary, and "
                "Dict or Tuple of these are accepted: wrap the environment in gymnasium.wrappers.TransformObservation"
            )


def _check_action_space(space: spaces.Space) -> None:
    if is_discrete(space):
        return
    if not isinstance(space, spaces.Box):
        raise RiskpathError(
            f"cannot act in {type(space).__name__}; Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of "
            "discrete spaces are accepted: wrap the environment in gymnasium.wrappers.TransformAction"
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise RiskpathError(
            "continuous actions need bounds, but this Box has infinite ones: use gymnasium.wrappers.RescaleAction"
        )


def _observation_bounds(space: spaces.Space) -> tuple[tuple[float, float], ...] | None:
    """Return the bounds of each entry of a Box, or one pair if all are equal; None if they are not all known."""
    if not isinstance(space, spaces.Box):
        return None
    low, high = (np.ravel(x).astype(np.float64) for x in (space.low, space.high))
    width = high - low
    if not (np.isfinite(width).all() and (width > 0).all() and (np.abs([low, high]) < LARGEST_BOUND).all()):
        return None
    if (low == low[0]).all() and (high == high[0]).all():
        low, high = low[:1], high[:1]
    return tuple((float(a), float(b)) for a, b in zip(low, high, strict=True))
