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
from riskpath.agents.learning import in_unit
from riskpath.agents.rollout_agent import PolicyAgent, clipped_epochs, take, taken_of
from riskpath.errors import RiskpathError
from riskpath.nn.policy_networks import Categorical, FeatureNetwork, Gaussian, Policy
from riskpath.risk.measures import Mean
from riskpath.types import EnvSpec, Key, TimeStep, Trajectory, Transition


class Networks(eqx.Module):
    """Everything that is trained."""

    policy: Policy
    critic: FeatureNetwork
    """V(s), in units of `AgentState.episodes.unit`."""

    def of(self, step: Transition) -> tuple[Categorical | Gaussian, Float[Array, ""]]:
        """Return π(· | s) and V(s)."""
        return self.policy(step.observation, taken_of(step).mask), self.critic(step.observation)[0]


class PPO(PolicyAgent):
    """Proximal policy optimisation for the mean; discrete actions with masks, several heads, or continuous actions."""

    whole_return: ClassVar = False

    def __check_init__(self):
        if not isinstance(self.risk, Mean):
            raise RiskpathError(f"PPO maximises the mean only, got {self.risk}; use Adaptive for other measures")

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return fresh networks; there is no memory."""
        policy_key, critic_key = jax.random.split(key)
        policy = Policy(self.network, spec, self.training.log_std, key=policy_key)
        params = Networks(policy, FeatureNetwork(self.network, spec, 1, key=critic_key))
        return AgentState(params, (), self.training.optimiser.init(params), ())

    def act(self, state: AgentState, memory: Any, time_step: TimeStep, *, key: Key, mode: Mode) -> ActorOutput:
        """Return an action drawn from π, or the likeliest one if greedy."""
        policy = state.params.policy(time_step.observation, time_step.action_mask)
        action, taken = take(policy, self.value(state, memory, time_step), time_step, key=key, mode=mode)
        return ActorOutput(action, (), taken)

    def update(self, state: AgentState, batch: Trajectory, clock: Clock, *, key: Key) -> Updated:
        """Take several epochs of gradient steps on a rollout."""
        steps, state = batch.steps, follow_size(state)
        unit = unit_of(state)
        following = jax.vmap(jax.vmap(lambda s: state.params.critic(s)[0]))(steps.next_observation)
        return clipped_epochs(self, state, Networks.of, steps, steps.reward / unit, following, unit, clock, key=key)

    def value(self, state: AgentState, memory: Any, time_step: TimeStep) -> Float[Array, ""]:
        """Return V(s)."""
        return unit_of(state) * state.params.critic(time_step.observation)[0]


def unit_of(state: AgentState) -> Float[Array, ""]:
    """Return the unit of the critic."""
    return jnp.ones(()) if state.episodes is None else state.episodes.unit


def follow_size(state: AgentState) -> AgentState:
    """Return the state in the unit of the discounted returns seen; what the critic predicts stays the same."""
    if state.episodes is None:
        return state
    seen = state.episodes.size
    return in_unit(state, jnp.where(seen > 0, seen, state.episodes.unit))
