"""IQN with a risk measure: greedy, at every step, in β of the return to go.

    Z(s, a; τ) ← r + γ Z′(s′, a′; τ′),     a′ = argmax_a β[Z(s′, a)]     (T*_β, Eq. 11 of the paper)

The baseline for per-step methods: it maximises neither β of the whole return nor any other fixed objective. The
distortion acts where an action is chosen, never on the levels that train the critic. a′ comes from the online network,
its value from the target network.
"""

from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int

from riskpath.agents.agent import ActorOutput, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.learning import (
    as_segment,
    draw_levels,
    explore_greedily,
    gradient_step,
    look_ahead,
    masked_argmax,
    new_state,
    scales,
    step_of,
    within_returns,
)
from riskpath.agents.replay_agent import MemorylessAgent
from riskpath.nn.critics import MarkovCritic
from riskpath.nn.losses import quantile_huber
from riskpath.types import EnvSpec, Key, Segment, TimeStep, Transition


class IQN(MemorylessAgent):
    """Implicit quantile network for discrete actions, risk-greedy at every step.

    With a head for each of several choices, quantile functions add up, and so does β: it is additive for returns that
    rise and fall together.
    """

    n_steps: int = eqx.field(static=True, default=3)
    """Largest number of rewards in a target (n-step returns)."""

    independent_heads: ClassVar = True
    several_steps: ClassVar = True
    whole_return: ClassVar = False

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        return new_state(self, MarkovCritic(self.network, spec, self.training.num_quantiles, key=key))

    def act(self, state: AgentState, memory: tuple[()], time_step: TimeStep, *, key: Key, mode: Mode) -> ActorOutput:
        """Return argmax_a β[Z(s, a)], or a random action."""
        values = state.params.risk(time_step.observation, self.risk, self.training.num_action_quantiles)
        return ActorOutput(explore_greedily(self, values, time_step, key=key, mode=mode))

    def update(self, state: AgentState, batch: Transition | Segment, clock: Clock, *, key: Key) -> Updated:
        """Take one gradient step on Z."""
        t, (scale, kappa) = self.training, scales(self.training, state)
        taus, target_taus = draw_levels(self, key=key)

        def best_after(step: Transition) -> Int[Array, "*H"]:
            risks = state.params.risk(step.next_observation, self.risk, t.num_action_quantiles)
            return masked_argmax(risks, step.next_action_mask)

        def loss(critic: MarkovCritic, sample: Transition | Segment) -> Float[Array, ""]:
            segment, step = as_segment(sample), step_of(sample)
            best = jax.vmap(best_after)(segment.steps)
            ahead = look_ahead(self, segment, best, clock)
            following = segment.steps.next_observation[ahead.last]
            future = state.target_params.of_action(following, target_taus, best[ahead.last])
            future = within_returns(self, state, segment, ahead, future)
            target = jax.lax.stop_gradient(scale * ahead.reward + ahead.factor * future)
            return quantile_huber(critic.of_action(step.observation, taus, step.action), taus, target, kappa)

        return gradient_step(self, state, loss, batch, clock)

    def quantiles(
        self, state: AgentState, memory: tuple[()], time_step: TimeStep, taus: Float[Array, " N"]
    ) -> Float[Array, "N A"]:
        """Return Z(s, ·; τ), the return to go."""
        return state.params.quantiles(time_step.observation, taus) / scales(self.training, state)[0]
