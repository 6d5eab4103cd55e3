"""What the agents for vector actions share: actor, critics Z(x, a; τ), exploration, and how they are trained.

Actions have entries in [−1, 1]. As in TD3 there are two critics, a delayed actor, targets that follow slowly, and noise
on the target's action. Of the twins, the one whose law has the lower mean gives the *whole* target law: an element-wise
minimum of quantiles would be the law of nothing.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from riskpath.agents.agent import CriticState, Network, check_counts, linear, noticed
from riskpath.nn.heads import Late, Layers
from riskpath.types import Key
from riskpath.validation import fields, require_counts, require_no_less_than_zero, require_positive, require_share


class ActorCriticTraining(eqx.Module):
    """How actor and critics are trained. The defaults are for a few hundred thousand steps on four environments."""

    critic_learning_rate: float | Array = 1e-3
    """Step size of the critics."""
    actor_learning_rate: float | Array = 3e-4
    """Step size of the actor."""
    learning_rate_end: float | Array = 0.03
    """What share of them is left in the end."""
    learning_rate_steps: float | Array = 50_000.0
    """Critic updates in all: step sizes stay for the first half of them and fall linearly in the second."""
    batch_size: int = eqx.field(static=True, default=256)
    """Samples per critic update."""
    delay: int = eqx.field(static=True, default=2)
    """Critic updates for each update of the actor."""
    online_taus: int = eqx.field(static=True, default=32)
    """N, quantile levels of the prediction."""
    target_taus: int = eqx.field(static=True, default=32)
    """M, quantile levels of the target."""
    act_taus: int = eqx.field(static=True, default=32)
    """Quantile levels at which an action is judged."""
    kappa: float | Array = 0.2
    """Threshold of the quantile Huber loss, in units of the raw return."""
    reward_scale: float | Array = 0.05
    """Rewards are multiplied by this inside the critic; kappa follows."""
    buffer_size: int = eqx.field(static=True, default=200_000)
    """Steps the replay holds, for each lane."""
    learning_starts: int = eqx.field(static=True, default=8_000)
    """Steps of nothing but exploration before learning starts."""
    train_freq: int = eqx.field(static=True, default=8)
    """Environment steps for each update of the actor (and `delay` updates of the critics)."""
    target_update_interval: int = eqx.field(static=True, default=100)
    """Updates between two looks of the host at what is going on."""
    target_update_rate: float | Array = 0.02
    """How much of the difference the target networks make up with each update; at 0.005 some lanes collapse."""
    smoothing: float | Array = 0.05
    """Standard deviation of the noise on the target's action."""
    twins: Literal["law", "quantiles"] = eqx.field(static=True, default="law")
    """Of two target laws: the whole one with the lower mean, or the lower of each pair of quantiles."""
    saturation: float | Array = 2.5
    """Beyond this the actor's output before tanh is penalised: gradients would vanish there."""
    quiet: float | Array = 0.25
    """Share of training episodes without exploration."""
    wandering: float | Array = 0.5
    """Share of episodes with Ornstein-Uhlenbeck noise; in the rest a random action is held, half of the time."""
    ou_pull: float | Array = 0.05
    """θ: x ← x − θx + σ·noise."""
    ou_sigma: float | Array = 0.3
    """σ of the same."""
    hold: float | Array = 15.0
    """For how many steps a random action is held, on average."""

    def __check_init__(self):
        check_counts(self)
        require_counts(delay=self.delay)
        require_no_less_than_zero(**fields(self, "critic_learning_rate", "actor_learning_rate"))
        require_positive(**fields(self, "learning_rate_steps", "kappa", "reward_scale", "hold"))
        require_share(**fields(self, "learning_rate_end", "target_update_rate", "quiet", "wandering", "ou_pull"))

    @property
    def samples(self) -> int:
        """Samples for each call of `learn`."""
        return self.batch_size * self.delay

    def explore(self, updates: Int[Array, ""]) -> Float[Array, ""]:
        """Something between nothing and everything: which episodes explore is drawn when they begin."""
        return jnp.full((), 0.5)


PAPER_CONTINUOUS_NETWORK = Network(hidden=(256, 256), memory=64, window=10)
"""The published widths for mountain-car (the paper does not say how wide its GRU was)."""
PAPER_CONTINUOUS_TRAINING = ActorCriticTraining(
    critic_learning_rate=3e-4,
    actor_learning_rate=3e-4,
    learning_rate_end=1.0,
    batch_size=128,
    online_taus=64,
    target_taus=64,
    act_taus=32,
    buffer_size=50_000,
    learning_starts=25_000,
    target_update_rate=0.005,
    smoothing=0.2,
)
"""The published hyperparameters of mountain-car; those it does not name (the critics' step size, TD3's smoothing) are
TD3's own, and exploration is ours."""


