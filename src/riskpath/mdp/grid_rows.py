"""Tables over (price, position, return so far): shifting rows of returns, expectations and the best action.

A table has the shape [n, Q, X]: n prices, Q positions, X returns x. The returns are dense around 0, where the utility
has its kink: x_k = scale · sinh(growth · k). A reward shifts a row.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from riskpath.mdp.grid_chance import Numbers
from riskpath.mdp.grid_utility import KinkedUtility


class Window(NamedTuple):
    """Returns that are dense around 0; k = 0 is one of them if it lies inside."""

    scale: Float[Numbers, ""] | float
    """Up to about this distance from 0 the returns are equally spaced."""
    growth: Float[Numbers, ""] | float
    """The distance of two returns at 0, over the scale."""
    first: Float[Numbers, ""] | float
    """k of the smallest return, a whole number."""


class Terms(NamedTuple):
    """An expectation, or a realised value, as a sum over J nodes: rows of some prices, read at a shifted return."""

    row: Int[Numbers, "n J C"]
    """The prices of each node's interpolation."""
    share: Float[Numbers, "n J C"]
    """Their weights; they include the weight of the node."""
    shift: Float[Numbers, "n J Q"]
    """How far the rows are shifted."""


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
    return window.scale * jnp.sinh(window.growth * (window.first + jnp.arange(count, dtype=jnp.float32)))


def spots(window: Window, count: int, x: Float[Numbers, "*m"]) -> tuple[Int[Numbers, "*m"], Float[Numbers, "*m"]]:
    """Return the return below each x and how far x lies towards the next one; outside [0, 1] beyond the ends."""
    place = jnp.arcsinh(x / window.scale) / window.growth - window.first
    lower = jnp.clip(jnp.floor(place), 0, count - 2).astype(jnp.int32)
    grid = returns(window, count)
    return lower, (x - grid[lower]) / (grid[lower + 1] - grid[lower])


def shifted(rows: Float[Numbers, "*m X"], shift: Float[Numbers, "*m"], window: Window) -> Float[Numbers, "*m X"]:
    """Read rows at x + shift, linearly between points and beyond both ends."""
    count = rows.shape[-1]
    lower, rest = spots(window, count, returns(window, count) + shift[..., None])
    low, high = jnp.take_along_axis(rows, lower, -1), jnp.take_along_axis(rows, lower + 1, -1)
    return low + rest * (high - low)


def bend(rows: Float[Numbers, "*m X"], window: Window) -> Float[Numbers, "*m X"]:
    """Return for every cell how much a function may rise above its chord, over θ(1−θ)/2.

    It is the larger negative second derivative at both ends of the cell times its squared width, and 0 where the
    function is convex.
    """
    width = jnp.diff(returns(window, rows.shape[-1]))
    slope = jnp.diff(rows) / width
    d = jnp.maximum(slope[..., :-1] - slope[..., 1:], 0.0) * 2 / (width[:-1] + width[1:])
    d = jnp.concatenate([jnp.zeros_like(rows[..., :1]), d, jnp.zeros_like(rows[..., :2])], axis=-1)
    return jnp.maximum(d[..., :-1], d[..., 1:]) * jnp.append(width, width[-1]) ** 2


def shifted_up(
    rows: Float[Numbers, "*m X"], bent: Float[Numbers, "*m X"], shift: Float[Numbers, "*m"], window: Window
) -> tuple[Float[Numbers, "*m X"], Bool[Numbers, "*m X"]]:
    """Read rows at x + shift from above, as `bend` says; also return which places are outside."""
    count = rows.shape[-1]
    lower, rest = spots(window, count, returns(window, count) + shift[..., None])
    low, high = jnp.take_along_axis(rows, lower, -1), jnp.take_along_axis(rows, lower + 1, -1)
    above = rest * (1 - rest) * 0.5 * jnp.take_along_axis(bent, lower, -1)
    return low + rest * (high - low) + above, (rest < -1e-4) | (rest > 1 + 1e-4)


