"""The replay buffer: one ring over [time, column], where a column is one environment of one lane.

A row holds the transitions of all columns at one moment, packed into float32 (state numbers and flags are whole numbers
below 2²⁴, so nothing is lost). More lanes are more columns, so one slice update outside of any `vmap` writes the buffer
without a copy. Windows are gathered by index when they are sampled; none is stored.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from riskpath.types import Key, Keys, Segment, Transition, Window


class ReplayBuffer(eqx.Module):
    """The rows and the number of rows ever added."""

    rows: Float[Array, "T K D"]
    """K columns: lane 0's environments, lane 1's, …"""
    num_added: Int[Array, ""]
    """Number of rows ever added."""
    example: Any = eqx.field(static=True)
    """Shapes and types of one transition (as `jax.ShapeDtypeStruct`s), needed to unpack it."""


def make_replay_buffer(example: Any, capacity: int, columns: int, sharding: Any = None) -> ReplayBuffer:
    """Return an empty buffer for transitions like `example`, on one device or spread over several."""
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), example)
    width = sum(_cells(leaf) for leaf in jax.tree.leaves(shapes))
    return ReplayBuffer(jnp.zeros((capacity, columns, width), device=sharding), jnp.zeros((), jnp.int32), shapes)


def add(buffer: ReplayBuffer, transitions: Any) -> ReplayBuffer:
    """Write one row; `transitions` has a leading axis of all columns."""
    row = pack_rows(transitions)
    at = buffer.num_added % buffer.rows.shape[0]
    rows = jax.lax.dynamic_update_slice(buffer.rows, row[None], (at, jnp.zeros_like(at), jnp.zeros_like(at)))
    return ReplayBuffer(rows, buffer.num_added + 1, buffer.example)


def pack_rows(transitions: Any) -> Float[Array, "K D"]:
    """Return transitions, whose leaves have a leading axis, in packed form."""
    leaves = (jnp.reshape(x, (x.shape[0], math.prod(x.shape[1:]))) for x in jax.tree.leaves(transitions))
    return jnp.concatenate([_pack(x) for x in leaves], axis=1)


def _cells(leaf: jax.ShapeDtypeStruct) -> int:
    """Return the number of entries that a leaf takes in a row; four bytes share one entry."""
    size = math.prod(leaf.shape)
    return -(-size // 4) if leaf.dtype == jnp.uint8 else size


def _pack(x: Shaped[Array, "K N"]) -> Float[Array, "K D"]:
    if x.dtype != jnp.uint8:
        return x.astype(jnp.float32)
    whole = jnp.pad(x, ((0, 0), (0, -x.shape[1] % 4)))
    return jax.lax.bitcast_convert_type(whole.reshape(len(x), -1, 4), jnp.float32)


def _unpack_leaf(leaf: jax.ShapeDtypeStruct, part: Float[Array, " D"]) -> Shaped[Array, "*shape"]:
    if leaf.dtype == jnp.uint8:
        return jax.lax.bitcast_convert_type(part, jnp.uint8).ravel()[: math.prod(leaf.shape)].reshape(leaf.shape)
    part = part.reshape(leaf.shape)
    return part > 0.5 if leaf.dtype == jnp.bool_ else part.astype(leaf.dtype)


def unpack(example: Any, packed: Float[Array, " D"]) -> Transition:
    """Return one transition from its packed form."""
    leaves, structure = jax.tree.flatten(example)
    parts, at = [], 0
    for leaf in leaves:
        size = _cells(leaf)
        parts.append(_unpack_leaf(leaf, packed[at : at + size]))
        at += size
    return jax.tree.unflatten(structure, parts)


def sample_indices(
    buffer: ReplayBuffer, lanes: int, batch: int, keys: Keys
) -> tuple[Int[Array, "L B"], Int[Array, "L B"]]:
    """Draw uniform (row, column) pairs for each lane among the filled rows; rows count from the oldest."""
    capacity, columns, _ = buffer.rows.shape
    per_lane = columns // lanes
    filled = jnp.minimum(buffer.num_added, capacity)

    def draw(key: Key, lane: Int[Array, ""]) -> tuple[Int[Array, " B"], Int[Array, " B"]]:
        bits = jax.random.bits(key, (2, batch))  # 2³² is so large that the remainders are as good as uniform
        ages, column = bits[0] % filled.astype(jnp.uint32), bits[1] % per_lane
        return ages.astype(jnp.int32), lane * per_lane + column.astype(jnp.int32)

    return jax.vmap(draw)(keys, jnp.arange(lanes, dtype=jnp.int32))


def gather(
    buffer: ReplayBuffer, ages: Int[Array, "L B"], columns: Int[Array, "L B"], length: int, steps: int = 1
) -> Any:
    """Return the transitions at these places.

    With a length, they are `Window`s of that many observations that end there. With several steps, they are `Segment`s
    that begin there.
    """
    capacity = buffer.rows.shape[0]
    oldest, newest = jnp.maximum(buffer.num_added - capacity, 0), jnp.minimum(buffer.num_added, capacity) - 1
    offsets = jnp.arange(1 - max(length, 1), 1, dtype=jnp.int32) if steps == 1 else jnp.arange(steps, dtype=jnp.int32)
    wanted = ages[:, :, None] + offsets[None, None, :]
    packed = buffer.rows[(oldest + jnp.clip(wanted, 0, newest)) % capacity, columns[:, :, None]]
    # The barrier keeps the compiler from moving the read past the next write, which would need a copy of the buffer.
    packed = jax.lax.optimization_barrier(packed)

    def one(rows: Float[Array, "T D"], wanted: Int[Array, " T"]) -> Any:
        if steps > 1:
            return Segment(jax.vmap(lambda row: unpack(buffer.example, row))(rows), wanted <= newest)
        return _window(buffer.example, rows, wanted) if length else unpack(buffer.example, rows[-1])

    return jax.vmap(jax.vmap(one))(packed, wanted)


def _window(example: Any, rows: Float[Array, "T D"], ages: Int[Array, " T"]) -> Window:
    """Return a window; an entry is valid if it is still in the buffer and not older than the episode's start."""
    steps = jax.vmap(lambda row: unpack(example, row))(rows)
    last = jax.tree.map(lambda x: x[-1], steps)
    back = jnp.arange(len(ages) - 1, -1, -1, dtype=jnp.int32)
    prev_action = jnp.concatenate([jnp.zeros_like(steps.action[:1]), steps.action[:-1]])
    return Window(last, steps.observation, prev_action, (ages >= 0) & (back <= last.time))
