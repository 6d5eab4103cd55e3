"""Trajectory Q-Learning for vector actions: the actor sees the history and maximises β of the *whole* return.

Twin Markov critics Z_ψ(s, a) as in IQTD3 and, by `critic`, one of three ways to the law of the whole return:

- "joint", the paper's:      Z_θ(h_t, a_t) ← R_{0:t} + γ^{t+1} Z_ψ′(s_{t+1}, a′),   π maximises β[Z_θ(h, π(h))]
- "trajectory":              Z_θ(h_t, a_t) ← Z_θ′(h_{t+1}, a′), and R_{0:T} at the end; no Z_ψ
- "convolved", the default:  H(h_{t+1}) ← R_{0:t} (supervised), π maximises β[γ^{−t} H(h) + Z_ψ(s, π(h))]

In the last one the noise of R_{0:t} never hides what an action does, and β is taken of all pairwise sums of a few
quantiles of both laws. The factor γ^{−t} keeps late steps from being forgotten; β does not mind a shift, so the mean
of H is left out. a′ is the target actor's action after h_{t+1}. History features are learned by the critics only.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from riskpath.agents.actor_critic import (
    ActionCritic,
    Actor,
    ActorCriticTraining,
    Noise,
    Twins,
    explored,
    improve,
    lower_law,
    make_twins,
    new_actor_critic,
    saturation_penalty,
    silence,
    smoothed,
)
from riskpath.agents.agent import Agent, CriticState, Network
from riskpath.errors import RiskpathError
from riskpath.nn.history_encoder import History, read_both
from riskpath.nn.losses import midpoints, quantile_huber, stratified
from riskpath.risk.measures import Mean, RiskMeasure
from riskpath.types import EnvSpec, Key, Percept, Window, power
from riskpath.validation import require_counts

NO_ACTION = ()
"""The past does not depend on the action to come."""


class HistoryCritics(eqx.Module):
    """What the critics' loss trains, the reading of histories included."""

    history: History
    markov: Twins | None
    """Z_ψ."""
    whole: Twins | None
    """Z_θ."""
    past: ActionCritic | None
    """H(h; τ), the law of what was earned before h's last state; it is given no action."""


class Networks(eqx.Module):
    """Everything that is learned."""

    critic: HistoryCritics
    actor: Actor


class Past(eqx.Module):
    """The memory of an episode: its latest states, the actions before them, and the exploration."""

    obs: Shaped[Array, "T *obs"]
    prev_action: Float[Array, "T C"]
    valid: Bool[Array, " T"]
    last_action: Float[Array, " C"]
    time: Int[Array, ""]
    """t of the state to come."""
    noise: Noise


