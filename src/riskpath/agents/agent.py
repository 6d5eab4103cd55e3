"""What an agent is: hyperparameters with pure methods. It never steps an environment.

`init(spec) → state`, `reset(state) → memory` at the start of an episode, `act(state, memory, percept) → action,
memory`, `learn(state, batch) → state, metrics`, and `sync(state) → state` every `training.target_update_interval` updates. A
percept holds the reward of the step before, so a memory can keep account of it. Float hyperparameters may be traced:
lanes with different ones are trained by one compiled program.
"""

import abc
from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from riskpath.errors import RiskpathError
from riskpath.nn.heads import HeadKind
from riskpath.nn.history_encoder import HistoryKind
from riskpath.nn.losses import midpoints, stratified
from riskpath.nn.observation_encoder import Senses, notice
from riskpath.risk.measures import RiskMeasure
from riskpath.types import EnvSpec, Key, Percept, Window
from riskpath.validation import (
    fields,
    given,
    require_counts,
    require_no_less_than_zero,
    require_positive,
    require_share,
    require_widths,
)


class Network(eqx.Module):
    """Sizes and kinds of the networks."""

    hidden: tuple[int, ...] = eqx.field(static=True, default=(64,))
    """Widths of the hidden layers; the last is the width of the features."""
    head: HeadKind = eqx.field(static=True, default="late")
    """Where features and quantile levels meet: in the last layer (fast), or before a hidden one (as published); or no
    network at all, but a table with a row for each state or history of a small finite problem."""
    history: HistoryKind = eqx.field(static=True, default="gru")
    """What reads a history."""
    memory: int = eqx.field(static=True, default=16)
    """Width of what reads a history; hidden layers follow it."""
    window: int | None = eqx.field(static=True, default=None)
    """How many of the latest states a history keeps; None for all of the episode."""
    normalise: bool = eqx.field(static=True, default=False)
    """Centre and scale observations by what the replay has shown so far, whatever their bounds; saved with the rest."""
    channels: tuple[int, ...] | None = eqx.field(static=True, default=None)
    """Channels of 3×3 convolutions, each of which halves an image; None for what suits its size, () for none."""

    def __check_init__(self):
        for field, kinds in (("head", HeadKind), ("history", HistoryKind)):
            if getattr(self, field) not in get_args(kinds):
                raise RiskpathError(f"{field} must be {' or '.join(get_args(kinds))}, got {getattr(self, field)!r}")
        if not self.hidden:
            raise RiskpathError("a network needs at least one hidden layer, for example hidden=(64,)")
        require_widths(hidden=self.hidden, channels=self.channels or ())
        require_counts(memory=self.memory, **given(window=self.window))

    def senses(self, spec: EnvSpec, *, key: Key) -> Senses:
        """What turns observations into vectors."""
        return Senses(spec, self.normalise, self.channels, key=key)

    def length(self, spec: EnvSpec) -> int:
        """How many states a history holds: a window, or the episode's limit."""
        length = self.window or spec.max_episode_steps
        if length is None:
            raise RiskpathError("episodes of this environment have no known limit: give network=rp.Network(window=10)")
        return min(length, spec.max_episode_steps or length)


def check_counts(training: Any) -> None:
    """What all ways of training count."""
    levels = ("online_taus", "target_taus", "act_taus")
    require_counts(**fields(training, "batch_size", *levels, "train_freq", "target_update_interval"))
    require_counts(2, buffer_size=training.buffer_size)
    require_counts(0, learning_starts=training.learning_starts)


