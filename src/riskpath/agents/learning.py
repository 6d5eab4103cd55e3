"""Building blocks for agents: gradient steps, target updates, quantile levels, epsilon-greedy actions."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from riskpath.agents.abilities import Refreshes
from riskpath.agents.agent import AgentState, Mode, Updated
from riskpath.agents.clock import Clock
from riskpath.agents.config import Training
from riskpath.agents.episodes import Units
from riskpath.agents.replay_agent import ReplayAgent
from riskpath.nn.kernels import over_batch
from riskpath.nn.losses import in_parts, midpoints
from riskpath.nn.observation_encoder import update_statistics
from riskpath.nn.rescaling import rescale_critics
from riskpath.types import Key, Segment, TimeStep, Transition, Window, power

KAPPA = 0.01
"""Default threshold of the quantile Huber loss, as a fraction of the standard deviation of returns."""
STEP = 2.0
"""The unit of critics changes only when it is wrong by more than this factor."""
MARGIN = 0.2
"""By how many units a predicted whole return may leave the range of the returns seen."""
SMALLEST_KAPPA = 1e-4
"""The smallest threshold in the critics' units, because errors are divided by it."""


def new_state(agent: ReplayAgent, params: Any, memory: Any = ()) -> AgentState:
    """Return a state with a fresh optimiser; `memory` starts every episode."""
    return AgentState(params, params, agent.training.optimiser().init(params), memory)


def gradient_step(agent: ReplayAgent, state: AgentState, loss: Any, batch: Any, clock: Clock) -> Updated:
    """Take one gradient step on the mean over a batch of `loss(params, sample)`."""
    state = observe_batch(state, batch)
    return descend(agent, state, lambda params: mean_over(lambda sample: loss(params, sample), batch), clock)


def descend(agent: ReplayAgent, state: AgentState, mean_loss: Any, clock: Clock) -> Updated:
    """Take one gradient step on `mean_loss(params)`."""
    value, gradient = eqx.filter_value_and_grad(mean_loss)(state.params)
    after = agent.training.optimiser().step(state.params, gradient, state.opt_state, clock)
    return eqx.tree_at(lambda s: (s.params, s.opt_state), state, after), {"loss": value}


def mean_over(loss: Any, *batch: Any) -> Float[Array, ""]:
    """Return the mean of a per-sample loss over a batch."""
    return jnp.mean(over_batch(loss)(*batch))


def observe_batch(state: AgentState, batch: Any) -> AgentState:
    """Update the running statistics of observations, in the target networks as well."""
    transition = step_of(batch[0] if isinstance(batch, tuple) else batch)
    places = lambda s: (s.params, s.target_params)
    observed = transition.observation
    updated = tuple(update_statistics(networks, observed) for networks in places(state))
    return eqx.tree_at(places, state, updated)


