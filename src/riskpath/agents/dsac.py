"""DSAC (Ma et al., 2020): soft actor-critic with quantile critics, and a risk measure at every step.

    Z_k(s, a; τ) ← r + γ (Z′(s′, a′; τ′) − α log π(a′ | s′)),     a′ ~ π(· | s′),     Z′ the twin with the lower mean
    π ← argmax E[β[½(Z₁ + Z₂)(s, a)] − α log π(a | s)],           a = tanh(u),   u ~ normal(μ(s), σ(s))
    α ← α · exp(rate · (H̄ − H[π])),                               H̄ = −dim(a)

The entropy bonus explores, so there is no other noise. Its weight α has an optimiser of its own, which keeps the
entropy of the policy near H̄. α is in the units of the critics, so it does not depend on the scale of the rewards.
"""

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from riskpath.agents.actor_critic import EPS, Critics, draw_twin_levels, lower_law
from riskpath.agents.agent import ActorOutput, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.config import CONTINUOUS, ActorCritic, ActorTraining, Training
from riskpath.agents.learning import mean_over, observe_batch, scales
from riskpath.agents.optimiser import Optimiser
from riskpath.agents.replay_agent import MemorylessAgent
from riskpath.nn.critics import make_twins
from riskpath.nn.losses import midpoints, quantile_huber
from riskpath.nn.network import Network
from riskpath.nn.policy_networks import SquashedGaussianActor
from riskpath.types import EnvSpec, Key, TimeStep, Transition

FIRST_LOG_ALPHA = -2.0
"""The first α is small compared with the returns, whose standard deviation is about 1 in units of the critics."""


class Networks(eqx.Module):
    """Everything that is trained."""

    critic: Critics
    actor: SquashedGaussianActor
    log_alpha: Float[Array, ""]
    """log α, the weight of the entropy."""


