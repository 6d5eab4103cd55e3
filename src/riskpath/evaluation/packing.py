"""Arrays packed into a few, for programs that are called at every step: each array of a call takes microseconds."""

import math
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

SMALL = 1_024
"""The largest number of entries of a packed array; copying larger ones would take longer."""


class Place(NamedTuple):
    """One array of a PyTree; random keys are packed as the numbers that they consist of."""

    shape: tuple[int, ...]
    dtype: Any
    random: Hashable = None
    """The kind of random keys, if they are keys."""

    @staticmethod
    def of(x: Array) -> "Place":
        plain = jax.eval_shape(_plain, x) if is_key(x) else x
        return Place(plain.shape, plain.dtype, jax.random.key_impl(x) if is_key(x) else None)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Layout:
    """The static part of a PyTree, and how its arrays are packed.

    Large arrays come first, unchanged; then one vector for each type of small ones. Flattening a PyTree and hashing its
    layout take longer than a step of a small network, so both are done once for many steps, and equal layouts are one
    object.
    """

    _seen: ClassVar[dict["Layout", "Layout"]] = {}

    def __init__(self, tree: Any):
        leaves, structure = jax.tree.flatten(tree)
        self._known = (structure, tuple(Place.of(x) if eqx.is_array(x) else x for x in leaves))
        self._hash = hash(self._known)

    @staticmethod
    def of(tree: Any) -> "Layout":
        layout = Layout(tree)
        return Layout._seen.setdefault(layout, layout)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Layout) and self._known == other._known)

    @staticmethod
    def packed(tree: Any) -> tuple["Layout", list[Array]]:
        """Return the layout of a PyTree and its arrays, packed."""
        layout = Layout.of(tree)
        return layout, layout.pack(tree)

    def pack(self, tree: Any) -> list[Array]:
        """Return the arrays of a PyTree with this layout, packed."""
        plain = [_plain(x) for x in jax.tree.leaves(tree) if eqx.is_array(x)]
        small: dict[Any, list[Array]] = {}
        for x in plain:
            if x.size <= SMALL:
                small.setdefault(x.dtype, []).append(x.ravel())
        return [x for x in plain if x.size > SMALL] + [jnp.concatenate(parts) for parts in small.values()]

    def unpack(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays of the PyTree that were packed."""
        places = [place for place in self._known[1] if isinstance(place, Place)]
        count = sum(place.size > SMALL for place in places)
        large, vectors = iter(arrays[:count]), {x.dtype: x for x in arrays[count:]}
        used = dict.fromkeys(vectors, 0)

        def array(place: Place) -> Array:
            if place.size > SMALL:
                plain = next(large)
            else:
                start = used[place.dtype]
                used[place.dtype] = end = start + place.size
                plain = vectors[place.dtype][start:end].reshape(place.shape)
            return plain if place.random is None else jax.random.wrap_key_data(plain, impl=place.random)

        return [array(place) for place in places]

    def tree(self, arrays: Sequence[Array]) -> Any:
        """Return the PyTree with these arrays, which are not packed."""
        structure, leaves = self._known
        left = iter(arrays)
        return jax.tree.unflatten(structure, [next(left) if isinstance(x, Place) else x for x in leaves])

    def unpacked(self, arrays: Sequence[Array]) -> Any:
        return self.tree(self.unpack(arrays))


def is_key(x: Any) -> bool:
    """Tell whether something is an array of random keys."""
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _plain(x: Array) -> Array:
    """Return an array of numbers: that of the keys, if they are keys."""
    return jax.random.key_data(x) if is_key(x) else x
