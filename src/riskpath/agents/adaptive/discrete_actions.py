"""Adaptive: the policy reacts to the return so far, and so aims at the best possible value of the whole return.

The critic predicts the distribution of the return to go by atoms θ_i of probability p_i. In addition to the observation
it sees a context x: a goal for CVaR (`goals.py`), the return so far for other measures (`utilities.py`). With the
utility u_x of a return to go in that context,

    a = argmax_a Σ_i p_i u_x(θ_i(s, x, a))
    θ(s, x, a) ← r + γ θ′(s′, x′, a′),     a′ = argmax_a Σ_i p_i u_x′(θ_i(s′, x′, a))

by a quantile loss, and the expected utility itself by a squared loss. The squared loss has no bias where the
distribution jumps, but more noise, so its weight is small where returns are continuous:

    Σ_i p_i u_x(θ_i)  ←  Σ_i p_i u_x(r + γ θ′_i)

A stored transition can train any number of contexts: only the best action depends on the context, the transition does
not.

There are two critics, each trained on half of every batch. One chooses a′, and the other's target network evaluates it
(van Hasselt 2010): the maximum of noisy values is too large, and over hundreds of steps without a discount this bias
would add up. The agent acts by the mean of both.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from riskpath.agents.adaptive.adaptive_agent import AdaptiveAgent, both_features, features
from riskpath.agents.adaptive.context_agent import Memory
from riskpath.agents.adaptive.return_critic import LawCritic, cell_quantiles
from riskpath.agents.agent import ActorOutput, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.config import Training
from riskpath.agents.learning import (
    as_segment,
    descend,
    explore_greedily,
    look_ahead,
    masked_argmax,
    mean_over,
    new_state,
    observe_batch,
    scales,
    step_of,
    within_returns,
)
from riskpath.errors import RiskpathError
from riskpath.nn.network import Network
from riskpath.types import EnvSpec, Key, Keys, Segment, TimeStep, Transition, Window


class Learned(eqx.Module):
    """The critic, and the plan that follows from it; gradients do not change the plan."""

    critic: LawCritic
    plan: Any


class Adaptive(AdaptiveAgent):
    """Maximises any risk measure of the whole return by reacting to the rewards received; discrete actions."""

    network: Network = Network(hidden=(128, 128))
    """Sizes and kinds of the networks; with `window` the critic sees a history of observations and actions."""
    training: Training = Training(batch_size=64, final_learning_rate=2e-5, num_quantiles=64)
    """Training hyperparameters."""
    n_steps: int = eqx.field(static=True, default=4)
    """Largest number of rewards in a target, without a history."""

    several_steps: ClassVar = True

    def __check_init__(self):
        if self.training.batch_size % 2:
            raise RiskpathError(
                f"batch_size of Adaptive must be even, half for each critic: got {self.training.batch_size}"
            )

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return a fresh critic; the memory is the context and, with a window, the history."""
        length, objective, atoms = self.window(spec), self.objective, self.training.num_quantiles
        make = lambda key: LawCritic(self.network, spec, length, atoms, objective.context_size, key=key)
        twins = eqx.filter_vmap(make)(jax.random.split(key))
        return new_state(self, Learned(twins, objective.plan()), self.first_memory(spec, objective.plan()))

    def act(self, state: AgentState, memory: Memory, time_step: TimeStep, *, key: Key, mode: Mode) -> ActorOutput:
        """Return the action with the best expected utility, or a random one."""
        context_key, act_key = jax.random.split(key)
        memory = self.begin_or_advance(state, memory, time_step, key=context_key, mode=mode)
        values = self.expected_utility(state, memory.context, self._law(state, memory, time_step))
        return ActorOutput(explore_greedily(self, values, time_step, key=act_key, mode=mode), memory)

    def update(self, state: AgentState, batch: Transition | Window | Segment, clock: Clock, *, key: Key) -> Updated:
        """Take one gradient step on the critic."""
        t, objective, units, (scale, _) = self.training, self.objective, self.units(state), scales(self.training, state)

        def loss(
            critic: LawCritic, fixed: LawCritic, other: LawCritic, stored: Transition | Window | Segment, key: Key
        ) -> Float[Array, ""]:
            """Return the loss of one twin; the other's target network evaluates the action that this twin chooses."""
            step, segment = step_of(stored), as_segment(step_of(stored) if isinstance(stored, Window) else stored)
            now, _ = both_features(critic.inputs, state, stored)
            (_, online), (_, delayed) = (both_features(z.inputs, state, stored) for z in (fixed, other))

            def one(context: Any, after: Any, draws: Float[Array, " N"]) -> Float[Array, ""]:
                afters, times = self.contexts_after(after, segment), segment.steps.time + 1
                x, xs = (
                    self.encode(state, context, step.time),
                    jax.vmap(self.encode, (None, 0, 0))(state, afters, times),
                )
                values = jax.vmap(self.expected_utility, (None, 0, 0))(state, afters, jax.vmap(fixed)(online, xs))
                best = jax.vmap(masked_argmax)(values, segment.steps.next_action_mask)
                ahead = look_ahead(self, segment, best, clock)
                future = other.law(delayed[ahead.last], xs[ahead.last], best[ahead.last])
                aim = scale * ahead.reward + ahead.factor * within_returns(self, state, segment, ahead, future)
                law = critic.law(now, x, step.action)
                return self.law_loss(state, clock, context, law, jax.lax.stop_gradient(aim), draws)

            relabel_key, draw_key = jax.random.split(key)
            contexts = objective.relabel(step, self.contexts, state.params.plan, units, self.discount, key=relabel_key)
            draws = jax.random.uniform(draw_key, (self.contexts, t.num_quantiles))
            return jnp.mean(jax.vmap(one)(*contexts, draws))

        state = observe_batch(state, batch)
        samples = (batch, jax.random.split(key, t.batch_size))
        halves = jax.tree.map(lambda x: x.reshape(2, t.batch_size // 2, *x.shape[1:]), samples)
        fixed, delayed = state.params.critic, state.target_params.critic
        swapped = jax.tree.map(lambda x: x[::-1] if eqx.is_array(x) else x, delayed)

        def half(critic: LawCritic, fixed: LawCritic, other: LawCritic, stored: Any, keys: Keys) -> Float[Array, ""]:
            return mean_over(lambda sample, key: loss(critic, fixed, other, sample, key), stored, keys)

        def mean_loss(params: Learned) -> Float[Array, ""]:
            return jnp.mean(eqx.filter_vmap(half)(params.critic, fixed, swapped, *halves))

        return descend(self, state, mean_loss, clock)

    def quantiles(
        self, state: AgentState, memory: Memory, time_step: TimeStep, taus: Float[Array, " N"]
    ) -> Float[Array, "N A"]:
        """Return the predicted quantiles of the return to go, at the start those of the whole return."""
        law = self._law(state, self.likeliest(state, memory, time_step), time_step)
        return cell_quantiles(law, taus) / scales(self.training, state)[0]

    def estimate(self, state: AgentState, memory: Memory, time_step: TimeStep) -> Float[Array, " A"]:
        memory = self.likeliest(state, memory, time_step)
        return self.value_of(state, memory.context, self._law(state, memory, time_step))

    def best_law(
        self, state: AgentState, memory: Memory, time_step: TimeStep
    ) -> tuple[Float[Array, " N"], Float[Array, ""]]:
        law = self._law(state, memory, time_step)
        values = self.expected_utility(state, memory.context, law)
        best = masked_argmax(values, time_step.action_mask)
        return law[:, best], values[best]

    def _law(self, state: AgentState, memory: Memory, time_step: TimeStep) -> Float[Array, "N A"]:
        """Return the distribution of the return to go of every action."""
        critic = state.params.critic
        context = self.encode(state, memory.context, time_step.time)
        of_one = lambda critic: critic(features(critic.inputs, state, memory, time_step), context)
        first, second = eqx.filter_vmap(of_one)(critic)
        return (first + second) / 2  # on a CPU several times faster than a mean over an axis
