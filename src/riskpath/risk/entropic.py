"""Entropic risk, and entropic value at risk, which is its supremum over all degrees of aversion.

    Entropic_λ[Z] = −log E[e^{−λZ}] / λ,        EVaR_α[Z] = sup_{λ>0} { Entropic_λ[Z] + log(α)/λ }.

Both are computed from exponentials of differences to the smallest return, so returns may have any size. The supremum
is where the distribution with weights proportional to e^{−λz} has the relative entropy −log α to that of Z.
"""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import scipy.optimize

from riskpath.risk.inverse import namespace
from riskpath.risk.risk_measure import ExpectedUtility, Level, UtilityForm, as_level, check_level, level_text
from riskpath.risk.utility_families import AversionFamily

LEAST, LARGEST = 1e-12, 1e12
"""The smallest and the largest λ of EVaR, for returns whose range is 1."""
EXPONENT = 18.0
"""Exponents are cut here where returns far below the distribution get an influence."""
AROUND = 8.0
"""Learning for entropic risk also sees aversions up to this factor from its own."""
WORST = 50.0
"""λ times the scale of returns at which entropic risk is close to the worst case."""


class Entropic(ExpectedUtility, AversionFamily):
    """Entropic risk: the certainty equivalent of the exponential utility with aversion `level`."""

    level: Level = eqx.field(converter=as_level)
    """λ > 0: close to 0 it is the mean, for large λ the worst case. Its unit is 1/return."""

    def __check_init__(self):
        check_level(self, "more than 0", lambda aversion: aversion > 0)

    def of(self, atoms: Any, probs: Any) -> Any:
        """Return −log E[e^{−λZ}]/λ."""
        return -log_mean_exp(atoms, probs, self.level) / self.level

    def influence(self, z: Any, atoms: Any, probs: Any) -> Any:
        """Return −e^{−λ(z − β)}/λ, with β the value."""
        return margin_of(z, self.of(atoms, probs), self.level) / self.level

    def margin(self, z: Any, parameter: Any, floor: Any) -> Any:
        """Return 1 − e^{−λ(z − x)}."""
        return margin_of(z, floor, self.level)

    @property
    def known_aversion(self) -> Any:
        return self.level

    def aversions(self, span: Any, unit: Any) -> tuple[Any, Any]:
        """Return degrees of aversion around the own one; policies for others help to explore."""
        return self.level / AROUND, self.level * AROUND

    def value_at(self, aversion: Any, entropic: Any) -> Any:
        """Return the entropic risk."""
        return entropic

    @property
    def order(self) -> int:
        """2: the utility is concave."""
        return 2

    def __str__(self) -> str:
        return f"entropic:{level_text(self.level)}"


