"""Trajectory Q-Learning: critics and policy see the history h_t = (s₀, a₀, …, s_t) and value the *whole* return.

Three forms of the critics, chosen by `critic`; in all of them a′ = argmax_a β[Z(h_{t+1}, a)]:

- "joint", the paper's. A Markov critic and a history critic that bootstraps from it:
      Z_ψ(s_t, a_t)  ← r_t + γ Z_ψ′(s_{t+1}, a′)                 (Eq. 22)
      Z_θ(h_t, a_t)  ← R_{0:t} + γ^{t+1} Z_ψ′(s_{t+1}, a′)       (Eq. 23)
  Z_ψ cannot distinguish histories, so it learns a mixture over those in the replay buffer.
- "trajectory". As Z(h, a) is the return of the whole trajectory, it is that of the longer history as well:
      Z_θ(h_t, a_t)  ← Z_θ′(h_{t+1}, a′),  and R_{0:T} at the end.   No Markov critic, no mixture.
- "convolved". By its definition (Eq. 12) Z(h_t, a) = R_{0:t−1} + γᵗ Z(s_t, a), a sum of independent parts:
      H(h_{t+1})     ← R_{0:t}                                   (supervised, no bootstrap)
      Z_ψ(s_t, a_t)  ← r_t + γ Z_ψ′(s_{t+1}, a′)
  and β is taken of all pairwise sums.
"""

from typing import ClassVar, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from riskpath.agents.agent import ActorOutput, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.learning import draw_levels, explore_greedily, gradient_step, masked_argmax, new_state, scales
from riskpath.agents.replay_agent import HistoryAgent, HistoryMemory
from riskpath.errors import RiskpathError
from riskpath.nn.critics import HistoryCritic, MarkovCritic
from riskpath.nn.losses import midpoints, quantile_huber, sample_quantiles
from riskpath.types import EnvSpec, Key, TimeStep, Window, power, stop_gradient
from riskpath.validation import require_counts

Form = Literal["joint", "trajectory", "convolved"]


class Critics(eqx.Module):
    """The networks of one form."""

    history: HistoryCritic
    """Z_θ, or H with a single output."""
    markov: MarkovCritic | None
    """Z_ψ."""


