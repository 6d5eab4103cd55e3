"""The protocol of environments that run inside a compiled program.

`observation, state = env.reset(key)` and `observation, state, reward, terminated, truncated = env.step(key, state,
action)` are pure functions. The training loop resets; an environment never resets itself, so the last observation of
an episode is the true one.
"""

import abc
import dataclasses
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from riskpath.registry import Registered
from riskpath.types import EnvSpec, Key


class Environment(eqx.Module, Registered):
    """A decision problem that runs inside a compiled program."""

    def __post_init__(self):
        """Keep numbers of NumPy as those of Python: small whole numbers of NumPy overflow where they are multiplied."""
        for field in dataclasses.fields(self):
            if isinstance(value := getattr(self, field.name), np.number):
                object.__setattr__(self, field.name, value.item())

    @property
    @abc.abstractmethod
    def spec(self) -> EnvSpec:
        """Return the shapes and limits that an agent needs."""

    @abc.abstractmethod
    def reset(self, key: Key) -> tuple[Shaped[Array, "*obs"], Any]:
        """Return the first observation and state of an episode."""

    @abc.abstractmethod
    def step(
        self, key: Key, state: Any, action: Shaped[Array, "*act"]
    ) -> tuple[Shaped[Array, "*obs"], Any, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Return observation, state, reward, terminated and truncated after an action."""

    @abc.abstractmethod
    def action_mask(self, state: Any) -> Bool[Array, " A"]:
        """Return which discrete actions are available; an empty array if actions are continuous.

        In a terminal state the result is not used, but at least one entry must be true.
        """