class Noise(eqx.Module):
    """The exploration of one episode."""

    role: Float[Array, ""]
    """Uniform in [0, 1]: quiet, wandering or holding."""
    wander: Float[Array, " C"]
    held: Float[Array, " C"]
    holding: Bool[Array, ""]
    started: Bool[Array, ""]


def silence(size: int) -> Noise:
    """Before the first step."""
    no, zero = jnp.zeros((), bool), jnp.zeros((size,))
    return Noise(jnp.zeros(()), zero, zero, no, no)


def explored(
    t: ActorCriticTraining, own: Float[Array, " C"], noise: Noise, *, key: Key, explore: Float[Array, ""]
) -> tuple[Float[Array, " C"], Noise]:
    """The agent's own action with this episode's exploration; without its own part if `explore` is 1."""
    role_key, walk_key, turn_key, held_key, coin_key = jax.random.split(key, 5)
    role = jnp.where(noise.started, noise.role, jax.random.uniform(role_key))
    wander = (1.0 - t.ou_pull) * noise.wander + t.ou_sigma * jax.random.normal(walk_key, own.shape)
    turn = ~noise.started | (jax.random.uniform(turn_key) < 1.0 / t.hold)
    held = jnp.where(turn, jax.random.uniform(held_key, own.shape, minval=-1.0, maxval=1.0), noise.held)
    holding = jnp.where(turn, jax.random.uniform(coin_key) < 0.5, noise.holding)
    only = explore >= 1.0
    base = jnp.where(only, 0.0, own)
    walked = jnp.clip(base + wander, -1.0, 1.0)
    held_action = jnp.where(holding | only, held, base)
    quiet = jnp.where(only, held, base)
    action = jnp.where(role < t.quiet, quiet, jnp.where(role < t.quiet + t.wandering, walked, held_action))
    action = jnp.where(explore > 0.0, action, own)
    return action, Noise(role, wander, held, holding, jnp.ones((), bool))


class Actor(eqx.Module):
    """π(x) = tanh(u(x))."""

    layers: Layers
    out: eqx.nn.Linear

    def __init__(self, inputs: int, hidden: tuple[int, ...], actions: int, *, key: Key):
        layers_key, out_key = jax.random.split(key)
        self.layers = Layers(inputs, hidden, key=layers_key)
        self.out = eqx.nn.Linear(hidden[-1], actions, key=out_key)

    def raw(self, x: Float[Array, " D"]) -> Float[Array, " C"]:
        """u(x)."""
        return self.out(self.layers(x))

    def __call__(self, x: Float[Array, " D"]) -> Float[Array, " C"]:
        """The action."""
        return jnp.tanh(self.raw(x))


class ActionCritic(eqx.Module):
    """Z(x, a; τ), for features x of a state or of a history."""

    layers: Layers
    head: Late

    def __init__(self, inputs: int, hidden: tuple[int, ...], *, key: Key):
        layers_key, head_key = jax.random.split(key)
        self.layers = Layers(inputs, hidden, key=layers_key)
        self.head = Late(hidden[-1], 1, key=head_key)

    def quantiles(
        self, x: Float[Array, " D"], action: Float[Array, " C"], taus: Float[Array, " N"]
    ) -> Float[Array, " N"]:
        """Z(x, a; τ)."""
        return self.head(self.layers(jnp.concatenate([x, action])), self.head.embed(taus))[:, 0]

    def mean(self, x: Float[Array, " D"], action: Float[Array, " C"], taus: Float[Array, " N"]) -> Float[Array, ""]:
        """The mean over levels: β, if they are distorted."""
        return self.head.mean(self.layers(jnp.concatenate([x, action])), self.head.embed(taus))[0]


Twins = tuple[ActionCritic, ActionCritic]


def make_twins(inputs: int, hidden: tuple[int, ...], *, key: Key) -> Twins:
    """Two critics."""
    first, second = jax.random.split(key)
    return ActionCritic(inputs, hidden, key=first), ActionCritic(inputs, hidden, key=second)


def lower_law(
    t: ActorCriticTraining, twins: Twins, x: Float[Array, " D"], action: Float[Array, " C"], taus: Float[Array, " M"]
) -> Float[Array, " M"]:
    """The pessimistic one of two laws."""
    first, second = (critic.quantiles(x, action, taus) for critic in twins)
    if t.twins == "quantiles":
        return jnp.minimum(first, second)
    return jnp.where(jnp.mean(first) <= jnp.mean(second), first, second)


def smoothed(t: ActorCriticTraining, action: Float[Array, " C"], noise: Float[Array, " C"]) -> Float[Array, " C"]:
    """The target's action with noise, clipped as in TD3."""
    return jnp.clip(action + jnp.clip(t.smoothing * noise, -2.5 * t.smoothing, 2.5 * t.smoothing), -1.0, 1.0)


