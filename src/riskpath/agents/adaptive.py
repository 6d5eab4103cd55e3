"""Adaptive, prototype."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from riskpath.agents.agent import ActorOutput, AgentState, MemorylessAgent
from riskpath.agents.config import Training
from riskpath.agents.learning import epsilon_greedy, gradient_step, masked_argmax, new_state, scales
from riskpath.nn.goal_critic import GoalCritic, describe, WAVES
from riskpath.nn.losses import midpoints, quantile_huber, sample_quantiles
from riskpath.nn.network import Network
from riskpath.types import EnvSpec, Key, TimeStep, Transition, power
from riskpath.risk.compose import as_risk
from riskpath.risk.measures import CVaR, RiskMeasure


class Adaptive(MemorylessAgent):
    """Goal form."""

    risk: RiskMeasure = eqx.field(default=CVaR(0.25), converter=as_risk)
    discount: float | Array = 1.0
    network: Network = Network(hidden=(128, 128))
    training: Training = Training(learning_rate_decay=0.02)
    goals: int = eqx.field(static=True, default=4)
    scalar_weight: float | Array = 1.0
    quantile_weight: float | Array = 1.0
    mean_weight: float | Array = 0.001
    near: float | Array = 0.25
    root_grid: int = eqx.field(static=True, default=201)

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        return new_state(
            GoalCritic(self.network, spec, self.training.online_taus, WAVES, key=key), memory=jnp.zeros(())
        )

    def _describe(self, state, c):
        e = state.episodes
        return describe((c - e.mean) / e.spread)

    def _w(self, state, critic, features, c):
        """U(s,c,a) normalised."""
        e = state.episodes
        z = critic(features, self._describe(state, c))
        x = z - c / e.spread
        return jnp.mean(jnp.minimum(x, 0.0) + self.mean_weight * x, axis=0)

    def act(self, state, memory, time_step, *, key, epsilon):
        e = state.episodes
        goal_key, coin_key, act_key = jax.random.split(key, 3)
        low, high = jnp.where(e.count > 0, e.low, -1.0), jnp.where(e.count > 0, e.high, 1.0)
        drawn = low + (high - low) * jax.random.uniform(goal_key)
        explore = (jax.random.uniform(coin_key) < 0.5) & (epsilon > 0)
        first = jnp.where(explore, drawn, memory)
        c = jnp.where(time_step.time > 0, (memory - time_step.reward) / self.discount, first)
        values = self._w(state, state.params, state.params.features(time_step.observation), c)
        return ActorOutput(epsilon_greedy(values, time_step.action_mask, key=act_key, epsilon=epsilon), c)

    def learn(self, state, batch, *, key):
        t, e = self.training, state.episodes
        scale, kappa = scales(t, state)
        n = batch.reward.shape[0]
        u_key, n_key, p_key = jax.random.split(key, 3)
        uniform = (jnp.arange(self.goals) + jax.random.uniform(u_key, (n, self.goals))) / self.goals
        margin = 0.02 * (e.high - e.low)
        b = e.low - margin + (e.high - e.low + 2 * margin) * uniform
        near = state.initial_memory + 0.1 * e.spread * jax.random.normal(n_key, b.shape)
        b = jnp.where(jax.random.uniform(p_key, b.shape) < self.near, near, b)
        levels = midpoints(t.online_taus)

        def loss(critic, sample):
            step, b = sample
            now, nxt, nxt_t = (
                critic.features(step.observation),
                state.params.features(step.next_observation),
                state.target_params.features(step.next_observation),
            )

            def one(b):
                following = (b - step.return_so_far) / power(self.discount, step.time + 1)
                c = step.reward + self.discount * following
                best = masked_argmax(self._w(state, state.params, nxt, following), step.next_action_mask)
                future = state.target_params(nxt_t, self._describe(state, following))[:, best]
                target = scale * step.reward + jnp.where(step.terminated, 0.0, self.discount * future)
                target = jax.lax.stop_gradient(target)
                predicted = critic(now, self._describe(state, c))[:, step.action]
                short = lambda z: jnp.mean(jnp.minimum(z - c * scale, 0.0))
                return (
                    self.quantile_weight * quantile_huber(predicted, levels, target, kappa) / t.online_taus
                    + self.scalar_weight * (short(predicted) - short(target)) ** 2
                )

            return jnp.mean(jax.vmap(one)(b))

        return _step(state, loss, t, batch, b)

    def quantiles(self, state, memory, time_step, taus):
        c = jnp.where(time_step.time > 0, (memory - time_step.reward) / self.discount, memory)
        z = state.params(state.params.features(time_step.observation), self._describe(state, c))
        return sample_quantiles(z, taus) * state.episodes.spread

    def refresh(self, state):
        e = state.episodes
        low, high = jnp.where(e.count > 0, e.low, -1.0), jnp.where(e.count > 0, e.high, 1.0)
        b = low + (high - low) * jnp.linspace(0.0, 1.0, self.root_grid)
        f = jax.vmap(state.params.features)(e.first_observation)

        def value(f, m, b):
            w = self._w(state, state.params, f, b)
            return jnp.max(jnp.where(m, w, -jnp.inf))

        w = jax.vmap(jax.vmap(value, in_axes=(0, 0, None)), in_axes=(None, None, 0))(f, e.first_action_mask, b)
        eta = self.risk.distort(1.0)
        objective = b / e.spread + jnp.mean(w, axis=1) / eta
        best = b[jnp.argmax(objective)]
        return eqx.tree_at(lambda s: s.initial_memory, state, best)


def _step(state, loss, t, batch, b):
    from riskpath.agents.learning import gradient_step

    return gradient_step(state, loss, t, (batch, b))
