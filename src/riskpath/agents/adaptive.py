"""Adaptive: the policy reacts to what it has earned, and so reaches the best value of the whole return that exists.

The critic predicts the law of the return to go by atoms θ_i of probability p_i. It sees a context x beside the
observation: a goal for CVaR (`goal_form.py`), the return so far for other measures (`utility_form.py`). With the
utility u_x of a return to go in that context,

    a = argmax_a Σ_i p_i u_x(θ_i(s, x, a))
    θ(s, x, a) ← r + γ θ′(s′, x′, a′),     a′ = argmax_a Σ_i p_i u_x′(θ_i(s′, x′, a))

by the quantile Huber loss, and the expected utility itself by a squared loss, which has no bias where the law jumps but
more noise, so that its weight is small where returns are continuous:

    Σ_i p_i u_x(θ_i)  ←  Σ_i p_i u_x(r + γ θ′_i)

A stored transition may train any context, and several: what was done does not depend on it, only what is best does.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from riskpath.agents.adaptive_base import AdaptiveAgent, Memory, both_features, features
from riskpath.agents.agent import ActorOutput, AgentState
from riskpath.agents.config import Training
from riskpath.agents.learning import epsilon_greedy, gradient_step, masked_argmax, new_state, scales
from riskpath.nn.law_critic import LawCritic, cell_quantiles
from riskpath.nn.network import Network
from riskpath.types import EnvSpec, Key, TimeStep, Transition, Window


class Learned(eqx.Module):
    """The critic, and the plan that follows from it; gradients do not change the plan."""

    critic: LawCritic
    plan: Any


class Adaptive(AdaptiveAgent):
    """Maximises any risk measure of the whole return by reacting to the rewards received; discrete actions."""

    network: Network = Network(hidden=(128, 128))
    """Sizes and kinds of the networks; with `window` the critic sees a history of observations and actions."""
    training: Training = Training(batch_size=64, learning_rate_decay=0.02)  # pyright: ignore[reportIncompatibleVariableOverride]
    """Training hyperparameters."""

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return a fresh critic; the memory is the context and, with a window, the history."""
        length, form = self.window(spec), self.form
        critic = LawCritic(self.network, spec, length, self.training.online_taus, form.context_size, key=key)
        return new_state(Learned(critic, form.plan()), self.first_memory(spec, form.plan()))

    def act(
        self, state: AgentState, memory: Memory, time_step: TimeStep, *, key: Key, epsilon: Float[Array, ""]
    ) -> ActorOutput:
        """Return the action with the best expected utility, or a random one."""
        context_key, act_key = jax.random.split(key)
        memory = self.begin_or_advance(state, memory, time_step, key=context_key, epsilon=epsilon)
        values = self.expected_utility(state, memory.context, self._law(state, memory, time_step))
        return ActorOutput(epsilon_greedy(values, time_step.action_mask, key=act_key, epsilon=epsilon), memory)

    def learn(self, state: AgentState, batch: Transition | Window, *, key: Key) -> tuple[AgentState, dict[str, Array]]:
        """Take one gradient step on the critic."""
        t, form, units, (scale, _) = self.training, self.form, self.units(state), scales(self.training, state)
        target = state.target_params.critic

        def loss(params: Learned, sample: tuple[Transition | Window, Key]) -> Float[Array, ""]:
            window, key = sample
            step = window.transition if isinstance(window, Window) else window
            now, following = both_features(params.critic.inputs, window)
            online, (_, delayed) = jax.lax.stop_gradient(following), both_features(target.inputs, window)

            def one(context: Any, after: Any) -> Float[Array, ""]:
                x, x_after = form.describe(context, units), form.describe(after, units)
                values = self.expected_utility(state, after, state.params.critic(online, x_after))
                future = target.law(delayed, x_after, masked_argmax(values, step.next_action_mask))
                aim = scale * step.reward + jnp.where(step.terminated, 0.0, self.discount * future)
                return self.law_loss(state, context, params.critic.law(now, x, step.action), jax.lax.stop_gradient(aim))

            contexts = form.relabel(step, self.contexts, state.params.plan, units, self.discount, key=key)
            return jnp.mean(jax.vmap(one)(*contexts))

        return gradient_step(state, loss, t, (batch, jax.random.split(key, t.batch_size)))

    def quantiles(
        self, state: AgentState, memory: Memory, time_step: TimeStep, taus: Float[Array, " N"]
    ) -> Float[Array, "N A"]:
        """Return the predicted quantiles of the return to go, at the start those of the whole return."""
        law = self._law(state, self.likeliest(state, memory, time_step), time_step)
        return cell_quantiles(law, taus) / scales(self.training, state)[0]

    def estimate(self, state: AgentState, memory: Memory, time_step: TimeStep) -> Float[Array, " A"]:
        """Return β of the return to go."""
        memory = self.likeliest(state, memory, time_step)
        return self.value_of(state, memory.context, self._law(state, memory, time_step))

    def best_law(
        self, state: AgentState, memory: Memory, time_step: TimeStep
    ) -> tuple[Float[Array, " N"], Float[Array, ""]]:
        """Return the law of the best available action, and its expected utility."""
        law = self._law(state, memory, time_step)
        values = self.expected_utility(state, memory.context, law)
        best = masked_argmax(values, time_step.action_mask)
        return law[:, best], values[best]

    def _law(self, state: AgentState, memory: Memory, time_step: TimeStep) -> Float[Array, "N A"]:
        """Return the law of the return to go of every action."""
        critic = state.params.critic
        context = self.form.describe(memory.context, self.units(state))
        return critic(features(critic.inputs, memory, time_step), context)
