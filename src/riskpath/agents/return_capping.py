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

from riskpath.agents.adaptive.adaptive_ppo import Networks, Seen, follow_unit
from riskpath.agents.adaptive.context_agent import clock_of
from riskpath.agents.agent import ActorOutput, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.ppo import unit_of
from riskpath.agents.rollout_agent import (
    RolloutAgent,
    Taken,
    clipped_loss,
    flattened,
    generalised_advantages,
    mean_loss,
    normalised,
    several_epochs,
    value_at_risk,
)
from riskpath.errors import RiskpathError
from riskpath.nn.context_network import NUMBER_WAVES, ContextNetwork, encode_number
from riskpath.nn.network import Network
from riskpath.nn.policy_networks import SMALL
from riskpath.risk.compose import as_distortion
from riskpath.risk.measures import CVaR, DistortionMeasure
from riskpath.types import EnvSpec, Key, TimeStep, Trajectory, Transition
from riskpath.validation import require_share

REACH = 4.0
"""The largest distance of an encoded return so far from the mean return, in units."""


class ReturnCapping(RolloutAgent):
    """Maximises CVaR of the whole return by PPO on capped returns."""

    risk: DistortionMeasure = eqx.field(default=CVaR(0.25), converter=as_distortion)
    """β, which must be a CVaR."""
    discount: float | Array = 1.0
    """γ of the advantages; returns and their cap are not discounted."""
    network: Network = Network(hidden=(64, 64))
    """Sizes and kinds of the networks of policy and critic."""
    cap_step: float | Array = 0.2
    """τ, how fast the cap follows the value at risk of a rollout."""
    first_cap: float | Array = 0.0
    """C at the start."""
    least_cap: float | Array = -jnp.inf
    """C_min."""

    actions: ClassVar = "any"
    independent_heads: ClassVar = True

    def __check_init__(self):
        require_share(cap_step=self.cap_step)
        if not isinstance(self.risk, CVaR):
            raise RiskpathError(f"ReturnCapping maximises CVaR only, got {self.risk}")
        if self.network.head != "factored" or self.network.window:
            raise RiskpathError(
                "ReturnCapping has no quantile head and no history: leave network.head and network.window out"
            )

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return fresh networks and the first cap; the memory is the return so far."""
        policy_key, critic_key = jax.random.split(key)
        outputs = spec.num_actions or spec.action_size
        policy = ContextNetwork(self.network, spec, 0, NUMBER_WAVES, outputs, key=policy_key)
        policy = eqx.tree_at(lambda n: n.out, policy, jax.tree.map(lambda x: SMALL * x, policy.out))
        critic = ContextNetwork(self.network, spec, 0, NUMBER_WAVES, 1, key=critic_key)
        log_std = jnp.full((spec.action_size,), self.training.log_std)
        params = Networks(policy, critic, log_std, jnp.asarray(self.first_cap, jnp.float32))
        return AgentState(params, (), self.training.optimiser.init(params), jnp.zeros(()))

    def act(
        self, state: AgentState, memory: Float[Array, ""], time_step: TimeStep, *, key: Key, mode: Mode
    ) -> ActorOutput:
        """Return an action drawn from π(· | s, R), or the likeliest one if greedy."""
        so_far = memory + time_step.reward
        seen = self._see(state, so_far, time_step.time)
        policy, value = state.params.of(time_step.observation, time_step.action_mask, seen)
        drawn = jnp.where(mode.explores, policy.sample(key=key), policy.best())
        action = drawn if time_step.action_mask.size else jnp.clip(drawn, -1.0, 1.0)
        taken = Taken(drawn, policy.log_prob(drawn), unit_of(state) * value, time_step.action_mask)
        return ActorOutput(action, so_far, (taken, seen, so_far))

    def update(self, state: AgentState, batch: Trajectory, clock: Clock, *, key: Key) -> Updated:
        """Take several epochs of PPO on capped rewards, then move the cap."""
        steps, state = batch.steps, follow_unit(state, clock)
        unit, cap = unit_of(state), state.params.plan
        taken, _, before = steps.extras
        after = before + steps.reward
        gains = (jnp.minimum(after, cap) - jnp.minimum(before, cap)) / unit

        def following(step: Transition, so_far: Float[Array, ""]) -> Float[Array, ""]:
            seen = self._see(state, so_far, step.time + 1)
            return state.params.of(step.next_observation, step.next_action_mask, seen)[1]

        values, later = taken.value / unit, jax.vmap(jax.vmap(following))(steps, after)
        delta = gains + self.discount * jnp.where(steps.terminated, 0.0, later) - values
        ended = steps.terminated | steps.truncated
        decay = jnp.where(ended, 0.0, self.discount * self.training.gae_lambda)
        advantages, weight = generalised_advantages(delta, decay), self.training.entropy(clock)

        def loss(params: Networks, steps: Transition, advantages: Array, targets: Array):
            def one(step: Transition, advantage: Array, target: Array):
                policy, value = params.of(step.observation, step.extras[0].mask, step.extras[1])
                return clipped_loss(self.training, policy, value, step.extras[0], advantage, target, unit, weight)

            return mean_loss(one, steps, normalised(advantages), targets)

        state, metrics = several_epochs(
            self, state, loss, flattened((steps, advantages, advantages + values)), clock, key=key
        )
        return self._move_cap(state, after, ended), metrics

    def _move_cap(self, state: AgentState, returns: Float[Array, "T E"], ended: Array) -> AgentState:
        """Return the state with the cap nearer to the value at risk of the episodes that ended."""
        assert isinstance(self.risk, CVaR)
        cap = state.params.plan
        moved = cap + self.cap_step * (value_at_risk(returns, ended, self.risk.level) - cap)
        cap = jnp.where(jnp.any(ended), jnp.maximum(moved, self.least_cap), cap)
        return eqx.tree_at(lambda s: s.params.plan, state, cap)

    def value(self, state: AgentState, memory: Float[Array, ""], time_step: TimeStep) -> Float[Array, ""]:
        """Return what CVaR of the whole return would be if the cap were the value at risk, less the return so far."""
        assert isinstance(self.risk, CVaR)
        so_far, cap, level = memory + time_step.reward, state.params.plan, self.risk.level
        seen = self._see(state, so_far, time_step.time)
        _, value = state.params.of(time_step.observation, time_step.action_mask, seen)
        mean = jnp.minimum(so_far, cap) + unit_of(state) * value
        return (mean - (1.0 - level) * cap) / level - so_far

    def _see(self, state: AgentState, so_far: Float[Array, ""], time: Array) -> Seen:
        mean = jnp.zeros(()) if state.episodes is None else state.episodes.mean
        return Seen(encode_number((so_far - mean) / unit_of(state), REACH), clock_of(state, time))
