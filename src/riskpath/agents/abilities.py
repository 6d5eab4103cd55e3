"""What only some agents can do. Each ability is an abstract class; callers ask for it by `isinstance`.

TargetNetworks    delayed copies of networks, which the training loop moves
Refreshes         something that follows from the networks is recomputed after target updates
Quantiles         predicted quantiles of the return, and the value of each action
Population        several policies in one state, which are compared on held-out episodes after training
ServesMeasures    one training serves other measures than its own
"""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Int

from riskpath.errors import RiskpathError
from riskpath.risk.measures import RiskMeasure
from riskpath.types import TimeStep


class TargetNetworks(eqx.Module):
    """An agent whose state has `target_params`."""

    @property
    @abc.abstractmethod
    def target_update(self) -> tuple[int, float | Array]:
        """Return the calls of `learn` between two target updates, and the share of the difference that one makes up."""


class Refreshes(eqx.Module):
    """An agent whose state holds something that follows from its networks."""

    @abc.abstractmethod
    def refresh(self, state: Any) -> Any:
        """Return the state with what follows from its networks; called after every target update."""


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

    @abc.abstractmethod
    def population(self) -> tuple[int, int | None]:
        """Return how many policies a state holds, and how many held-out episodes each plays; None for a default."""

    @abc.abstractmethod
    def preferred(self, state: Any) -> Int[Array, ""]:
        """Return the member that the networks think best."""

    @abc.abstractmethod
    def with_members(self, state: Any, weights: Float[Array, " M"]) -> Any:
        """Return a state in which an episode is played by each member with these probabilities."""

    @abc.abstractmethod
    def weights(self, state: Any) -> Float[Array, " M"]:
        """Return the probabilities with which an episode is played by each member."""


class ServesMeasures(Refreshes):
    """An agent whose trained state serves other measures, after `refresh`."""

    @abc.abstractmethod
    def serves(self, risk: RiskMeasure) -> bool:
        """Tell whether a trained state also serves another measure."""


def can_serve(agent: Any, risk: RiskMeasure) -> bool:
    """Tell whether a trained agent serves a measure: its own, and others if it has the ability."""
    return agent.serves(risk) if isinstance(agent, ServesMeasures) else risk == agent.risk


def require_quantiles(agent: Any, what: str) -> Quantiles:
    """Return an agent that predicts quantiles; refuse any other in one line."""
    if not isinstance(agent, Quantiles):
        raise RiskpathError(f"{type(agent).__name__} predicts no return distribution: it has no {what}")
    return agent
