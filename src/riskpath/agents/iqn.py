"""IQN with a risk measure: greedy, at every step, in β of the return to go.

    Z(s, a; τ) ← r + γ Z′(s′, a′; τ′),     a′ = argmax_a β[Z(s′, a)]     (T*_β, Eq. 11 of the paper)

The baseline that optimises nothing anyone asked for. The distortion is applied where an action is chosen, never to the
levels that train the critic. a′ comes from the online network, its value from the target network.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

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
from riskpath.nn.critics import MarkovCritic
from riskpath.nn.losses import quantile_huber
from riskpath.risk.measures import Mean, RiskMeasure
from riskpath.types import EnvSpec, Key, Percept, Step


class IQN(Agent):
    """Implicit quantile network, risk-greedy at every step."""

    risk: RiskMeasure = Mean()
    """β, applied to the return to go."""
    discount: float | Array = 0.99
    """γ."""
    network: Network = Network()
    """Sizes."""
    training: Training = Training()
    """How to train."""

    def init(self, spec: EnvSpec, *, key: Key) -> CriticState:
        """A fresh critic."""
        return new_state(MarkovCritic(self.network, spec, self.training.online_taus, key=key))

    def reset(self, state: CriticState, spec: EnvSpec) -> None:
        """Nothing to remember."""
        return

    def window(self, spec: EnvSpec) -> int:
        """No history."""
        require_numbered(spec, "IQN")
        return 0

    def note(self, memory: None) -> Float[Array, ""]:
        """Nothing to note."""
        return jnp.zeros(())

    def estimate(self, state: CriticState, memory: None, percept: Percept) -> Float[Array, " A"]:
        """β[Z(s, ·)]."""
        values = state.params.risk(percept.obs, self.risk, self.training.act_taus)
        return values / self.training.reward_scale

    def quantiles(
        self, state: CriticState, memory: None, percept: Percept, taus: Float[Array, " N"]
    ) -> Float[Array, "N A"]:
        """Z(s, ·; τ), the return to go."""
        return state.params.quantiles(percept.obs, taus) / self.training.reward_scale

    def act(
        self, state: CriticState, memory: None, percept: Percept, *, key: Key, explore: Float[Array, ""]
    ) -> tuple[Int[Array, ""], None]:
        """argmax_a β[Z(s, a)]."""
        values = self.estimate(state, memory, percept)
        return epsilon_greedy(values, percept.mask, key=key, explore=explore), None

    def took(self, memory: None, action: Int[Array, ""]) -> None:
        """Actions are not remembered."""
        return memory

    def learn(self, state: CriticState, batch: Step, *, key: Key) -> tuple[CriticState, dict[str, Array]]:
        """One update of Z."""
        t = self.training
        taus, target_taus = draw_levels(self.network, t, key=key)

        def loss(critic: MarkovCritic, step: Step) -> Float[Array, ""]:
            best = masked_argmax(state.params.risk(step.next_obs, self.risk, t.act_taus), step.next_mask)
            future = state.target.quantiles(step.next_obs, target_taus)[:, best]
            future = jnp.where(step.terminated, 0.0, self.discount * future)
            target = t.reward_scale * step.reward + future
            predicted = critic.quantiles(step.obs, taus)[:, step.action]
            return quantile_huber(predicted, taus, jax.lax.stop_gradient(target), t.kappa * t.reward_scale)

        return descend(state, loss, t, batch)

    def sync(self, state: CriticState) -> CriticState:
        """The target network is renewed."""
        return renewed(state)
