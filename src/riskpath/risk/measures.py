"""Distortion risk measures: one number for the risk of a return distribution.

For a return Z with distribution function F, a distortion measure weights the outcomes by their rank:

    β[Z] = ∫ x d(h∘F)(x) = ∫₀¹ F⁻¹(h⁻¹(τ)) dτ,     h: [0,1] → [0,1] increasing, h(0) = 0, h(1) = 1.

`weight` is h, `distort` is h⁻¹. On a distribution with atoms x₁ < … < xₙ the integral is the sum
Σᵢ xᵢ (h(Fᵢ) − h(Fᵢ₋₁)), which `value` computes; a sample is the distribution that gives each draw probability 1/n.

| measure   | h⁻¹(τ)                      | h(t)                 | level        | attitude                      |
|-----------|-----------------------------|----------------------|--------------|-------------------------------|
| `Mean`    | τ                           | t                    |              | neutral                       |
| `CVaR(η)` | ητ                          | min(t/η, 1)          | 0 < η ≤ 1    | averse                        |
| `Wang(η)` | Φ(Φ⁻¹(τ) + η)               | Φ(Φ⁻¹(t) − η)        | η real       | η < 0 averse, η > 0 seeking   |
| `POW(η)`  | η < 0: 1−(1−τ)^(1/(1+|η|))  | 1−(1−t)^(1+|η|)      | η real       | η < 0 averse, η > 0 seeking   |
|           | η ≥ 0: τ^(1/(1+|η|))        | t^(1+|η|)            |              |                               |
| `CPW(η)`  | τ^η/(τ^η+(1−τ)^η)^(1/η)     | numeric inverse      | .2793 ≤ η ≤ 1| neither                       |

Every measure is a PyTree whose level is a leaf. NumPy input gives float64 NumPy output; JAX input gives JAX output,
also under `jit`, `vmap` (over the level as well) and `grad`.
"""

import abc
from typing import Any

import equinox as eqx
import numpy as np

from riskpath.risk.inverse import inverse, namespace, on_interior
from riskpath.risk.risk_measure import (
    ExpectedUtility,
    Level,
    Probs,
    Returns,
    RiskMeasure,
    Tau,
    UtilityForm,
    as_distribution,
    as_level,
    check_level,
    level_text,
)
from riskpath.risk.sorting import ascending


class DistortionMeasure(RiskMeasure):
    """A measure that weighs outcomes by rank, with h and its inverse.

    A measure of your own is a subclass with the three abstract members. If only one of `distort` and `weight` has a
    formula, compute the other with `inverse`. For a measure without parameters, `Distortion` is shorter.
    """

    @abc.abstractmethod
    def distort(self, tau: Tau) -> Any:
        """Return h⁻¹(τ): the level at which the quantile function is read instead of τ."""

    @abc.abstractmethod
    def weight(self, cdf: Tau) -> Any:
        """Return h(t): the distorted value of a cumulative probability t."""

    @property
    @abc.abstractmethod
    def concave(self) -> bool:
        """Whether h is concave: the measure is risk averse and prefers less dispersed returns at the same mean."""

    @property
    def order(self) -> int:
        return 2 if self.concave else 1

    @property
    def deterministic(self) -> bool:
        """Whether h is concave: then β is convex in mixtures of distributions."""
        return self.concave

    def value(self, returns: Returns, probs: Probs = None) -> Any:
        xp, x, p = as_distribution(self, returns, probs)
        # F at every atom. Its last value must be exactly 1, where h may be infinitely steep.
        if p is None:
            x = np.sort(x) if xp is np else ascending(x)
            cdf = xp.arange(1, x.size + 1, dtype=x.dtype) / x.size
        else:
            x, cdf = _sorted(x, p, xp)
        h = self.weight(cdf)
        mass = h - xp.concatenate([xp.zeros_like(h[:1]), h[:-1]])
        return xp.sum(x * mass)

    def of(self, atoms: Any, probs: Any) -> Any:
        """Return β of a distribution, Σᵢ xᵢ (h(Fᵢ) − h(Fᵢ₋₁))."""
        return self.value(atoms, probs)

    def influence(self, z: Any, atoms: Any, probs: Any) -> Any:
        """Return u(z) = ∫^z h′(F(x)) dx: linear between the values of the distribution, with slope h′(F)."""
        xp, _ = namespace(z, atoms, probs, self)
        x, cdf = _sorted(atoms, probs, xp)
        slope = self.slope(xp.concatenate([xp.zeros_like(cdf[:1]), cdf]))
        knots = xp.concatenate([xp.zeros_like(x[:1]), xp.cumsum(slope[1:-1] * xp.diff(x))])
        ends = slope[0] * xp.minimum(z - x[0], 0.0) + slope[-1] * xp.maximum(z - x[-1], 0.0)
        return xp.interp(z, x, knots) + ends

    def slope(self, cdf: Any, width: float | None = None) -> Any:
        """Return h′(t) as the slope of h over a short interval around t."""
        xp, _ = namespace(cdf, self)
        w = (1e-7 if xp is np else 1e-3) if width is None else width
        low, high = xp.clip(cdf - w, 0.0, 1.0), xp.clip(cdf + w, 0.0, 1.0)
        return (xp.asarray(self.weight(high)) - xp.asarray(self.weight(low))) / (high - low)


def _sorted(x: Any, p: Any, xp: Any) -> tuple[Any, Any]:
    """Return the values in ascending order, and F at each of them."""
    order = xp.argsort(x)
    x, cdf = x[order], xp.cumsum(p[order])
    return x, cdf / cdf[-1]


