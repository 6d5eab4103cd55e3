"""What all adaptive agents share: the plan, which gives each episode its first context, and how rewards change it.

The plan is part of the agent's state: `params.plan`.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from riskpath.agents.abilities import Population, ServesMeasures
from riskpath.agents.adaptive.goals import parts, serves
from riskpath.agents.adaptive.objective import Objective
from riskpath.agents.adaptive.utilities import Floor
from riskpath.agents.agent import Agent, AgentState, Mode
from riskpath.agents.episodes import Units
from riskpath.agents.replay_agent import HistoryMemory
from riskpath.errors import RiskpathError
from riskpath.risk.compose import parse_risk
from riskpath.risk.floors import floor_text, read_floor
from riskpath.risk.measures import CVaR, DistortionMeasure, RiskMeasure
from riskpath.types import Key, TimeStep
from riskpath.validation import given, require_counts


class Memory(eqx.Module):
    """What an agent carries through an episode."""

    context: Any
    history: HistoryMemory | tuple[()]
    noise: Any = ()
    """The state of the exploration noise, of an agent with continuous actions."""


class ContextAgent(Agent, Population, ServesMeasures):
    """An agent whose networks see a context in addition to the observation."""

    risk: RiskMeasure = eqx.field(default=CVaR(0.25), converter=parse_risk)
    """β. After training for a CVaR, any other level can be chosen: `run.policy(risk=…)`."""
    discount: float | Array = 1.0
    """γ."""
    subject_to: str | None = eqx.field(static=True, default=None, converter=floor_text)
    """A floor under another measure: {"cvar:0.1": 50.0}, or as text "cvar:0.1=50". Training does not depend on the
    number: another floor can be chosen afterwards, `run.policy(floor=…)`."""
    selection_episodes: int | None = eqx.field(static=True, default=None)
    """Held-out episodes that each candidate plays in the first round of the selection after training; 0 to trust the
    networks. By default their number follows from the length of training (`training/selection.py`)."""

    def __check_init__(self):
        require_counts(0, **given(selection_episodes=self.selection_episodes))
        name = type(self).__name__
        require_traceable(self.risk)
        if self.floor is not None:
            require_traceable(self.floor.measure)
        if self.network.head != "factored":
            raise RiskpathError(f"{name} has its own head and no {self.network.head!r}: leave network.head out")
        if serves(self.risk) and isinstance(share := parts(self.risk)[0], float) and share <= 0:
            raise RiskpathError(f"{name} needs a share of CVaR above 0 in {self.risk}; for the mean alone give 'mean'")

    @property
    @abc.abstractmethod
    def objective(self) -> Objective:
        """Return what the agent maximises."""

    @property
    def floor(self) -> Floor | None:
        return None if self.subject_to is None else Floor(*read_floor(self.subject_to))

    @abc.abstractmethod
    def units(self, state: AgentState) -> Units:
        """Return the unit in which the networks count returns, and the range of returns."""

    @abc.abstractmethod
    def training_start(self, state: AgentState, draws: Float[Array, "2"]) -> Any:
        """Return the context with which a training episode starts, from uniform draws."""

    def population(self) -> tuple[int, int | None]:
        return self.objective.candidates, self.selection_episodes

    def preferred(self, state: AgentState) -> Int[Array, ""]:
        return self.objective.preferred(state.params.plan)

    def with_weights(self, state: AgentState, weights: Float[Array, " M"]) -> AgentState:
        return eqx.tree_at(lambda s: s.params.plan.weights, state, weights)

    def weights(self, state: AgentState) -> Float[Array, " M"]:
        return state.params.plan.weights

    def serves(self, risk: RiskMeasure) -> bool:
        """Tell whether the trained networks serve another measure: another level of CVaR."""
        if self.floor is not None or not (serves(self.risk) and serves(risk)):
            return risk == self.risk
        (w, level), (other_w, other) = parts(self.risk), parts(risk)
        return bool(np.isclose((1 - w) * level / w, (1 - other_w) * other / other_w))

    def encode(self, state: AgentState, context: Any, time: Int[Array, ""]) -> Float[Array, " F"]:
        """Return the features of a context at a time."""
        units = self.units(state)
        return self.objective.encode(context, units, units.expected(clock_of(state, time)))

    def begin_or_advance(
        self, state: AgentState, memory: Memory, time_step: TimeStep, *, key: Key, mode: Mode
    ) -> Memory:
        """Return the memory with the context and the history of this step.

        An episode that does not explore starts as the plan says. A training episode does not depend on the plan's
        weights, so training continues in the same way whichever candidate was selected before.
        """
        draws = jax.random.uniform(key, (3,))  # at once: every call has its own cost
        plan = state.params.plan
        below = jnp.cumsum(plan.weights)
        planned = self.objective.first(plan, jnp.argmax(below > draws[0] * below[-1]).astype(jnp.int32))
        trained = self.training_start(state, draws[1:])
        first = jax.tree.map(lambda a, b: jnp.where(mode.explores, a, b), trained, planned)
        return self._advance(memory, time_step, first)

    def likeliest(self, state: AgentState, memory: Memory, time_step: TimeStep) -> Memory:
        """Return the memory with the context of this step; at the start that of the likeliest candidate."""
        plan = state.params.plan
        first = self.objective.first(plan, jnp.argmax(plan.weights).astype(jnp.int32))
        return self._advance(memory, time_step, first)

    def _advance(self, memory: Memory, time_step: TimeStep, first: Any) -> Memory:
        moved = self.objective.advance(memory.context, time_step.reward, self.discount)
        context = jax.tree.map(lambda a, b: jnp.where(time_step.time > 0, a, b), moved, first)
        return Memory(context, extend(memory.history, time_step), memory.noise)


def require_traceable(risk: RiskMeasure) -> None:
    """Refuse a measure whose own function works on NumPy arrays only."""
    if isinstance(risk, DistortionMeasure):
        return
    sample = jax.ShapeDtypeStruct((4,), jnp.float32)
    try:
        jax.eval_shape(risk.influence, sample, sample, sample)
    except jax.errors.JAXTypeError:
        raise RiskpathError(
            f"the function of {risk} must work on JAX arrays to be learned: write it with jax.numpy, or without NumPy"
        ) from None


def clock_of(state: AgentState, time: Int[Array, "*n"]) -> Float[Array, "*n"]:
    """Return the elapsed fraction of the longest episode."""
    return jnp.zeros(time.shape) if state.episodes is None else state.episodes.clock(time)


def extend(history: HistoryMemory | tuple[()], time_step: TimeStep) -> HistoryMemory | tuple[()]:
    """Return a history with a new observation at its end; () stays ()."""
    return history.extend(time_step) if isinstance(history, HistoryMemory) else ()
