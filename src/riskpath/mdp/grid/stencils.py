"""Interpolation on a grid of states and returns: the rows of a table to read, their weights and shifts.

A table holds for every state of the grid a row over the returns x. Reading it at (state, x + shift) for all x at once
is a weighted sum of the rows of the surrounding states, read at shifted places. Rows and weights do not depend on x.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

SNAP = 1e-4
"""The distance, in cells, within which a place is moved to a grid point."""


class Stencil(NamedTuple):
    """Where to read a table for B × N states."""

    row: Int[Array, "B N C"]
    """The rows of the surrounding states."""
    weight: Float[Array, "B N C"]
    shift: Float[Array, "B N"]
    """How far the rows are read to the right, in cells of the grid of returns."""


def axis_position(points: Float[np.ndarray, " n"], values: Float[Array, "*m"]) -> tuple[Array, Array]:
    """Return the point below each value and how far the value lies towards the next one, in [0, 1].

    A value outside of the axis is moved to its end. A value within `SNAP` of a point is moved to that point.
    """
    last = len(points) - 2
    gaps = np.diff(points)
    if np.ptp(gaps) < 1e-6 * gaps.max():  # equally spaced: no search
        place = jnp.clip((values - points[0]) * (1 / gaps.mean()), 0.0, last + 1.0)
        lower = jnp.minimum(place.astype(jnp.int32), last)
        share = place - lower.astype(jnp.float32)
    else:
        axis = jnp.asarray(points, jnp.float32)
        lower = jnp.clip(jnp.searchsorted(axis, values, side="right").astype(jnp.int32) - 1, 0, last)
        share = jnp.clip((values - axis[lower]) / (axis[lower + 1] - axis[lower]), 0.0, 1.0)
    share = jnp.where(share < SNAP, 0.0, jnp.where(share > 1 - SNAP, 1.0, share))
    return lower, share


def corners(
    axes: tuple[Float[np.ndarray, " _"], ...], state: tuple[Float[Array, "*m"], ...], between: tuple[bool, ...]
) -> tuple[Int[Array, "*m C"], Float[Array, "*m C"]]:
    """Return rows and weights of multilinear interpolation; `between` tells which axes are not read at points only."""
    row = jnp.zeros((*state[0].shape, 1), jnp.int32)
    weight = jnp.ones((*state[0].shape, 1), jnp.float32)
    for points, values, interpolates in zip(axes, state, between, strict=True):
        lower, share = axis_position(points, values)
        if interpolates:
            places = jnp.stack([lower, lower + 1], axis=-1)
            shares = jnp.stack([1 - share, share], axis=-1)
        else:
            places = (lower + (share > 0.5).astype(jnp.int32))[..., None]
            shares = jnp.ones_like(share)[..., None]
        row = (row[..., :, None] * len(points) + places[..., None, :]).reshape(*values.shape, -1)
        weight = (weight[..., :, None] * shares[..., None, :]).reshape(*values.shape, -1)
    return row, weight


def lies_between(axes: tuple[Float[np.ndarray, " _"], ...], state: tuple[Float[Array, "*m"], ...]) -> Array:
    """Tell for each axis whether any of the states lies between its points."""
    shares = [axis_position(points, values)[1] for points, values in zip(axes, state, strict=True)]
    return jnp.stack([((share > 0) & (share < 1)).any() for share in shares])


def whole_and_rest(shift: Float[Array, "*m"]) -> tuple[Int[Array, "*m"], Float[Array, "*m"]]:
    """Split shifts into whole cells and the rest in [0, 1); a rest within `SNAP` of a whole number is dropped."""
    nearest = jnp.round(shift)
    shift = jnp.where(jnp.abs(shift - nearest) < SNAP, nearest, shift)
    whole = jnp.floor(shift)
    return whole.astype(jnp.int32), shift - whole


def widen(
    table: Float[Array, "N X"], margin: int, rise: tuple[Float[Array, ""], Float[Array, ""]]
) -> Float[Array, "N Y"]:
    """Continue every row linearly by `margin` cells at both ends; `rise` is the slope for one cell at each end."""
    away = jnp.arange(1, margin + 1, dtype=jnp.float32)
    below = table[:, :1] - rise[0] * away[::-1][None, :]
    above = table[:, -1:] + rise[1] * away[None, :]
    return jnp.concatenate([below, table, above], axis=1)


def read(
    wide: Float[Array, "M Y"],
    margin: int,
    count: int,
    row: Int[Array, "N C"],
    weight: Float[Array, "N C"],
    shift: Float[Array, " N"],
) -> Float[Array, "N X"]:
    """Read a widened table at the N states of a stencil, for `count` returns."""
    whole, rest = whole_and_rest(shift)

    def one(row: Int[Array, ""], whole: Int[Array, ""]) -> Float[Array, " Z"]:
        return jax.lax.dynamic_slice(wide, (row, margin + whole), (1, count + 1))[0]

    total = jnp.zeros((row.shape[0], count), jnp.float32)
    for corner in range(row.shape[1]):
        rows = jax.vmap(one)(row[:, corner], whole)
        blended = rows[:, :-1] + rest[:, None] * (rows[:, 1:] - rows[:, :-1])
        total = total + weight[:, corner, None] * blended
    return total
