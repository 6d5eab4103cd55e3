"""Measures of different kinds in one compiled program: as tables of numbers they differ in numbers only."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from riskpath.risk.measures import RiskMeasure, Tau


class Tabulated(RiskMeasure):
    """A measure read from tables of h and h⁻¹, so that measures of different kinds can be lanes of one program."""

    h: Array
    """h at equally spaced points of [0, 1]."""
    h_inverse: Array
    """h⁻¹ there."""

    def __init__(self, measure: RiskMeasure, points: int = 2049):
        grid = np.linspace(0.0, 1.0, points)
        self.h = jnp.asarray(measure.weight(grid), jnp.float32)
        self.h_inverse = jnp.asarray(measure.distort(grid), jnp.float32)

    def distort(self, tau: Tau) -> Any:
        """h⁻¹(τ), by linear interpolation."""
        return _interpolate(tau, self.h_inverse)

    def weight(self, cdf: Tau) -> Any:
        """h(t), by linear interpolation."""
        return _interpolate(cdf, self.h)

    @property
    def concave(self) -> bool:
        """Do the tabulated slopes fall?"""
        return bool((np.diff(np.asarray(self.h), 2) <= 1e-6).all())

    def __str__(self) -> str:
        return "tabulated"


def _interpolate(x: Tau, table: Array) -> Array:
    """The table at a share x of its length; equally spaced, so no search is needed."""
    place = jnp.clip(jnp.asarray(x, jnp.float32), 0.0, 1.0) * (table.shape[0] - 1)
    below = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, table.shape[0] - 2)
    share = place - below.astype(jnp.float32)
    return (1.0 - share) * table[below] + share * table[below + 1]
