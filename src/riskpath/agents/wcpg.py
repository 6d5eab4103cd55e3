"""WCPG, the worst-case policy gradient (Tang et al., 2019): CVaR of a normal distribution of the return to go.

A critic predicts mean V and variance Υ of the return to go; the second moment M = Υ + V² obeys a Bellman equation, too:

    V(s) = E[r + γ V(s′)],     M(s) = E[r² + 2γ r V(s′) + γ² M(s′)]

For a normal distribution CVaR_α = V − k √Υ with k = φ(Φ⁻¹(α))/α. Policy and critic see α, which every training episode
draws uniformly, so one policy serves all levels. The critic minimises the Wasserstein distance between normals,

    (V − V̂)² + Υ + Υ̂ − 2 √(Υ Υ̂)

The published agent is deterministic with continuous actions (DDPG). Here the actor is PPO's, so that discrete actions
work: the advantage is the first-order effect of an action on CVaR_α, A − k/(2√Υ) (A_M − 2 V A), with A and A_M the
generalised advantages of both Bellman equations. The measure is of the return to go at every step, and it is wrong for
tails that are not normal: a large gain counts as much as a large loss.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float, Shaped

from riskpath.agents.agent import ActorOutput, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.ppo import follow_size, unit_of
from riskpath.agents.rollout_agent import (
    CVaRPolicyAgent,
    clipped_loss,
    decay_of,
    flattened,
    generalised_advantages,
    mean_loss,
    normalised,
    several_epochs,
    take,
)
from riskpath.nn.context_network import NUMBER_WAVES, encode_number
from riskpath.nn.policy_networks import Categorical, ContextPolicy, Gaussian, Seen
from riskpath.types import EnvSpec, Key, TimeStep, Trajectory, Transition

LOWEST = 0.01
"""The lowest level of a training episode."""
TINY = 1e-4
"""Added to variances, in squared units, before a root."""


class WCPG(CVaRPolicyAgent):
    """Maximises CVaR of a normal approximation of the return to go; `risk` is the α of episodes that do not explore."""

    whole_return: ClassVar = False

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return fresh networks, whose critic has V(s, α), and Υ(s, α) before softplus; the memory is α."""
        params = ContextPolicy(self.network, spec, NUMBER_WAVES, self.training.log_std, values=2, key=key)
        return AgentState(params, (), self.training.optimiser.init(params), jnp.ones(()))

    def act(
        self, state: AgentState, memory: Float[Array, ""], time_step: TimeStep, *, key: Key, mode: Mode
    ) -> ActorOutput:
        """Return an action drawn from π(· | s, α), or the likeliest one if greedy."""
        level_key, act_key = jax.random.split(key)
        fresh = jax.random.uniform(level_key, minval=LOWEST, maxval=1.0)
        level = jnp.where(time_step.time > 0, memory, fresh)
        level = jnp.where(mode.explores, level, self.level)
        policy, mean, variance = read(state.params, time_step.observation, time_step.action_mask, level)
        unit = unit_of(state)
        action, taken = take(policy, unit * mean, time_step, key=act_key, mode=mode)
        return ActorOutput(action, level, (taken, level, unit**2 * variance))

    def update(self, state: AgentState, batch: Trajectory, clock: Clock, *, key: Key) -> Updated:
        """Take several epochs of gradient steps on a rollout."""
        t, steps, state, g = self.training, batch.steps, follow_size(state), self.discount
        unit, (taken, level, variance) = unit_of(state), steps.extras
        mean, variance, reward = taken.value / unit, variance / unit**2, steps.reward / unit
        ahead = lambda step, level: read(state.params, step.next_observation, step.next_action_mask, level)[1:]
        goes_on, decay = jnp.where(steps.terminated, 0.0, g), decay_of(self, steps)
        later, variances = jax.vmap(jax.vmap(ahead))(steps, level)
        gains = generalised_advantages(reward + goes_on * later - mean, decay)
        moment = reward**2 + 2.0 * goes_on * reward * later + goes_on**2 * (variances + later**2)
        # λ weighs the second moment as it does the mean; its discount is γ², and r² + 2γ r V holds the rest.
        moments = generalised_advantages(moment - variance - mean**2, decay * g)
        targets = jnp.stack([mean + gains, jnp.maximum(moments + variance - 2.0 * mean * gains, TINY)], axis=-1)
        slope = tail(level) / (2.0 * jnp.sqrt(variance))
        advantages, weight = gains - slope * (moments - 2.0 * mean * gains), self.training.entropy(clock)

        def loss(params: ContextPolicy, steps: Transition, advantages: Array, targets: Array):
            def one(step: Transition, advantage: Array, target: Array):
                taken, level, _ = step.extras
                policy, mean, variance = read(params, step.observation, taken.mask, level)
                parts = clipped_loss(t, policy, mean, taken, advantage, target[0], unit, weight)
                apart = variance + target[1] - 2.0 * jnp.sqrt(variance * target[1])
                return parts[0] + 0.5 * t.value_weight * apart, *parts[1:]

            return mean_loss(one, steps, normalised(advantages), targets)

        return several_epochs(self, state, loss, flattened((steps, advantages, targets)), clock, key=key)

    def value(self, state: AgentState, memory: Float[Array, ""], time_step: TimeStep) -> Float[Array, ""]:
        """Return V − k √Υ."""
        level = jnp.asarray(self.level, jnp.float32)
        _, mean, variance = read(state.params, time_step.observation, time_step.action_mask, level)
        return unit_of(state) * (mean - tail(level) * jnp.sqrt(variance))


def read(
    params: ContextPolicy, observation: Shaped[Array, "*obs"], mask: Bool[Array, "*M"], level: Float[Array, ""]
) -> tuple[Categorical | Gaussian, Float[Array, ""], Float[Array, ""]]:
    """Return π(· | s, α), V and Υ."""
    policy, (mean, raw) = params.of(observation, mask, Seen(encode_number(2.0 * level - 1.0, 1.0), jnp.zeros(())))
    return policy, mean, jax.nn.softplus(raw) + TINY


def tail(level: Float[Array, "*N"]) -> Float[Array, "*N"]:
    """Return k = φ(Φ⁻¹(α))/α: CVaR_α of a normal distribution is its mean minus k standard deviations."""
    safe = jnp.minimum(level, 1.0 - 1e-6)
    return norm.pdf(norm.ppf(safe)) / safe