def saturation_penalty(t: ActorCriticTraining, raw: Float[Array, " C"]) -> Float[Array, ""]:
    """Grows where tanh has no slope left."""
    return jnp.sum(jnp.maximum(jnp.abs(raw) - t.saturation, 0.0) ** 2)


_ADAM = optax.scale_by_adam(eps=1e-8)


class Optimisers(eqx.Module):
    """Adam's memories."""

    critic: Any
    actor: Any


def new_actor_critic(params: Any) -> CriticState:
    """A state with fresh optimisers; `params` has the parts `critic` and `actor`."""
    memories = Optimisers(
        _ADAM.init(eqx.filter(params.critic, eqx.is_array)), _ADAM.init(eqx.filter(params.actor, eqx.is_array))
    )
    return CriticState(params, params, memories, jnp.zeros((), jnp.int32))


def _adam(part: Any, gradient: Any, memory: Any, lr: Float[Array, ""]) -> tuple[Any, Any]:
    gradient = jax.lax.optimization_barrier(gradient)  # rounded the same way in every program
    with jax.numpy_dtype_promotion("standard"):  # Optax counts in whole numbers and raises floats to them
        change, memory = _ADAM.update(gradient, memory)
    return eqx.apply_updates(part, jax.tree.map(lambda x: -lr * x, change)), memory


def improve(
    t: ActorCriticTraining, state: CriticState, critic_loss: Any, actor_loss: Any, batch: Any, *, key: Key
) -> tuple[CriticState, dict[str, Array]]:
    """`delay` updates of `state.params.critic`, each on a batch of its own, then one of `state.params.actor`.

    The losses are of one sample: critic_loss(critic, state, sample, key), actor_loss(actor, state, sample). Targets
    follow after each.
    """
    state = noticed(state, batch)
    parts = jax.tree.map(lambda x: x.reshape(t.delay, t.batch_size, *x.shape[1:]), batch)
    part, keys = batch, jax.random.split(key, t.delay)
    losses = []
    for i in range(t.delay):
        part = jax.tree.map(lambda x, i=i: x[i], parts)
        state, loss = _critic_step(t, state, critic_loss, part, key=keys[i])
        losses.append(loss)
    mean_loss = lambda actor: jnp.mean(jax.vmap(lambda s: actor_loss(actor, state, s))(part))  # noqa: E731
    gradient = eqx.filter_grad(mean_loss)(state.params.actor)
    actor, memory = _adam(
        state.params.actor, gradient, state.optimiser.actor, t.actor_learning_rate * _fade(t, state.updates)
    )
    target = follow(state.target.actor, actor, 1.0 - (1.0 - t.target_update_rate) ** t.delay)
    places = lambda s: (s.params.actor, s.target.actor, s.optimiser.actor)  # noqa: E731
    return eqx.tree_at(places, state, (actor, target, memory)), {"loss": jnp.mean(jnp.stack(losses))}


def _critic_step(
    t: ActorCriticTraining, state: CriticState, critic_loss: Any, batch: Any, *, key: Key
) -> tuple[CriticState, Float[Array, ""]]:
    keys = jax.random.split(key, jax.tree.leaves(batch)[0].shape[0])
    mean_loss = lambda critic: jnp.mean(  # noqa: E731
        jax.vmap(lambda sample, key: critic_loss(critic, state, sample, key))(batch, keys)
    )
    loss, gradient = eqx.filter_value_and_grad(mean_loss)(state.params.critic)
    critic, memory = _adam(
        state.params.critic, gradient, state.optimiser.critic, t.critic_learning_rate * _fade(t, state.updates)
    )
    target = follow(state.target.critic, critic, t.target_update_rate)
    places = lambda s: (s.params.critic, s.target.critic, s.optimiser.critic, s.updates)  # noqa: E731
    return eqx.tree_at(places, state, (critic, target, memory, state.updates + 1)), loss


def _fade(t: ActorCriticTraining, updates: Int[Array, ""]) -> Float[Array, ""]:
    """1 for the first half of training, then linearly down to `learning_rate_end`."""
    half = 0.5 * t.learning_rate_steps
    return linear(jnp.maximum(updates.astype(jnp.float32) - half, 0.0), 1.0, t.learning_rate_end, half)


def follow(target: Any, source: Any, rate: float | Array) -> Any:
    """target ← target + rate (source − target)."""
    arrays, fixed = eqx.partition(target, eqx.is_array)
    return eqx.combine(jax.tree.map(lambda a, b: a + rate * (b - a), arrays, eqx.filter(source, eqx.is_array)), fixed)