class DSAC(ActorCritic, MemorylessAgent):
    """Distributional soft actor-critic for continuous actions, risk-sensitive at every step."""

    network: Network = Network(hidden=(128, 128))
    """Sizes and kinds of the networks."""
    training: Training = replace(CONTINUOUS, train_freq=4)
    """Training hyperparameters of the critics."""
    exploration: None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    """The entropy bonus explores."""
    actor: ActorTraining = ActorTraining(learning_rate=1e-3, final_learning_rate=3e-5, policy_delay=1)
    """How the actor is trained; `target_policy_noise` has no effect."""
    target_entropy: float | Array | None = None
    """H̄; by default minus the length of an action."""

    actions: ClassVar = "continuous"
    whole_return: ClassVar = False

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return fresh networks and optimisers; there is no memory."""
        critic_key, actor_key, encoder_key = jax.random.split(key, 3)
        encoder, hidden = self.network.encoder(spec, key=encoder_key), self.network.hidden
        critics = Critics(encoder, make_twins(encoder.size + spec.action_size, hidden, key=critic_key))
        actor = SquashedGaussianActor(encoder.size, hidden, spec.action_size, key=actor_key)
        params = Networks(critics, actor, jnp.asarray(FIRST_LOG_ALPHA))
        parts = (params.critic, params.actor, params.log_alpha)
        opt_state = tuple(adam.init(part) for adam, part in zip(self._optimisers(), parts, strict=True))
        return AgentState(params, params, opt_state, ())

    def act(self, state: AgentState, memory: tuple[()], time_step: TimeStep, *, key: Key, mode: Mode) -> ActorOutput:
        """Return a drawn action, a uniform one in the warm-up, or tanh(μ(s)) if greedy."""
        uniform_key, draw_key = jax.random.split(key)
        x = state.params.critic.encoder(time_step.observation)
        own = state.params.actor.best(x)
        drawn, _ = state.params.actor.sample(x, key=draw_key)
        uniform = jax.random.uniform(uniform_key, own.shape, minval=-1.0, maxval=1.0)
        return ActorOutput(jnp.where(mode.warms_up, uniform, jnp.where(mode.explores, drawn, own)))

    def update(self, state: AgentState, batch: Transition, clock: Clock, *, key: Key) -> Updated:
        """Update the critics on every batch, then the actor and α on the last one."""
        t, state = self.training, observe_batch(state, batch)
        parts = jax.tree.map(lambda x: x.reshape(self.actor.policy_delay, t.batch_size, *x.shape[1:]), batch)
        part, losses = batch, []
        *critic_keys, actor_key = jax.random.split(key, self.actor.policy_delay + 1)
        for i, critic_key in enumerate(critic_keys):
            part = jax.tree.map(lambda x, i=i: x[i], parts)
            state, loss = self._critic_step(state, part, clock, key=critic_key)
            losses.append(loss)
        return self._actor_step(state, part, clock, key=actor_key), {"loss": jnp.mean(jnp.stack(losses))}

    def _critic_step(self, state: AgentState, batch: Transition, clock: Clock, *, key: Key) -> tuple[AgentState, Array]:
        t, (scale, kappa) = self.training, scales(self.training, state)
        online_key, target_key, draw_key = jax.random.split(key, 3)
        taus, target_taus = draw_twin_levels(t, online_key, target_key)
        alpha, encoder = jnp.exp(state.params.log_alpha), state.params.critic.encoder

        def loss(critic: Critics, step: Transition, key: Key) -> Float[Array, ""]:
            following = state.target_params.critic.encoder(step.next_observation)
            action, log_prob = state.params.actor.sample(encoder(step.next_observation), key=key)
            future = lower_law(self.actor, state.target_params.critic.twins, following, action, target_taus)
            future = jnp.where(step.terminated, 0.0, self.discount * (future - alpha * log_prob))
            target, x = jax.lax.stop_gradient(scale * step.reward + future), critic.encoder(step.observation)
            fit = lambda z: quantile_huber(z.quantiles(x, step.action, taus), taus, target, kappa)
            return fit(critic.twins[0]) + fit(critic.twins[1])

        keys = jax.random.split(draw_key, t.batch_size)
        mean_loss = lambda critic: mean_over(lambda *given: loss(critic, *given), batch, keys)
        value, gradient = eqx.filter_value_and_grad(mean_loss)(state.params.critic)
        places = lambda s: (s.params.critic, s.opt_state[0])
        moved = self._optimisers()[0].step(state.params.critic, gradient, state.opt_state[0], clock)
        return eqx.tree_at(places, state, moved), value

    def _actor_step(self, state: AgentState, batch: Transition, clock: Clock, *, key: Key) -> AgentState:
        t, critic, log_alpha = self.training, state.params.critic, state.params.log_alpha
        levels = self.risk.distort(midpoints(t.num_action_quantiles))

        def loss(actor: SquashedGaussianActor, step: Transition, key: Key) -> tuple[Array, Array]:
            x = critic.encoder(step.observation)
            action, log_prob = actor.sample(jax.lax.stop_gradient(x), key=key)
            values = [z.mean(x, action, levels) for z in critic.twins]
            return jnp.exp(log_alpha) * log_prob - 0.5 * (values[0] + values[1]), log_prob

        def mean_loss(actor: SquashedGaussianActor) -> tuple[Array, Array]:
            losses, log_probs = jax.vmap(lambda *given: loss(actor, *given))(batch, jax.random.split(key, t.batch_size))
            return jnp.mean(losses), jnp.mean(log_probs)

        (_, log_prob), gradient = eqx.filter_value_and_grad(mean_loss, has_aux=True)(state.params.actor)
        wanted = -float(batch.action.shape[-1]) if self.target_entropy is None else self.target_entropy
        _, of_actor, of_alpha = self._optimisers()
        actor = of_actor.step(state.params.actor, gradient, state.opt_state[1], clock)
        alpha = of_alpha.step(log_alpha, -(log_prob + wanted), state.opt_state[2], clock)
        places = lambda s: (s.params.actor, s.opt_state[1], s.params.log_alpha, s.opt_state[2])
        return eqx.tree_at(places, state, (*actor, *alpha))

    def _optimisers(self) -> tuple[Optimiser, Optimiser, Optimiser]:
        """Return the optimisers of the critics, the actor and log α; the last one is Adam at a constant rate."""
        t, rate = self.training, self.actor.learning_rate
        return t.optimiser(EPS), self.actor.optimiser(t), Optimiser(rate, rate)

    def quantiles(
        self, state: AgentState, memory: tuple[()], time_step: TimeStep, taus: Float[Array, " N"]
    ) -> Float[Array, "N 1"]:
        """Return the quantiles of the return to go, entropy bonus included, for the greedy action."""
        x = state.params.critic.encoder(time_step.observation)
        both = [z.quantiles(x, state.params.actor.best(x), taus) for z in state.params.critic.twins]
        return (0.5 * (both[0] + both[1]) / scales(self.training, state)[0])[:, None]
