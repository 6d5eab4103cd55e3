"""Adaptive for continuous actions: an actor and twin distributional critics that also see a context.

    θ_j(s, x, a) ← r + γ ½(θ₁′ + θ₂′)(s′, x′, π′(s′, x′) + noise)
    π ← argmax Σ_i p_i u_x(½(θ₁ + θ₂)_i(s, x, π(s, x)))

The actor follows the critics slowly, and may stay at a local maximum. So the action that is taken is the best one, by
the critics, of π(s, x) and a few others around it.

Contexts, utilities and the plan are those of `Adaptive`: a goal for CVaR, the return so far for other measures. As in
`IQTD3` there are noise on the target's action, a delayed actor and slowly moving targets. The target is the average of
both critics: the lower one of them gives policies that are as good, but predictions far below what they earn.
"""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from riskpath.agents.actor_critic import actor_critic_step, new_actor_critic, saturation_penalty, smooth_action
from riskpath.agents.adaptive.adaptive_agent import AdaptiveAgent, both_features, features
from riskpath.agents.adaptive.context_agent import Memory
from riskpath.agents.adaptive.return_critic import cell_quantiles
from riskpath.agents.agent import ActorOutput, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.config import CONTINUOUS, ActorCritic, ActorTraining, Training
from riskpath.agents.exploration import explore, no_noise
from riskpath.agents.learning import scales, step_of
from riskpath.nn.context_network import ContextNetwork
from riskpath.nn.network import Network
from riskpath.types import EnvSpec, Key, TimeStep, Transition, Window

Twins = tuple[ContextNetwork, ContextNetwork]
"""θ₁ and θ₂; the action is part of their context."""
DISTANCES = (0.05, 0.15, 0.4, 1.0)
"""Distances from the actor's action at which other actions are tried, in one direction each and in its opposite."""


class Networks(eqx.Module):
    """Everything that is trained, and the plan that follows from it."""

    critic: Twins
    actor: ContextNetwork
    """u of π(s, x) = tanh(u(s, x))."""
    plan: Any


