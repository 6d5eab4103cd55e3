"""C51 (Bellemare et al., 2017): probabilities of fixed returns to go, risk-greedy at every step.

    Z(s, a) = Σ_i p_i(s, a) δ(z_i),     p(s, a) ← Π[r + γ Z′(s′, a′)],     a′ = argmax_a β[Z(s′, a)]

by the cross-entropy. Π splits the probability of a return between its two nearest atoms, in proportion to nearness.
The atoms z_i are equally spaced over the range of the returns seen so far, and of 0, so there is no support to choose.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from riskpath.agents.agent import ActorOutput, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.config import Training
from riskpath.agents.learning import explore_greedily, gradient_step, masked_argmax, new_state
from riskpath.agents.replay_agent import MemorylessAgent
from riskpath.nn.atom_critic import AtomCritic
from riskpath.types import EnvSpec, Key, TimeStep, Transition

MARGIN = 0.05
"""By what fraction of the range the atoms reach beyond it, at both ends."""


class C51(MemorylessAgent):
    """Categorical DQN for discrete actions; `training.num_quantiles` is the number of atoms."""

    training: Training = Training(num_quantiles=51)
    """Training hyperparameters."""

    whole_return: ClassVar = False

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        return new_state(self, AtomCritic(self.network, spec, self.training.num_quantiles, in_units=False, key=key))

    def act(self, state: AgentState, memory: tuple[()], time_step: TimeStep, *, key: Key, mode: Mode) -> ActorOutput:
        """Return argmax_a β[Z(s, a)], or a random action."""
        values = self._risk(state.params(time_step.observation), self.atoms(state))
        return ActorOutput(explore_greedily(self, values, time_step, key=key, mode=mode))

    def update(self, state: AgentState, batch: Transition, clock: Clock, *, key: Key) -> Updated:
        """Take one gradient step on p."""
        z = self.atoms(state)

        def loss(critic: AtomCritic, step: Transition) -> Float[Array, ""]:
            best = masked_argmax(self._risk(state.params(step.next_observation), z), step.next_action_mask)
            future = jax.nn.softmax(state.target_params.of_action(step.next_observation, best))
            returns = step.reward + jnp.where(step.terminated, 0.0, self.discount * z)
            target = jax.lax.stop_gradient(project(returns, future, z))
            return -jnp.sum(target * jax.nn.log_softmax(critic.of_action(step.observation, step.action)))

        return gradient_step(self, state, loss, batch, clock)

    def quantiles(
        self, state: AgentState, memory: tuple[()], time_step: TimeStep, taus: Float[Array, " N"]
    ) -> Float[Array, "N A"]:
        """Return the atoms at which the distribution functions reach these levels."""
        cdf = jnp.cumsum(jax.nn.softmax(state.params(time_step.observation), axis=0), axis=0)
        places = jnp.sum(cdf[None] < taus[:, None, None] - 1e-6, axis=1)
        return self.atoms(state)[jnp.minimum(places, len(cdf) - 1)]

    def atoms(self, state: AgentState) -> Float[Array, " N"]:
        """Return z_i, over the range of returns and of sums of consecutive rewards, a little wider."""
        low, high = (jnp.zeros(()), jnp.zeros(())) if state.episodes is None else state.episodes.reach
        margin = jnp.maximum(MARGIN * (high - low), 1e-6)
        return jnp.linspace(low - margin, high + margin, self.training.num_quantiles)

    def _risk(self, logits: Float[Array, "N A"], z: Float[Array, " N"]) -> Float[Array, " A"]:
        return jax.vmap(lambda p: self.risk.value(z, p), in_axes=1)(jax.nn.softmax(logits, axis=0))


def project(returns: Float[Array, " N"], probs: Float[Array, " N"], z: Float[Array, " N"]) -> Float[Array, " N"]:
    """Return Π: probabilities of the atoms z that keep the mean of returns within their range."""
    near = jnp.abs(jnp.clip(returns, z[0], z[-1])[:, None] - z[None, :]) / (z[1] - z[0])
    return probs @ jnp.maximum(1.0 - near, 0.0)
