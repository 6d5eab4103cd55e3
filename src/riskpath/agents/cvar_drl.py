"""CVaR-DRL (Lim & Malik, 2022): acts on the shortfall below a threshold that moves with what was earned.

    W(s, b, a) = E[min(Z(s, a) − b, 0)],     a = argmax_a W(s, b, a)
    b₀ = VaR_η of the CVaR-greedy first action,     b_{t+1} = (b_t − r_t)/γ
    Z(s, a; τ) ← r + γ Z′(s′, a′; τ′),     a′ = argmax_a W(s′, b_{t+1}, a)

As published: the critic is not told the threshold, so it learns a mixture over thresholds, and ties at the threshold
give it many fixed points. The replay keeps b_t with each step.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from riskpath.agents.agent import (
    Agent,
    CriticState,
    Network,
    Training,
    descend,
    draw_levels,
    epsilon_greedy,
    masked_argmax,
    new_state,
    renewed,
    require_numbered,
)
from riskpath.errors import RiskpathError
from riskpath.nn.critics import MarkovCritic
from riskpath.nn.losses import midpoints, quantile_huber
from riskpath.risk.measures import CVaR, RiskMeasure
from riskpath.types import EnvSpec, Key, Percept, Step


class Threshold(eqx.Module):
    """The memory of an episode, in the critic's units."""

    value: Float[Array, ""]
    """b_t."""
    begun: Bool[Array, ""]
    """Has b₀ been set?"""


class CVaRDRL(Agent):
    """The threshold method for CVaR."""

    risk: RiskMeasure = CVaR(0.25)
    """β; must be a CVaR."""
    discount: float | Array = 0.99
    """γ."""
    network: Network = Network()
    """Sizes."""
    training: Training = Training()
    """How to train."""

    def __check_init__(self):
        if not isinstance(self.risk, CVaR):
            raise RiskpathError(f"CVaRDRL optimises CVaR only, got {self.risk}; use TQL for other measures")

    def init(self, spec: EnvSpec, *, key: Key) -> CriticState:
        """A fresh critic."""
        return new_state(MarkovCritic(self.network, spec, self.training.online_taus, key=key))

    def reset(self, state: CriticState, spec: EnvSpec) -> Threshold:
        """The threshold is set by the first action."""
        return Threshold(jnp.zeros(()), jnp.zeros((), bool))

    def window(self, spec: EnvSpec) -> int:
        """No history."""
        require_numbered(spec, "CVaRDRL")
        return 0

    def note(self, memory: Threshold) -> Float[Array, ""]:
        """b_t travels with the step."""
        return memory.value

    def _threshold(self, state: CriticState, memory: Threshold, percept: Percept) -> Float[Array, ""]:
        """b_t: VaR of the CVaR-greedy action at first, (b − r)/γ afterwards."""
        critic, t = state.params, self.training
        first = masked_argmax(critic.risk(percept.obs, self.risk, t.act_taus), percept.mask)
        level = jnp.reshape(jnp.asarray(self.risk.level, dtype=jnp.float32), (1,))  # pyright: ignore[reportAttributeAccessIssue]
        initial = critic.quantiles(percept.obs, level)[0, first]
        return jnp.where(memory.begun, (memory.value - t.reward_scale * percept.reward) / self.discount, initial)

    def _shortfall(self, critic: MarkovCritic, obs: Array, threshold: Float[Array, ""]) -> Float[Array, " A"]:
        """W(s, b, ·)."""
        z = critic.quantiles(obs, midpoints(self.training.act_taus))
        return jnp.mean(jnp.minimum(z - threshold, 0.0), axis=0)

    def estimate(self, state: CriticState, memory: Threshold, percept: Percept) -> Float[Array, " A"]:
        """b + W/η of the return to go: CVaR, where b is right."""
        b = self._threshold(state, memory, percept)
        level = jnp.asarray(self.risk.level, dtype=jnp.float32)  # pyright: ignore[reportAttributeAccessIssue]
        return (b + self._shortfall(state.params, percept.obs, b) / level) / self.training.reward_scale

    def quantiles(
        self, state: CriticState, memory: Threshold, percept: Percept, taus: Float[Array, " N"]
    ) -> Float[Array, "N A"]:
        """Z(s, ·; τ), the return to go."""
        return state.params.quantiles(percept.obs, taus) / self.training.reward_scale

    def act(
        self, state: CriticState, memory: Threshold, percept: Percept, *, key: Key, explore: Float[Array, ""]
    ) -> tuple[Int[Array, ""], Threshold]:
        """argmax_a W(s, b, a)."""
        b = self._threshold(state, memory, percept)
        values = self._shortfall(state.params, percept.obs, b)
        action = epsilon_greedy(values, percept.mask, key=key, explore=explore)
        return action, Threshold(b, jnp.ones((), bool))

    def took(self, memory: Threshold, action: Int[Array, ""]) -> Threshold:
        """Actions are not remembered."""
        return memory

    def learn(self, state: CriticState, batch: Step, *, key: Key) -> tuple[CriticState, dict[str, Array]]:
        """One update of Z."""
        t = self.training
        taus, target_taus = draw_levels(self.network, t, key=key)

        def loss(critic: MarkovCritic, step: Step) -> Float[Array, ""]:
            reward = t.reward_scale * step.reward
            threshold = (step.extra - reward) / self.discount
            best = masked_argmax(self._shortfall(state.params, step.next_obs, threshold), step.next_mask)
            future = state.target.quantiles(step.next_obs, target_taus)[:, best]
            target = reward + jnp.where(step.terminated, 0.0, self.discount * future)
            predicted = critic.quantiles(step.obs, taus)[:, step.action]
            return quantile_huber(predicted, taus, jax.lax.stop_gradient(target), t.kappa * t.reward_scale)

        return descend(state, loss, t, batch)

    def sync(self, state: CriticState) -> CriticState:
        """The target network is renewed."""
        return renewed(state)
