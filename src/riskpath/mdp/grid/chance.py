"""Normal chance as a sum over few nodes whose expectations are known.

A function of a standard normal ξ is replaced by its piecewise cubic interpolant between nodes,

    g(ξ) = Σ_j ℓ_j(ξ) G(z_j),     E[g] = Σ_j w_j G(z_j),     w_j = E[ℓ_j(ξ)],

so that g(ξ) − E[g] has mean zero, however rough the interpolation is. Bounds rest on this. Where there is a price, the
nodes are the values of ξ at which the next price is a point of its axis: tables are then read at their own prices.
Otherwise they are equally spaced.
"""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
import scipy.special
from jaxtyping import Array, Float, Int

Numbers = Array | np.ndarray
"""An array of JAX or NumPy."""
REACH = 5.6
"""How far the nodes reach to both sides, in standard deviations."""
NODES = 65
"""The number of nodes where there is no price."""
CELL = 0.05
"""The width of the cells of `cells`, in standard deviations."""


class PriceAxis(NamedTuple):
    """Prices that are equally spaced, or whose logarithms are."""

    low: float
    """The smallest price, or its logarithm."""
    step: float
    """The distance of two prices, or of their logarithms."""
    size: int
    """The number of prices; 1 if there is no price."""
    curved: bool
    """Whether logarithms are equally spaced."""

    @property
    def points(self) -> Float[np.ndarray, " S"]:
        """The prices in single precision."""
        points = self.low + self.step * np.arange(self.size)
        return as_floats(np.exp(points) if self.curved else points)

    def places(self, prices: Float[Numbers, "*m"]) -> Float[Numbers, "*m"]:
        """Return where prices lie on the axis, in units of its step; beyond its ends they are moved to the end."""
        if self.size == 1:
            return jnp.zeros_like(prices)
        value = jnp.log(jnp.maximum(prices, 1e-30)) if self.curved else prices
        return jnp.clip((value - self.low) / self.step, 0.0, self.size - 1.0)


class Nodes(NamedTuple):
    """The nodes of n moves."""

    row: Int[Numbers, "n W"]
    """The number of each node's price on its axis."""
    noise: Float[Numbers, "n W"]
    """z, the noise that leads there."""
    weights: Float[Numbers, "n W"]
    middle: Float[Numbers, " n"]
    """Where a noise of 0 leads, in units of the distance of two nodes from the first one."""
    slope: Float[Numbers, " n"]
    """The shift that a noise of 1 causes, in nodes."""


def as_floats(values: Any) -> np.ndarray:
    """Return numbers in single precision, without a compiled program."""
    return np.asarray(values, np.float32)


def cubic(rest: Any) -> tuple[Any, Any, Any, Any]:
    """Return the weights of the values at −1, 0, 1, 2 in the cubic through them, at a place in [0, 1]."""
    a, b, c = rest + 1, rest - 1, rest - 2
    return -rest * b * c / 6, a * b * c / 2, -a * rest * c / 2, a * rest * b / 6


def cardinal(place: Float[Numbers, "*m"], count: int) -> Float[Numbers, "*m W"]:
    """Return ℓ_j at places in units of the distance of `count` nodes; places are moved to the range [1, count − 2]."""
    place = jnp.clip(place, 1.0, count - 2.0)
    distance = jnp.abs(place[..., None] - jnp.arange(count, dtype=jnp.float32))
    inner = (1 - distance) * (1 + distance) * (2 - distance) / 2
    outer = (1 - distance) * (2 - distance) * (3 - distance) / 6
    return jnp.where(distance < 1, inner, jnp.where(distance < 2, outer, 0.0))


@partial(jax.jit, static_argnums=2)
def node_weights(middle: Float[Numbers, " n"], slope: Float[Numbers, " n"], width: int) -> Float[Numbers, "n W"]:
    """Return E[ℓ_j(ξ)]: an integral over every cell between two nodes, and what lies beyond the outer ones."""
    rests, shares = np.polynomial.legendre.leggauss(6)
    rests, shares = (rests + 1) / 2, shares / 2
    cells = jnp.arange(1, width - 2, dtype=jnp.float32)
    noise = (cells[None, :, None] + rests.astype(np.float32) - middle[:, None, None]) / slope[:, None, None]
    mass = jnp.exp(-0.5 * noise**2) * shares.astype(np.float32)
    below, above = (jax.scipy.special.ndtr((end - middle) / slope) for end in (1.0, width - 2.0))
    inside = (above - below)[:, None]
    parts = jnp.einsum("ncg,gm->mnc", mass, as_floats(np.stack(cubic(rests), axis=1)), precision="highest")
    parts = parts * (inside / jnp.maximum(mass.sum(axis=(1, 2)), 1e-30)[:, None])
    total = sum(jnp.pad(part, ((0, 0), (m, 3 - m))) for m, part in enumerate(parts))
    return jnp.asarray(total).at[:, 1].add(below).at[:, -2].add(1 - above)


@cache
def cells() -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Return the conditional means of narrow cells of a standard normal variable, and their probabilities.

    By Jensen's inequality the sum over these points is at least the expectation of any concave function.
    """
    edges = np.concatenate([[-np.inf], np.arange(-5.5, 5.5 + CELL / 2, CELL), [np.inf]])
    probs = np.diff(scipy.special.ndtr(edges))
    return -np.diff(np.exp(-(edges**2) / 2) / np.sqrt(2 * np.pi)) / probs, probs


def price_stencil(axis: PriceAxis, prices: Float[Numbers, "*m"]) -> tuple[Int[Numbers, "*m C"], Float[Numbers, "*m C"]]:
    """Return rows and weights of the interpolation between the points of an axis; beyond its ends it is constant."""
    if axis.size == 1:
        return jnp.zeros((*prices.shape, 1), jnp.int32), jnp.ones((*prices.shape, 1), jnp.float32)
    place = axis.places(prices)
    first = jnp.clip(jnp.floor(place) - 1, 0, axis.size - 4).astype(jnp.int32)
    return first[..., None] + jnp.arange(4, dtype=jnp.int32), cardinal(place - first.astype(jnp.float32), 4)
