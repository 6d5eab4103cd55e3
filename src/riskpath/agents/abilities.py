"""Abilities that only some agents have. Each is an abstract class; callers test for it by `isinstance`.

TargetNetworks    delayed copies of networks, which the training loop moves
Refreshes         quantities derived from the networks, which are recomputed after target updates
Quantiles         predicted quantiles of the return, and the value of each action
Population        several candidate policies in one state, which held-out episodes compare after training
ServesMeasures    one training serves measures other than its own
StartsEpisodes    the agent decides how its training episodes start
"""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Int

from riskpath.agents.clock import Clock
from riskpath.errors import RiskpathError
from riskpath.risk.measures import RiskMeasure
from riskpath.types import Key, TimeStep


class TargetNetworks(eqx.Module):
    """An agent whose state has `target_params`."""

    @property
    @abc.abstractmethod
    def target_update(self) -> tuple[int, float | Array]:
        """Return the number of updates between two target updates, and the step size of a target update."""


class Refreshes(eqx.Module):
    """An agent whose state holds quantities derived from its networks."""

    @abc.abstractmethod
    def refresh(self, state: Any, clock: Clock) -> Any:
        """Return the state with these quantities recomputed; called after every target update."""


class Quantiles(eqx.Module):
    """An agent that predicts the distribution of the return."""

    @abc.abstractmethod
    def quantiles(self, state: Any, memory: Any, time_step: TimeStep, taus: Float[Array, " N"]) -> Float[Array, "N A"]:
        """Return the predicted quantiles of the return for each action, in the units of the return.

        An agent with continuous actions returns one column, for its own action.
        """

    @abc.abstractmethod
    def estimate(self, state: Any, memory: Any, time_step: TimeStep) -> Float[Array, " A"]:
        """Return β of the predicted return for each action."""


class Population(eqx.Module):
    """An agent whose state holds several policies."""

    @property
    @abc.abstractmethod
    def floor(self) -> Any:
        """The `measure` that must reach the floor `least`; None if there is no floor."""

    @abc.abstractmethod
    def population(self) -> tuple[int, int | None]:
        """Return the number of policies in a state, and of held-out episodes that each plays; None for a default."""

    @abc.abstractmethod
    def preferred(self, state: Any) -> Int[Array, ""]:
        """Return the candidate that the networks think best."""

    @abc.abstractmethod
    def with_weights(self, state: Any, weights: Float[Array, " M"]) -> Any:
        """Return a state in which these are the probabilities that each candidate plays an episode."""

    @abc.abstractmethod
    def weights(self, state: Any) -> Float[Array, " M"]:
        """Return the probability that each candidate plays an episode."""


class ServesMeasures(Refreshes):
    """An agent whose trained state serves other measures, after `refresh`."""

    @abc.abstractmethod
    def serves(self, risk: RiskMeasure) -> bool:
        """Tell whether a trained state also serves another measure."""


class StartsEpisodes(eqx.Module):
    """An agent that decides how its training episodes start, in an environment that is part of the program."""

    @abc.abstractmethod
    def start_episode(self, env: Any, memory: Any, *, key: Key) -> tuple[Any, Any, Any]:
        """Start an episode; return the first observation, the state of the environment and the agent's memory."""


def start_episode(agent: Any, env: Any, memory: Any, *, key: Key) -> tuple[Any, Any, Any]:
    """Start a training episode of any agent, whose first memory is `memory` unless it decides otherwise."""
    if isinstance(agent, StartsEpisodes):
        return agent.start_episode(env, memory, key=key)
    return *env.reset(key), memory


def can_serve(agent: Any, risk: RiskMeasure) -> bool:
    """Tell whether a trained agent serves a measure: its own, and others if it has the ability."""
    return agent.serves(risk) if isinstance(agent, ServesMeasures) else risk == agent.risk


def require_quantiles(agent: Any, what: str) -> Quantiles:
    """Return an agent that predicts quantiles; refuse any other in one line."""
    if not isinstance(agent, Quantiles):
        raise RiskpathError(f"{type(agent).__name__} predicts no return distribution: it has no {what}")
    return agent
