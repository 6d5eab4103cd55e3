"""What `Adaptive` and `AdaptiveContinuous` share: expected utilities of predicted returns, the loss, and the plan."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from riskpath.agents.abilities import Quantiles
from riskpath.agents.adaptive.aversions import AversionObjective
from riskpath.agents.adaptive.context_agent import ContextAgent, Memory, clock_of, extend
from riskpath.agents.adaptive.floored_goals import FlooredGoals, serves_floor
from riskpath.agents.adaptive.goals import GoalObjective, serves
from riskpath.agents.adaptive.objective import Objective
from riskpath.agents.adaptive.return_critic import cell_quantiles, cells, within_cells
from riskpath.agents.adaptive.thresholds import ThresholdObjective
from riskpath.agents.adaptive.utilities import ATOMS, UtilityObjective
from riskpath.agents.agent import AgentState
from riskpath.agents.clock import Clock
from riskpath.agents.episodes import Units
from riskpath.agents.learning import as_segment, scales, step_of
from riskpath.agents.replay_agent import HistoryMemory, ReplayAgent, best_available, empty_history
from riskpath.nn.context_network import Inputs
from riskpath.nn.losses import midpoints, smooth_pinball
from riskpath.risk.utility_families import AversionFamily, ThresholdFamily
from riskpath.types import EnvSpec, Segment, TimeStep, Transition, Window
from riskpath.validation import require_counts, require_no_less_than_zero

CONTINUOUS = 0.03
"""The weight of the squared error if no two episodes have the same return."""
OFTEN = 0.02
"""Returns repeat if two episodes have the same one with this probability. In between, weights are interpolated."""
LINEAR = 16.0
"""The squared error is linear beyond this many units where returns repeat, beyond one where they are continuous. In its
linear part its minimum is the median instead of the mean: with 1 unit, a bet that is won with probability 0.88 was
valued as if it were certain."""


class AdaptiveAgent(ContextAgent, ReplayAgent, Quantiles):
    """An agent with a critic that predicts the return distribution in a context."""

    contexts: int = eqx.field(static=True, default=1)
    """Number of contexts in which each sample is used. Larger batches help equally."""
    utility_weight: float | Array = 10.0
    """Weight of the squared error of the expected utility at the end of training, where returns repeat; without effect
    where they are continuous."""

    def __check_init__(self):
        require_counts(contexts=self.contexts)
        require_no_less_than_zero(utility_weight=self.utility_weight)

    @abc.abstractmethod
    def best_law(
        self, state: AgentState, memory: Memory, time_step: TimeStep
    ) -> tuple[Float[Array, " N"], Float[Array, ""]]:
        """Return the distribution of the return to go of the best available action, and its expected utility."""

    def window(self, spec: EnvSpec) -> int:
        """Return the length of a history if the network has a window, else 0."""
        return self.network.history_length(spec) if self.network.window else 0

    @property
    def objective(self) -> Objective:
        """Return goals for mean, CVaR and their mixtures, thresholds or aversions where one number is searched."""
        if (floor := self.floor) is not None and serves_floor(self.risk, floor.measure):
            return FlooredGoals(self.risk, floor)
        if floor is None and serves(self.risk):
            return GoalObjective(self.risk)
        if floor is None and isinstance(self.risk, ThresholdFamily):
            return ThresholdObjective(self.risk)
        if floor is None and isinstance(self.risk, AversionFamily):
            return AversionObjective(self.risk)
        return UtilityObjective(self.risk, floor)

    def units(self, state: AgentState) -> Units:
        """Return the unit of the critic and the range of all returns so far."""
        return Units.of(state.episodes, 1.0 / scales(self.training, state)[0])

    def training_start(self, state: AgentState, draws: Float[Array, "2"]) -> Any:
        """Return a context drawn by the objective half of the time, else that of the preferred candidate.

        With a floor it is always drawn, because which candidate is preferred depends on the floor.
        """
        plan, objective = state.params.plan, self.objective
        drawn = objective.explore(plan, self.units(state), draws[1])
        if self.floor is not None:
            return drawn
        own = objective.first(plan, objective.preferred(plan))
        return jax.tree.map(lambda a, b: jnp.where(draws[0] < 0.5, a, b), drawn, own)

    def refresh(self, state: AgentState, clock: Clock) -> AgentState:
        episodes, units, levels = state.episodes, self.units(state), midpoints(ATOMS)
        assert episodes is not None
        empty, mask = state.initial_memory, episodes.first_action_mask
        no_action = jnp.zeros((), jnp.int32) if mask.shape[-1] else jnp.zeros_like(empty.noise.held)

        def root(context: Any) -> tuple[Float[Array, " K"], Float[Array, " S"]]:
            """Return the distribution of the best first actions over all starts, and what is expected from each."""

            def start(observation: Shaped[Array, "*obs"], mask: Bool[Array, " A"]) -> Any:
                time_step = TimeStep(observation, jnp.zeros(()), mask, no_action, jnp.zeros((), jnp.int32))
                memory = Memory(context, extend(empty.history, time_step), empty.noise)
                return self.best_law(state, memory, time_step)

            laws, values = jax.vmap(start)(episodes.first_observation, episodes.first_action_mask)
            pooled = jax.vmap(lambda law: cell_quantiles(law, levels))(laws)
            return jnp.sort(pooled.ravel())[len(laws) // 2 :: len(laws)], values

        progress = self.training.progress(clock.done)
        plan = self.objective.refresh(state.params.plan, root, units, progress)
        return eqx.tree_at(lambda s: s.params.plan, state, plan)

    def value(self, state: AgentState, memory: Memory, time_step: TimeStep) -> Float[Array, ""]:
        return best_available(self.estimate(state, memory, time_step), time_step.action_mask)

    def first_memory(self, spec: EnvSpec, plan: Any, noise: Any = ()) -> Memory:
        """Return the memory at the start of an episode."""
        length = self.window(spec)
        history = empty_history(spec, length) if length else ()
        return Memory(self.objective.first(plan, jnp.zeros((), jnp.int32)), history, noise)

    def expected_utility(self, state: AgentState, context: Any, law: Float[Array, "N *A"]) -> Float[Array, "*A"]:
        """Return the expected utility of distributions of the return to go."""
        _, probs = cells(self.training.num_quantiles)
        return self.objective.expected(context, law, probs, state.params.plan, self.units(state))

    def contexts_after(self, after: Any, segment: Segment) -> Any:
        """Return the contexts after every step of a segment, given the one after the first step."""
        listed = [after]
        for reward in segment.steps.reward[1:]:
            listed.append(self.objective.advance(listed[-1], reward, self.discount))
        return jax.tree.map(lambda *x: jnp.stack(x), *listed)

    def law_loss(
        self,
        state: AgentState,
        clock: Clock,
        context: Any,
        law: Float[Array, " N"],
        aim: Float[Array, " N"],
        draws: Float[Array, " N"],
    ) -> Float[Array, ""]:
        """Return the quantile loss of a predicted distribution, and the squared error of its expected utility.

        Where returns are continuous, the target has one random return from each cell, by uniform draws.
        """
        t, (levels, probs) = self.training, cells(self.training.num_quantiles)
        aim = aim + (1.0 - self.jumps(state)) * (within_cells(aim, draws) - aim)
        error = self.objective.error(context, law, aim, probs, state.params.plan, self.units(state))
        quantiles = smooth_pinball(law, levels, aim, scales(t, state)[1], probs) / t.num_quantiles
        return quantiles + self.squared_weight(state, clock) * nearly_squared(error, LINEAR ** self.jumps(state))

    def jumps(self, state: AgentState) -> Float[Array, ""]:
        """Return 1 where returns repeat, 0 where they are continuous."""
        return jnp.ones(()) if state.episodes is None else jnp.minimum(state.episodes.repeats / OFTEN, 1.0)

    def squared_weight(self, state: AgentState, clock: Clock) -> Float[Array, ""]:
        """Return the weight of the squared error.

        Where the distribution jumps, the quantile loss has a bias. The squared error removes it, but has more noise. So
        its weight is small if returns are continuous. If they repeat, it grows from 1 as the learning rates decay.
        """
        jumps, progress = self.jumps(state), self.training.progress(clock.done)
        return CONTINUOUS ** (1.0 - jumps) * self.utility_weight ** (jumps * progress)

    def value_of(self, state: AgentState, context: Any, law: Float[Array, "N A"]) -> Float[Array, " A"]:
        """Return β of predicted returns to go, in the units of the return; for CVaR with the goal as its threshold."""
        _, probs = cells(self.training.num_quantiles)
        units = self.units(state)
        return units.unit * self.objective.estimate(context, law, probs, units)


def nearly_squared(error: Float[Array, "*n"], linear: float | Float[Array, ""]) -> Float[Array, "*n"]:
    """Return the square of an error; beyond `linear` it grows linearly, so that no single episode dominates."""
    return 2.0 * linear**2 * (jnp.sqrt(1.0 + (error / linear) ** 2) - 1.0)


def features(inputs: Inputs, state: AgentState, memory: Memory, time_step: TimeStep) -> Float[Array, " H"]:
    """Return the features of observation and time, and of the history if there is one."""
    clock = clock_of(state, time_step.time)
    if not isinstance(history := memory.history, HistoryMemory):
        return inputs(time_step.observation, clock)
    return inputs.last(history.observation, history.prev_action, history.valid, clock)


def both_features(
    inputs: Inputs, state: AgentState, sample: Window | Segment | Transition
) -> tuple[Float[Array, " H"], Float[Array, "n H"]]:
    """Return the features before a stored step, and after it and each of those that follow."""
    step = step_of(sample)
    clock = clock_of(state, step.time)
    if isinstance(sample, Window):
        now, following = inputs.both(sample, clock, clock_of(state, step.time + 1))
        return now, following[None]
    steps = as_segment(sample).steps
    return inputs(step.observation, clock), jax.vmap(inputs)(steps.next_observation, clock_of(state, steps.time + 1))