def scales(training: Training, state: AgentState) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the factor on rewards inside the critics, and kappa in the critics' units.

    Unless they are given, the factor is 1 / `Episodes.unit`, and kappa is 1% of the standard deviation of returns.
    """
    one, episodes = jnp.ones(()), state.episodes
    unit, deviation = (one, one) if episodes is None else (episodes.unit, episodes.deviation)
    kappa = (
        jnp.maximum(KAPPA * jnp.minimum(deviation, unit), SMALLEST_KAPPA * unit)
        if training.kappa is None
        else training.kappa
    )
    scale = 1.0 / unit if training.reward_scale is None else jnp.asarray(training.reward_scale)
    return scale, jnp.asarray(kappa * scale)


def update_target(agent: ReplayAgent, state: AgentState, clock: Clock) -> AgentState:
    """Move the target networks towards the parameters, target ← target + rate (params − target), then `refresh`."""
    state, rate = follow_unit(agent, state, clock), jnp.asarray(agent.target_update[1])
    move = lambda target, new: jnp.where(rate >= 1.0, new, target + rate * (new - target))
    arrays, fixed = eqx.partition(state.target_params, eqx.is_inexact_array)
    moved = jax.tree.map(move, arrays, eqx.filter(state.params, eqx.is_inexact_array))
    state = eqx.tree_at(lambda s: s.target_params, state, eqx.combine(moved, fixed))
    return agent.refresh(state, clock) if isinstance(agent, Refreshes) else state


def follow_unit(agent: ReplayAgent, state: AgentState, clock: Clock) -> AgentState:
    """Return the state in the unit that follows from the episodes so far; predicted returns stay the same.

    The last layer of the critics is rescaled (van Hasselt et al. 2016). If critics had to relearn in the new unit, they
    would lose the values of actions that are rarely explored by now. The unit does not change while it is right within
    a factor, nor once the learning rates have decayed.
    """
    t, episodes = agent.training, state.episodes
    if episodes is None or t.reward_scale is not None:
        return state
    old, wanted = episodes.unit, episodes.wanted_unit
    stays = (wanted <= 0) | t.settled(clock.done) | ((wanted < STEP * old) & (old < STEP * wanted))
    return in_unit(state, jnp.where(stays, old, wanted))


def in_unit(state: AgentState, unit: Float[Array, ""]) -> AgentState:
    """Return the state with another unit of the critics; what they predict stays the same."""
    assert state.episodes is not None
    factor, episodes = state.episodes.unit / unit, replace(state.episodes, unit=unit)
    params, target = (rescale_critics(one, factor) for one in (state.params, state.target_params))
    return AgentState(params, target, state.opt_state, state.initial_memory, episodes)


def draw_levels(agent: ReplayAgent, *, key: Key) -> tuple[Float[Array, " N"], Float[Array, " M"]]:
    """Draw the quantile levels of the prediction and of the target; a table uses the midpoints of its cells."""
    online, target = agent.training.num_quantiles, agent.training.num_target_quantiles
    if agent.network.head == "table":
        return midpoints(online), midpoints(target)
    draws = jax.random.uniform(key, (online + target,))  # at once: every call for random numbers has its own cost
    return in_parts(draws[:online]), in_parts(draws[online:])


def masked_argmax(values: Float[Array, " A"], mask: Bool[Array, "*M"]) -> Int[Array, "*H"]:
    """Return the best available action; with several heads the mask has a row, and the result an entry, for each."""
    return jnp.argmax(jnp.where(mask, values.reshape(mask.shape), -jnp.inf), axis=-1).astype(jnp.int32)


def epsilon_greedy(
    values: Float[Array, " A"], mask: Bool[Array, "*M"], *, key: Key, epsilon: Float[Array, ""]
) -> Int[Array, "*H"]:
    """Return the best available action, or with probability `epsilon` a random available one."""
    draws = jax.random.uniform(key, (1 + len(values),))
    return masked_argmax(jnp.where(draws[0] < epsilon, draws[1:], values), mask)


def explore_greedily(
    agent: ReplayAgent, values: Float[Array, " A"], time_step: TimeStep, *, key: Key, mode: Mode
) -> Int[Array, "*H"]:
    """Return the best available action, or a random one with the probability that the mode asks for."""
    return epsilon_greedy(values, time_step.action_mask, key=key, epsilon=epsilon_of(agent, mode))


def epsilon_of(agent: ReplayAgent, mode: Mode) -> Float[Array, ""]:
    """Return the probability of a random action: 0 if greedy, 1 in the warm-up, else by the schedule."""
    return jnp.where(mode.warms_up, 1.0, jnp.where(mode.explores, agent.exploration.epsilon(mode.done), 0.0))


def step_of(sample: Any) -> Transition:
    """Return the transition of a sample, or of a batch, with its leading axis."""
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
    """Where a target over several steps ends, and the rewards up to there."""

    last: Int[Array, ""]
    """The index of the last step that the target includes, from 0."""
    reward: Float[Array, ""]
    """Σ_j γʲ r_{t+j} over the included steps."""
    factor: Float[Array, ""]
    """The discount of what follows; 0 where the episode ended."""


def look_ahead(agent: ReplayAgent, segment: Segment, best: Int[Array, "n *H"], clock: Clock) -> Lookahead:
    """Return how far a stored segment follows the best policy; `best` are the best actions after each of its steps.

    A target continues while the stored action is the best one (Watkins), so other actions do not bias it. Long targets
    propagate rewards quickly through an episode, short ones have less noise: the largest number of steps falls to 1
    with the learning rate.
    """
    steps, count, discount = segment.steps, len(segment.valid), agent.discount
    over = steps.terminated | steps.truncated
    most = jnp.ceil(count * (1.0 - agent.training.progress(clock.done)))
    same = (steps.action[1:] == best[:-1]).all(axis=tuple(range(1, best.ndim)))
    goes_on = steps.time[1:] == steps.time[:-1] + 1  # a resumed run on the host left episodes unfinished
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

    Without a discount nothing dampens a critic's errors, which would add up over long episodes.
    """
    if state.episodes is None:
        return future
    scale, _ = scales(agent.training, state)
    units = Units.of(state.episodes, 1.0 / scale)
    margin = MARGIN * units.unit
    last = jax.tree.map(lambda x: x[ahead.last], segment.steps)
    weight = jnp.maximum(power(agent.discount, last.time + 1), 1e-30)
    low, high = units.low - margin - last.return_so_far, units.high + margin - last.return_so_far
    known = (state.episodes.count > 0) & agent.ends_at_limit
    lowest, highest = jnp.minimum(scale * low / weight, 0.0), jnp.maximum(scale * high / weight, 0.0)
    return jnp.where(known, jnp.clip(future, lowest, highest), future)