class EVaR(UtilityForm, AversionFamily):
    """Entropic value at risk: the smallest mean of all distributions that are close to that of the return.

    Close means a relative entropy of at most −log(level).
    """

    level: Level = eqx.field(converter=as_level)
    """α in (0, 1], as for CVaR, which is never smaller: 1 is the mean, close to 0 it is the worst case."""

    def __check_init__(self):
        check_level(self, "in (0, 1]", lambda alpha: (alpha > 0) & (alpha <= 1))

    def of(self, atoms: Any, probs: Any) -> Any:
        """Return sup_λ {−log E[e^{−λZ}]/λ + log(α)/λ}."""
        xp, _ = namespace(atoms, probs, self.level)
        aversion = self.aversion(atoms, probs)
        value = (xp.log(xp.asarray(self.level)) - log_mean_exp(atoms, probs, aversion)) / aversion
        return xp.maximum(value, xp.min(xp.where(probs > 0, atoms, xp.inf)))

    def aversion(self, atoms: Any, probs: Any) -> Any:
        """Return the λ that attains the supremum; it is large where the smallest return is the value."""
        xp, _ = namespace(atoms, probs, self.level)
        low = xp.min(xp.where(probs > 0, atoms, xp.inf))
        span = xp.max(xp.where(probs > 0, atoms, low)) - low
        span = xp.where(span > 0, span, 1.0)
        y = xp.where(probs > 0, (atoms - low) / span, 0.0)
        budget = -xp.log(xp.asarray(self.level))
        # Relative entropy grows with λ, and is at most λ²/8 because the range of y is 1.
        bottom = xp.log(xp.maximum(xp.sqrt(8.0 * budget), LEAST if xp is np else 1e-6))
        top = xp.full_like(bottom, np.log(LARGEST))

        def missing(log_aversion: Any) -> Any:
            return budget - relative_entropy(y, probs, xp.exp(log_aversion))

        if xp is np:
            if missing(bottom) <= 0:
                return np.exp(bottom) / span
            if missing(top) > 0:
                return np.exp(top) / span
            root: Any = scipy.optimize.brentq(missing, float(bottom), float(top), xtol=1e-13)
            return np.exp(root) / span

        def halve(_: Any, ends: Any) -> Any:
            middle = (ends[0] + ends[1]) / 2
            below = missing(middle) > 0
            return xp.where(below, middle, ends[0]), xp.where(below, ends[1], middle)

        found, span = jax.lax.stop_gradient((jax.lax.fori_loop(0, 32, halve, (bottom, top))[0], span))
        return xp.exp(found) / span

    def influence(self, z: Any, atoms: Any, probs: Any) -> Any:
        """Return the influence of entropic risk at the best λ."""
        aversion = self.aversion(atoms, probs)
        return margin_of(z, -log_mean_exp(atoms, probs, aversion) / aversion, aversion) / aversion

    def margin(self, z: Any, parameter: Any, floor: Any) -> Any:
        """Return α − e^{−λ(z − x)}, in which λ is the parameter."""
        return self.level - 1.0 + margin_of(z, floor, parameter)

    def parameters(self, finals: Any) -> Any:
        """Return degrees of aversion λ, closely spaced on a logarithmic scale."""
        span = max(float(np.ptp(finals)), 1e-9 * max(1.0, float(np.abs(finals).max())))
        least = max(np.sqrt(-8.0 * np.log(float(self.level))), 1e-6)
        return np.geomspace(least, max(1e6, 1e3 * least), 257) / span

    @property
    def known_aversion(self) -> None:
        """None: the best λ has to be found."""

    def aversions(self, span: Any, unit: Any) -> tuple[Any, Any]:
        """Return the smallest λ that can be best, and one that is close to the worst case."""
        xp, _ = namespace(self.level, span, unit)
        least = xp.maximum(xp.sqrt(-8.0 * xp.log(xp.asarray(self.level))), 1e-3)
        return least / span, xp.maximum(WORST / unit, 4.0 * least / span)

    def value_at(self, aversion: Any, entropic: Any) -> Any:
        """Return Entropic_λ + log(α)/λ."""
        xp, _ = namespace(self.level, aversion, entropic)
        return entropic + xp.log(xp.asarray(self.level)) / aversion

    @property
    def order(self) -> int:
        """2, as for entropic risk."""
        return 2

    def __str__(self) -> str:
        return f"evar:{level_text(self.level)}"


def log_mean_exp(x: Any, probs: Any, aversion: Any) -> Any:
    """Return log E[e^{−λX}], without overflow and precise for small λ."""
    xp, _ = namespace(x, probs, aversion)
    low = xp.min(xp.where(probs > 0, x, xp.inf))
    exponent = xp.where(probs > 0, -aversion * (x - low), 0.0)
    total, short = xp.sum(probs * xp.exp(exponent)), xp.sum(probs * xp.expm1(exponent))
    near = total > 0.5
    mean = xp.where(near, xp.log1p(xp.where(near, short, 0.0)), xp.log(xp.where(near, 1.0, total)))
    return mean - aversion * low


def margin_of(z: Any, floor: Any, aversion: Any) -> Any:
    """Return 1 − e^{−λ(z − floor)}, cut where the exponential is very large: beyond that it grows linearly."""
    xp, _ = namespace(z, floor, aversion)
    exponent = -aversion * (z - floor)
    return -xp.expm1(xp.minimum(exponent, EXPONENT)) * (1.0 + xp.maximum(exponent - EXPONENT, 0.0))


def relative_entropy(y: Any, probs: Any, aversion: Any) -> Any:
    """Return the relative entropy of the distribution with weights ∝ e^{−λy} to the one with weights `probs`."""
    xp, _ = namespace(y, probs, aversion)
    total = log_mean_exp(y, probs, aversion)
    share = probs * xp.exp(-aversion * y - total)
    return -aversion * xp.sum(share * y) - total
