"""Trajectory Q-Learning: critics and policy see the history h_t = (s₀, a₀, …, s_t) and value the *whole* return.

Three critics, chosen by `critic`; in all of them a′ = argmax_a β[Z(h_{t+1}, a)]:

- "joint", the paper's. A Markov critic and a history critic that bootstraps from it:
      Z_ψ(s_t, a_t)  ← r_t + γ Z_ψ′(s_{t+1}, a′)                 (Eq. 22)
      Z_θ(h_t, a_t)  ← R_{0:t} + γ^{t+1} Z_ψ′(s_{t+1}, a′)       (Eq. 23)
  Z_ψ cannot tell histories apart, so it learns a mixture over those in the replay.
- "trajectory". As Z(h, a) is the return of the whole trajectory, it is that of the longer history as well:
      Z_θ(h_t, a_t)  ← Z_θ′(h_{t+1}, a′),  and R_{0:T} at the end.   No Markov critic, no mixture.
- "convolved". By its definition (Eq. 12) Z(h_t, a) = R_{0:t−1} + γᵗ Z(s_t, a), a sum of independent parts:
      H(h_{t+1})     ← R_{0:t}                                   (supervised, no bootstrap)
      Z_ψ(s_t, a_t)  ← r_t + γ Z_ψ′(s_{t+1}, a′)
  and β is taken of all pairwise sums.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

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
from riskpath.nn.critics import HistoryCritic, MarkovCritic
from riskpath.nn.losses import midpoints, quantile_huber
from riskpath.risk.measures import Mean, RiskMeasure
from riskpath.types import EnvSpec, Key, Percept, Window, power, stop_gradient
from riskpath.validation import require_counts


class Past(eqx.Module):
    """The memory of an episode: its latest states and the actions before them."""

    obs: Shaped[Array, "T *obs"]
    prev_action: Int[Array, " T"]
    valid: Bool[Array, " T"]
    last_action: Int[Array, ""]
    """The action that is still to be written down, once its successor is seen."""
    time: Int[Array, ""]
    """t of the state to come."""


class Critics(eqx.Module):
    """All networks of one form."""

    history: HistoryCritic
    markov: MarkovCritic | None


class TQL(Agent):
    """Trajectory Q-Learning for discrete actions."""

    risk: RiskMeasure = Mean()
    """β, applied to the whole return."""
    discount: float | Array = 0.99
    """γ."""
    critic: Literal["joint", "trajectory", "convolved"] = eqx.field(static=True, default="joint")
    """Which critics: the paper's, or one of the two that avoid its bias."""
    convolved_taus: int = eqx.field(static=True, default=16)
    """"convolved": how many quantiles of past and future are added up, in all pairs."""
    network: Network = Network()
    """Sizes."""
    training: Training = Training()
    """How to train."""

    def __check_init__(self):
        if self.critic not in ("joint", "trajectory", "convolved"):
            raise RiskpathError(f"critic must be joint, trajectory or convolved, got {self.critic!r}")
        require_counts(convolved_taus=self.convolved_taus)

    def init(self, spec: EnvSpec, *, key: Key) -> CriticState:
        """Fresh critics."""
        history_key, markov_key = jax.random.split(key)
        outputs, levels = 1 if self.critic == "convolved" else spec.num_actions, self.training.online_taus
        history = HistoryCritic(self.network, spec, self.window(spec), levels, outputs, key=history_key)
        markov = None if self.critic == "trajectory" else MarkovCritic(self.network, spec, levels, key=markov_key)
        return new_state(Critics(history, markov))

    def window(self, spec: EnvSpec) -> int:
        """All of the episode, unless a window was asked for."""
        require_numbered(spec, "TQL")
        return self.network.length(spec)

    def reset(self, state: CriticState, spec: EnvSpec) -> Past:
        """An empty history."""
        length = self.window(spec)
        return Past(
            jnp.zeros((length, *spec.observation_shape), spec.observation_dtype),
            jnp.zeros((length,), jnp.int32),
            jnp.zeros((length,), bool),
            jnp.zeros((), jnp.int32),
            jnp.zeros((), jnp.int32),
        )

    def note(self, memory: Past) -> Float[Array, ""]:
        """Nothing to note."""
        return jnp.zeros(())

    def _risk(
        self,
        critics: Critics,
        features: Shaped[Array, "*H"],
        obs: Shaped[Array, "*obs"],
        time: Int[Array, ""],
    ) -> Float[Array, " A"]:
        """β[Z(h, ·)] from the features of h, its last state and its time."""
        head, levels = critics.history.head, self.risk.distort(midpoints(self.training.act_taus))
        if self.critic != "convolved" or critics.markov is None:
            return head.mean(features, head.embed(levels))
        whole = jax.vmap(self.risk.value, in_axes=1)(self._sums(critics, features, obs, time))
        # At the start nothing is past: the law of the future alone, at all levels instead of a coarse few.
        return jnp.where(time > 0, whole, critics.markov.risk(obs, self.risk, self.training.act_taus))

    def _sums(
        self, critics: Critics, features: Shaped[Array, "*H"], obs: Shaped[Array, "*obs"], time: Int[Array, ""]
    ) -> Float[Array, "K A"]:
        """Atoms of H(h) + γᵗ Z_ψ(s, ·), all pairs of a few quantiles of both."""
        assert critics.markov is not None
        head, coarse = critics.history.head, midpoints(self.convolved_taus)
        past = jnp.where(time > 0, head(features, head.embed(coarse))[:, 0], 0.0)
        future = power(self.discount, time) * critics.markov.quantiles(obs, coarse)
        return (past[:, None, None] + future[None, :, :]).reshape(-1, future.shape[-1])

    def _after(self, memory: Past, percept: Percept) -> Past:
        """The history with the new state at its end."""
        return Past(
            jnp.concatenate([memory.obs[1:], percept.obs[None].astype(memory.obs.dtype)]),
            jnp.concatenate([memory.prev_action[1:], memory.last_action[None]]),
            jnp.concatenate([memory.valid[1:], jnp.ones((1,), bool)]),
            memory.last_action,
            memory.time + 1,
        )

    def estimate(self, state: CriticState, memory: Past, percept: Percept) -> Float[Array, " A"]:
        """β[Z(h, ·)] of the whole return."""
        past = self._after(memory, percept)
        # Encoded anew at every step: features kept over an update would be stale.
        features = state.params.history.last(past.obs, past.prev_action, past.valid)
        return self._risk(state.params, features, percept.obs, memory.time) / self.training.reward_scale

    def quantiles(
        self, state: CriticState, memory: Past, percept: Percept, taus: Float[Array, " N"]
    ) -> Float[Array, "N A"]:
        """Z(h, ·; τ), the whole return."""
        past, critics = self._after(memory, percept), state.params
        features, head = critics.history.last(past.obs, past.prev_action, past.valid), critics.history.head
        if self.critic == "convolved":
            whole = jnp.quantile(self._sums(critics, features, percept.obs, memory.time), taus, axis=0, method="lower")
        else:
            whole = head(features, head.embed(taus))
        return whole / self.training.reward_scale

    def act(
        self, state: CriticState, memory: Past, percept: Percept, *, key: Key, explore: Float[Array, ""]
    ) -> tuple[Int[Array, ""], Past]:
        """argmax_a β[Z(h, a)]."""
        values = self.estimate(state, memory, percept)
        action = epsilon_greedy(values, percept.mask, key=key, explore=explore)
        return action, self.took(self._after(memory, percept), action)

    def took(self, memory: Past, action: Int[Array, ""]) -> Past:
        """The action is part of the history to come."""
        return eqx.tree_at(lambda past: past.last_action, memory, action)

    def learn(self, state: CriticState, batch: Window, *, key: Key) -> tuple[CriticState, dict[str, Array]]:
        """One update of all critics."""
        t = self.training
        taus, target_taus = draw_levels(self.network, t, key=key)
        kappa = t.kappa * t.reward_scale

        def loss(critics: Critics, window: Window) -> Float[Array, ""]:
            step, head = window.step, critics.history.head
            now, following = critics.history.features(window)
            earned = t.reward_scale * step.earned
            frozen = stop_gradient(critics)
            values = self._risk(frozen, jax.lax.stop_gradient(following), step.next_obs, step.time + 1)
            best = masked_argmax(values, step.next_mask)

            def fit(predicted: Float[Array, " N"], target: Float[Array, " M"]) -> Float[Array, ""]:
                return quantile_huber(predicted, taus, jax.lax.stop_gradient(target), kappa)

            if self.critic == "trajectory":
                target_head = state.target.history.head
                _, target_following = state.target.history.features(window)
                future = target_head(target_following, target_head.embed(target_taus))[:, best]
                return fit(head(now, head.embed(taus))[:, step.action], jnp.where(step.terminated, earned, future))
            assert critics.markov is not None
            future = state.target.markov.quantiles(step.next_obs, target_taus)[:, best]
            future = jnp.where(step.terminated, 0.0, future)
            markov = fit(
                critics.markov.quantiles(step.obs, taus)[:, step.action],
                t.reward_scale * step.reward + self.discount * future,
            )
            if self.critic == "convolved":
                past = fit(head(following, head.embed(taus))[:, 0], jnp.full((1,), earned))
                # Nobody asks for the past of an episode that is over, and a table has no row for it.
                return markov + jnp.where(step.terminated, 0.0, past)
            whole = earned + power(self.discount, step.time + 1) * future
            return markov + fit(head(now, head.embed(taus))[:, step.action], whole)

        return descend(state, loss, t, batch)

    def sync(self, state: CriticState) -> CriticState:
        """The target network is renewed."""
        return renewed(state)
