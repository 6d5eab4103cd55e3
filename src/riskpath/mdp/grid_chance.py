"""Normal chance and prices between two points, as sums over few nodes whose expectations are known exactly.

A function of a standard normal ξ is replaced by its piecewise cubic interpolant between J nodes,

    g(ξ) = Σ_j ℓ_j(ξ) G(z_j),     E[g] = Σ_j w_j G(z_j),     w_j = E[ℓ_j(ξ)],

so that g(ξ) − E[g] has mean zero exactly, however rough the interpolation is. Bounds rest on this.
"""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Float, Int

Numbers = Array | np.ndarray
"""An array of JAX or NumPy."""
REACH = 5.6
"""The nodes reach this many standard deviations to both sides; beyond them the interpolant is constant."""
CELL = 0.05
"""The width of the cells of `cells`, in standard deviations."""


class Nodes(NamedTuple):
    """Nodes of a standard normal variable."""

    places: Float[np.ndarray, " J"]
    """z, equally spaced."""
    weights: Float[np.ndarray, " J"]
    """w, which sum to 1."""


def as_floats(values: Any) -> np.ndarray:
    """Return numbers in single precision, without a compiled program."""
    return np.asarray(values, np.float32)


@cache
def nodes(count: int) -> Nodes:
    """Return `count` equally spaced nodes and the expectations of their cardinal functions."""
    places = np.linspace(-REACH, REACH, count)
    fine = np.linspace(-8.0, 8.0, 32_001)
    density = _density(fine)
    first, local = _cubic_place(np, (fine - places[0]) / (places[1] - places[0]), count)
    weights = np.zeros(count)
    for number, share in enumerate(_lagrange(local)):
        np.add.at(weights, first + number, share * density)
    return Nodes(places, weights / density.sum())


@partial(jax.jit, static_argnums=1)
def cardinal(noise: Float[Numbers, " n"], count: int) -> Float[Numbers, "n J"]:
    """Return ℓ_j(ξ) for every node."""
    step = 2 * REACH / (count - 1)
    first, local = _cubic_place(jnp, (noise + REACH) / step, count)
    numbers = jnp.arange(count)[None, :]
    total = jnp.zeros((noise.shape[0], count), jnp.float32)
    for number, share in enumerate(_lagrange(local)):
        total += jnp.where(numbers == (first + number)[:, None], share[:, None], 0.0)
    return total


@cache
def cells() -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Return the conditional means of narrow cells of a standard normal variable, and their probabilities.

    By Jensen's inequality the sum over these points is at least the expectation of any concave function.
    """
    edges = np.concatenate([[-np.inf], np.arange(-5.5, 5.5 + CELL / 2, CELL), [np.inf]])
    probs = np.diff(scipy.special.ndtr(edges))
    return -np.diff(_density(edges)) / probs, probs


def _density(x: np.ndarray) -> np.ndarray:
    """Return the density of a standard normal variable."""
    return np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


def price_stencil(
    points: Float[Numbers, " S"], prices: Float[Numbers, "*m"]
) -> tuple[Int[Numbers, "*m 4"], Float[Numbers, "*m 4"]]:
    """Return rows and weights of cubic interpolation between the points of an axis; beyond its ends it is constant."""
    prices = jnp.clip(prices, points[0], points[-1])
    first = jnp.clip(jnp.searchsorted(points, prices, side="right").astype(jnp.int32) - 2, 0, points.shape[0] - 4)
    near = [points[first + number] for number in range(4)]
    shares = []
    for number in range(4):
        share = jnp.ones_like(prices)
        for other in range(4):
            if other != number:
                share *= (prices - near[other]) / (near[number] - near[other])
        shares.append(share)
    return first[..., None] + jnp.arange(4), jnp.stack(shares, axis=-1)


def _cubic_place(xp: Any, place: Any, count: int) -> tuple[Any, Any]:
    """Return the first of the four nodes around each place, and the place relative to it."""
    place = xp.clip(place, 0.0, count - 1.0)
    first = xp.clip(xp.floor(place) - 1, 0, count - 4).astype(xp.int32)
    return first, place - first.astype(place.dtype)


def _lagrange(local: Any) -> tuple[Any, Any, Any, Any]:
    """Return the four cubic Lagrange polynomials of the nodes 0, 1, 2, 3."""
    a, b, c, d = local, local - 1, local - 2, local - 3
    return -b * c * d / 6, a * c * d / 2, -a * b * d / 2, a * b * c / 6
