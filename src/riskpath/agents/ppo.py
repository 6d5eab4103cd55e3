"""PPO (Schulman et al., 2017): proximal policy optimisation, for the mean of the return.

A policy π(a | s) and a critic V(s) play T steps in E environments. With the advantages of GAE,

    δ_t = r_t + γ V(s_{t+1}) − V(s_t),     A_t = δ_t + γ λ A_{t+1}

where V(s_{t+1}) is left out after the end of the return and A_{t+1} after the end of an episode, several epochs of
minibatches minimise

    L = − min(ρ A, clip(ρ, 1 − ε, 1 + ε) A) + c_V ½ (V(s) − R)² − c_H H[π(· | s)],     ρ = π(a | s) / π_old(a | s)

with R = A + V_old, and A normalised in each minibatch. The unit of the critic follows the discounted returns seen; when
it changes, the last layer is rescaled, so that predictions stay the same.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from riskpath.agents.agent import ActorOutput, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.rollout_agent import (
    RolloutAgent,
    Taken,
    clipped_loss,
    flattened,
    generalised_advantages,
    mean_loss,
    normalised,
    several_epochs,
)
from riskpath.errors import RiskpathError
from riskpath.nn.network import Network
from riskpath.nn.policy_networks import FeatureNetwork, Policy
from riskpath.risk.measures import Mean
from riskpath.types import EnvSpec, Key, TimeStep, Trajectory


class Networks(eqx.Module):
    """Everything that is trained."""

    policy: Policy
    critic: FeatureNetwork
    """V(s), in units of `AgentState.episodes.spread`."""


class PPO(RolloutAgent):
    """Proximal policy optimisation for the mean; discrete actions with masks, several heads, or continuous actions."""

    network: Network = Network(hidden=(64, 64))
    """Sizes and kinds of the networks of policy and critic."""

    actions: ClassVar = "any"
    independent_heads: ClassVar = True
    whole_return: ClassVar = False

    def __check_init__(self):
        if not isinstance(self.risk, Mean):
            raise RiskpathError(f"PPO maximises the mean only, got {self.risk}; use Adaptive for other measures")
        if self.network.head != "factored" or self.network.window:
            raise RiskpathError("PPO has no quantile head and no history: leave network.head and network.window out")

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return fresh networks; there is no memory."""
        policy_key, critic_key = jax.random.split(key)
        policy = Policy(self.network, spec, self.training.log_std, key=policy_key)
        params = Networks(policy, FeatureNetwork(self.network, spec, 1, key=critic_key))
        return AgentState(params, (), self.training.optimiser.init(params), ())

    def act(self, state: AgentState, memory: Any, time_step: TimeStep, *, key: Key, mode: Mode) -> ActorOutput:
        """Return an action drawn from π, or the likeliest one if greedy."""
        policy = state.params.policy(time_step.observation, time_step.action_mask)
        drawn = jnp.where(mode.explores, policy.sample(key=key), policy.best())
        action = drawn if time_step.action_mask.size else jnp.clip(drawn, -1.0, 1.0)
        value = self.value(state, memory, time_step)
        return ActorOutput(action, (), Taken(drawn, policy.log_prob(drawn), value, time_step.action_mask))

    def update(self, state: AgentState, batch: Trajectory, clock: Clock, *, key: Key) -> Updated:
        """Take several epochs of gradient steps on a rollout."""
        t, steps, state = self.training, batch.steps, follow_size(state)
        unit = unit_of(state)
        values = steps.extras.value / unit
        following = jax.vmap(jax.vmap(lambda s: state.params.critic(s)[0]))(steps.next_observation)
        delta = steps.reward / unit + self.discount * jnp.where(steps.terminated, 0.0, following) - values
        decay = jnp.where(steps.terminated | steps.truncated, 0.0, self.discount * t.gae_lambda)
        advantages = generalised_advantages(delta, decay)
        samples, weight = flattened((steps, advantages, advantages + values)), t.entropy(clock)
        loss = lambda params, *part: self.loss(params, unit, weight, *part)  # noqa: E731
        return several_epochs(self, state, loss, samples, clock, key=key)

    def loss(
        self, params: Networks, unit: Array, entropy_weight: Any, steps: Any, advantages: Array, returns: Array
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Return L of a minibatch, and metrics."""

        def one(step: Any, advantage: Float[Array, ""], target: Float[Array, ""]) -> tuple[Array, Array, Array]:
            policy = params.policy(step.observation, step.extras.mask)
            value = params.critic(step.observation)[0]
            return clipped_loss(self.training, policy, value, step.extras, advantage, target, unit, entropy_weight)

        return mean_loss(one, steps, normalised(advantages), returns)

    def value(self, state: AgentState, memory: Any, time_step: TimeStep) -> Float[Array, ""]:
        """Return V(s)."""
        return unit_of(state) * state.params.critic(time_step.observation)[0]


def unit_of(state: AgentState) -> Float[Array, ""]:
    """Return the unit of the critic."""
    return jnp.ones(()) if state.episodes is None else state.episodes.spread


def follow_size(state: AgentState) -> AgentState:
    """Return the state in the unit of the discounted returns seen; what the critic predicts stays the same."""
    if state.episodes is None:
        return state
    old, seen = state.episodes.spread, state.episodes.size
    new = jnp.where(seen > 0, seen, old)
    places = lambda s: (s.params.critic.out, s.episodes.spread)  # noqa: E731
    return eqx.tree_at(places, state, (jax.tree.map(lambda x: x * (old / new), state.params.critic.out), new))
