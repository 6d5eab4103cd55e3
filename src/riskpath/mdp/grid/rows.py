"""Tables over (price, position, return so far): shifting rows of returns, expectations and the best action.

A table has the shape [n, Q, X]: n prices, Q positions, X equally spaced returns x. A reward shifts a row by a number of
cells, so that reading it is a slice.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from riskpath.mdp.grid.chance import Numbers, cubic
from riskpath.mdp.grid.utility import KinkedUtility

FAR = 2
"""Rows are continued by their length over this number at both ends; shifts are cut to that."""


class Window(NamedTuple):
    """Equally spaced returns, an even number of them; 0 is one of them if it lies inside."""

    low: Float[Numbers, ""] | float
    step: Float[Numbers, ""] | float


class Beyond(NamedTuple):
    """Values of states beyond a table: slope·(x + mean to go), where the slope is one of the utility's."""

    mean: Float[Numbers, "n L"]
    """The mean to go after a decision, in one sample of chance, for every position of the lattice."""
    sign: Float[Numbers, "n L"]
    """The mean to go, estimated; it decides which slope is used."""
    first: int | Numbers
    """The number of the table's first position on the lattice."""


def returns(window: Window, count: int) -> Float[Numbers, " X"]:
    """Return the returns of a window."""
    return window.low + window.step * jnp.arange(count, dtype=jnp.float32)


def between(near: tuple[Numbers, ...], rest: Float[Numbers, "*m"]) -> Any:
    """Read a function between the second and the third of four equally spaced points.

    It is the chord plus θ(1 − θ)/2 times the smaller of the two falls of the slope: third order where the function is
    smooth, and exact beside a kink that is one of the points.
    """
    far_low, low, high, far_high = near
    left, right = 2 * low - far_low - high, 2 * high - low - far_high
    fall = jnp.where(left * right > 0, jnp.sign(left) * jnp.minimum(jnp.abs(left), jnp.abs(right)), 0.0)
    return low + rest * (high - low) + 0.5 * rest * (1 - rest) * fall


