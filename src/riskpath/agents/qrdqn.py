"""QR-DQN (Dabney et al., 2018): quantiles of the return to go at fixed levels, risk-greedy at every step.

    θ_i(s, a) ← r + γ θ′_j(s′, a′),     a′ = argmax_a β[θ(s′, a)],     τ_i = (i − ½)/N

by the quantile Huber loss. IQN draws its levels; here they are fixed, and each is an output of the network.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from riskpath.agents.agent import ActorOutput, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.learning import explore_greedily, gradient_step, masked_argmax, new_state, scales
from riskpath.agents.replay_agent import MemorylessAgent
from riskpath.nn.atom_critic import AtomCritic
from riskpath.nn.losses import midpoints, quantile_huber, sample_quantiles
from riskpath.types import EnvSpec, Key, TimeStep, Transition


class QRDQN(MemorylessAgent):
    """Quantile regression DQN for discrete actions; `training.num_quantiles` is the number of quantiles."""

    whole_return: ClassVar = False

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        return new_state(self, AtomCritic(self.network, spec, self.training.num_quantiles, in_units=True, key=key))

    def act(self, state: AgentState, memory: tuple[()], time_step: TimeStep, *, key: Key, mode: Mode) -> ActorOutput:
        """Return argmax_a β[θ(s, a)], or a random action."""
        values = self._risk(state.params(time_step.observation))
        return ActorOutput(explore_greedily(self, values, time_step, key=key, mode=mode))

    def update(self, state: AgentState, batch: Transition, clock: Clock, *, key: Key) -> Updated:
        """Take one gradient step on θ."""
        (scale, kappa), levels = scales(self.training, state), midpoints(self.training.num_quantiles)

        def loss(critic: AtomCritic, step: Transition) -> Float[Array, ""]:
            best = masked_argmax(self._risk(state.params(step.next_observation)), step.next_action_mask)
            future = state.target_params.of_action(step.next_observation, best)
            target = scale * step.reward + jnp.where(step.terminated, 0.0, self.discount * future)
            predicted = critic.of_action(step.observation, step.action)
            return quantile_huber(predicted, levels, jax.lax.stop_gradient(target), kappa)

        return gradient_step(self, state, loss, batch, clock)

    def quantiles(
        self, state: AgentState, memory: tuple[()], time_step: TimeStep, taus: Float[Array, " N"]
    ) -> Float[Array, "N A"]:
        """Return the quantiles of the return to go that are nearest to these levels."""
        return sample_quantiles(state.params(time_step.observation), taus) / scales(self.training, state)[0]

    def _risk(self, atoms: Float[Array, "N A"]) -> Float[Array, " A"]:
        return jax.vmap(self.risk.value, in_axes=1)(atoms)