class TQLContinuous(Agent):
    """Trajectory Q-Learning for vector actions."""

    risk: RiskMeasure = Mean()
    """β, applied to the whole return."""
    discount: float | Array = 0.99
    """γ."""
    critic: Literal["joint", "trajectory", "convolved"] = eqx.field(static=True, default="convolved")
    """How the law of the whole return is learned; "joint" is the paper's."""
    convolved_taus: int = eqx.field(static=True, default=16)
    """"convolved": how many quantiles of past and future are added up, in all pairs."""
    time_input: bool = eqx.field(static=True, default=True)
    """Do the networks see t? A window alone does not tell it, nor R_{0:t}."""
    network: Network = Network(hidden=(128, 128), window=10)
    """Sizes."""
    training: ActorCriticTraining = ActorCriticTraining()
    """How to train."""

    def __check_init__(self):
        if self.critic not in ("joint", "trajectory", "convolved"):
            raise RiskpathError(f"critic must be joint, trajectory or convolved, got {self.critic!r}")
        require_counts(convolved_taus=self.convolved_taus)

    def init(self, spec: EnvSpec, *, key: Key) -> CriticState:
        """Fresh networks."""
        history_key, markov_key, whole_key, actor_key = jax.random.split(key, 4)
        hidden, senses = self.network.hidden, self.network.senses(spec, key=history_key)
        state, features = senses.size, senses.size + self.network.memory + (2 if self.time_input else 0)
        convolved, trajectory = self.critic == "convolved", self.critic == "trajectory"
        critics = HistoryCritics(
            History(self.network.history, senses, self.network.memory, key=history_key),
            None if trajectory else make_twins(state + spec.action_size, hidden, key=markov_key),
            None if convolved else make_twins(features + spec.action_size, hidden, key=whole_key),
            ActionCritic(features, hidden, key=whole_key) if convolved else None,
        )
        return new_actor_critic(Networks(critics, Actor(features, hidden, spec.action_size, key=actor_key)))

    def window(self, spec: EnvSpec) -> int:
        """The latest states, or all of the episode."""
        if not spec.action_size:
            raise RiskpathError("TQLContinuous acts with vectors; this environment has numbered actions: use TQL")
        return self.network.length(spec)

    def reset(self, state: CriticState, spec: EnvSpec) -> Past:
        """An empty history."""
        length, size = self.window(spec), spec.action_size
        return Past(
            jnp.zeros((length, *spec.observation_shape), spec.observation_dtype),
            jnp.zeros((length, size)),
            jnp.zeros((length,), bool),
            jnp.zeros((size,)),
            jnp.zeros((), jnp.int32),
            silence(size),
        )

    def note(self, memory: Past) -> Float[Array, ""]:
        """Nothing to note."""
        return jnp.zeros(())

    def _features(
        self, history: History, memory: Float[Array, " H"], obs: Shaped[Array, "*obs"], time: Int[Array, ""]
    ) -> Float[Array, " D"]:
        """What actor and history critics see: the state, what the history left behind, and t."""
        parts = [history.senses(obs), memory]
        if self.time_input:
            parts.append(jnp.stack([power(self.discount, time), 0.01 * time.astype(jnp.float32)]))
        return jnp.concatenate(parts)

    def _after(self, memory: Past, percept: Percept) -> Past:
        """The history with the new state at its end."""
        return Past(
            jnp.concatenate([memory.obs[1:], percept.obs[None]]),
            jnp.concatenate([memory.prev_action[1:], memory.last_action[None]]),
            jnp.concatenate([memory.valid[1:], jnp.ones((1,), bool)]),
            memory.last_action,
            memory.time + 1,
            memory.noise,
        )

    def _read(self, networks: Networks, past: Past, percept: Percept) -> Float[Array, " D"]:
        history = networks.critic.history
        read = history(past.obs, past.prev_action, past.valid)[-1]
        return self._features(history, read, percept.obs, past.time - 1)

    def act(
        self, state: CriticState, memory: Past, percept: Percept, *, key: Key, explore: Float[Array, ""]
    ) -> tuple[Float[Array, " C"], Past]:
        """π(h), with exploration."""
        past = self._after(memory, percept)
        own = state.params.actor(self._read(state.params, past, percept))
        action, noise = explored(self.training, own, past.noise, key=key, explore=explore)
        return action, self.took(eqx.tree_at(lambda p: p.noise, past, noise), action)

    def took(self, memory: Past, action: Float[Array, " C"]) -> Past:
        """The action is part of the history to come."""
        return eqx.tree_at(lambda past: past.last_action, memory, action)

    def _whole(
        self,
        critics: HistoryCritics,
        x: Float[Array, " D"],
        state: Float[Array, " S"],
        action: Float[Array, " C"],
        time: Int[Array, ""],
    ) -> Float[Array, " K"]:
        """Atoms, equally likely, of the whole return; for "convolved" divided by γᵗ and without the past's mean."""
        if critics.past is None:
            assert critics.whole is not None
            first, second = (z.quantiles(x, action, midpoints(self.training.act_taus)) for z in critics.whole)
            return 0.5 * (first + second)
        assert critics.markov is not None
        levels = midpoints(self.convolved_taus)
        past = jax.lax.stop_gradient(critics.past.quantiles(x, jnp.array(NO_ACTION), levels))
        past = jnp.where(time > 0, (past - jnp.mean(past)) / power(self.discount, time), 0.0)
        first, second = (z.quantiles(state, action, levels) for z in critics.markov)
        return (past[:, None] + 0.5 * (first + second)[None, :]).ravel()

    def quantiles(
        self, state: CriticState, memory: Past, percept: Percept, taus: Float[Array, " N"]
    ) -> Float[Array, "N 1"]:
        """The law of the whole return ("convolved": of γ^{−t} of it, around the past's mean) under π(h)."""
        x = self._read(state.params, self._after(memory, percept), percept)
        encoded = state.params.critic.history.senses(percept.obs)
        atoms = self._whole(state.params.critic, x, encoded, state.params.actor(x), memory.time)
        return jnp.quantile(atoms / self.training.reward_scale, taus, method="lower")[:, None]

    def estimate(self, state: CriticState, memory: Past, percept: Percept) -> Float[Array, " 1"]:
        """β of it."""
        x = self._read(state.params, self._after(memory, percept), percept)
        encoded = state.params.critic.history.senses(percept.obs)
        atoms = self._whole(state.params.critic, x, encoded, state.params.actor(x), memory.time)
        return (self.risk.value(atoms) / self.training.reward_scale)[None]

    def learn(self, state: CriticState, batch: Window, *, key: Key) -> tuple[CriticState, dict[str, Array]]:
        """Two updates of the critics and one of the actor."""
        t = self.training
        online_key, target_key, improve_key = jax.random.split(key, 3)
        taus, target_taus = stratified(t.online_taus, key=online_key), stratified(t.target_taus, key=target_key)

        def read(history: History, window: Window) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
            """Features of h_t and of h_{t+1}."""
            step, length = window.step, window.valid.shape[0]
            limit = history.senses.spec.max_episode_steps
            now, following = read_both(history, window, limit is None or length < limit)
            now = self._features(history, now, step.obs, step.time)
            return now, self._features(history, following, step.next_obs, step.time + 1)

        def fit(predicted: Float[Array, " N"], target: Float[Array, " M"]) -> Float[Array, ""]:
            return quantile_huber(predicted, taus, jax.lax.stop_gradient(target), t.kappa * t.reward_scale)

        def critic_loss(critic: HistoryCritics, state: CriticState, window: Window, key: Key) -> Float[Array, ""]:
            step = window.step
            now, following = read(critic.history, window)
            action = state.target.actor(jax.lax.stop_gradient(following))
            action = smoothed(t, action, jax.random.normal(key, step.action.shape))
            earned, loss = t.reward_scale * step.earned, jnp.zeros(())
            whole_target = jnp.full(target_taus.shape, earned)
            if critic.markov is not None:
                x, x_next = critic.history.senses(step.obs), state.target.critic.history.senses(step.next_obs)
                future = lower_law(t, state.target.critic.markov, x_next, action, target_taus)
                future = jnp.where(step.terminated, 0.0, future)
                target = t.reward_scale * step.reward + self.discount * future
                loss = loss + sum((fit(z.quantiles(x, step.action, taus), target) for z in critic.markov), 0.0)
                whole_target = earned + power(self.discount, step.time + 1) * future
            elif state.target.critic.whole is not None:
                _, target_following = read(state.target.critic.history, window)
                longer = lower_law(t, state.target.critic.whole, target_following, action, target_taus)
                whole_target = jnp.where(step.terminated, earned, longer)
            if critic.whole is not None:
                loss = loss + sum((fit(z.quantiles(now, step.action, taus), whole_target) for z in critic.whole), 0.0)
            if critic.past is not None:
                past = fit(critic.past.quantiles(following, jnp.array(NO_ACTION), taus), jnp.full((1,), earned))
                loss = loss + jnp.where(step.terminated, 0.0, past)  # nobody asks for the past of what is over
            return loss

        def actor_loss(actor: Actor, state: CriticState, window: Window) -> Float[Array, ""]:
            step, critics = window.step, state.params.critic
            x, _ = read(critics.history, window)
            raw = actor.raw(jax.lax.stop_gradient(x))
            atoms = self._whole(critics, x, critics.history.senses(step.obs), jnp.tanh(raw), step.time)
            return saturation_penalty(t, raw) - self.risk.value(atoms)

        return improve(t, state, critic_loss, actor_loss, batch, key=improve_key)

    def sync(self, state: CriticState) -> CriticState:
        """Targets follow at every update already."""
        return state
