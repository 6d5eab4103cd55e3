"""What both adaptive agents share: contexts, the plan that follows from the critic, and the population.

A context is a goal for the mean and CVaR (`goal_form.py`), the return so far for other measures (`utility_form.py`).
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from riskpath.agents.abilities import Population, Quantiles, ServesMeasures
from riskpath.agents.agent import AgentState, Mode
from riskpath.agents.episodes import Units
from riskpath.agents.goal_form import GoalForm, parts, serves
from riskpath.agents.learning import as_segment, scales, step_of
from riskpath.agents.replay_agent import HistoryMemory, ReplayAgent, best_available, empty_history
from riskpath.agents.utility_form import ATOMS, UtilityForm
from riskpath.errors import RiskpathError
from riskpath.nn.law_critic import Inputs, cell_quantiles, cells, within_cells
from riskpath.nn.losses import midpoints, smooth_pinball
from riskpath.risk.compose import as_distortion
from riskpath.risk.measures import CVaR, DistortionMeasure, RiskMeasure
from riskpath.types import EnvSpec, Key, Segment, TimeStep, Transition, Window
from riskpath.validation import given, require_counts, require_no_less_than_zero

CONTINUOUS = 0.03
"""The weight of the squared error if no two episodes have the same return."""
OFTEN = 0.02
"""Returns repeat if two episodes have the same one with this probability. In between, weights are interpolated."""


class Memory(eqx.Module):
    """What an episode carries along."""

    context: Any
    history: HistoryMemory | tuple[()]
    noise: Any = ()
    """The exploration of an agent with continuous actions."""


class AdaptiveAgent(ReplayAgent, Quantiles, Population, ServesMeasures):
    """An agent that sees a context beside the observation; derive `Adaptive` and `AdaptiveContinuous` from it."""

    risk: DistortionMeasure = eqx.field(default=CVaR(0.25), converter=as_distortion)
    """β. After training for a CVaR, any other level can be chosen: `run.policy(risk=…)`."""
    discount: float | Array = 1.0
    """γ."""
    contexts: int = eqx.field(static=True, default=1)
    """Contexts for which each sample is used. Larger batches help as much as more contexts."""
    utility_weight: float | Array = 10.0
    """Weight of the squared error of the expected utility at the end of training, where returns repeat; without effect
    where they are continuous."""
    selection_episodes: int | None = eqx.field(static=True, default=None)
    """Held-out episodes that each member of the population plays in the first round of the selection after training; 0
    to trust the critic. By default their number follows from the length of training (`training/selection.py`)."""

    def __check_init__(self):
        require_counts(contexts=self.contexts)
        require_no_less_than_zero(utility_weight=self.utility_weight)
        require_counts(0, **given(selection_episodes=self.selection_episodes))
        name = type(self).__name__
        if self.network.head != "factored":
            raise RiskpathError(f"{name} has its own head and no {self.network.head!r}: leave network.head out")
        if serves(self.risk) and isinstance(share := parts(self.risk)[0], float) and share <= 0:
            raise RiskpathError(f"{name} needs a share of CVaR above 0 in {self.risk}; for the mean alone give 'mean'")

    @abc.abstractmethod
    def best_law(
        self, state: AgentState, memory: Memory, time_step: TimeStep
    ) -> tuple[Float[Array, " N"], Float[Array, ""]]:
        """Return the law of the return to go of the best available action, and its expected utility."""

    @property
    def form(self) -> GoalForm | UtilityForm:
        """Return how the measure is maximised: by goals for the mean and CVaR, else by utilities."""
        return GoalForm(self.risk) if serves(self.risk) else UtilityForm(self.risk)

    def window(self, spec: EnvSpec) -> int:
        """Return the length of a history if the network has a window, else 0."""
        return self.network.history_length(spec) if self.network.window else 0

    def units(self, state: AgentState) -> Units:
        """Return the unit of the critic and the range of returns."""
        return Units.of(state.episodes, 1.0 / scales(self.training, state)[0])

    def refresh(self, state: AgentState) -> AgentState:
        """Return the state with a plan that follows from the critic."""
        episodes, units, levels = state.episodes, self.units(state), midpoints(ATOMS)
        assert episodes is not None
        empty, mask = state.initial_memory, episodes.first_action_mask
        no_action = jnp.zeros((), jnp.int32) if mask.shape[-1] else jnp.zeros_like(empty.noise.held)

        def root(context: Any) -> tuple[Float[Array, " K"], Float[Array, ""]]:
            """Return the law and the expected utility of the best first actions, over all starts."""

            def start(observation: Shaped[Array, "*obs"], mask: Bool[Array, " A"]) -> Any:
                time_step = TimeStep(observation, jnp.zeros(()), mask, no_action, jnp.zeros((), jnp.int32))
                memory = Memory(context, _extend(empty.history, time_step), empty.noise)
                return self.best_law(state, memory, time_step)

            laws, values = jax.vmap(start)(episodes.first_observation, episodes.first_action_mask)
            pooled = jax.vmap(lambda law: cell_quantiles(law, levels))(laws)
            return jnp.sort(pooled.ravel())[len(laws) // 2 :: len(laws)], jnp.mean(values)

        progress = self.training.progress(state.gradient_steps)
        return eqx.tree_at(lambda s: s.params.plan, state, self.form.refresh(state.params.plan, root, units, progress))

    def population(self) -> tuple[int, int | None]:
        """Return how many first goals or members are compared, and on how many episodes in the first round."""
        return self.form.members, self.selection_episodes

    def preferred(self, state: AgentState) -> Int[Array, ""]:
        """Return the goal of the measure's own level, or the member with the best predicted law."""
        return self.form.preferred(state.params.plan)

    def with_members(self, state: AgentState, weights: Float[Array, " M"]) -> AgentState:
        """Return a state in which an episode is played by each member with these probabilities."""
        return eqx.tree_at(lambda s: s.params.plan.weights, state, weights)

    def weights(self, state: AgentState) -> Float[Array, " M"]:
        """Return the probabilities with which an episode is played by each member."""
        return state.params.plan.weights

    def value(self, state: AgentState, memory: Memory, time_step: TimeStep) -> Float[Array, ""]:
        """Return the estimate of the best available action."""
        return best_available(self.estimate(state, memory, time_step), time_step.action_mask)

    def serves(self, risk: RiskMeasure) -> bool:
        """Tell whether the critic for all goals serves another measure: another level of CVaR."""
        if not (serves(self.risk) and serves(risk)):
            return risk == self.risk
        (w, level), (other_w, other) = parts(self.risk), parts(risk)
        return bool(np.isclose((1 - w) * level / w, (1 - other_w) * other / other_w))

    def first_memory(self, spec: EnvSpec, plan: Any, noise: Any = ()) -> Memory:
        """Return the memory at the start of an episode."""
        length = self.window(spec)
        history = empty_history(spec, length) if length else ()
        return Memory(self.form.first(plan, jnp.zeros((), jnp.int32)), history, noise)

    def expected_utility(self, state: AgentState, context: Any, law: Float[Array, "N *A"]) -> Float[Array, "*A"]:
        """Return the expected utility of laws of the return to go."""
        _, probs = cells(self.training.online_taus)
        return jnp.tensordot(probs, self.form.utility(context, law, state.params.plan, self.units(state)), axes=1)

    def encode(self, state: AgentState, context: Any, time: Int[Array, ""]) -> Float[Array, " F"]:
        """Return the features of a context at a time."""
        units = self.units(state)
        return self.form.describe(context, units, units.expected(clock_of(state, time)))

    def contexts_after(self, after: Any, segment: Segment) -> Any:
        """Return the contexts after every step of a segment, given the one after the first step."""
        listed = [after]
        for reward in segment.steps.reward[1:]:
            listed.append(self.form.advance(listed[-1], reward, self.discount))
        return jax.tree.map(lambda *x: jnp.stack(x), *listed)

    def law_loss(
        self,
        state: AgentState,
        context: Any,
        law: Float[Array, " N"],
        aim: Float[Array, " N"],
        draws: Float[Array, " N"],
    ) -> Float[Array, ""]:
        """Return the quantile loss of a predicted law, and the squared error of its expected utility.

        Where returns are continuous, the target has a random return from each cell, from uniform draws.
        """
        t, (levels, probs) = self.training, cells(self.training.online_taus)
        aim = aim + (1.0 - self.jumps(state)) * (within_cells(aim, draws) - aim)
        error = self.expected_utility(state, context, law) - self.expected_utility(state, context, aim)
        quantiles = smooth_pinball(law, levels, aim, scales(t, state)[1], probs) / t.online_taus
        return quantiles + self.squared_weight(state) * _nearly_squared(error)

    def jumps(self, state: AgentState) -> Float[Array, ""]:
        """Return 1 where returns repeat, 0 where they are continuous."""
        return jnp.ones(()) if state.episodes is None else jnp.minimum(state.episodes.repeats / OFTEN, 1.0)

    def squared_weight(self, state: AgentState) -> Float[Array, ""]:
        """Return the weight of the squared error.

        Where the law jumps, the quantile loss has a bias, which the squared error removes; it has more noise. So its
        weight is small if returns are continuous. If they repeat, it grows from 1 as learning rates fall.
        """
        jumps, progress = self.jumps(state), self.training.progress(state.gradient_steps)
        return CONTINUOUS ** (1.0 - jumps) * self.utility_weight ** (jumps * progress)

    def begin_or_advance(
        self, state: AgentState, memory: Memory, time_step: TimeStep, *, key: Key, mode: Mode
    ) -> Memory:
        """Return the memory with the context and the history of this step.

        A training episode starts in a random context half of the time, else in that of the first member; any other
        episode as the plan says. So training does not depend on which member was chosen before.
        """
        draw, coin, where = jax.random.uniform(key, (3,))  # at once: every call has its own cost
        plan, form = state.params.plan, self.form
        below = jnp.cumsum(plan.weights)
        member = jnp.argmax(below > draw * below[-1]).astype(jnp.int32)
        planned = form.first(plan, jnp.where(mode.explores, 0, member))
        drawn = form.explore(plan, self.units(state), where)
        explore = mode.explores & (coin < 0.5)
        first = jax.tree.map(lambda a, b: jnp.where(explore, a, b), drawn, planned)
        return self._advance(memory, time_step, first)

    def likeliest(self, state: AgentState, memory: Memory, time_step: TimeStep) -> Memory:
        """Return the memory with the context of this step; at the start that of the likeliest member."""
        plan = state.params.plan
        return self._advance(memory, time_step, self.form.first(plan, jnp.argmax(plan.weights).astype(jnp.int32)))

    def value_of(self, state: AgentState, context: Any, law: Float[Array, "N A"]) -> Float[Array, " A"]:
        """Return β of laws of the return to go, in units of the return; for CVaR with the goal as its threshold."""
        _, probs = cells(self.training.online_taus)
        utility = self.expected_utility(state, context, law)
        estimate = self.form.estimate(context, utility, probs @ law, self.units(state))
        if estimate is None:
            levels = self.risk.distort(midpoints(self.training.act_taus))
            estimate = jnp.mean(cell_quantiles(law, levels), axis=0)
        return estimate / scales(self.training, state)[0]

    def _advance(self, memory: Memory, time_step: TimeStep, first: Any) -> Memory:
        moved = self.form.advance(memory.context, time_step.reward, self.discount)
        context = jax.tree.map(lambda a, b: jnp.where(time_step.time > 0, a, b), moved, first)
        return Memory(context, _extend(memory.history, time_step), memory.noise)


def _nearly_squared(error: Float[Array, ""]) -> Float[Array, ""]:
    """Return the square of a small error; large ones grow linearly, so that no single episode decides."""
    return 2.0 * (jnp.sqrt(1.0 + error**2) - 1.0)


def clock_of(state: AgentState, time: Int[Array, "*n"]) -> Float[Array, "*n"]:
    """Return the share of the longest episode that has passed."""
    return jnp.zeros(time.shape) if state.episodes is None else state.episodes.clock(time)


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


def _extend(history: HistoryMemory | tuple[()], time_step: TimeStep) -> HistoryMemory | tuple[()]:
    return history.extend(time_step) if isinstance(history, HistoryMemory) else ()
