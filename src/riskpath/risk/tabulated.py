"""Measures of different classes in one compiled program: as tables they differ in numbers only."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from riskpath.risk.compose import as_distortion
from riskpath.risk.measures import DistortionMeasure
from riskpath.risk.risk_measure import RiskMeasure, Tau


class Tabulated(DistortionMeasure):
    """A measure read from tables of h and h⁻¹. Measures of different classes can then be lanes of one program."""

    h: Array
    """h at equally spaced points of [0, 1]."""
    h_inverse: Array
    """h⁻¹ at the same points."""

    def __init__(self, measure: RiskMeasure | str, points: int = 2049):
        measure = as_distortion(measure, "Tabulated")
        grid = np.linspace(0.0, 1.0, points)
        self.h = jnp.asarray(np.asarray(measure.weight(grid), np.float32))
        self.h_inverse = jnp.asarray(np.asarray(measure.distort(grid), np.float32))

    def distort(self, tau: Tau) -> Any:
        """Return h⁻¹(τ) by linear interpolation."""
        return _interpolate(tau, self.h_inverse)

    def weight(self, cdf: Tau) -> Any:
        """Return h(t) by linear interpolation."""
        return _interpolate(cdf, self.h)

    @property
    def concave(self) -> bool:
        """Whether the slopes of the table of h decrease."""
        return bool((np.diff(np.asarray(self.h), 2) <= 1e-6).all())

    def __str__(self) -> str:
        return "tabulated"


def _interpolate(x: Tau, table: Array) -> Array:
    """Return the value of an equally spaced table at x in [0, 1]."""
    place = jnp.clip(jnp.asarray(x, jnp.float32), 0.0, 1.0) * (table.shape[0] - 1)
    below = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, table.shape[0] - 2)
    share = place - below.astype(jnp.float32)
    return (1.0 - share) * table[below] + share * table[below + 1]
