"""The CVaR policy gradient, GCVaR (Tamar et al., 2015), with the soft risk of CeSoR (Greenberg et al., 2022).

N episodes with the returns Z_i, of which q is the quantile at the level η, estimate

    ∇ CVaR_η ≈ 1/(ηN) Σ_i 1{Z_i ≤ q} (Z_i − q) Σ_t ∇ log π(a_t | s_t)

so only the worst fraction η of the episodes counts. If no successful episode is in the tail, the agent does not learn
from success (blindness to success); if all returns in the tail are equal, the gradient is 0. With soft risk the level
falls linearly from 1 to η during the first part of the training, so that success is learned first. CeSoR also draws
harder conditions, where the environment exposes them (`cross_entropy.py`): episodes then count with weights w_i, in the
sum and in q, and N = Σ_i w_i.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from riskpath.agents import cross_entropy
from riskpath.agents.abilities import StartsEpisodes
from riskpath.agents.agent import ActorOutput, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.rollout_agent import (
    CVaRPolicyAgent,
    RolloutTraining,
    final_returns,
    flattened,
    mean_loss,
    several_epochs,
    take,
    taken_of,
    value_at_risk,
)
from riskpath.nn.policy_networks import Policy
from riskpath.types import EnvSpec, Key, TimeStep, Trajectory, Transition
from riskpath.validation import given, require_share


class Networks(eqx.Module):
    """Everything that is trained."""

    policy: Policy
    cvar: Float[Array, ""]
    """CVaR of the latest rollout; there is no critic."""


class CVaRPolicyGradient(CVaRPolicyAgent, StartsEpisodes):
    """Maximises CVaR of the whole return by the gradient of the worst episodes."""

    discount: float | Array = 1.0
    """γ."""
    training: RolloutTraining = RolloutTraining(epochs=1, minibatches=1)
    """Training hyperparameters; those of the critic have no effect. A rollout must be longer than an episode."""
    soft_risk: float | Array = 0.0
    """Fraction of the training during which the level falls from 1 to η; 0 for the published GCVaR, 0.8 for CeSoR."""
    cross_entropy: float | Array | None = None
    """κ, the fraction of the training episodes whose conditions are drawn from the tail; None for GCVaR, 0.8 for
    CeSoR."""

    needs_whole_episodes: ClassVar = True

    def __check_init__(self):
        require_share(soft_risk=self.soft_risk, **given(cross_entropy=self.cross_entropy))

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return a fresh policy; memory is only what the condition of an episode was drawn with."""
        params = Networks(Policy(self.network, spec, self.training.log_std, key=key), jnp.zeros(()))
        memory = () if self.cross_entropy is None else cross_entropy.nothing_drawn(spec)
        return AgentState(params, (), self.training.optimiser.init(params), memory)

    def start_episode(self, env: Any, memory: Any, *, key: Key) -> tuple[Any, Any, Any]:
        """Reset the environment, under a condition from the tail if wanted."""
        if self.cross_entropy is None:
            return *env.reset(key), memory
        return cross_entropy.draw(env, memory, self.cross_entropy, key=key)

    def act(self, state: AgentState, memory: Any, time_step: TimeStep, *, key: Key, mode: Mode) -> ActorOutput:
        """Return an action drawn from π, or the likeliest one if greedy."""
        policy = state.params.policy(time_step.observation, time_step.action_mask)
        action, taken = take(policy, jnp.zeros(()), time_step, key=key, mode=mode)
        return ActorOutput(action, memory, taken if self.cross_entropy is None else (taken, memory))

    def level_at(self, clock: Clock) -> Float[Array, ""]:
        """Return the level at this point of the training."""
        progress = jnp.minimum(clock.done / jnp.maximum(self.soft_risk, 1e-9), 1.0)
        return jnp.where(jnp.asarray(self.soft_risk) == 0, self.level, 1.0 + progress * (self.level - 1.0))

    def update(self, state: AgentState, batch: Trajectory, clock: Clock, *, key: Key) -> Updated:
        """Follow the gradient of the worst episodes that ended within the rollout."""
        steps, level = batch.steps, self.level_at(clock)
        returns, known = final_returns(steps)
        ended = steps.terminated | steps.truncated
        weight = jnp.ones_like(returns) if self.cross_entropy is None else steps.extras[1].weight
        quantile = value_at_risk(returns, ended, level, weight)
        below = jnp.where(known, weight * jnp.minimum(returns - quantile, 0.0), 0.0)
        episodes = jnp.maximum(jnp.sum(jnp.where(ended, weight, 0.0)), 1e-6)
        cvar = quantile + jnp.sum(jnp.where(ended, below, 0.0)) / (level * episodes)
        unit = jnp.ones(()) if state.episodes is None else state.episodes.wanted_unit
        # A mean over T·E steps estimates the sum over the steps of an episode, N times.
        weights = below / jnp.maximum(unit, 1e-9) * below.size / (level * episodes)
        entropy_weight = self.training.entropy(clock)
        loss = lambda params, *part: self.loss(params, entropy_weight, *part)
        state, metrics = several_epochs(self, state, loss, flattened((steps, weights)), clock, key=key)
        cvar = jnp.where(jnp.any(ended), cvar, state.params.cvar)
        if self.cross_entropy is not None:
            means = cross_entropy.refitted(state.initial_memory.means, steps.extras[1], returns, ended, self.level)
            state = eqx.tree_at(lambda s: s.initial_memory.means, state, means)
        return eqx.tree_at(lambda s: s.params.cvar, state, cvar), metrics

    def loss(self, params: Networks, entropy_weight: Any, steps: Transition, weights: Any) -> Any:
        """Return the policy-gradient loss of a minibatch with its entropy bonus, and metrics."""

        def one(step: Transition, weight: Float[Array, ""]) -> Any:
            taken = taken_of(step)
            policy = params.policy(step.observation, taken.mask)
            log_prob, entropy = policy.log_prob(taken.drawn), policy.entropy()
            return -weight * log_prob - entropy_weight * entropy, entropy, taken.log_prob - log_prob

        return mean_loss(one, steps, weights)

    def value(self, state: AgentState, memory: Any, time_step: TimeStep) -> Float[Array, ""]:
        """Return CVaR of the latest rollout."""
        return state.params.cvar
