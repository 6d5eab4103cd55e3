"""IQTD3: TD3 whose twin critics are quantile critics and whose actor maximises β of the return to go, at every step.

    Z_i(s, a; τ) ← r + γ Z′(s′, π′(s′) + noise; τ′),    Z′ the twin with the lower mean
    π ← argmax β[½(Z₁ + Z₂)(s, π(s))]

The baseline of the paper for vector actions, and with `Mean()` its control.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from riskpath.agents.actor_critic import (
    Actor,
    ActorCriticTraining,
    Noise,
    Twins,
    explored,
    improve,
    lower_law,
    make_twins,
    new_actor_critic,
    saturation_penalty,
    silence,
    smoothed,
)
from riskpath.agents.agent import Agent, CriticState, Network
from riskpath.errors import RiskpathError
from riskpath.nn.losses import midpoints, quantile_huber, stratified
from riskpath.nn.observation_encoder import Senses
from riskpath.risk.measures import Mean, RiskMeasure
from riskpath.types import EnvSpec, Key, Percept, Step


class Critics(eqx.Module):
    """What the critics' loss trains."""

    senses: Senses
    twins: Twins


class Networks(eqx.Module):
    """Everything that is learned."""

    critic: Critics
    actor: Actor


class IQTD3(Agent):
    """TD3 with quantile critics, risk-greedy at every step."""

    risk: RiskMeasure = Mean()
    """β, applied to the return to go."""
    discount: float | Array = 0.99
    """γ."""
    network: Network = Network(hidden=(128, 128))
    """Sizes."""
    training: ActorCriticTraining = ActorCriticTraining()
    """How to train."""

    def init(self, spec: EnvSpec, *, key: Key) -> CriticState:
        """Fresh networks."""
        critic_key, actor_key = jax.random.split(key)
        senses, hidden = self.network.senses(spec, key=critic_key), self.network.hidden
        critics = Critics(senses, make_twins(senses.size + spec.action_size, hidden, key=critic_key))
        return new_actor_critic(Networks(critics, Actor(senses.size, hidden, spec.action_size, key=actor_key)))

    def reset(self, state: CriticState, spec: EnvSpec) -> Noise:
        """Only the exploration is remembered."""
        return silence(spec.action_size)

    def window(self, spec: EnvSpec) -> int:
        """No history."""
        if not spec.action_size:
            raise RiskpathError("IQTD3 acts with vectors; this environment has numbered actions: use IQN or TQL")
        return 0

    def note(self, memory: Noise) -> Float[Array, ""]:
        """Nothing to note."""
        return jnp.zeros(())

    def act(
        self, state: CriticState, memory: Noise, percept: Percept, *, key: Key, explore: Float[Array, ""]
    ) -> tuple[Float[Array, " C"], Noise]:
        """π(s), with exploration."""
        own = state.params.actor(state.params.critic.senses(percept.obs))
        return explored(self.training, own, memory, key=key, explore=explore)

    def took(self, memory: Noise, action: Shaped[Array, "*act"]) -> Noise:
        """Actions are not remembered."""
        return memory

    def quantiles(
        self, state: CriticState, memory: Noise, percept: Percept, taus: Float[Array, " N"]
    ) -> Float[Array, "N 1"]:
        """The law of the return to go under the actor's own action, the mean of both critics."""
        x = state.params.critic.senses(percept.obs)
        action = state.params.actor(x)
        both = [critic.quantiles(x, action, taus) for critic in state.params.critic.twins]
        return (0.5 * (both[0] + both[1]) / self.training.reward_scale)[:, None]

    def estimate(self, state: CriticState, memory: Noise, percept: Percept) -> Float[Array, " 1"]:
        """β of it."""
        return jnp.mean(self.quantiles(state, memory, percept, self._levels()), axis=0)

    def _levels(self) -> Float[Array, " N"]:
        return self.risk.distort(midpoints(self.training.act_taus))

    def learn(self, state: CriticState, batch: Step, *, key: Key) -> tuple[CriticState, dict[str, Array]]:
        """Two updates of the critics and one of the actor."""
        t = self.training
        online_key, target_key, improve_key = jax.random.split(key, 3)
        taus, target_taus = stratified(t.online_taus, key=online_key), stratified(t.target_taus, key=target_key)

        def critic_loss(critic: Critics, state: CriticState, step: Step, key: Key) -> Float[Array, ""]:
            x, following = critic.senses(step.obs), state.target.critic.senses(step.next_obs)
            noise = jax.random.normal(key, step.action.shape)
            action = smoothed(t, state.target.actor(following), noise)
            future = lower_law(t, state.target.critic.twins, following, action, target_taus)
            future = jnp.where(step.terminated, 0.0, self.discount * future)
            target = jax.lax.stop_gradient(t.reward_scale * step.reward + future)
            kappa = t.kappa * t.reward_scale
            fit = lambda z: quantile_huber(z.quantiles(x, step.action, taus), taus, target, kappa)  # noqa: E731
            return fit(critic.twins[0]) + fit(critic.twins[1])

        def actor_loss(actor: Actor, state: CriticState, step: Step) -> Float[Array, ""]:
            x = state.params.critic.senses(step.obs)
            raw = actor.raw(x)
            values = [z.mean(x, jnp.tanh(raw), self._levels()) for z in state.params.critic.twins]
            return saturation_penalty(t, raw) - 0.5 * (values[0] + values[1])

        return improve(t, state, critic_loss, actor_loss, batch, key=improve_key)

    def sync(self, state: CriticState) -> CriticState:
        """Targets follow at every update already."""
        return state
