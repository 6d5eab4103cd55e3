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
from riskpath.agents.iqn import MarkovCritic
from riskpath.errors import RiskpathError
from riskpath.losses import midpoints, quantile_huber, stratified
from riskpath.nets import Head, History, make_head
from riskpath.risk import Mean, RiskMeasure
from riskpath.types import EnvSpec, Key, Percept, Window, power

CONVOLVED_TAUS = 16


class Past(eqx.Module):
    """The memory of an episode: its latest states and the actions before them."""

    obs: Shaped[Array, "T *obs"]
    prev_action: Int[Array, " T"]
    valid: Bool[Array, " T"]
    last_action: Int[Array, ""]
    """The action that is still to be written down, once its successor is seen."""
    time: Int[Array, ""]
    """t of the state to come."""


class HistoryCritic(eqx.Module):
    """Z_θ(h, ·; τ), or the law of the past return H(h; τ) with a single output."""

    history: History
    head: Head

    def __init__(self, network: Network, spec: EnvSpec, outputs: int, *, key: Key):
        history_key, head_key = jax.random.split(key)
        self.history = History(network.history, spec, network.hidden[-1], key=history_key)
        self.head = make_head(network.head, network.hidden[-1], outputs, key=head_key)

    def features(self, window: Window) -> tuple[Float[Array, " H"], Float[Array, " H"]]:
        """Features of h_t and of h_{t+1}, in one pass."""
        step = window.step
        obs = jnp.concatenate([window.obs, step.next_obs[None]])
        prev_action = jnp.concatenate([window.prev_action, step.action[None]])
        features = self.history(obs, prev_action, jnp.concatenate([window.valid, jnp.ones((1,), bool)]))
        return features[-2], features[-1]


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
    network: Network = Network()
    """Sizes."""
    training: Training = Training()
    """How to train."""

    def __check_init__(self):
        if self.critic not in ("joint", "trajectory", "convolved"):
            raise RiskpathError(f"critic must be joint, trajectory or convolved, got {self.critic!r}")

    def init(self, spec: EnvSpec, *, key: Key) -> CriticState:
        """Fresh critics."""
        history_key, markov_key = jax.random.split(key)
        outputs = 1 if self.critic == "convolved" else spec.num_actions
        history = HistoryCritic(self.network, spec, outputs, key=history_key)
        markov = None if self.critic == "trajectory" else MarkovCritic(self.network, spec, key=markov_key)
        return new_state(Critics(history, markov))

    def window(self, spec: EnvSpec) -> int:
        """All of the episode, unless a window was asked for."""
        length = self.network.window or spec.max_steps
        if length is None:
            raise RiskpathError("episodes of this environment have no known limit: give TQL a window, for example 10")
        return min(length, spec.max_steps or length)

    def reset(self, state: CriticState, spec: EnvSpec) -> Past:
        """An empty history."""
        length = self.window(spec)
        kind = jnp.int32 if spec.num_states is not None else jnp.float32
        return Past(
            jnp.zeros((length, *spec.obs_shape), kind),
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
        features: Float[Array, " H"],
        obs: Shaped[Array, "*obs"],
        time: Int[Array, ""],
    ) -> Float[Array, " A"]:
        """β[Z(h, ·)] from the features of h, its last state and its time."""
        levels = midpoints(self.training.act_taus)
        head = critics.history.head
        if self.critic != "convolved" or critics.markov is None:
            return head.mean(features, head.embed(self.risk.distort(levels)))
        coarse = midpoints(CONVOLVED_TAUS)
        past = jnp.where(time > 0, head(features, head.embed(coarse))[:, 0], 0.0)
        future = power(self.discount, time) * critics.markov.quantiles(obs, coarse)
        sums = past[:, None, None] + future[None, :, :]
        return jax.vmap(self.risk.value, in_axes=1)(sums.reshape(-1, sums.shape[-1]))

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
        features = state.params.history.history(past.obs, past.prev_action, past.valid)[-1]
        return self._risk(state.params, features, percept.obs, memory.time) / self.training.reward_scale

    def act(
        self, state: CriticState, memory: Past, percept: Percept, *, key: Key, explore: Float[Array, ""]
    ) -> tuple[Int[Array, ""], Past]:
        """argmax_a β[Z(h, a)]."""
        values = self.estimate(state, memory, percept)
        action = epsilon_greedy(values, percept.mask, key=key, explore=explore)
        return action, eqx.tree_at(lambda past: past.last_action, self._after(memory, percept), action)

    def learn(self, state: CriticState, batch: Window, *, key: Key) -> tuple[CriticState, dict[str, Array]]:
        """One update of all critics."""
        t = self.training
        online_key, target_key = jax.random.split(key)
        taus, target_taus = stratified(t.online_taus, key=online_key), stratified(t.target_taus, key=target_key)
        kappa = t.kappa * t.reward_scale

        def loss(critics: Critics, window: Window) -> Float[Array, ""]:
            step, head = window.step, critics.history.head
            now, following = critics.history.features(window)
            earned = t.reward_scale * step.earned
            frozen = jax.lax.stop_gradient(critics)
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
                return markov + past
            whole = earned + power(self.discount, step.time + 1) * future
            return markov + fit(head(now, head.embed(taus))[:, step.action], whole)

        return descend(state, loss, t, batch)
