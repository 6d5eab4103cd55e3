"""A sort for the few hundred atoms of a learned law, many laws at once.

On a CPU XLA sorts one row after the other and calls a function for each comparison. A sorting network is nothing but
minima and maxima of whole arrays, which are vectorised: five to ten times faster for 256 atoms.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

LARGEST = 512
"""Beyond this the network's n log² n comparisons are too many."""


def ascending(x: Float[Array, " n"]) -> Float[Array, " n"]:
    """The same numbers, the lowest first."""
    if not 2 <= x.size <= LARGEST:
        return jnp.sort(x, stable=False)  # equal ones are equal
    return jax.lax.platform_dependent(x, cpu=_network, default=lambda x: jnp.sort(x, stable=False))


def _network(x: Float[Array, " n"]) -> Float[Array, " n"]:
    """Batcher's bitonic network: sorted blocks of k/2 are merged into sorted blocks of k, until one is left."""
    size = 1 << (x.size - 1).bit_length()
    padded = jnp.concatenate([x, jnp.full((size - x.size,), jnp.inf, x.dtype)])
    k = 2
    while k <= size:
        low, high = jnp.moveaxis(padded.reshape(-1, 2, k // 2), 1, 0)
        high = high[:, ::-1]  # one up, the other down: then the halves of both are compared
        padded = jnp.stack([jnp.minimum(low, high), jnp.maximum(low, high)[:, ::-1]], axis=1).ravel()
        apart = k // 4
        while apart >= 1:
            low, high = jnp.moveaxis(padded.reshape(-1, 2, apart), 1, 0)
            padded = jnp.stack([jnp.minimum(low, high), jnp.maximum(low, high)], axis=1).ravel()
            apart //= 2
        k *= 2
    return padded[: x.size]
