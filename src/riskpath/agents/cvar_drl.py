"""CVaR-DRL (Lim & Malik, 2022): acts on the shortfall below a threshold that moves with the rewards received.

    W(s, b, a) = E[min(Z(s, a) − b, 0)],     a = argmax_a W(s, b, a)
    b₀ = VaR_η of the CVaR-greedy first action,     b_{t+1} = (b_t − r_t)/γ
    Z(s, a; τ) ← r + γ Z′(s′, a′; τ′),     a′ = argmax_a W(s′, b_{t+1}, a)

As published, the critic does not see the threshold: it learns a mixture over thresholds, and ties at the threshold
cause many fixed points. The replay buffer stores b_t with each transition.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from riskpath.agents.agent import ActorOutput, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.learning import draw_levels, explore_greedily, gradient_step, masked_argmax, new_state, scales
from riskpath.agents.replay_agent import MemorylessAgent
from riskpath.errors import RiskpathError
from riskpath.nn.critics import MarkovCritic
from riskpath.nn.losses import midpoints, quantile_huber
from riskpath.risk.compose import as_distortion
from riskpath.risk.measures import CVaR, DistortionMeasure
from riskpath.types import EnvSpec, Key, TimeStep, Transition


class CVaRDRL(MemorylessAgent):
    """The threshold method for CVaR and discrete actions."""

    risk: DistortionMeasure = eqx.field(default=CVaR(0.25), converter=as_distortion)
    """β; must be a CVaR, for example "cvar:0.1"."""

    def __check_init__(self):
        if not isinstance(self.risk, CVaR):
            raise RiskpathError(f"CVaRDRL optimises CVaR only, got {self.risk}; use TQL for other measures")

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return a fresh critic; the memory is the threshold b_t."""
        return new_state(
            self, MarkovCritic(self.network, spec, self.training.num_quantiles, key=key), memory=jnp.zeros(())
        )

    def act(
        self, state: AgentState, memory: Float[Array, ""], time_step: TimeStep, *, key: Key, mode: Mode
    ) -> ActorOutput:
        """Return argmax_a W(s, b, a), or a random action."""
        scale, _ = scales(self.training, state)
        first = self._first_threshold(state.params, time_step) / scale
        b = jnp.where(time_step.time > 0, (memory - time_step.reward) / self.discount, first)
        values = self._shortfall(state.params, time_step.observation, scale * b)
        return ActorOutput(explore_greedily(self, values, time_step, key=key, mode=mode), b, extras=b)

    def update(self, state: AgentState, batch: Transition, clock: Clock, *, key: Key) -> Updated:
        """Take one gradient step on Z."""
        scale, kappa = scales(self.training, state)
        taus, target_taus = draw_levels(self, key=key)

        def loss(critic: MarkovCritic, step: Transition) -> Float[Array, ""]:
            reward = scale * step.reward
            b = (scale * step.extras - reward) / self.discount
            best = masked_argmax(self._shortfall(state.params, step.next_observation, b), step.next_action_mask)
            future = state.target_params.of_action(step.next_observation, target_taus, best)
            target = jax.lax.stop_gradient(reward + jnp.where(step.terminated, 0.0, self.discount * future))
            predicted = critic.of_action(step.observation, taus, step.action)
            return quantile_huber(predicted, taus, target, kappa)

        return gradient_step(self, state, loss, batch, clock)

    def quantiles(
        self, state: AgentState, memory: Float[Array, ""], time_step: TimeStep, taus: Float[Array, " N"]
    ) -> Float[Array, "N A"]:
        """Return Z(s, ·; τ), the return to go."""
        return state.params.quantiles(time_step.observation, taus) / scales(self.training, state)[0]

    def _first_threshold(self, critic: MarkovCritic, time_step: TimeStep) -> Float[Array, ""]:
        """Return b₀, the VaR of the CVaR-greedy action."""
        values = critic.risk(time_step.observation, self.risk, self.training.num_action_quantiles)
        level = jnp.reshape(jnp.asarray(self.risk.distort(1.0), dtype=jnp.float32), (1,))  # h⁻¹(1) = η
        return critic.quantiles(time_step.observation, level)[0, masked_argmax(values, time_step.action_mask)]

    def _shortfall(self, critic: MarkovCritic, observation: Array, b: Float[Array, ""]) -> Float[Array, " A"]:
        z = critic.quantiles(observation, midpoints(self.training.num_action_quantiles))
        return jnp.mean(jnp.minimum(z - b, 0.0), axis=0)
