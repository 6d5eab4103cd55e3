"""Building blocks for agents: gradient steps with Adam, target updates, quantile levels, epsilon-greedy actions."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from riskpath.agents.agent import Agent, AgentState
from riskpath.agents.config import BaseTraining
from riskpath.nn.kernels import over_batch
from riskpath.nn.losses import in_parts, midpoints
from riskpath.nn.observation_encoder import update_statistics
from riskpath.types import Key, Window

KAPPA = 0.01
"""Default threshold of the quantile Huber loss, as a share of the standard deviation of returns."""
SMALLEST_KAPPA = 1e-4
"""It is at least this in the critics' units, because errors are divided by it."""
_ADAM = optax.scale_by_adam(eps=1e-6)


def new_state(params: Any, memory: Any = ()) -> AgentState:
    """Return a state with a fresh optimiser; `memory` starts every episode."""
    opt_state = _start_adam(eqx.filter(params, eqx.is_array))
    return AgentState(params, params, opt_state, jnp.zeros((), jnp.int32), memory)


_start_adam = jax.jit(_ADAM.init)
"""One program for the zeros of all shapes."""


def gradient_step(
    state: AgentState, loss: Any, training: BaseTraining, batch: Any
) -> tuple[AgentState, dict[str, Array]]:
    """Take one step of Adam on the mean over a batch of `loss(params, sample)`."""
    state = observe_batch(state, batch)

    def mean_loss(params: Any) -> Float[Array, ""]:
        return mean_over(lambda sample: loss(params, sample), batch)

    value, gradient = eqx.filter_value_and_grad(mean_loss)(state.params)
    rate = training.learning_rate * training.decay(state.gradient_steps)
    params, opt_state = adam(_ADAM, state.params, gradient, state.opt_state, rate)
    places = lambda s: (s.params, s.opt_state, s.gradient_steps)  # noqa: E731
    return eqx.tree_at(places, state, (params, opt_state, state.gradient_steps + 1)), {"loss": value}


def mean_over(loss: Any, *batch: Any) -> Float[Array, ""]:
    """Return the mean of a loss of one sample over a batch."""
    with over_batch():
        return jnp.mean(jax.vmap(loss)(*batch))


def adam(
    optimiser: optax.GradientTransformation, params: Any, gradient: Any, opt_state: Any, rate: Float[Array, ""]
) -> tuple[Any, Any]:
    """Return parameters and optimiser state after one step of Adam."""
    with jax.numpy_dtype_promotion("standard"):  # Optax raises floats to whole numbers
        change, opt_state = optimiser.update(gradient, opt_state)
    return eqx.apply_updates(params, jax.tree.map(lambda x: -rate * x, change)), opt_state


def observe_batch(state: AgentState, batch: Any) -> AgentState:
    """Update the running statistics of observations, in the target networks as well."""
    sample = batch[0] if isinstance(batch, tuple) else batch
    transition = sample.transition if isinstance(sample, Window) else sample
    places = lambda s: (s.params, s.target_params)  # noqa: E731
    updated = tuple(update_statistics(networks, transition.observation) for networks in places(state))
    return eqx.tree_at(places, state, updated)


def scales(training: BaseTraining, state: AgentState) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the factor on rewards inside the critics, and kappa in the critics' units.

    Unless they are given, the factor is 1 / `Episodes.spread`, and kappa is 1% of the standard deviation of returns.
    """
    one, episodes = jnp.ones(()), state.episodes
    spread, deviation = (one, one) if episodes is None else (episodes.spread, episodes.deviation)
    kappa = jnp.maximum(KAPPA * deviation, SMALLEST_KAPPA * spread) if training.kappa is None else training.kappa
    scale = 1.0 / spread if training.reward_scale is None else jnp.asarray(training.reward_scale)
    return scale, jnp.asarray(kappa * scale)


def update_target(agent: Agent, state: AgentState) -> AgentState:
    """Move the target networks towards the parameters, target ← target + rate (params − target), then `refresh`."""
    rate = jnp.asarray(agent.training.target_update_rate)
    move = lambda target, new: jnp.where(rate >= 1.0, new, target + rate * (new - target))  # noqa: E731
    arrays, fixed = eqx.partition(state.target_params, eqx.is_inexact_array)
    moved = jax.tree.map(move, arrays, eqx.filter(state.params, eqx.is_inexact_array))
    return agent.refresh(eqx.tree_at(lambda s: s.target_params, state, eqx.combine(moved, fixed)))


def draw_levels(agent: Agent, *, key: Key) -> tuple[Float[Array, " N"], Float[Array, " M"]]:
    """Draw the quantile levels of prediction and target; a table uses the midpoints of its cells."""
    online, target = agent.training.online_taus, agent.training.target_taus
    if agent.network.head == "table":
        return midpoints(online), midpoints(target)
    draws = jax.random.uniform(key, (online + target,))  # at once: every call for random numbers has its own cost
    return in_parts(draws[:online]), in_parts(draws[online:])


def masked_argmax(values: Float[Array, " A"], mask: Bool[Array, "*M"]) -> Int[Array, "*H"]:
    """Return the best action among the available ones; a mask with a row for each head gives a number for each."""
    return jnp.argmax(jnp.where(mask, values.reshape(mask.shape), -jnp.inf), axis=-1).astype(jnp.int32)


def epsilon_greedy(
    values: Float[Array, " A"], mask: Bool[Array, "*M"], *, key: Key, epsilon: Float[Array, ""]
) -> Int[Array, "*H"]:
    """Return the best available action, or with probability `epsilon` a random available one."""
    draws = jax.random.uniform(key, (1 + len(values),))
    return masked_argmax(jnp.where(draws[0] < epsilon, draws[1:], values), mask)
