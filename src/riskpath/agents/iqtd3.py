"""IQTD3: TD3 whose twin critics are quantile critics and whose actor maximises β of the return to go, at every step.

    Z_i(s, a; τ) ← r + γ Z′(s′, π′(s′) + noise; τ′),    Z′ the twin with the lower mean
    π ← argmax β[½(Z₁ + Z₂)(s, π(s))]

The paper's baseline for continuous actions, and with `Mean()` its control.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from riskpath.agents.actor_critic import (
    Critics,
    actor_critic_step,
    draw_twin_levels,
    lower_law,
    new_actor_critic,
    saturation_penalty,
    smooth_action,
)
from riskpath.agents.agent import ActorOutput, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.config import ActorCritic
from riskpath.agents.exploration import Noise, explore, no_noise
from riskpath.agents.learning import scales
from riskpath.agents.replay_agent import MemorylessAgent
from riskpath.nn.critics import Actor, make_twins
from riskpath.nn.losses import midpoints, quantile_huber
from riskpath.nn.network import Network
from riskpath.types import EnvSpec, Key, TimeStep, Transition


class Networks(eqx.Module):
    """Everything that is trained."""

    critic: Critics
    actor: Actor


class IQTD3(ActorCritic, MemorylessAgent):  # pyright: ignore[reportIncompatibleVariableOverride]
    """TD3 with quantile critics for continuous actions, risk-greedy at every step."""

    network: Network = Network(hidden=(128, 128))
    """Sizes and kinds of the networks."""

    actions: ClassVar = "continuous"
    whole_return: ClassVar = False

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return fresh networks; the memory is the exploration noise."""
        critic_key, actor_key, encoder_key = jax.random.split(key, 3)
        encoder, hidden = self.network.encoder(spec, key=encoder_key), self.network.hidden
        critics = Critics(encoder, make_twins(encoder.size + spec.action_size, hidden, key=critic_key))
        actor = Actor(encoder.size, hidden, spec.action_size, key=actor_key)
        return new_actor_critic(self, Networks(critics, actor), memory=no_noise(spec.action_size))

    def act(self, state: AgentState, memory: Noise, time_step: TimeStep, *, key: Key, mode: Mode) -> ActorOutput:
        """Return π(s) with exploration."""
        own = state.params.actor(state.params.critic.encoder(time_step.observation))
        return ActorOutput(*explore(self.exploration, own, memory, time_step, key=key, mode=mode))

    def update(self, state: AgentState, batch: Transition, clock: Clock, *, key: Key) -> Updated:
        """Update the critics, then the actor."""
        t, (scale, kappa) = self.training, scales(self.training, state)
        online_key, target_key, step_key = jax.random.split(key, 3)
        taus, target_taus = draw_twin_levels(t, online_key, target_key)

        def critic_loss(critic: Critics, state: AgentState, step: Transition, key: Key) -> Float[Array, ""]:
            targets = state.target_params
            x, following = critic.encoder(step.observation), targets.critic.encoder(step.next_observation)
            action = smooth_action(self.actor, targets.actor(following), key=key)
            future = lower_law(self.actor, targets.critic.twins, following, action, target_taus)
            future = jnp.where(step.terminated, 0.0, self.discount * future)
            target = jax.lax.stop_gradient(scale * step.reward + future)
            fit = lambda z: quantile_huber(z.quantiles(x, step.action, taus), taus, target, kappa)
            return fit(critic.twins[0]) + fit(critic.twins[1])

        def actor_loss(actor: Actor, state: AgentState, step: Transition) -> Float[Array, ""]:
            critic, levels = state.params.critic, self.risk.distort(midpoints(t.num_action_quantiles))
            x = critic.encoder(step.observation)
            raw = actor.raw(x)
            values = [z.mean(x, jnp.tanh(raw), levels) for z in critic.twins]
            return saturation_penalty(self.actor, raw) - 0.5 * (values[0] + values[1])

        return actor_critic_step(self, state, critic_loss, actor_loss, batch, clock, key=step_key)

    def quantiles(
        self, state: AgentState, memory: Noise, time_step: TimeStep, taus: Float[Array, " N"]
    ) -> Float[Array, "N 1"]:
        """Return the quantiles of the return to go under the actor's own action, the mean of both critics."""
        x = state.params.critic.encoder(time_step.observation)
        both = [critic.quantiles(x, state.params.actor(x), taus) for critic in state.params.critic.twins]
        return (0.5 * (both[0] + both[1]) / scales(self.training, state)[0])[:, None]
