"""The protocols of environments that run inside a compiled program.

`observation, state = env.reset(key)` and `observation, state, reward, terminated, truncated = env.step(key, state,
action)` are pure functions. The training loop resets; an environment never resets itself, so the last observation of
an episode is the true one.
"""

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from riskpath.registry import Registered
from riskpath.types import EnvSpec, Key

Step = tuple[Shaped[Array, "*obs"], Any, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]
"""Observation, state, reward, terminated and truncated after an action."""


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
    def step(self, key: Key, state: Any, action: Shaped[Array, "*act"]) -> Step:
        """Return observation, state, reward, terminated and truncated after an action."""

    @abc.abstractmethod
    def action_mask(self, state: Any) -> Bool[Array, " A"]:
        """Return which discrete actions are available; an empty array if actions are continuous.

        In a terminal state the result is not used, but at least one entry must be true.
        """


class Conditioned(Environment):
    """An environment whose episodes start under a random condition that can be drawn from a shifted distribution, too.

    Whether a patrol is there, what a leading car will do, when requests peak: this is the condition of an episode,
    drawn at its start and not observed. Its distribution belongs to an exponential family, so the means of
    `spec.conditions` statistics determine it, and the best fit to weighted conditions has their weighted means.
    """

    @property
    @abc.abstractmethod
    def usual(self) -> Float[Array, " C"]:
        """Return the means of the statistics in this environment."""

    @abc.abstractmethod
    def draw(self, means: Float[Array, " C"], *, key: Key) -> tuple[Any, Float[Array, " C"]]:
        """Return a condition from the distribution with these means, and its statistics."""

    @abc.abstractmethod
    def log_density(self, statistics: Float[Array, " C"], means: Float[Array, " C"]) -> Float[Array, ""]:
        """Return the logarithm of the density of a condition, up to a constant."""

    @abc.abstractmethod
    def start(self, condition: Any, *, key: Key) -> tuple[Shaped[Array, "*obs"], Any]:
        """Return the first observation and state of an episode under a condition."""

    def reset(self, key: Key) -> tuple[Shaped[Array, "*obs"], Any]:
        """Return the first observation and state of an episode under a usual condition."""
        draw_key, start_key = jax.random.split(key)
        return self.start(self.draw(self.usual, key=draw_key)[0], key=start_key)
