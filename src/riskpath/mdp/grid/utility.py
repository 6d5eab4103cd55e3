"""The grid of returns, and utilities of the final return on it.

A backward pass maximises E[u(x + return to go)]. For CVaR u(x) = min(x, 0), where x is the return so far minus the
threshold b; for the mean u(x) = x; for any other measure u comes from a distribution, see `other_measures`.
"""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from riskpath.mdp.grid.chance import Numbers
from riskpath.mdp.grid.stencils import read, widen


class ReturnAxis(eqx.Module):
    """Equally spaced returns x; 0 is one of them if it lies inside."""

    low: float | Array
    step: float | Array
    count: int = eqx.field(static=True)

    @staticmethod
    def over(low: float, high: float, count: int, step: float | None = None) -> "ReturnAxis":
        """Return an axis of `count` points that covers [low, high], or one of a given step."""
        if step is None:
            step = max(high - low, 1e-6 * max(1.0, abs(low), abs(high))) / max(1, count - 2)
        else:
            count = math.ceil((high - low) / step - 1e-6) + 2
        return ReturnAxis(math.floor(low / step + 1e-6) * step, step, count)

    @property
    def points(self) -> Float[np.ndarray, " X"]:
        """The returns."""
        return float(self.low) + float(self.step) * np.arange(self.count)

    @property
    def values(self) -> Float[Array, " X"]:
        """The returns, for a compiled program."""
        return self.low + self.step * jnp.arange(self.count, dtype=jnp.float32)


class KinkedUtility(eqx.Module):
    """u(x) = slope·x + tail·min(x, 0)."""

    slope: float | Array
    """The slope above 0."""
    tail: float | Array
    """The additional slope below 0."""

    def ends(self) -> tuple[float | Array, float | Array]:
        """Return the slopes at the lower and the upper end."""
        return self.slope + self.tail, self.slope

    def at(self, x: Float[Numbers, "*m"]) -> Float[Numbers, "*m"]:
        """Return u(x)."""
        return self.slope * x + self.tail * jnp.minimum(x, 0.0)

    def rows(self, axis: ReturnAxis, shift: Float[Array, " N"]) -> Float[Numbers, "N X"]:
        """Return u(x + shift) for all x of the axis; the shift is in returns."""
        return self.at(axis.values[None, :] + shift[:, None])


class TabulatedUtility(eqx.Module):
    """A utility given at the points of the axis of returns, linear between them and beyond both ends."""

    heights: Float[Array, " X"]
    """u at the points of the axis."""
    axis: ReturnAxis
    margin: int = eqx.field(static=True)
    """How many cells beyond the axis may be read."""

    def ends(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the slopes at the lower and the upper end."""
        step = self.axis.step
        return (self.heights[1] - self.heights[0]) / step, (self.heights[-1] - self.heights[-2]) / step

    def at(self, x: Float[Numbers, "*m"]) -> Float[Array, "*m"]:
        """Return u(x)."""
        place = (x - self.axis.low) / self.axis.step
        lower = jnp.clip(jnp.floor(place), 0, self.axis.count - 2).astype(jnp.int32)
        rest = place - lower.astype(jnp.float32)  # outside [0, 1] beyond the ends: the last cell continues
        return self.heights[lower] + rest * (self.heights[lower + 1] - self.heights[lower])

    def rows(self, axis: ReturnAxis, shift: Float[Array, " N"]) -> Float[Numbers, "N X"]:
        """Return u(x + shift) for all x of the axis; the shift is in returns."""
        low, high = self.ends()
        wide = widen(self.heights[None, :], self.margin, (low * axis.step, high * axis.step))
        row = jnp.zeros((*shift.shape, 1), jnp.int32)
        return read(wide, self.margin, axis.count, row, jnp.ones(row.shape, jnp.float32), shift / axis.step)


Utility = KinkedUtility | TabulatedUtility
SHORTFALL = KinkedUtility(0.0, 1.0)
"""u(x) = min(x, 0), for CVaR."""
LINEAR = KinkedUtility(1.0, 0.0)
"""u(x) = x, for the mean."""