class AdaptiveContinuous(ActorCritic, AdaptiveAgent):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Maximises any risk measure of the whole return by reacting to the rewards received; continuous actions."""

    network: Network = Network(hidden=(128, 128))
    """Sizes and kinds of the networks; with `window` they see a history of observations and actions."""
    training: Training = replace(
        CONTINUOUS,
        learning_rate=3e-3,
        final_learning_rate=9e-5,
        target_update_interval=10,
        target_update_rate=0.3,
    )
    """Training hyperparameters of the critics."""
    actor: ActorTraining = ActorTraining(learning_rate=1e-3, final_learning_rate=3e-5)
    """How the actor is trained."""
    utility_weight: float | Array = 1.0
    """As for `Adaptive`, but constant at 1 where returns repeat; a growing weight has not been measured here."""

    actions: ClassVar = "continuous"

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return fresh networks; the memory is the context, the exploration noise and, with a window, the history."""
        first_key, second_key, actor_key = jax.random.split(key, 3)
        length, objective, atoms = self.window(spec), self.objective, self.training.num_quantiles
        first, second = (
            ContextNetwork(self.network, spec, length, objective.context_size + spec.action_size, atoms, key=k)
            for k in (first_key, second_key)
        )
        actor = ContextNetwork(self.network, spec, length, objective.context_size, spec.action_size, key=actor_key)
        memory = self.first_memory(spec, objective.plan(), no_noise(spec.action_size))
        return new_actor_critic(self, Networks((first, second), actor, objective.plan()), memory)

    def act(self, state: AgentState, memory: Memory, time_step: TimeStep, *, key: Key, mode: Mode) -> ActorOutput:
        """Return the best action around π(s, x), with exploration."""
        context_key, noise_key = jax.random.split(key)
        memory = self.begin_or_advance(state, memory, time_step, key=context_key, mode=mode)
        own, _ = self._best(state, memory, time_step)
        action, noise = explore(self.exploration, own, memory.noise, time_step, key=noise_key, mode=mode)
        return ActorOutput(action, Memory(memory.context, memory.history, noise))

    def update(self, state: AgentState, batch: Transition | Window, clock: Clock, *, key: Key) -> Updated:
        """Update the critics, then the actor."""
        t, objective, units, (scale, _) = self.training, self.objective, self.units(state), scales(self.training, state)
        sample_key, step_key = jax.random.split(key)

        def contexts(sample: tuple[Transition | Window, Key]) -> tuple[Transition, Any, Any]:
            """Return the step, several contexts in which it may have been taken, and those after it."""
            step = step_of(sample[0])
            plan = state.params.plan
            return step, *objective.relabel(step, self.contexts, plan, units, self.discount, key=sample[1])

        def critic_loss(critic: Twins, state: AgentState, sample: Any, key: Key) -> Float[Array, ""]:
            step, befores, afters = contexts(sample)
            targets = state.target_params
            now = [both_features(z.inputs, state, sample[0])[0] for z in critic]
            following = [both_features(z.inputs, state, sample[0])[1][0] for z in targets.critic]
            seen = both_features(targets.actor.inputs, state, sample[0])[1][0]

            def one(context: Any, after: Any, key: Key) -> Float[Array, ""]:
                key, draw_key = jax.random.split(key)
                x, x_after = self.encode(state, context, step.time), self.encode(state, after, step.time + 1)
                action = smooth_action(self.actor, jnp.tanh(targets.actor(seen, x_after)), key=key)
                future = mean_law(targets.critic, following, jnp.concatenate([x_after, action]))
                aim = scale * step.reward + jnp.where(step.terminated, 0.0, self.discount * future)
                aim, chosen = jax.lax.stop_gradient(aim), jnp.concatenate([x, step.action])
                draws = jax.random.uniform(draw_key, aim.shape)
                first, second = (
                    self.law_loss(state, clock, context, z(f, chosen), aim, draws)
                    for z, f in zip(critic, now, strict=True)
                )
                return first + second

            return jnp.mean(jax.vmap(one)(befores, afters, jax.random.split(key, self.contexts)))

        def actor_loss(actor: ContextNetwork, state: AgentState, sample: Any) -> Float[Array, ""]:
            step, befores, _ = contexts(sample)
            now = [both_features(z.inputs, state, sample[0])[0] for z in state.params.critic]
            seen = both_features(actor.inputs, state, sample[0])[0]

            def one(context: Any) -> Float[Array, ""]:
                x = self.encode(state, context, step.time)
                raw = actor(seen, x)
                law = mean_law(state.params.critic, now, jnp.concatenate([x, jnp.tanh(raw)]))
                return saturation_penalty(self.actor, raw) - self.expected_utility(state, context, law)

            return jnp.mean(jax.vmap(one)(befores))

        keys = jax.random.split(sample_key, t.batch_size * self.actor.policy_delay)
        return actor_critic_step(self, state, critic_loss, actor_loss, (batch, keys), clock, key=step_key)

    def quantiles(
        self, state: AgentState, memory: Memory, time_step: TimeStep, taus: Float[Array, " N"]
    ) -> Float[Array, "N 1"]:
        """Return the quantiles of the return to go under the best action; at the start this is the whole return."""
        _, law = self._best(state, self.likeliest(state, memory, time_step), time_step)
        return cell_quantiles(law, taus)[:, None] / scales(self.training, state)[0]

    def estimate(self, state: AgentState, memory: Memory, time_step: TimeStep) -> Float[Array, " 1"]:
        memory = self.likeliest(state, memory, time_step)
        _, law = self._best(state, memory, time_step)
        return self.value_of(state, memory.context, law[:, None])

    def best_law(
        self, state: AgentState, memory: Memory, time_step: TimeStep
    ) -> tuple[Float[Array, " N"], Float[Array, ""]]:
        _, law = self._best(state, memory, time_step)
        return law, self.expected_utility(state, memory.context, law)

    def _best(
        self, state: AgentState, memory: Memory, time_step: TimeStep
    ) -> tuple[Float[Array, " C"], Float[Array, " N"]]:
        """Return the best action around π(s, x), and its distribution, the mean of both critics."""
        actor, critic = state.params.actor, state.params.critic
        x = self.encode(state, memory.context, time_step.time)
        seen = [features(z.inputs, state, memory, time_step) for z in critic]
        tried = around(jnp.tanh(actor(features(actor.inputs, state, memory, time_step), x)))
        laws = jax.vmap(lambda action: mean_law(critic, seen, jnp.concatenate([x, action])))(tried)
        best = jnp.argmax(self.expected_utility(state, memory.context, laws.T))
        return tried[best], laws[best]


def mean_law(critic: Twins, seen: list[Float[Array, " H"]], chosen: Float[Array, " F"]) -> Float[Array, " N"]:
    """Return the quantile-wise mean of both critics, from the features that each of them sees, a context and action."""
    first, second = (z(f, chosen) for z, f in zip(critic, seen, strict=True))
    return 0.5 * (first + second)


def around(action: Float[Array, " C"]) -> Float[Array, "K C"]:
    """Return an action and others around it, in fixed directions, so that the policy is deterministic."""
    directions = np.random.default_rng(0).normal(size=(len(DISTANCES), action.shape[0]))
    steps = np.array(DISTANCES)[:, None] * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    offsets = jnp.asarray(np.concatenate([np.zeros_like(steps[:1]), steps, -steps]), jnp.float32)
    return jnp.clip(action[None] + offsets, -1.0, 1.0)
