"""Environments whose episodes start under a random condition that can be drawn from a shifted distribution, too.

Whether a patrol is there, what a leading car will do, when requests peak: this is the condition of an episode, drawn at
its start and not observed. Its distribution belongs to an exponential family, so the means of some statistics
determine it, and the best fit to weighted conditions has their weighted means.
"""

import abc
from typing import Any

import jax
from jaxtyping import Array, Float, Shaped

from riskpath.envs.environment import Environment
from riskpath.types import Key


class Conditioned(Environment):
    """An environment that exposes the conditions of its episodes; `spec.conditions` is the number C of statistics."""

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