class Training(eqx.Module):
    """How a critic is trained."""

    learning_rate: float | Array = 1e-3
    """Step size of Adam at first."""
    learning_rate_end: float | Array = 1e-4
    """Step size in the end: a smaller one tells nearby quantiles apart."""
    learning_rate_steps: float | Array = 50_000.0
    """Updates over which it falls from the one to the other, linearly."""
    batch_size: int = eqx.field(static=True, default=32)
    """Samples per update."""
    online_taus: int = eqx.field(static=True, default=32)
    """N, quantile levels of the prediction."""
    target_taus: int = eqx.field(static=True, default=32)
    """M, quantile levels of the target."""
    act_taus: int = eqx.field(static=True, default=64)
    """Quantile levels at which an action is judged."""
    kappa: float | Array = 1.0
    """Threshold of the quantile Huber loss, in units of the raw return; small beside its spread."""
    reward_scale: float | Array = 0.01
    """Rewards are multiplied by this inside the critic; kappa follows."""
    buffer_size: int = eqx.field(static=True, default=50_000)
    """Steps the replay holds, for each lane."""
    learning_starts: int = eqx.field(static=True, default=1_000)
    """Steps of random actions before learning starts."""
    train_freq: int = eqx.field(static=True, default=1)
    """Environment steps for each update."""
    target_update_interval: int = eqx.field(static=True, default=100)
    """Updates after which the target network is renewed."""
    epsilon_start: float | Array = 0.25
    """Share of random actions when learning starts."""
    epsilon_end: float | Array = 0.01
    """Share of random actions later on."""
    epsilon_steps: float | Array = 10_000.0
    """Updates over which it falls from the one to the other, linearly."""

    def __check_init__(self):
        check_counts(self)
        require_no_less_than_zero(**fields(self, "learning_rate", "learning_rate_end"))
        require_positive(**fields(self, "learning_rate_steps", "kappa", "reward_scale", "epsilon_steps"))
        require_share(**fields(self, "epsilon_start", "epsilon_end"))

    @property
    def samples(self) -> int:
        """Samples for each call of `learn`."""
        return self.batch_size

    def explore(self, updates: Int[Array, ""]) -> Float[Array, ""]:
        """The share of random actions after so many updates."""
        return linear(updates, self.epsilon_start, self.epsilon_end, self.epsilon_steps)


PAPER_NETWORK = Network(hidden=(512,), head="deep", memory=64)
"""The published widths (the paper does not say how wide its GRU was)."""
PAPER_TRAINING = Training(
    learning_rate=1e-3,
    learning_rate_end=1e-3,
    batch_size=32,
    online_taus=64,
    target_taus=64,
    act_taus=128,
    buffer_size=300_000,
    learning_starts=5_000,
    target_update_interval=500,
    epsilon_start=0.25,
    epsilon_end=0.001,
)
"""The published hyperparameters of the grid (the paper does not say how epsilon falls)."""


class CriticState(eqx.Module):
    """Networks being learned, their delayed copy, and the optimiser's memory."""

    params: Any
    target: Any
    optimiser: PyTree
    updates: Int[Array, ""]


class Agent(eqx.Module):
    """A learning algorithm with its hyperparameters."""

    risk: eqx.AbstractVar[RiskMeasure]
    """What is maximised, of the whole return."""
    discount: eqx.AbstractVar[float | Array]
    """γ."""
    network: eqx.AbstractVar[Network]
    """Sizes."""
    training: eqx.AbstractVar[Any]
    """How to train: `Training`, or `ActorCriticTraining`."""

    def __check_init__(self):
        if not isinstance(self.risk, RiskMeasure):
            raise RiskpathError(f"risk must be a measure, for example rp.parse_risk('cvar:0.25'); got {self.risk!r}")
        require_positive(discount=self.discount)
        require_share(discount=self.discount)
        for name in ("network", "training"):
            usual = type(self).__dataclass_fields__[name].default
            if isinstance(usual, eqx.Module) and not isinstance(getattr(self, name), type(usual)):
                wanted, got = type(usual).__name__, type(getattr(self, name)).__name__
                raise RiskpathError(f"{name} of {type(self).__name__} must be a {wanted}, got a {got}")

    @abc.abstractmethod
    def init(self, spec: EnvSpec, *, key: Key) -> CriticState:
        """Everything that learning changes."""

    @abc.abstractmethod
    def reset(self, state: CriticState, spec: EnvSpec) -> Any:
        """The memory at the start of an episode."""

    @abc.abstractmethod
    def act(
        self, state: CriticState, memory: Any, percept: Percept, *, key: Key, explore: Float[Array, ""]
    ) -> tuple[Shaped[Array, "*act"], Any]:
        """An action and the memory after it; `explore` is 0 for the agent's best, 1 for nothing but exploration."""

    @abc.abstractmethod
    def took(self, memory: Any, action: Shaped[Array, "*act"]) -> Any:
        """The memory if another action than `act`'s was taken in the end."""

    @abc.abstractmethod
    def learn(self, state: CriticState, batch: Any, *, key: Key) -> tuple[CriticState, dict[str, Array]]:
        """One update from a batch of steps or windows."""

    @abc.abstractmethod
    def window(self, spec: EnvSpec) -> int:
        """How many tokens of history a sample needs; 0 for none."""

    @abc.abstractmethod
    def note(self, memory: Any) -> Float[Array, ""]:
        """One number of the memory that is stored with the step, as `Step.extra`."""

    @abc.abstractmethod
    def estimate(self, state: CriticState, memory: Any, percept: Percept) -> Float[Array, " A"]:
        """The agent's own estimate of what each action is worth, in the units of the return."""

    @abc.abstractmethod
    def quantiles(
        self, state: CriticState, memory: Any, percept: Percept, taus: Float[Array, " N"]
    ) -> Float[Array, "N A"]:
        """The law that `estimate` is a measure of, in the units of the return: its quantiles for each action."""

    @abc.abstractmethod
    def sync(self, state: CriticState) -> CriticState:
        """What happens every `training.target_update_interval` updates: the target network is renewed."""

    def worth(self, state: CriticState, memory: Any, percept: Percept) -> Float[Array, ""]:
        """The agent's own estimate of what the best available action is worth."""
        values = self.estimate(state, memory, percept)
        return jnp.max(jnp.where(percept.mask, values, -jnp.inf)) if percept.mask.size else values[0]


