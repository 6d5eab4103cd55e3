"""Simulated episodes of a policy of the grid solver in the true problem, with a control variate.

The value of the policy is E[u(x_T)]. Along an episode Σ_t (V_{t+1}(next) − EV_t), with the tables of the solver, has
mean zero and is nearly equal to u(x_T) − V_0: without it the sample has the same mean and hardly any variance.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from riskpath.mdp.grid.chance import Numbers, PriceAxis, as_floats, price_stencil
from riskpath.mdp.grid.form import Decisions, Form, realised
from riskpath.mdp.grid.mean import MeanTables
from riskpath.mdp.grid.rows import Window, between
from riskpath.mdp.grid.tail import Tail, after_table
from riskpath.mdp.grid.utility import LINEAR, KinkedUtility

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
    prices: Float[np.ndarray, "times n"]
    stake: Float[np.ndarray, " n"]
    """The most that an action beyond the axis of positions could have added to the utility; 0 if none was refused."""
    refused: Bool[np.ndarray, " n"]
    """Whether an action was ever refused because the axis of positions ends."""
    decisions: Int[np.ndarray, " n"]

    @property
    def returns(self) -> Float[np.ndarray, " n"]:
        """The returns."""
        return self.totals[-1]


class Chosen(NamedTuple):
    """The best actions of n states."""

    action: Int[Numbers, " n"]
    place: Int[Numbers, " n"]
    reward: Float[Numbers, " n"]
    ends: Bool[Numbers, " n"]
    refused: Bool[Numbers, " n"]
    stake: Float[Numbers, " n"]
    """The most that a refused action could have added."""


def play(form: Form, means: MeanTables, tail: Tail | None, goal: float, episodes: int, seed: int = 0) -> Played:
    """Simulate the best policy of a threshold; without tables of the tail, the mean-optimal one."""
    steps = form.problem.steps
    price = np.full((episodes,), form.start_price, np.float32)
    place = np.full((episodes,), form.start, np.int32)
    x = np.full((episodes,), form.problem.start_potential - goal, np.float32)
    over, refused = np.zeros((episodes,), bool), np.zeros((episodes,), bool)
    decisions = np.zeros((episodes,), np.int32)
    value, stake = np.zeros((2, episodes), np.float32)
    xs, places, prices = [x], [place], [price]
    draws = np.asarray(jax.random.normal(jax.random.key(seed), (steps, episodes)))
    for time in range(steps):
        noise, table = draws[time], None if tail is None else look_ahead(form, tail, time)
        options = form.decisions_at(time, price, place)
        chosen = Chosen(*jax.device_get(choose(options, means, tail, table, time, price, x)))
        following, paid = (as_floats(k) for k in form.moves(time, price, noise[:, None], chosen.place[:, None]))
        after, then = following[:, 0], x + chosen.reward
        gain = _gain(form, means, tail, time, price, chosen.place, then, noise)
        gain = np.where(chosen.ends, as_floats((LINEAR if tail is None else tail.utility).at(then)), gain)
        refused |= chosen.refused & ~over
        decisions += ~over
        stake = np.where(over, stake, np.maximum(stake, chosen.stake))
        value = np.where(over, value, value + gain)
        x = np.where(over, x, then + np.where(chosen.ends, np.float32(0.0), paid[:, 0, 0]))
        over |= chosen.ends
        price, place = after, np.asarray(chosen.place)
        xs.append(x)
        places.append(place)
        prices.append(price)
    totals = np.stack(xs).astype(np.float64) + goal
    return Played(totals, np.stack(places), value.astype(np.float64), np.stack(prices), stake, refused, decisions)


def look_ahead(form: Form, tail: Tail, time: int) -> Float[Numbers, "S Q X"]:
    """Return EV_t at the prices of the axes."""
    later = None if time == form.problem.steps - 1 else tail.tables[time + 1]
    return after_table(form, tail.axes, time, tail.axes.prices.points, later, tail.utility)


def choose(
    options: Decisions,
    means: MeanTables,
    tail: Tail | None,
    table: Float[Numbers, "S Q X"] | None,
    time: Any,
    price: Float[Numbers, " n"],
    x: Float[Numbers, " n"],
    joined: bool = False,
) -> tuple[Any, ...]:
    """Return the best of some actions as `Chosen` lists them, also inside a compiled program.

    `table` is that of `look_ahead`. If it is `joined`, it has those of all times, one after another, and so has
    `means.after`: a program of many environments then reads numbers, not tables.
    """

    def rows(axis: PriceAxis) -> tuple[Any, Any]:
        row, weight = corners(axis, price)
        return (row + time * axis.size if joined else row), weight

    mean = _read_means(means.after if joined else means.after[time], *rows(means.prices), options.position)
    if tail is None or table is None:
        return _choose_mean(mean, options, x)
    axes = tail.axes
    return _choose(table, *rows(axes.prices), axes.window, tail.utility, axes.first, mean, options, x)


def _gain(form: Form, means: MeanTables, tail: Tail | None, time: int, price, place, then, noise) -> np.ndarray:
    """Return EV_t − V_{t+1} along the episodes, and the expected utility in the last step."""
    beside = place[:, None]
    if time == form.problem.steps - 1:
        return as_floats(
            _last(LINEAR if tail is None else tail.utility, then, *form.last_payments(time, price, beside))
        )
    axis, width = (means.prices, means.width) if tail is None else (tail.axes.prices, tail.axes.width)
    chance = form.nodes(axis, time, price, width)
    share = chance.weights - realised(chance, noise)
    payments = form.moves(time, price, chance.noise, beside)[1]
    if tail is None:
        return as_floats(_gain_mean(means.before[time + 1], chance.row, share, payments, place))
    axes = tail.axes
    return as_floats(
        _gain_tail(
            tail.tables[time + 1], axes.window, tail.utility, axes.first, axes.every, chance.row, share, payments,
            place, then,
        )
    )  # fmt: skip


def corners(axis: PriceAxis, price: Float[Numbers, " n"]) -> tuple[Int[Numbers, "C n"], Float[Numbers, "C n"]]:
    """Return rows and weights of prices between those of the axis."""
    return _stencil(axis.curved, axis.size, as_floats([axis.low, axis.step]), price)


@partial(jax.jit, static_argnums=(0, 1))
def _stencil(curved: bool, count: int, numbers: Numbers, price: Numbers) -> tuple[Any, Any]:
    axis = PriceAxis(numbers[0], numbers[1], count, curved)  # pyright: ignore[reportArgumentType]
    row, weight = price_stencil(axis, price)
    return jnp.moveaxis(row, -1, 0), jnp.moveaxis(weight, -1, 0)


def _over_corners(row: Numbers, weight: Numbers, like: Numbers, read_at: Any) -> Any:
    """Return the weighted sum over four prices."""

    def add(total: Any, corner: tuple[Any, Any]) -> tuple[Any, None]:
        return total + corner[1] * read_at(corner[0]), None

    return jax.lax.scan(add, jnp.zeros(like.shape, jnp.float32), (row, weight))[0]


@jax.jit
def _read_means(after, row, weight, place):
    inside = jnp.clip(place, 0, after.shape[1] - 1)
    return _over_corners(row, weight, place, lambda row: after[row, inside])


@jax.jit
def _choose_mean(mean, options: Decisions, x):
    place, reward, ends = options.position, options.reward[..., 0], options.ends[..., 0]
    score = reward + jnp.where(ends, 0.0, mean)
    return *_take(score, place, reward, ends), jnp.zeros(x.shape, bool), jnp.zeros_like(x)


@jax.jit
def _choose(table, row, weight, window, utility, first, mean, options: Decisions, x):
    place, reward, ends = options.position, options.reward[..., 0], options.ends[..., 0]
    spot, then = place - first, x + reward
    barred = ((spot < 0) | (spot >= table.shape[1])) & ~ends
    inside = jnp.clip(spot, 0, table.shape[1] - 1)
    value = _over_corners(row, weight, then, lambda row: read(table, row, inside, then, window, utility))
    value = jnp.where(ends, utility.at(then), value)
    value = jnp.where(barred, -jnp.inf, value)
    mean = jnp.where(ends, 0.0, mean)
    most = jnp.where(barred, utility.at(then + mean), -jnp.inf).max(axis=0)
    refused = barred.any(axis=0)
    stake = jnp.where(refused, jnp.maximum(most - value.max(axis=0), 0.0), 0.0)
    return *_take(value + TIE * (reward + mean), inside + first, reward, ends), refused, stake


def _take(score, place, reward, ends):
    best = score.argmax(axis=0)[None]
    return best[0], *(jnp.take_along_axis(k, best, axis=0)[0] for k in (place, reward, ends))


@jax.jit
def _last(utility, then, payments, probs):
    return jnp.einsum("k,nk->n", probs, utility.at(then[:, None] + payments[..., 0]), precision="highest")


@jax.jit
def _gain_mean(later, row, share, payments, place):
    return jnp.einsum("nw,nw->n", share, later[row, place[:, None]] + payments[..., 0], precision="highest")


@partial(jax.jit, static_argnums=4)
def _gain_tail(table, window, utility, first, every, row, share, payments, place, then):
    spot = jnp.broadcast_to((place - first)[:, None], row.shape)
    x = then[:, None] + payments[..., 0]
    coarse = spot if every == 1 else jnp.minimum(spot // every, table.shape[1] - 2)
    value = read(table, row, coarse, x, window, utility)
    if every > 1:
        other = read(table, row, coarse + 1, x, window, utility)
        value += (spot - coarse * every).astype(jnp.float32) / every * (other - value)
    return jnp.einsum("nw,nw->n", share, value, precision="highest")


def read(table: Numbers, row: Numbers, place: Numbers, x: Numbers, window: Window, utility: KinkedUtility) -> Any:
    """Read a table [S, Q, X] at prices of its axis, positions and returns, as a backward pass does."""
    count = table.shape[-1]
    cells = (x - window.low) / window.step
    inside = jnp.clip(cells, 0.0, count - 1.0)
    lower = jnp.clip(jnp.floor(inside), 1, count - 3).astype(jnp.int32)
    near = tuple(table[row, place, lower + k] for k in (-1, 0, 1, 2))
    beyond = (cells - inside) * window.step
    slope = utility.slope + jnp.where(beyond < 0, utility.tail, 0.0)
    return between(near, inside - lower.astype(jnp.float32)) + slope * beyond
