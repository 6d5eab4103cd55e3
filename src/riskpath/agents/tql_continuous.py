"""Trajectory Q-Learning for continuous actions: the actor sees the history and maximises β of the *whole* return.

Twin Markov critics Z_ψ(s, a) as in IQTD3. `critic` selects how the distribution of the whole return is learned:

- "joint", the paper's:      Z_θ(h_t, a_t) ← R_{0:t} + γ^{t+1} Z_ψ′(s_{t+1}, a′),   π maximises β[Z_θ(h, π(h))]
- "trajectory":              Z_θ(h_t, a_t) ← Z_θ′(h_{t+1}, a′), and R_{0:T} at the end; no Z_ψ
- "convolved", the default:  H(h_{t+1}) ← R_{0:t} (supervised), π maximises β[γ^{−t} H(h) + Z_ψ(s, π(h))]

In the last one the noise of R_{0:t} does not hide the effect of an action, and β is taken of all pairwise sums of a few
quantiles of both distributions. The factor γ^{−t} gives late steps their weight. A shift does not change which action
is best, so the mean of H is left out. a′ is the target actor's action after h_{t+1}. Only the critics' loss trains the
encoder.
"""

from typing import ClassVar, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from riskpath.agents.actor_critic import (
    actor_critic_step,
    draw_twin_levels,
    lower_law,
    new_actor_critic,
    saturation_penalty,
    smooth_action,
)
from riskpath.agents.agent import ActorOutput, AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.config import ActorCritic
from riskpath.agents.exploration import Noise, explore, no_noise
from riskpath.agents.learning import scales
from riskpath.agents.replay_agent import HistoryAgent, HistoryMemory
from riskpath.agents.tql import Form
from riskpath.errors import RiskpathError
from riskpath.nn.critics import ActionCritic, Actor, Twins, make_twins
from riskpath.nn.history_encoder import HistoryEncoder, encode_both
from riskpath.nn.losses import midpoints, quantile_huber, sample_quantiles
from riskpath.nn.network import Network
from riskpath.types import EnvSpec, Key, TimeStep, Window, power
from riskpath.validation import require_counts

NO_ACTION = ()
"""The distribution of the past does not depend on the action to come."""


class HistoryCritics(eqx.Module):
    """The parameters that the critics' loss trains, including the history encoder."""

    history: HistoryEncoder
    markov: Twins | None
    """Z_ψ."""
    whole: Twins | None
    """Z_θ."""
    past: ActionCritic | None
    """H(h; τ), the distribution of the return before h's last state; it takes no action."""


class Networks(eqx.Module):
    """Everything that is trained."""

    critic: HistoryCritics
    actor: Actor


class Memory(eqx.Module):
    """The history and the exploration of an episode."""

    history: HistoryMemory
    noise: Noise


