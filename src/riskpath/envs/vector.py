"""Environments that the host steps: a batch of them behind one interface, and their stand-in in a compiled program.

A `VectorEnvironment` holds the environments of all lanes: those of lane 0, then those of lane 1, and so on. They step
together. When an episode ends, its environment is reset in the same step (Gymnasium's SAME_STEP), and the true last
observation is returned beside the first one of the next episode.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Shaped

from riskpath.envs.environment import Environment
from riskpath.errors import RiskpathError
from riskpath.types import EnvSpec, Key


class VectorStep(NamedTuple):
    """The result of one step; arrays have a leading axis K on the host, and L, E inside of a program."""

    final_observation: Any
    """The true observation after the action."""
    final_action_mask: Any
    """Which actions are available there."""
    reward: Any
    terminated: Any
    truncated: Any
    observation: Any
    """The observation to act on next: the same, or the first one of a new episode."""
    action_mask: Any
    """Which actions are available there."""


class Loss(NamedTuple):
    """Environments that were lost with their worker."""

    step: int
    """The steps of each lane by then."""
    environments: int
    """How many they are."""
    total: int
    """How many there are."""
    node: str
    """The address of the node of the worker, or of several."""

    def __str__(self) -> str:
        return (
            f"lost {self.environments} of {self.total} environments with their workers on {self.node}: new episodes "
            "began elsewhere, the unfinished ones do not count"
        )


class EpisodesLost(Exception):
    """Some environments have begun new episodes instead of taking a step: the step is to be asked for again.

    Those that were not lost have taken it with the action that they were given, and take no other one: they are to be
    given the same again. `which` are the others [K], `shown` has first observations [K, …] and action masks [K, A].
    """

    def __init__(self, which: np.ndarray, observation: np.ndarray, action_mask: np.ndarray):
        super().__init__(f"{which.sum()} environments have begun new episodes")
        self.which, self.shown = which, (observation, action_mask)


class VectorEnvironment(abc.ABC):
    """K environments that the host steps together."""

    spec: EnvSpec
    num_envs: int
    """K."""
    draws_from_keys: bool = True
    """Whether `step` needs the keys; otherwise it gets None."""
    steps: int = 0
    """Steps that the environments of each lane have taken; more than the lanes' own count after an interrupted
    chunk."""
    waits: bool = False
    """Whether it waits for somebody else, so that Ctrl-C is to take effect at once."""
    losses: tuple[Loss, ...] = ()
    """Environments that were lost since somebody last looked here."""

    @abc.abstractmethod
    def reset(self, keys: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return first observations [K, …] and action masks [K, A]; randomness follows from K keys."""

    @abc.abstractmethod
    def step(self, action: np.ndarray, env_keys: Any, reset_keys: Any) -> VectorStep:
        """Step all environments, or raise `EpisodesLost`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release all resources."""


class HostEnvironment(Environment):
    """The stand-in, inside a compiled program, for an environment that the host steps: it has only a specification."""

    env_spec: EnvSpec
    translation: Any = eqx.field(static=True, default=None)
    """Converts observations and actions of the environment; None if they are the agent's own."""

    @property
    def spec(self) -> EnvSpec:
        return self.env_spec

    def reset(self, key: Key) -> tuple[Shaped[Array, "*obs"], tuple[()]]:
        """Return zeros, until the host provides the first observation."""
        return jnp.zeros(self.env_spec.observation_shape, self.env_spec.observation_dtype), ()

    def step(self, key: Key, state: Any, action: Any) -> Any:
        raise RiskpathError("this environment is stepped by the host")

    def action_mask(self, state: Any) -> Bool[Array, " A"]:
        """Allow every action, until the host provides a mask."""
        return self.env_spec.every_action()
