"""Building blocks for agents: gradient steps with Adam, target updates, quantile levels, epsilon-greedy actions."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from riskpath.agents.abilities import Refreshes
from riskpath.agents.agent import AgentState, Mode
from riskpath.agents.config import ReplayTraining
from riskpath.agents.episodes import Units
from riskpath.agents.replay_agent import ReplayAgent
from riskpath.nn.kernels import over_batch
from riskpath.nn.losses import in_parts, midpoints
from riskpath.nn.observation_encoder import update_statistics
from riskpath.nn.rescaling import rescale_critics
from riskpath.types import Key, Segment, TimeStep, Transition, Window, power

KAPPA = 0.01
"""Default threshold of the quantile Huber loss, as a share of the standard deviation of returns."""
STEP = 2.0
"""The unit of critics is left alone as long as it is right within this factor."""
MARGIN = 0.2
"""A predicted whole return may leave the range of the returns seen by this many units."""
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
    state: AgentState, loss: Any, training: ReplayTraining, batch: Any
) -> tuple[AgentState, dict[str, Array]]:
    """Take one step of Adam on the mean over a batch of `loss(params, sample)`."""
    state = observe_batch(state, batch)
    return descend(state, lambda params: mean_over(lambda sample: loss(params, sample), batch), training)


def descend(state: AgentState, mean_loss: Any, training: ReplayTraining) -> tuple[AgentState, dict[str, Array]]:
    """Take one step of Adam on `mean_loss(params)`."""
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
    transition = step_of(batch[0] if isinstance(batch, tuple) else batch)
    places = lambda s: (s.params, s.target_params)  # noqa: E731
    observed = transition.observation
    updated = tuple(update_statistics(networks, observed) for networks in places(state))
    return eqx.tree_at(places, state, updated)


def scales(training: ReplayTraining, state: AgentState) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the factor on rewards inside the critics, and kappa in the critics' units.

    Unless they are given, the factor is 1 / `Episodes.spread`, and kappa is 1% of the standard deviation of returns.
    """
    one, episodes = jnp.ones(()), state.episodes
    spread, deviation = (one, one) if episodes is None else (episodes.spread, episodes.deviation)
    kappa = (
        jnp.maximum(KAPPA * jnp.minimum(deviation, spread), SMALLEST_KAPPA * spread)
        if training.kappa is None
        else training.kappa
    )
    scale = 1.0 / spread if training.reward_scale is None else jnp.asarray(training.reward_scale)
    return scale, jnp.asarray(kappa * scale)


def update_target(agent: ReplayAgent, state: AgentState) -> AgentState:
    """Move the target networks towards the parameters, target ← target + rate (params − target), then `refresh`."""
    state, rate = follow_unit(agent, state), jnp.asarray(agent.target_update[1])
    move = lambda target, new: jnp.where(rate >= 1.0, new, target + rate * (new - target))  # noqa: E731
    arrays, fixed = eqx.partition(state.target_params, eqx.is_inexact_array)
    moved = jax.tree.map(move, arrays, eqx.filter(state.params, eqx.is_inexact_array))
    state = eqx.tree_at(lambda s: s.target_params, state, eqx.combine(moved, fixed))
    return agent.refresh(state) if isinstance(agent, Refreshes) else state


def follow_unit(agent: ReplayAgent, state: AgentState) -> AgentState:
    """Return the state in the unit that follows from the episodes so far; predicted returns stay the same.

    The last layer of the critics is multiplied (van Hasselt et al. 2016). If critics had to learn in the new unit, they
    would lose the values of actions that are hardly explored any more. The unit is left alone where it is right within
    a factor, and once learning rates have fallen.
    """
    t, episodes = agent.training, state.episodes
    if episodes is None or t.reward_scale is not None:
        return state
    old, wanted = episodes.spread, episodes.wanted_unit
    stays = (wanted <= 0) | t.settled(state.gradient_steps) | ((wanted < STEP * old) & (old < STEP * wanted))
    new = jnp.where(stays, old, wanted)
    places = lambda s: (s.params, s.target_params, s.episodes.spread)  # noqa: E731
    rescaled = (rescale_critics(networks, old / new) for networks in places(state)[:2])
    return eqx.tree_at(places, state, (*rescaled, new))


def draw_levels(agent: ReplayAgent, *, key: Key) -> tuple[Float[Array, " N"], Float[Array, " M"]]:
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


