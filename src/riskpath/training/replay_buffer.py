"""The replay: one ring over [time, column], where a column is one environment of one lane.

A row is everything that happened at one moment in all columns, packed into float32 (state numbers and flags are whole
numbers below 2²⁴, so nothing is lost). Lanes are only more columns, so the ring is written by one slice update
outside of any `vmap` and never copied. A window is gathered by index when it is sampled; none is stored.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from riskpath.types import Key, Keys, Step, Window


class Ring(eqx.Module):
    """The buffer and where the next row goes."""

    rows: Float[Array, "T K D"]
    """K columns: lane 0's environments, lane 1's, …"""
    written: Int[Array, ""]
    """How many rows were ever written."""
    example: Any = eqx.field(static=True)
    """Shapes and types of one step (as `jax.ShapeDtypeStruct`s), to pack and unpack by."""


def make_ring(example: Any, capacity: int, columns: int) -> Ring:
    """An empty ring for steps like `example`."""
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), example)
    width = sum(_cells(leaf) for leaf in jax.tree.leaves(shapes))
    return Ring(jnp.zeros((capacity, columns, width)), jnp.zeros((), jnp.int32), shapes)


def push(ring: Ring, steps: Any) -> Ring:
    """Writes one row: `steps` has a leading axis of all columns."""
    columns = ring.rows.shape[1]
    leaves = (jnp.reshape(x, (columns, math.prod(x.shape[1:]))) for x in jax.tree.leaves(steps))
    row = jnp.concatenate([_packed(x) for x in leaves], axis=1)
    at = ring.written % ring.rows.shape[0]
    rows = jax.lax.dynamic_update_slice(ring.rows, row[None], (at, jnp.zeros_like(at), jnp.zeros_like(at)))
    return Ring(rows, ring.written + 1, ring.example)


def _cells(leaf: jax.ShapeDtypeStruct) -> int:
    """How many numbers of a row it takes: four bytes go into one."""
    size = math.prod(leaf.shape)
    return -(-size // 4) if leaf.dtype == jnp.uint8 else size


def _packed(x: Shaped[Array, "K N"]) -> Float[Array, "K D"]:
    if x.dtype != jnp.uint8:
        return x.astype(jnp.float32)
    whole = jnp.pad(x, ((0, 0), (0, -x.shape[1] % 4)))
    return jax.lax.bitcast_convert_type(whole.reshape(len(x), -1, 4), jnp.float32)


def _unpacked(leaf: jax.ShapeDtypeStruct, part: Float[Array, " D"]) -> Shaped[Array, "*shape"]:
    if leaf.dtype == jnp.uint8:
        return jax.lax.bitcast_convert_type(part, jnp.uint8).ravel()[: math.prod(leaf.shape)].reshape(leaf.shape)
    part = part.reshape(leaf.shape)
    return part > 0.5 if leaf.dtype == jnp.bool_ else part.astype(leaf.dtype)


def unpack(example: Any, packed: Float[Array, " D"]) -> Step:
    """The inverse of packing one step."""
    leaves, structure = jax.tree.flatten(example)
    parts, at = [], 0
    for leaf in leaves:
        size = _cells(leaf)
        parts.append(_unpacked(leaf, packed[at : at + size]))
        at += size
    return jax.tree.unflatten(structure, parts)


def sample_indices(ring: Ring, lanes: int, batch: int, keys: Keys) -> tuple[Int[Array, "L B"], Int[Array, "L B"]]:
    """Uniform (row, column) pairs for each lane, among what is there; rows count from the oldest."""
    capacity, columns, _ = ring.rows.shape
    per_lane = columns // lanes
    filled = jnp.minimum(ring.written, capacity)

    def draw(key: Key, lane: Int[Array, ""]) -> tuple[Int[Array, " B"], Int[Array, " B"]]:
        row_key, column_key = jax.random.split(key)
        ages = jax.random.randint(row_key, (batch,), 0, filled)
        return ages, lane * per_lane + jax.random.randint(column_key, (batch,), 0, per_lane)

    return jax.vmap(draw)(keys, jnp.arange(lanes, dtype=jnp.int32))


def gather(ring: Ring, ages: Int[Array, "L B"], columns: Int[Array, "L B"], length: int) -> Any:
    """The steps at these places; if length is not 0, windows of the `length` tokens of history that end in them."""
    capacity = ring.rows.shape[0]
    oldest = jnp.maximum(ring.written - capacity, 0)
    back = jnp.arange(max(length, 1) - 1, -1, -1, dtype=jnp.int32)
    wanted = ages[:, :, None] - back[None, None, :]
    packed = ring.rows[(oldest + jnp.maximum(wanted, 0)) % capacity, columns[:, :, None]]
    # The barrier keeps the compiler from moving the read past the next write, which would need a copy of the ring.
    packed = jax.lax.optimization_barrier(packed)
    one = _window if length else lambda example, rows, _: unpack(example, rows[-1])
    return jax.vmap(jax.vmap(lambda rows, wanted: one(ring.example, rows, wanted)))(packed, wanted)


def _window(example: Any, rows: Float[Array, "T D"], ages: Int[Array, " T"]) -> Window:
    """A token is of the last one's episode if it is still in the ring and not further back than that episode began."""
    steps = jax.vmap(lambda row: unpack(example, row))(rows)
    last = jax.tree.map(lambda x: x[-1], steps)
    back = jnp.arange(len(ages) - 1, -1, -1, dtype=jnp.int32)
    prev_action = jnp.concatenate([jnp.zeros_like(steps.action[:1]), steps.action[:-1]])
    return Window(last, steps.obs, prev_action, (ages >= 0) & (back <= last.time))