class TQL(HistoryAgent):
    """Trajectory Q-Learning for discrete actions; β is of the whole return."""

    critic: Form = eqx.field(static=True, default="joint")
    """Form of the critics: the paper's, or one of the two that avoid its bias."""
    convolved_taus: int = eqx.field(static=True, default=16)
    """"convolved": number of quantiles of past and future, which are added in all pairs."""

    for_deterministic_transitions: ClassVar = True
    independent_heads: ClassVar = True

    def __check_init__(self):
        if self.critic not in get_args(Form):
            raise RiskpathError(f"critic must be joint, trajectory or convolved, got {self.critic!r}")
        require_counts(convolved_taus=self.convolved_taus)

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return fresh critics; the memory is the history."""
        if spec.action_heads and self.critic == "convolved":
            raise RiskpathError("the convolved form of TQL has no heads for several choices: use critic='trajectory'")
        history_key, markov_key = jax.random.split(key)
        outputs, levels = 1 if self.critic == "convolved" else spec.num_actions, self.training.num_quantiles
        history = HistoryCritic(self.network, spec, self.window(spec), levels, outputs, key=history_key)
        markov = None if self.critic == "trajectory" else MarkovCritic(self.network, spec, levels, key=markov_key)
        return new_state(self, Critics(history, markov), memory=self.empty_history(spec))

    def act(
        self, state: AgentState, memory: HistoryMemory, time_step: TimeStep, *, key: Key, mode: Mode
    ) -> ActorOutput:
        """Return argmax_a β[Z(h, a)], or a random action."""
        memory = memory.extend(time_step)
        values = self._risk(state.params, self._encode(state, memory), time_step.observation, time_step.time)
        return ActorOutput(explore_greedily(self, values, time_step, key=key, mode=mode), memory)

    def update(self, state: AgentState, batch: Window, clock: Clock, *, key: Key) -> Updated:
        """Take one gradient step on all critics."""
        scale, kappa = scales(self.training, state)
        taus, target_taus = draw_levels(self, key=key)

        def fit(predicted: Float[Array, " N"], target: Float[Array, " M"]) -> Float[Array, ""]:
            return quantile_huber(predicted, taus, jax.lax.stop_gradient(target), kappa)

        def loss(critics: Critics, window: Window) -> Float[Array, ""]:
            step, target = window.transition, state.target_params
            now, following = critics.history.features(window)
            past = scale * step.return_so_far  # R_{0:t}
            values = self._risk(
                stop_gradient(critics), jax.lax.stop_gradient(following), step.next_observation, step.time + 1
            )
            best = masked_argmax(values, step.next_action_mask)
            if self.critic == "trajectory":
                _, longer = target.history.features(window)
                future = target.history.of_action(longer, target_taus, best)
                future = jnp.where(step.terminated, past, future)
                return fit(critics.history.of_action(now, taus, step.action), future)
            assert critics.markov is not None
            future = target.markov.of_action(step.next_observation, target_taus, best)
            future = jnp.where(step.terminated, 0.0, future)
            markov = fit(
                critics.markov.of_action(step.observation, taus, step.action),
                scale * step.reward + self.discount * future,
            )
            if self.critic == "convolved":
                law = fit(critics.history.quantiles(following, taus)[:, 0], jnp.full((1,), past))
                # The past of a finished episode is never used, and a table has no row for it.
                return markov + jnp.where(step.terminated, 0.0, law)
            whole = past + power(self.discount, step.time + 1) * future
            return markov + fit(critics.history.of_action(now, taus, step.action), whole)

        return gradient_step(self, state, loss, batch, clock)

    def quantiles(
        self, state: AgentState, memory: HistoryMemory, time_step: TimeStep, taus: Float[Array, " N"]
    ) -> Float[Array, "N A"]:
        """Return Z(h, ·; τ), the whole return."""
        features = self._encode(state, memory.extend(time_step))
        if self.critic == "convolved":
            sums = self._sums(state.params, features, time_step.observation, time_step.time)
            future = state.params.markov.quantiles(time_step.observation, taus)
            whole = jnp.where(time_step.time > 0, sample_quantiles(sums, taus), future)  # at first there is no past
        else:
            whole = state.params.history.quantiles(features, taus)
        return whole / scales(self.training, state)[0]

    def _encode(self, state: AgentState, memory: HistoryMemory) -> Shaped[Array, "*H"]:
        """Return the features of h, encoded again at every step: features from before an update would be stale."""
        return state.params.history.last(memory.observation, memory.prev_action, memory.valid)

    def _risk(
        self, critics: Critics, features: Shaped[Array, "*H"], observation: Shaped[Array, "*obs"], time: Int[Array, ""]
    ) -> Float[Array, " A"]:
        """Return β[Z(h, ·)] from the features of h, its last observation and its time."""
        head, count = critics.history.head, self.training.num_action_quantiles
        if self.critic != "convolved" or critics.markov is None:
            return head.mean(features, self.risk.distort(midpoints(count)))
        whole = jax.vmap(self.risk.value, in_axes=1)(self._sums(critics, features, observation, time))
        # At the start there is no past: take β of the future alone, at all levels instead of a few.
        return jnp.where(time > 0, whole, critics.markov.risk(observation, self.risk, count))

    def _sums(
        self, critics: Critics, features: Shaped[Array, "*H"], observation: Shaped[Array, "*obs"], time: Int[Array, ""]
    ) -> Float[Array, "K A"]:
        """Return atoms of H(h) + γᵗ Z_ψ(s, ·): all pairs of a few quantiles of both."""
        assert critics.markov is not None
        coarse = midpoints(self.convolved_taus)
        past = jnp.where(time > 0, critics.history.quantiles(features, coarse)[:, 0], 0.0)
        future = power(self.discount, time) * critics.markov.quantiles(observation, coarse)
        return (past[:, None, None] + future[None, :, :]).reshape(-1, future.shape[-1])