def epsilon_of(agent: ReplayAgent, state: AgentState, mode: Mode) -> Float[Array, ""]:
    """Return the probability of a random action: 0 if greedy, 1 in the warm-up, in between as `training` says."""
    planned = agent.training.epsilon_at(state.gradient_steps)
    return jnp.where(mode.warms_up, 1.0, jnp.where(mode.explores, planned, 0.0))


def explore_greedily(
    agent: ReplayAgent, state: AgentState, values: Float[Array, " A"], time_step: TimeStep, *, key: Key, mode: Mode
) -> Int[Array, "*H"]:
    """Return the best available action, or a random one with the probability that the mode asks for."""
    return epsilon_greedy(values, time_step.action_mask, key=key, epsilon=epsilon_of(agent, state, mode))


def step_of(sample: Any) -> Transition:
    """Return the transition that a sample is about: of a batch, with its leading axis."""
    if isinstance(sample, Window):
        return sample.transition
    if isinstance(sample, Segment):
        axis = sample.valid.ndim - 1
        return jax.tree.map(lambda x: jax.lax.index_in_dim(x, 0, axis, keepdims=False), sample.steps)
    return sample


def as_segment(sample: Transition | Segment) -> Segment:
    """Return a transition as a segment of one step."""
    if isinstance(sample, Segment):
        return sample
    return Segment(jax.tree.map(lambda x: x[None], sample), jnp.ones((1,), bool))


class Lookahead(eqx.Module):
    """Where a target over several steps ends, and what was earned up to there."""

    last: Int[Array, ""]
    """The number of the last step that the target includes, from 0."""
    reward: Float[Array, ""]
    """Σ_j γʲ r_{t+j} over the included steps."""
    factor: Float[Array, ""]
    """The discount of what follows; 0 where the episode ended."""


def look_ahead(agent: ReplayAgent, state: AgentState, segment: Segment, best: Int[Array, "n *H"]) -> Lookahead:
    """Return how far a stored segment follows the best policy; `best` are the best actions after each of its steps.

    A target goes on as long as the stored action is the best one (Watkins), so it has no bias by other actions. Long
    targets carry news quickly through an episode, short ones have less noise: the largest number of steps falls to 1
    with the learning rate.
    """
    steps, count, discount = segment.steps, len(segment.valid), agent.discount
    over = steps.terminated | steps.truncated
    most = jnp.ceil(count * (1.0 - agent.training.progress(state.gradient_steps)))
    same = (steps.action[1:] == best[:-1]).all(axis=tuple(range(1, best.ndim)))
    goes_on = steps.time[1:] == steps.time[:-1] + 1  # a run on the host that goes on has left episodes unfinished
    follows = ~over[:-1] & segment.valid[1:] & goes_on & same & (jnp.arange(1, count, dtype=jnp.float32) < most)
    included = jnp.concatenate([jnp.ones((1,), bool), jnp.cumprod(follows.astype(jnp.int32)).astype(bool)])
    last = jnp.sum(included.astype(jnp.int32)) - 1
    powers = jnp.asarray(discount, jnp.float32) ** jnp.arange(count + 1, dtype=jnp.float32)
    reward = jnp.sum(jnp.where(included, powers[:-1] * steps.reward, 0.0))
    return Lookahead(last, reward, jnp.where(steps.terminated[last], 0.0, powers[last + 1]))


def within_returns(
    agent: ReplayAgent, state: AgentState, segment: Segment, ahead: Lookahead, future: Float[Array, " N"]
) -> Float[Array, " N"]:
    """Return predicted returns to go, clipped so that the whole return stays near the returns that were seen.

    Without a discount nothing dampens the errors of a critic: they would add up over long episodes.
    """
    if state.episodes is None:
        return future
    scale, _ = scales(agent.training, state)
    units = Units.of(state.episodes, 1.0 / scale)
    margin = MARGIN * units.spread
    last = jax.tree.map(lambda x: x[ahead.last], segment.steps)
    weight = jnp.maximum(power(agent.discount, last.time + 1), 1e-30)
    low, high = units.low - margin - last.return_so_far, units.high + margin - last.return_so_far
    known = (state.episodes.count > 0) & agent.ends_at_limit
    lowest, highest = jnp.minimum(scale * low / weight, 0.0), jnp.maximum(scale * high / weight, 0.0)
    return jnp.where(known, jnp.clip(future, lowest, highest), future)