class Mean(DistortionMeasure, ExpectedUtility):
    """The expected return, which is risk neutral. Every other family contains it."""

    def distort(self, tau: Tau) -> Any:
        """Return h⁻¹(τ) = τ."""
        return tau

    def weight(self, cdf: Tau) -> Any:
        """Return h(t) = t."""
        return cdf

    @property
    def concave(self) -> bool:
        """True: h is linear."""
        return True

    def margin(self, z: Any, parameter: Any, floor: Any) -> Any:
        """Return z − x."""
        return z - floor

    def __str__(self) -> str:
        return "mean"


class CVaR(DistortionMeasure, UtilityForm):
    """Conditional value at risk: the mean of the worst fraction `level` of all returns."""

    level: Level = eqx.field(converter=as_level)
    """η in (0, 1]; 1 is the mean."""

    def __check_init__(self):
        check_level(self, "in (0, 1]", lambda eta: (eta > 0) & (eta <= 1))

    def distort(self, tau: Tau) -> Any:
        """Return h⁻¹(τ) = ητ."""
        return self.level * tau

    def weight(self, cdf: Tau) -> Any:
        """Return h(t) = min(t/η, 1)."""
        xp, _ = namespace(self.level, cdf)
        return xp.minimum(cdf / self.level, 1.0)

    @property
    def concave(self) -> bool:
        return True

    def margin(self, z: Any, parameter: Any, floor: Any) -> Any:
        """Return η(b − x) + min(z − b, 0), in which b is the parameter."""
        xp, _ = namespace(z, parameter, floor, self.level)
        return self.level * (parameter - floor) + xp.minimum(z - parameter, 0.0)

    def parameters(self, finals: Any) -> Any:
        """Return the thresholds b, which are returns."""
        return finals

    def __str__(self) -> str:
        return f"cvar:{level_text(self.level)}"


class Wang(DistortionMeasure):
    """The Wang transform: it shifts the mean of a normal distribution by `level` standard deviations."""

    level: Level = eqx.field(converter=as_level)
    """η, any real number: negative is averse, positive is seeking, 0 is the mean."""

    def __check_init__(self):
        check_level(self, "a finite number", np.isfinite)

    def distort(self, tau: Tau) -> Any:
        """Return h⁻¹(τ) = Φ(Φ⁻¹(τ) + η)."""
        return self._shift(tau, self.level)

    def weight(self, cdf: Tau) -> Any:
        """Return h(t) = Φ(Φ⁻¹(t) − η)."""
        return self._shift(cdf, -self.level)

    def _shift(self, t: Tau, by: Level) -> Any:
        xp, special = namespace(t, by)
        return on_interior(lambda t: special.ndtr(special.ndtri(t) + by), t, xp)

    @property
    def concave(self) -> bool:
        return bool(self.level <= 0)

    def __str__(self) -> str:
        return f"wang:{level_text(self.level)}"


class POW(DistortionMeasure):
    """The power measure. For negative integer levels, the expected worst of 1 + |level| draws."""

    level: Level = eqx.field(converter=as_level)
    """η, any real number: negative is averse, positive is seeking, 0 is the mean."""

    def __check_init__(self):
        check_level(self, "a finite number", np.isfinite)

    def distort(self, tau: Tau) -> Any:
        """Return h⁻¹(τ) = τ^(1/(1+|η|)) if η ≥ 0, else 1 − (1−τ)^(1/(1+|η|))."""
        xp, _ = namespace(tau, self.level)
        return self._power(tau, 1 / (1 + xp.abs(self.level)), xp)

    def weight(self, cdf: Tau) -> Any:
        """Return h(t) = t^(1+|η|) if η ≥ 0, else 1 − (1−t)^(1+|η|)."""
        xp, _ = namespace(cdf, self.level)
        return self._power(cdf, 1 + xp.abs(self.level), xp)

    def _power(self, t: Tau, exponent: Any, xp: Any) -> Any:
        seeking = self.level >= 0
        return on_interior(lambda t: xp.where(seeking, t**exponent, 1 - (1 - t) ** exponent), t, xp)

    @property
    def concave(self) -> bool:
        return bool(self.level <= 0)

    def __str__(self) -> str:
        return f"pow:{level_text(self.level)}"


def _cpw(tau: Any, eta: Any) -> Any:
    """Return h⁻¹(τ) of CPW."""
    xp, _ = namespace(tau, eta)
    return on_interior(lambda t: t**eta / (t**eta + (1 - t) ** eta) ** (1 / eta), tau, xp)


class CPW(DistortionMeasure):
    """Cumulative probability weighting of prospect theory: both tails get more weight than their probability."""

    level: Level = eqx.field(converter=as_level)
    """η in [0.2793, 1], where h⁻¹ is increasing; 0.71 fits human choices, 1 is the mean."""

    def __check_init__(self):
        accepted = "in [0.2793, 1] (below that its distortion is not increasing)"
        check_level(self, accepted, lambda eta: (eta >= 0.2793) & (eta <= 1))

    def distort(self, tau: Tau) -> Any:
        """Return h⁻¹(τ) = τ^η / (τ^η + (1−τ)^η)^(1/η)."""
        return _cpw(tau, self.level)

    def weight(self, cdf: Tau) -> Any:
        """Return h(t), by bisection: there is no formula."""
        return inverse(lambda tau: _cpw(tau, self.level), cdf)

    @property
    def concave(self) -> bool:
        """True only at level 1, which is the mean."""
        return bool(self.level == 1)

    def __str__(self) -> str:
        return f"cpw:{level_text(self.level)}"
