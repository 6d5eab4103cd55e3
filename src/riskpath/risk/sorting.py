"""A sort for the atoms of learned distributions: a few hundred atoms, many distributions at once.

On a CPU, XLA sorts one row after the other and calls a function for each comparison. A sorting network consists of
minima and maxima of whole arrays, which are vectorised. For 256 distributions on one core
(benchmarks/speed/sorting.py), `jnp.sort` takes 5.7 times as long at 16 atoms, 7.9 times at 64 and 6.4 times at 512;
with the gradient 2.0, 1.7 and 1.2 times. The network takes up to 1.1 seconds longer to compile, with the gradient up to
3.5. On devices other than a CPU `ascending` uses `jnp.sort`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

LARGEST = 512
"""The largest number of atoms for the network, which needs n log² n comparisons."""


def ascending(x: Float[Array, " n"]) -> Float[Array, " n"]:
    """Return the numbers in ascending order."""
    if not 2 <= x.size <= LARGEST:
        return _library_sort(x)
    return jax.lax.platform_dependent(x, cpu=sorting_network, default=_library_sort)


def _library_sort(x: Float[Array, " n"]) -> Float[Array, " n"]:
    return jnp.sort(x, stable=False)  # equal numbers need no order


def sorting_network(x: Float[Array, " n"]) -> Float[Array, " n"]:
    """Sort with Batcher's bitonic network: merge sorted blocks of k/2 into sorted blocks of k, until one is left."""
    size = 1 << (x.size - 1).bit_length()
    padded = jnp.concatenate([x, jnp.full((size - x.size,), jnp.inf, x.dtype)])
    k = 2
    while k <= size:
        low, high = jnp.moveaxis(padded.reshape(-1, 2, k // 2), 1, 0)
        high = high[:, ::-1]  # one half ascending, the other descending: then the two are compared entry by entry
        padded = jnp.stack([jnp.minimum(low, high), jnp.maximum(low, high)[:, ::-1]], axis=1).ravel()
        distance = k // 4
        while distance >= 1:
            low, high = jnp.moveaxis(padded.reshape(-1, 2, distance), 1, 0)
            padded = jnp.stack([jnp.minimum(low, high), jnp.maximum(low, high)], axis=1).ravel()
            distance //= 2
        k *= 2
    return padded[: x.size]