def widen(rows: Float[Numbers, "*m X"], window: Window, utility: KinkedUtility) -> Float[Numbers, "*m Y"]:
    """Continue rows at both ends with the slopes of the utility."""
    away = window.step * jnp.arange(1, rows.shape[-1] // FAR + 1, dtype=jnp.float32)
    below = rows[..., :1] - (utility.slope + utility.tail) * away[::-1]
    return jnp.concatenate([below, rows, rows[..., -1:] + utility.slope * away], axis=-1)


def _read(
    wide: Float[Numbers, "S Q Y"],
    row: Int[Numbers, "n R"],
    place: Int[Numbers, "n R"],
    shift: Float[Numbers, "n R"],
    window: Window,
) -> Float[Numbers, "n R X"]:
    """Read the widened rows (row, place) at x + shift."""
    count = wide.shape[-1] * FAR // (FAR + 2)
    margin = count // FAR
    cells = shift / window.step
    whole = jnp.clip(jnp.floor(cells), 1 - margin, margin - 2)
    rest = jnp.clip(cells - whole, 0.0, 1.0)[..., None]
    at = jnp.stack([row, place, margin - 1 + whole.astype(jnp.int32)], axis=-1)

    def one(at: Int[Array, "3"]) -> Array:
        return jax.lax.dynamic_slice(wide, at, (1, 1, count + 3))[0, 0]

    near = jax.vmap(jax.vmap(one))(at)
    return between(tuple(near[..., k : k + count] for k in range(4)), rest)


def near(table: Numbers, row: Numbers, share: Numbers) -> Float[Numbers, "n S"]:
    """Return the share of every price of a table in the nodes of each sample."""
    return jax.vmap(lambda row, share: jnp.zeros(table.shape[:1], jnp.float32).at[row].add(share))(row, share)


@partial(jax.jit, static_argnames="every")
def expected(
    table: Float[Numbers, "S C X"],
    row: Int[Numbers, "n W"],
    payment: Float[Numbers, "n W C"] | None,
    share: Float[Numbers, "n W"],
    window: Window,
    utility: KinkedUtility,
    every: int,
) -> Float[Numbers, "n Q X"]:
    """Return the sum over W nodes of rows, each the price of its node, times their shares and read at x + payment."""
    if payment is None:
        return finer(jnp.einsum("ns,sqx->nqx", near(table, row, share), table, precision="highest"), every)
    wide = widen(table, window, utility)
    place = jnp.arange(table.shape[1], dtype=jnp.int32)[None]

    def add(total: Numbers, node: tuple[Array, Array, Array]) -> tuple[Any, None]:
        row, share, shift = node
        row, where = (jnp.broadcast_to(x, shift.shape) for x in (row[:, None], place))
        return total + share[:, None, None] * _read(wide, row, where, shift, window), None

    zero = jnp.zeros((row.shape[0], *table.shape[1:]), jnp.float32)
    nodes = (jnp.moveaxis(row, 1, 0), jnp.moveaxis(share, 1, 0), jnp.moveaxis(payment, 1, 0))
    return finer(jax.lax.scan(add, zero, nodes)[0], every)


@partial(jax.jit, static_argnames=("count", "every"))
def at_end(
    payment: Float[Numbers, "n K C"],
    probs: Float[Numbers, " K"],
    window: Window,
    utility: KinkedUtility,
    count: int,
    every: int,
) -> Float[Numbers, "n Q X"]:
    """Return the expected utility of the last move."""
    x = returns(window, count)

    def add(total: Numbers, node: tuple[Array, Array]) -> tuple[Any, None]:
        prob, paid = node
        return total + prob * jnp.minimum(x + paid[..., None], 0.0), None

    zero = jnp.zeros((payment.shape[0], payment.shape[2], count), jnp.float32)
    tail = jax.lax.scan(add, zero, (probs, jnp.moveaxis(payment, 1, 0)))[0]  # pyright: ignore[reportArgumentType]
    mean = jnp.einsum("k,nkq->nq", probs, payment, precision="highest")
    return finer(utility.tail * tail + utility.slope * (x + mean[..., None]), every)


@jax.jit
def best(
    after: Float[Numbers, "n Q X"],
    place: Int[Numbers, "A R"],
    reward: Float[Numbers, "A n R"],
    ends: Bool[Numbers, "A n R"] | None,
    window: Window,
    utility: KinkedUtility,
) -> Float[Numbers, "n R X"]:
    """Return the value of the best action at R positions; `place` is a row of the table, others are refused."""
    x = returns(window, after.shape[-1])
    wide = widen(after, window, utility)
    row = jnp.arange(after.shape[0], dtype=jnp.int32)[:, None]

    def better(top: Numbers, option: tuple[Array, Array, Array | None]) -> tuple[Any, None]:
        place, reward, ends = option
        inside = jnp.clip(place, 0, after.shape[1] - 1)[None]
        here, there = (jnp.broadcast_to(k, reward.shape) for k in (row, inside))
        value = _read(wide, here, there, reward, window)
        value = jnp.where(((place < 0) | (place >= after.shape[1]))[None, :, None], -jnp.inf, value)
        if ends is not None:
            value = jnp.where(ends[..., None], utility.at(x + reward[..., None]), value)
        return jnp.maximum(top, value), None

    worst = jnp.full((after.shape[0], place.shape[1], after.shape[-1]), -jnp.inf, jnp.float32)
    top = jax.lax.scan(better, worst, (place, reward, ends))[0]  # pyright: ignore[reportArgumentType]
    return jnp.where(jnp.isfinite(top), top, utility.at(x) - 1e6 * window.step)


Raised = tuple[Float[Numbers, "n Q Y"], Float[Numbers, "n Q Y"]]
"""Rows continued by their last values, and how much their slope falls at each point times the distance of two."""


def raised(rows: Float[Numbers, "n Q X"]) -> Raised:
    """Prepare rows for `read_up`."""
    margin = rows.shape[-1] // FAR
    fall = 2 * rows[..., 1:-1] - rows[..., :-2] - rows[..., 2:]
    sides = [(0, 0)] * (rows.ndim - 1)
    wide = jnp.pad(rows, [*sides, (margin, margin + 1)], mode="edge")
    return wide, jnp.pad(jnp.maximum(fall, 0.0), [*sides, (margin + 1, margin + 2)])


def read_up(
    from_above: Raised, place: Int[Numbers, " R"], shift: Float[Numbers, "n R"], window: Window
) -> tuple[Float[Numbers, "n R X"], Bool[Numbers, "n R X"]]:
    """Read rows at x + shift from above; also return which places are outside.

    Where a function is concave, it lies below the two lines that continue the neighbouring cells; where it is convex,
    below the chord. Beside a change from one to the other the reading can be too low, by a term of second order in the
    distance of two returns.
    """
    count = (from_above[0].shape[-1] - 1) * FAR // (FAR + 2)
    margin = count // FAR
    cells = shift / window.step
    whole = jnp.floor(cells)
    rest = (cells - whole)[..., None]
    sample = jnp.arange(shift.shape[0], dtype=jnp.int32)[:, None]
    start = margin + jnp.clip(whole, -margin, margin).astype(jnp.int32)
    at = jnp.stack([jnp.broadcast_to(k, shift.shape) for k in (sample, place[None, :], start)], axis=-1)

    def one(table: Array, at: Int[Array, "3"]) -> Array:
        return jax.lax.dynamic_slice(table, at, (1, 1, count + 1))[0, 0]

    value, fall = (jax.vmap(jax.vmap(partial(one, jnp.asarray(table))))(at) for table in from_above)
    low, high = value[..., :-1], value[..., 1:]
    above = jnp.minimum(rest * fall[..., :-1], (1 - rest) * fall[..., 1:])
    spot = jnp.arange(count, dtype=jnp.float32) + cells[..., None]
    outside = (spot < -1e-3) | (spot > count - 1 + 1e-3) | (jnp.abs(cells) > margin)[..., None]
    return low + rest * (high - low) + above, outside


@jax.jit
def best_up(
    after: Float[Numbers, "n Q X"],
    place: Int[Numbers, "A R"],
    reward: Float[Numbers, "A n R"],
    ends: Bool[Numbers, "A n R"] | None,
    window: Window,
    utility: KinkedUtility,
    beyond: Beyond,
) -> Float[Numbers, "n R X"]:
    """Return an upper bound of the value of the best action; states beyond the table have the values `beyond`."""
    count = after.shape[-1]
    x, from_above = returns(window, count), raised(after)

    def better(top: Numbers, option: tuple[Array, Array, Array | None]) -> tuple[Any, None]:
        place, reward, ends = option
        place = jnp.clip(place, 0, beyond.mean.shape[1] - 1)
        row = place - beyond.first
        value, beside = read_up(from_above, jnp.clip(row, 0, after.shape[1] - 1), reward, window)
        mean, sign = beyond.mean[:, place][..., None], beyond.sign[:, place][..., None]
        then = x + reward[..., None]
        out = ((row < 0) | (row >= after.shape[1]))[None, :, None] | beside
        value = jnp.where(out, by_mean(utility, then, mean, sign), value)
        if ends is not None:
            value = jnp.where(ends[..., None], utility.at(then), value)
        return jnp.maximum(top, value), None

    worst = jnp.full((after.shape[0], place.shape[1], count), -jnp.inf, jnp.float32)
    return jax.lax.scan(better, worst, (place, reward, ends))[0]  # pyright: ignore[reportArgumentType]


@partial(jax.jit, static_argnames="parts")
def with_penalty(known, penalty, paid, mean, sign, window: Window, utility: KinkedUtility, parts: int):
    """Return P_{t+1} before the move, at x + what is paid in it, with the penalty of the move."""
    more = refined(penalty, parts)
    if paid is None:
        return known + more
    value, out = read_up(raised(known), jnp.arange(known.shape[1], dtype=jnp.int32), paid, window)
    then = returns(window, known.shape[-1]) + paid[..., None]
    return jnp.where(out, by_mean(utility, then, mean[..., None], sign[..., None]), value) + more


def by_mean(utility: KinkedUtility, x: Numbers, mean: Numbers, estimate: Numbers) -> Numbers:
    """Return a tangent of u at x + the estimated mean to go; its expectation is at least u(x + mean to go)."""
    return (utility.slope + jnp.where(x + estimate < 0, utility.tail, 0.0)) * (x + mean)


def refined(rows: Float[Numbers, "*m X"], parts: int) -> Float[Numbers, "*m Z"]:
    """Return rows at `parts` times as many returns: the cubics through four neighbours, a linear map of the rows."""
    if parts == 1:
        return rows
    low, high = 2 * rows[..., :1] - rows[..., 1:2], 2 * rows[..., -1:] - rows[..., -2:-1]
    wide = jnp.concatenate([low, rows, high, 2 * high - rows[..., -1:]], axis=-1)
    weights = cubic(jnp.arange(parts, dtype=jnp.float32) / parts)
    near = (wide[..., k : k + rows.shape[-1], None] for k in range(4))
    total = sum(one * weight for one, weight in zip(near, weights, strict=True))
    return jnp.asarray(total).reshape(*rows.shape[:-1], -1)


def finer(table: Float[Numbers, "n C X"], every: int) -> Float[Numbers, "n Q X"]:
    """Return a table at all positions, linearly between those that it has."""
    if every == 1:
        return table
    share = jnp.arange(every, dtype=jnp.float32)[:, None] / every
    between = table[:, :-1, None] + share * (table[:, 1:, None] - table[:, :-1, None])
    between = between.reshape(table.shape[0], -1, table.shape[-1])
    return jnp.concatenate([between, table[:, -1:]], axis=1)
