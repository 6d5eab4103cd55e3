"""Value at risk and the two limits of rank weights: the worst case and the best case. Their h jumps at one level."""

from typing import Any

import equinox as eqx

from riskpath.risk.inverse import as_float, namespace
from riskpath.risk.measures import DistortionMeasure
from riskpath.risk.risk_measure import Level, Tau, as_level, check_level, level_text
from riskpath.risk.utility_families import ThresholdFamily
from riskpath.risk.utility_measures import blurred_step

SMOOTHED = 0.1
"""The half width of the interval of levels over which the influence of VaR is averaged, as a fraction of the tail."""
PENALTY = 4.0
"""What a threshold loses, in units of the return, that is missed with twice the probability allowed."""


class VaR(DistortionMeasure, ThresholdFamily):
    """Value at risk: the largest b with P(Z < b) ≤ level, a quantile of the return."""

    level: Level = eqx.field(converter=as_level)
    """α in (0, 1)."""

    def __check_init__(self):
        check_level(self, "in (0, 1)", lambda alpha: (alpha > 0) & (alpha < 1))

    def distort(self, tau: Tau) -> Any:
        """Return h⁻¹(τ) = α."""
        xp, _ = namespace(self.level, tau)
        return xp.zeros_like(as_float(tau, xp)) + self.level

    def weight(self, cdf: Tau) -> Any:
        """Return h(t): 1 for t > α, else 0."""
        xp, _ = namespace(self.level, cdf)
        t = as_float(cdf, xp)
        return xp.where(t > self.level + 8 * float(xp.finfo(t.dtype).eps), 1.0, xp.zeros_like(t))

    def slope(self, cdf: Any, width: float | None = None) -> Any:
        """Return the slope of h over an interval around α that is not short: h jumps, so it has no slope of its own."""
        xp, _ = namespace(cdf, self.level)
        half = SMOOTHED * xp.minimum(self.level, 1.0 - self.level)
        return xp.where(xp.abs(cdf - self.level) <= half, 1.0, 0.0) / (2 * half)

    @property
    def concave(self) -> bool:
        """False: h is 0, then 1."""
        return False

    @property
    def deterministic(self) -> bool:
        """True: the largest P(Z ≥ b) decides, which a deterministic policy attains."""
        return True

    @property
    def threshold(self) -> None:
        """None: the best b has to be found."""

    def gain(self, x: Any, unit: Any, blur: Any) -> Any:
        """Return 1 unit for x ≥ 0, else 0."""
        return unit * blurred_step(x, blur * unit)

    def value_at(self, threshold: Any, gain: Any, unit: Any) -> Any:
        """Return b, less a penalty where P(Z ≥ b) is below 1 − α."""
        xp, _ = namespace(self.level, threshold, gain)
        missing = xp.maximum(1.0 - self.level - gain / unit, 0.0)
        return threshold - PENALTY * unit * missing / xp.minimum(self.level, 1.0 - self.level)

    def __str__(self) -> str:
        return f"var:{level_text(self.level)}"


class WorstCase(DistortionMeasure):
    """The smallest return that is possible: the limit of CVaR, EVaR and entropic risk."""

    def distort(self, tau: Tau) -> Any:
        """Return h⁻¹(τ) = 0."""
        return tau * 0.0

    def weight(self, cdf: Tau) -> Any:
        """Return h(t): 1 for t > 0, else 0."""
        xp, _ = namespace(cdf)
        return xp.where(xp.asarray(cdf) > 0, 1.0, 0.0 * as_float(cdf, xp))

    @property
    def concave(self) -> bool:
        """True, on (0, 1]."""
        return True

    def __str__(self) -> str:
        return "worst"


class BestCase(DistortionMeasure):
    """The largest return that is possible."""

    def distort(self, tau: Tau) -> Any:
        """Return h⁻¹(τ) = 1."""
        return tau * 0.0 + 1.0

    def weight(self, cdf: Tau) -> Any:
        """Return h(t): 0 for t < 1, else 1."""
        xp, _ = namespace(cdf)
        t = as_float(cdf, xp)
        return xp.where(t >= 1.0 - 8 * float(xp.finfo(t.dtype).eps), 1.0, 0.0 * t)

    @property
    def concave(self) -> bool:
        return False

    @property
    def deterministic(self) -> bool:
        """True: the largest return of a draw between policies is that of one of them."""
        return True

    def __str__(self) -> str:
        return "best"
