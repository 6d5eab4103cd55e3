"""Actions that consist of several discrete choices: `MultiDiscrete`, `MultiBinary`, and `Dict` or `Tuple` of discrete.

Where there are few combinations, each is one action, so that any dependence between the choices can be learned. Where
there are many, each choice has a head of its own, and the value of a joint action is the sum of its parts.
"""

import math
from typing import Any

import numpy as np

from riskpath.envs.plain_spaces import build_element, choice_numbers, choice_sizes, describe_space
from riskpath.errors import RiskpathError, short_repr
from riskpath.extras import needs_extra
from riskpath.risk.inverse import namespace

with needs_extra("gymnasium", "a Gymnasium environment"):
    from gymnasium import spaces

MOST_COMBINATIONS = 128
"""Up to this many combinations each is one action. Every agent can choose among them, and exploration tries each one
hundreds of times in a training of 40,000 steps; beyond it a critic would hardly see most combinations."""


def yes_or_no(mask: Any) -> np.ndarray:
    """Return an action mask as an array of booleans; its entries must be 0 or 1."""
    entries = np.asarray(mask)
    if entries.dtype != bool and not np.isin(entries, (0, 1)).all():
        raise RiskpathError(f"entries of an action mask must be 0 or 1, got {short_repr(entries.tolist())}")
    return entries.astype(bool)


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


def is_discrete(space: spaces.Space) -> bool:
    """Tell whether a space consists of discrete choices alone."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return len(inner) > 0 and all(map(is_discrete, inner))
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)
