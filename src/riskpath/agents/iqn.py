"""IQN with a risk measure: greedy, at every step, in β of the return to go.

    Z(s, a; τ) ← r + γ Z′(s′, a′; τ′),     a′ = argmax_a β[Z(s′, a)]     (T*_β, Eq. 11 of the paper)

The baseline that optimises nothing anyone asked for. The distortion is applied where an action is chosen, never to the
levels that train the critic. a′ comes from the online network, its value from the target network.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from riskpath.agents.base import (
    Agent,
    CriticState,
    Network,
    Training,
    descend,
    epsilon_greedy,
    masked_argmax,
    new_state,
)
from riskpath.losses import midpoints, quantile_huber, stratified
from riskpath.nets import Head, Trunk, make_head
from riskpath.risk import Mean, RiskMeasure
from riskpath.types import EnvSpec, Key, Percept, Step


class MarkovCritic(eqx.Module):
    """Z(s, ·; τ)."""

    trunk: Trunk
    head: Head

    def __init__(self, network: Network, spec: EnvSpec, *, key: Key):
        trunk_key, head_key = jax.random.split(key)
        self.trunk = Trunk(spec, network.hidden, key=trunk_key)
        self.head = make_head(network.head, network.hidden[-1], spec.num_actions, key=head_key)

    def quantiles(self, obs: Shaped[Array, "*obs"], taus: Float[Array, " N"]) -> Float[Array, "N A"]:
        """Z(s, a; τ) for all actions."""
        return self.head(self.trunk(obs), self.head.embed(taus))

    def risk(self, obs: Shaped[Array, "*obs"], risk: RiskMeasure, count: int) -> Float[Array, " A"]:
        """β[Z(s, a)] = ∫₀¹ Z(s, a; h⁻¹(τ)) dτ for all actions."""
        return self.head.mean(self.trunk(obs), self.head.embed(risk.distort(midpoints(count))))


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
        return new_state(MarkovCritic(self.network, spec, key=key))

    def reset(self, state: CriticState, spec: EnvSpec) -> None:
        """Nothing to remember."""
        return

    def window(self, spec: EnvSpec) -> int:
        """No history."""
        return 0

    def note(self, memory: None) -> Float[Array, ""]:
        """Nothing to note."""
        return jnp.zeros(())

    def estimate(self, state: CriticState, memory: None, percept: Percept) -> Float[Array, " A"]:
        """β[Z(s, ·)]."""
        values = state.params.risk(percept.obs, self.risk, self.training.act_taus)
        return values / self.training.reward_scale

    def act(
        self, state: CriticState, memory: None, percept: Percept, *, key: Key, explore: Float[Array, ""]
    ) -> tuple[Int[Array, ""], None]:
        """argmax_a β[Z(s, a)]."""
        values = self.estimate(state, memory, percept)
        return epsilon_greedy(values, percept.mask, key=key, explore=explore), None

    def learn(self, state: CriticState, batch: Step, *, key: Key) -> tuple[CriticState, dict[str, Array]]:
        """One update of Z."""
        t = self.training
        online_key, target_key = jax.random.split(key)
        taus, target_taus = stratified(t.online_taus, key=online_key), stratified(t.target_taus, key=target_key)

        def loss(critic: MarkovCritic, step: Step) -> Float[Array, ""]:
            best = masked_argmax(state.params.risk(step.next_obs, self.risk, t.act_taus), step.next_mask)
            future = state.target.quantiles(step.next_obs, target_taus)[:, best]
            future = jnp.where(step.terminated, 0.0, self.discount * future)
            target = t.reward_scale * step.reward + future
            predicted = critic.quantiles(step.obs, taus)[:, step.action]
            return quantile_huber(predicted, taus, jax.lax.stop_gradient(target), t.kappa * t.reward_scale)

        return descend(state, loss, t, batch)
