"""Return capping (Mead et al., 2025): PPO on returns that are cut off at the value at risk.

With the return so far R_t and the cap C, a step earns

    r̃_t = min(R_t, C) − min(R_{t−1}, C),     C ← max(C_min, C + τ (VaR_η(Z) − C))

so an episode earns min(Z, C). At C = VaR_η its mean is (1 − η) C + η CVaR_η, whose best policy has the best CVaR_η.
All episodes count, not only the worst ones; an episode above the cap still teaches how to reach it. Limits: the cap
follows the policy's own returns, so it can get stuck where no action changes min(Z, C), and it serves one level only.
Policy and critic see the return so far, as in the public code, and also the time.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from riskpath.agents.adaptive.adaptive_ppo import as_stored, follow_unit
from riskpath.agents.adaptive.context_agent import clock_of
from riskpath.agents.agent import ActorOutput, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.ppo import unit_of
from riskpath.agents.rollout_agent import CVaRPolicyAgent, clipped_epochs, take, value_at_risk
from riskpath.nn.context_network import NUMBER_WAVES, encode_number
from riskpath.nn.policy_networks import ContextPolicy, Seen
from riskpath.types import EnvSpec, Key, TimeStep, Trajectory, Transition
from riskpath.validation import require_share

REACH = 4.0
"""The largest distance of an encoded return so far from the mean return, in units."""


class ReturnCapping(CVaRPolicyAgent):
    """Maximises CVaR of the whole return by PPO on capped returns."""

    discount: float | Array = 1.0
    """γ of the advantages; returns and their cap are not discounted."""
    cap_step: float | Array = 0.2
    """τ, how fast the cap follows the value at risk of a rollout."""
    first_cap: float | Array = 0.0
    """C at the start."""
    least_cap: float | Array = -jnp.inf
    """C_min."""

    needs_whole_episodes: ClassVar = True

    def __check_init__(self):
        require_share(cap_step=self.cap_step)

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return fresh networks, with the first cap as their plan; the memory is the return so far."""
        cap = jnp.asarray(self.first_cap, jnp.float32)
        params = ContextPolicy(self.network, spec, NUMBER_WAVES, self.training.log_std, cap, key=key)
        return AgentState(params, (), self.training.optimiser.init(params), jnp.zeros(()))

    def act(
        self, state: AgentState, memory: Float[Array, ""], time_step: TimeStep, *, key: Key, mode: Mode
    ) -> ActorOutput:
        """Return an action drawn from π(· | s, R), or the likeliest one if greedy."""
        so_far = memory + time_step.reward
        seen = self._see(state, so_far, time_step.time)
        policy, value = state.params.of(time_step.observation, time_step.action_mask, seen)
        action, taken = take(policy, unit_of(state) * value, time_step, key=key, mode=mode)
        return ActorOutput(action, so_far, (taken, seen, so_far))

    def update(self, state: AgentState, batch: Trajectory, clock: Clock, *, key: Key) -> Updated:
        """Take several epochs of PPO on capped rewards, then move the cap."""
        steps, state = batch.steps, follow_unit(state, clock)
        unit, cap = unit_of(state), state.params.plan
        _, _, before = steps.extras
        after = before + steps.reward
        gains = (jnp.minimum(after, cap) - jnp.minimum(before, cap)) / unit

        def following(step: Transition, so_far: Float[Array, ""]) -> Float[Array, ""]:
            seen = self._see(state, so_far, step.time + 1)
            return state.params.of(step.next_observation, step.next_action_mask, seen)[1]

        later = jax.vmap(jax.vmap(following))(steps, after)
        state, metrics = clipped_epochs(self, state, as_stored, steps, gains, later, unit, clock, key=key)
        return self._move_cap(state, after, steps.terminated | steps.truncated), metrics

    def _move_cap(self, state: AgentState, returns: Float[Array, "T E"], ended: Array) -> AgentState:
        """Return the state with the cap nearer to the value at risk of the episodes that ended."""
        cap = state.params.plan
        moved = cap + self.cap_step * (value_at_risk(returns, ended, self.level) - cap)
        cap = jnp.where(jnp.any(ended), jnp.maximum(moved, self.least_cap), cap)
        return eqx.tree_at(lambda s: s.params.plan, state, cap)

    def value(self, state: AgentState, memory: Float[Array, ""], time_step: TimeStep) -> Float[Array, ""]:
        """Return what CVaR of the whole return would be if the cap were the value at risk, less the return so far."""
        so_far, cap, level = memory + time_step.reward, state.params.plan, self.level
        seen = self._see(state, so_far, time_step.time)
        _, value = state.params.of(time_step.observation, time_step.action_mask, seen)
        mean = jnp.minimum(so_far, cap) + unit_of(state) * value
        return (mean - (1.0 - level) * cap) / level - so_far

    def _see(self, state: AgentState, so_far: Float[Array, ""], time: Array) -> Seen:
        mean = jnp.zeros(()) if state.episodes is None else state.episodes.mean
        return Seen(encode_number((so_far - mean) / unit_of(state), REACH), clock_of(state, time))