def expected(table: Float[Numbers, "S Q X"], terms: Terms, window: Window) -> Float[Numbers, "n Q X"]:
    """Return the sum over the nodes."""

    def add(total: Numbers, node: Terms) -> tuple[Any, None]:
        rows = jnp.einsum("nc,ncqx->nqx", node.share, table[node.row], precision="highest")
        return total + shifted(rows, node.shift, window), None

    zero = jnp.zeros((terms.row.shape[0], *table.shape[1:]), jnp.float32)
    swapped = Terms(*(jnp.moveaxis(x, 1, 0) for x in terms))
    return jax.lax.scan(add, zero, swapped)[0]


def at_end(
    payment: Float[Numbers, "n K Q"], probs: Float[Numbers, " K"], window: Window, utility: KinkedUtility, count: int
) -> Float[Numbers, "n Q X"]:
    """Return the expected utility of the last move."""
    x = returns(window, count)

    def add(total: Numbers, node: tuple[Array, Array]) -> tuple[Any, None]:
        prob, paid = node
        return total + prob * jnp.minimum(x + paid[..., None], 0.0), None

    zero = jnp.zeros((payment.shape[0], payment.shape[2], count), jnp.float32)
    tail = jax.lax.scan(add, zero, (probs, jnp.moveaxis(payment, 1, 0)))[0]  # pyright: ignore[reportArgumentType]
    mean = jnp.einsum("k,nkq->nq", probs, payment, precision="highest")
    return utility.tail * tail + utility.slope * (x + mean[..., None])


def utility_at(utility: KinkedUtility, x: Float[Numbers, "*m"]) -> Float[Numbers, "*m"]:
    """Return u(x)."""
    return utility.slope * x + utility.tail * jnp.minimum(x, 0.0)


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

    def better(top: Numbers, option: tuple[Array, Array, Array | None]) -> tuple[Any, None]:
        place, reward, ends = option
        rows = after[:, jnp.clip(place, 0, after.shape[1] - 1)]
        value = shifted(rows, reward, window)
        value = jnp.where(((place < 0) | (place >= after.shape[1]))[None, :, None], -jnp.inf, value)
        if ends is not None:
            value = jnp.where(ends[..., None], utility_at(utility, x + reward[..., None]), value)
        return jnp.maximum(top, value), None

    worst = jnp.full((after.shape[0], place.shape[1], after.shape[-1]), -jnp.inf, jnp.float32)
    top = jax.lax.scan(better, worst, (place, reward, ends))[0]  # pyright: ignore[reportArgumentType]
    return jnp.where(jnp.isfinite(top), top, utility_at(utility, x) - 1e6 * window.scale)


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
    x, bent = returns(window, count), bend(after, window)

    def better(top: Numbers, option: tuple[Array, Array, Array | None]) -> tuple[Any, None]:
        place, reward, ends = option
        place = jnp.clip(place, 0, beyond.mean.shape[1] - 1)
        row = place - beyond.first
        inside = jnp.clip(row, 0, after.shape[1] - 1)
        value, beside = shifted_up(after[:, inside], bent[:, inside], reward, window)
        mean, sign = beyond.mean[:, place][..., None], beyond.sign[:, place][..., None]
        then = x + reward[..., None]
        out = ((row < 0) | (row >= after.shape[1]))[None, :, None] | beside
        value = jnp.where(out, by_mean(utility, then, mean, sign), value)
        if ends is not None:
            value = jnp.where(ends[..., None], utility_at(utility, then), value)
        return jnp.maximum(top, value), None

    worst = jnp.full((after.shape[0], place.shape[1], count), -jnp.inf, jnp.float32)
    return jax.lax.scan(better, worst, (place, reward, ends))[0]  # pyright: ignore[reportArgumentType]


def by_mean(utility: KinkedUtility, x: Numbers, mean: Numbers, estimate: Numbers) -> Numbers:
    """Return a tangent of u at x + the estimated mean to go; its expectation is at least u(x + mean to go)."""
    return (utility.slope + jnp.where(x + estimate < 0, utility.tail, 0.0)) * (x + mean)


def finer(table: Float[Numbers, "n C X"], every: int) -> Float[Numbers, "n Q X"]:
    """Return a table at all positions, linearly between those that it has."""
    if every == 1:
        return table
    share = jnp.arange(every, dtype=jnp.float32)[:, None] / every
    between = table[:, :-1, None] + share * (table[:, 1:, None] - table[:, :-1, None])
    between = between.reshape(table.shape[0], -1, table.shape[-1])
    return jnp.concatenate([between, table[:, -1:]], axis=1)