def linear(
    updates: Int[Array, ""] | Float[Array, ""], first: float | Array, last: float | Array, steps: float | Array
) -> Float[Array, ""]:
    """From the first value to the last in so many updates."""
    share = jnp.clip(updates.astype(jnp.float32) / steps, 0.0, 1.0)
    return jnp.asarray(first + share * (last - first))


def renewed(state: CriticState) -> CriticState:
    """The target network becomes what is learned."""
    return eqx.tree_at(lambda s: s.target, state, state.params)


def new_state(params: Any) -> CriticState:
    """A state with a fresh optimiser."""
    return CriticState(params, params, _ADAM.init(eqx.filter(params, eqx.is_array)), jnp.zeros((), jnp.int32))


def noticed(state: CriticState, batch: Any) -> CriticState:
    """With what a batch says of the observations there are; the target network is told, too."""
    step = batch.step if isinstance(batch, Window) else batch
    places = lambda s: (s.params, s.target)  # noqa: E731
    return eqx.tree_at(places, state, (notice(state.params, step.obs), notice(state.target, step.obs)))


_ADAM = optax.scale_by_adam(eps=1e-6)


def descend(state: CriticState, loss: Any, training: Training, batch: Any) -> tuple[CriticState, dict[str, Array]]:
    """One step of Adam on the mean over a batch of `loss(params, sample)`."""
    state = noticed(state, batch)
    lr = linear(state.updates, training.learning_rate, training.learning_rate_end, training.learning_rate_steps)

    def mean_loss(params: Any) -> Float[Array, ""]:
        return jnp.mean(jax.vmap(lambda sample: loss(params, sample))(batch))

    value, gradient = eqx.filter_value_and_grad(mean_loss)(state.params)
    with jax.numpy_dtype_promotion("standard"):  # Optax counts in whole numbers and raises floats to them
        change, optimiser = _ADAM.update(gradient, state.optimiser)
    params = eqx.apply_updates(state.params, jax.tree.map(lambda x: -lr * x, change))
    return CriticState(params, state.target, optimiser, state.updates + 1), {"loss": value}


def draw_levels(network: Network, training: Training, *, key: Key) -> tuple[Float[Array, " N"], Float[Array, " M"]]:
    """τ of the prediction and of the target: random for a network, the middles of its cells for a table."""
    online, target = training.online_taus, training.target_taus
    if network.head == "table":
        return midpoints(online), midpoints(target)
    online_key, target_key = jax.random.split(key)
    return stratified(online, key=online_key), stratified(target, key=target_key)


def require_numbered(spec: EnvSpec, name: str) -> None:
    """Refuses vector actions in one line."""
    if spec.action_size:
        raise RiskpathError(
            f"{name} chooses among numbered actions; this environment wants vectors: use IQTD3 or TQLContinuous"
        )


def masked_argmax(values: Float[Array, " A"], mask: Bool[Array, " A"]) -> Int[Array, ""]:
    """The best action among those available."""
    return jnp.argmax(jnp.where(mask, values, -jnp.inf)).astype(jnp.int32)


def epsilon_greedy(
    values: Float[Array, " A"], mask: Bool[Array, " A"], *, key: Key, explore: Float[Array, ""]
) -> Int[Array, ""]:
    """The best available action, or with probability `explore` any available one."""
    coin, pick = jax.random.split(key)
    scores = jax.random.uniform(pick, values.shape)
    return masked_argmax(jnp.where(jax.random.uniform(coin) < explore, scores, values), mask)
