"""Simulated episodes of a policy of the grid solver in the true problem, with a control variate.

The value of the policy is E[u(x_T)]. Along an episode Σ_t (V_{t+1}(next) − EV_t), with the tables of the solver, has
mean zero and is nearly equal to u(x_T) − V_0: without it the
sample has the same mean and hardly any variance.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from riskpath.mdp.grid_chance import Numbers, as_floats, cardinal, cells, nodes, price_stencil
from riskpath.mdp.grid_form import Form
from riskpath.mdp.grid_mean import MeanTables
from riskpath.mdp.grid_rows import Window, finer, spots, utility_at
from riskpath.mdp.grid_tail import Tail, after_table, node_count
from riskpath.mdp.grid_utility import KinkedUtility

TIE = 1e-5
"""The weight of the mean against the utility: it decides between equally good actions."""


class Played(NamedTuple):
    """Simulated episodes."""

    totals: Float[np.ndarray, "times n"]
    """The return so far plus the potential, before every decision and at the end."""
    positions: Int[np.ndarray, "times n"]
    """The number of the position before every decision and at the end."""
    values: Float[np.ndarray, " n"]
    """The utility of the return minus the control variate."""
    refused: Float[np.ndarray, " n"]
    """Whether an action was ever not available because the axis of positions ends."""

    @property
    def returns(self) -> Float[np.ndarray, " n"]:
        """The returns."""
        return self.totals[-1]


def play(form: Form, means: MeanTables, tail: Tail | None, goal: float, episodes: int, seed: int = 0) -> Played:
    """Simulate the best policy of a threshold; without tables of the tail, the mean-optimal one."""
    steps = form.problem.steps
    price = np.full((episodes,), form.start_price, np.float32)
    place = np.full((episodes,), form.start, np.int32)
    x = np.full((episodes,), form.problem.start_potential - goal, np.float32)
    over, refused = np.zeros((episodes,), bool), np.zeros((episodes,), bool)
    value = np.zeros((episodes,), np.float32)
    xs, places = [x], [place]
    draws = np.asarray(jax.random.normal(jax.random.key(seed), (steps, episodes)))
    mean_axis = as_floats(means.prices)
    for time in range(steps):
        last = time == steps - 1
        table = None if tail is None else look_ahead(form, tail, time)
        chosen = jax.device_get(choose(form, means, tail, table, time, price, place, x))
        _, post, reward, ends, stopped = chosen
        refused |= stopped & ~over
        after = x + reward
        noise = draws[time]
        following, paid = _on_host(form.moves)(time, price, noise[:, None], post[:, None])
        beside = post[:, None]
        if last:
            centres, probs = cells()
            payments = form.moves(time, price, np.broadcast_to(as_floats(centres), (episodes, len(centres))), beside)
            u = KinkedUtility(1.0, 0.0) if tail is None else tail.utility
            gain = _utility_gain(u, after, payments[1], as_floats(probs), ends)
        else:
            count = 33 if tail is None else node_count(form)
            chance = nodes(count)
            ahead = np.broadcast_to(as_floats(chance.places), (episodes, count))
            prices, payments = form.moves(time, price, ahead, beside)
            share = as_floats(chance.weights)[None, :] - np.asarray(cardinal(noise, count))
            if tail is None:
                change = _penalty_mean(mean_axis, means.before[time + 1], prices, payments, share, post)
                ended = after
            else:
                axes = tail.axes
                change = _penalty(
                    as_floats(axes.prices),
                    tail.tables[time + 1],
                    axes.window,
                    axes.first,
                    axes.every,
                    prices,
                    payments,
                    after,
                    share,
                    post,
                )
                ended = tail.utility.slope * after + tail.utility.tail * np.minimum(after, 0.0)
            gain = np.where(ends, ended, np.asarray(change))
        value = np.where(over, value, value + np.asarray(gain))
        x = np.where(over, x, after + np.where(ends, np.float32(0.0), paid[:, 0, 0]))
        over |= ends
        price, place = following[:, 0], post
        xs.append(x)
        places.append(place)
    totals = np.stack([np.asarray(x, np.float64) for x in xs]) + goal
    return Played(totals, np.stack([np.asarray(p) for p in places]), np.asarray(value, np.float64), np.asarray(refused))


def _on_host(function):
    return lambda *arguments: jax.device_get(function(*arguments))


def look_ahead(form: Form, tail: Tail, time: int) -> Float[Numbers, "S Q X"]:
    """Return EV_t at the prices of the axes."""
    later = None if time == form.problem.steps - 1 else tail.tables[time + 1]
    axis = as_floats(tail.axes.prices)
    return after_table(form, tail.axes, time, axis, later, tail.utility)


def choose(
    form: Form,
    means: MeanTables,
    tail: Tail | None,
    table: Float[Numbers, "S Q X"] | None,
    time: int,
    price: Float[Numbers, " n"],
    place: Int[Numbers, " n"],
    x: Float[Numbers, " n"],
) -> tuple[Any, ...]:
    """Return action, position, reward and end of the best actions, and whether one was not available."""
    chosen = form.decisions_at(time, price, place)
    options = chosen.position, chosen.reward[..., 0], chosen.ends[..., 0]
    mean_axis = as_floats(means.prices)
    if tail is None or table is None:
        return *_choose_mean(mean_axis, means.after[time], options, price), np.zeros(price.shape, bool)
    axis, axes = as_floats(tail.axes.prices), tail.axes
    return _choose(axis, table, axes.window, tail.utility, axes.first, mean_axis, means.after[time], options, price, x)


@jax.jit
def _utility_gain(utility, after, payments, probs, ends):
    expected = jnp.einsum("k,nk->n", probs, utility_at(utility, after[:, None] + payments[..., 0]), precision="highest")
    return jnp.where(ends, utility_at(utility, after), expected)


def _rows(axis: Numbers, price: Numbers) -> tuple[Any, Any]:
    if len(axis) == 1:
        return jnp.zeros((*price.shape, 1), jnp.int32), jnp.ones((*price.shape, 1), jnp.float32)
    return price_stencil(axis, price)


@jax.jit
def _choose_mean(axis, after, options, price):
    place, reward, ends = options
    row, weight = _rows(axis, price)
    inside = jnp.clip(place, 0, after.shape[1] - 1)
    later = read_means(after, row, weight, inside)
    score = reward + jnp.where(ends, 0.0, later)
    return _take(score, inside, reward, ends)


def read_means(table: Numbers, row: Numbers, weight: Numbers, place: Numbers) -> Any:
    """Read a table [S, L] at prices (rows and weights) and positions."""
    return sum(weight[..., corner] * table[row[..., corner], place] for corner in range(row.shape[-1]))


def _take(score, place, reward, ends):
    best = score.argmax(axis=0)[None]
    return best[0], *(jnp.take_along_axis(x, best, axis=0)[0] for x in (place, reward, ends))


def read(table: Numbers, row: Numbers, weight: Numbers, place: Numbers, x: Numbers, window: Window) -> Any:
    """Read a table [S, Q, X] at prices (rows and weights), rows of positions, and returns."""
    count = table.shape[-1]
    lower, rest = spots(window, count, x)
    total = jnp.zeros(x.shape, jnp.float32)
    for corner in range(row.shape[-1]):  # a sum over an axis of gathered values is compiled wrongly on processors
        low, high = table[row[..., corner], place, lower], table[row[..., corner], place, lower + 1]
        total += weight[..., corner] * (low + rest * (high - low))
    return total


@jax.jit
def _choose(axis, table, window, utility, first, mean_axis, mean_after, options, price, x):
    place, reward, ends = options
    row, weight = _rows(axis, price)
    spot = place - first
    out = (spot < 0) | (spot >= table.shape[1])
    inside = jnp.clip(spot, 0, table.shape[1] - 1)
    value = read(table, row, weight, inside, x + reward, window)
    mean_row, mean_weight = _rows(mean_axis, price)
    on = jnp.clip(place, 0, mean_after.shape[1] - 1)
    mean = reward + jnp.where(ends, 0.0, read_means(mean_after, mean_row, mean_weight, on))
    score = jnp.where(ends, utility_at(utility, x + reward), value) + TIE * mean
    score = jnp.where(out & ~ends, -jnp.inf, score)
    return *_take(score, inside + first, reward, ends), out.any(axis=0)


@jax.jit
def _penalty_mean(axis, before, prices, payments, share, place):
    row, weight = _rows(axis, prices)
    later = read_means(before, row, weight, jnp.broadcast_to(place[:, None], prices.shape))
    return jnp.einsum("nj,nj->n", share, payments[..., 0] + later, precision="highest")


@partial(jax.jit, static_argnames=("every",))
def _penalty(axis, table, window, first, every, prices, payments, after, share, place):
    x = after[:, None] + payments[..., 0]
    row, weight = _rows(axis, prices)
    on = jnp.broadcast_to((place - first)[:, None], prices.shape)
    later = read(finer(table, every), row, weight, on, x, window)
    return jnp.einsum("nj,nj->n", share, later, precision="highest")