class TQLContinuous(ActorCritic, HistoryAgent):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Trajectory Q-Learning for continuous actions; β is of the whole return."""

    network: Network = Network(hidden=(128, 128), window=10)
    """Sizes and kinds of the networks."""
    critic: Form = eqx.field(static=True, default="convolved")
    """How the distribution of the whole return is learned; "joint" is the paper's."""
    convolved_taus: int = eqx.field(static=True, default=16)
    """"convolved": number of quantiles of past and future, which are added in all pairs."""
    time_input: bool = eqx.field(static=True, default=True)
    """Whether the networks see t; a window alone determines neither t nor R_{0:t}."""

    actions: ClassVar = "continuous"
    for_deterministic_transitions: ClassVar = True

    def __check_init__(self):
        if self.critic not in get_args(Form):
            raise RiskpathError(f"critic must be joint, trajectory or convolved, got {self.critic!r}")
        require_counts(convolved_taus=self.convolved_taus)

    def init(self, spec: EnvSpec, *, key: Key) -> AgentState:
        """Return fresh networks; the memory is the history and the exploration noise."""
        history_key, markov_key, whole_key, actor_key, encoder_key = jax.random.split(key, 5)
        hidden, encoder = self.network.hidden, self.network.encoder(spec, key=encoder_key)
        state, features = encoder.size, encoder.size + self.network.history_size + (2 if self.time_input else 0)
        convolved, trajectory = self.critic == "convolved", self.critic == "trajectory"
        critics = HistoryCritics(
            self.network.history_encoder(encoder, key=history_key),
            None if trajectory else make_twins(state + spec.action_size, hidden, key=markov_key),
            None if convolved else make_twins(features + spec.action_size, hidden, key=whole_key),
            ActionCritic(features, hidden, key=whole_key) if convolved else None,
        )
        actor = Actor(features, hidden, spec.action_size, key=actor_key)
        memory = Memory(self.empty_history(spec), no_noise(spec.action_size))
        return new_actor_critic(self, Networks(critics, actor), memory)

    def act(self, state: AgentState, memory: Memory, time_step: TimeStep, *, key: Key, mode: Mode) -> ActorOutput:
        """Return π(h) with exploration."""
        history = memory.history.extend(time_step)
        own = state.params.actor(self._encode(state.params.critic.history, history, time_step))
        action, noise = explore(self.exploration, own, memory.noise, time_step, key=key, mode=mode)
        return ActorOutput(action, Memory(history, noise))

    def update(self, state: AgentState, batch: Window, clock: Clock, *, key: Key) -> Updated:
        """Update the critics, then the actor."""
        t, (scale, kappa) = self.training, scales(self.training, state)
        online_key, target_key, step_key = jax.random.split(key, 3)
        taus, target_taus = draw_twin_levels(t, online_key, target_key)

        def features(history: HistoryEncoder, window: Window) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
            """Return the features of h_t and of h_{t+1}."""
            step, limit = window.transition, history.encoder.spec.max_episode_steps
            now, following = encode_both(history, window, limit is None or window.valid.shape[0] < limit)
            now = self._features(history, now, step.observation, step.time)
            return now, self._features(history, following, step.next_observation, step.time + 1)

        def fit(predicted: Float[Array, " N"], target: Float[Array, " M"]) -> Float[Array, ""]:
            return quantile_huber(predicted, taus, jax.lax.stop_gradient(target), kappa)

        def critic_loss(critic: HistoryCritics, state: AgentState, window: Window, key: Key) -> Float[Array, ""]:
            step, targets = window.transition, state.target_params
            now, following = features(critic.history, window)
            action = smooth_action(self.actor, targets.actor(jax.lax.stop_gradient(following)), key=key)
            past, loss = scale * step.return_so_far, jnp.zeros(())  # R_{0:t}
            whole = jnp.full(target_taus.shape, past)
            if critic.markov is not None:
                x, x_next = (
                    critic.history.encoder(step.observation),
                    targets.critic.history.encoder(step.next_observation),
                )
                future = lower_law(self.actor, targets.critic.markov, x_next, action, target_taus)
                future = jnp.where(step.terminated, 0.0, future)
                target = scale * step.reward + self.discount * future
                loss = loss + sum((fit(z.quantiles(x, step.action, taus), target) for z in critic.markov), 0.0)
                whole = past + power(self.discount, step.time + 1) * future
            elif targets.critic.whole is not None:
                _, longer = features(targets.critic.history, window)
                bootstrap = lower_law(self.actor, targets.critic.whole, longer, action, target_taus)
                whole = jnp.where(step.terminated, past, bootstrap)
            if critic.whole is not None:
                loss = loss + sum((fit(z.quantiles(now, step.action, taus), whole) for z in critic.whole), 0.0)
            if critic.past is not None:  # not needed after the end of an episode
                law = fit(critic.past.quantiles(following, jnp.array(NO_ACTION), taus), jnp.full((1,), past))
                loss = loss + jnp.where(step.terminated, 0.0, law)
            return loss

        def actor_loss(actor: Actor, state: AgentState, window: Window) -> Float[Array, ""]:
            step, critics = window.transition, state.params.critic
            x, _ = features(critics.history, window)
            raw = actor.raw(jax.lax.stop_gradient(x))
            encoded = critics.history.encoder(step.observation)
            atoms = self._atoms(critics, x, encoded, jnp.tanh(raw), step.time)
            return saturation_penalty(self.actor, raw) - self.risk.value(atoms)

        return actor_critic_step(self, state, critic_loss, actor_loss, batch, clock, key=step_key)

    def quantiles(
        self, state: AgentState, memory: Memory, time_step: TimeStep, taus: Float[Array, " N"]
    ) -> Float[Array, "N 1"]:
        """Return the quantiles of the whole return under π(h); "convolved": of γ^{−t} (return − mean of the past)."""
        critics = state.params.critic
        x = self._encode(critics.history, memory.history.extend(time_step), time_step)
        encoded = critics.history.encoder(time_step.observation)
        atoms = self._atoms(critics, x, encoded, state.params.actor(x), time_step.time)
        return sample_quantiles(atoms / scales(self.training, state)[0], taus)[:, None]

    def _encode(self, encoder: HistoryEncoder, history: HistoryMemory, time_step: TimeStep) -> Float[Array, " D"]:
        """Return the features of a history while acting."""
        last = encoder(history.observation, history.prev_action, history.valid)[-1]
        return self._features(encoder, last, time_step.observation, time_step.time)

    def _features(
        self,
        encoder: HistoryEncoder,
        history: Float[Array, " H"],
        observation: Shaped[Array, "*obs"],
        time: Int[Array, ""],
    ) -> Float[Array, " D"]:
        """Return the inputs of actor and history critics: the state, the encoded history, and t."""
        parts = [encoder.encoder(observation), history]
        if self.time_input:
            parts.append(jnp.stack([power(self.discount, time), 0.01 * time.astype(jnp.float32)]))
        return jnp.concatenate(parts)

    def _atoms(
        self,
        critics: HistoryCritics,
        x: Float[Array, " D"],
        state: Float[Array, " S"],
        action: Float[Array, " C"],
        time: Int[Array, ""],
    ) -> Float[Array, " K"]:
        """Return equally likely atoms of the whole return; "convolved": divided by γᵗ, without the past's mean."""
        if critics.past is None:
            assert critics.whole is not None
            first, second = (
                z.quantiles(x, action, midpoints(self.training.num_action_quantiles)) for z in critics.whole
            )
            return 0.5 * (first + second)
        assert critics.markov is not None
        levels = midpoints(self.convolved_taus)
        past = jax.lax.stop_gradient(critics.past.quantiles(x, jnp.array(NO_ACTION), levels))
        past = jnp.where(time > 0, (past - jnp.mean(past)) / power(self.discount, time), 0.0)
        first, second = (z.quantiles(state, action, levels) for z in critics.markov)
        return (past[:, None] + 0.5 * (first + second)[None, :]).ravel()
