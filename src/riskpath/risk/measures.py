"""Distortion risk measures: what the risk of a return distribution is.

For a return Z with distribution function F, a distortion measure re-weights the outcomes by their rank:

    β[Z] = ∫ x d(h∘F)(x) = ∫₀¹ F⁻¹(h⁻¹(τ)) dτ,     h: [0,1] → [0,1] increasing, h(0) = 0, h(1) = 1.

`weight` is h, `distort` is h⁻¹. On a law with atoms x₁ < … < xₙ the integral is the sum
Σᵢ xᵢ (h(Fᵢ) − h(Fᵢ₋₁)), which is what `value` computes; a sample is the law that gives each draw 1/n.

| measure   | h⁻¹(τ)                      | h(t)                 | level        | attitude                      |
|-----------|-----------------------------|----------------------|--------------|-------------------------------|
| `Mean`    | τ                           | t                    |              | neutral                       |
| `CVaR(η)` | ητ                          | min(t/η, 1)          | 0 < η ≤ 1    | averse                        |
| `Wang(η)` | Φ(Φ⁻¹(τ) + η)               | Φ(Φ⁻¹(t) − η)        | η real       | η < 0 averse, η > 0 seeking   |
| `POW(η)`  | η < 0: 1−(1−τ)^(1/(1+|η|))  | 1−(1−t)^(1+|η|)      | η real       | η < 0 averse, η > 0 seeking   |
|           | η ≥ 0: τ^(1/(1+|η|))        | t^(1+|η|)            |              |                               |
| `CPW(η)`  | τ^η/(τ^η+(1−τ)^η)^(1/η)     | numeric inverse      | .2793 ≤ η ≤ 1| neither                       |

Every measure is a PyTree whose level is a leaf, and computes with whatever it is given: NumPy in, float64
NumPy out; JAX in, JAX out, under `jit`, `vmap` (over the level as well) and `grad`.
"""

import abc
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Real

from riskpath.errors import RiskpathError
from riskpath.registry import Registered
from riskpath.risk.inverse import as_float, inverse, namespace, on_interior
from riskpath.risk.sorting import ascending

Level: TypeAlias = float | Array
Tau: TypeAlias = float | Float[np.ndarray, "*N"] | Float[Array, "*N"]
"""Cumulative probabilities in [0, 1]: a number, or an array of any shape."""


@runtime_checkable
class DiscreteLaw(Protocol):
    """Anything with atoms and their probabilities, such as `riskpath.Law`."""

    @property
    def atoms(self) -> Any:
        """The values, one-dimensional."""
        ...

    @property
    def probs(self) -> Any:
        """Their probabilities, of the same length."""
        ...


class RiskMeasure(eqx.Module, Registered):
    """β: a number for a distribution of returns; larger is better.

    A measure of your own is a subclass with these three members. If only one of `distort` and `weight` has a
    formula, the other is `inverse` of it. For a measure without parameters, `Distortion` is shorter.
    """

    @abc.abstractmethod
    def distort(self, tau: Tau) -> Any:
        """h⁻¹(τ): where to read the quantile function instead of at τ."""

    @abc.abstractmethod
    def weight(self, cdf: Tau) -> Any:
        """h(t): the distorted distribution function, at a value t of the undistorted one."""

    @property
    @abc.abstractmethod
    def concave(self) -> bool:
        """Is h concave, that is: does the measure prefer less spread at the same mean (risk aversion)?"""

    def value(
        self,
        returns: DiscreteLaw | Real[np.ndarray, " n"] | Real[Array, " n"] | Iterable[float],
        probs: Real[np.ndarray, " n"] | Real[Array, " n"] | Iterable[float] | None = None,
    ) -> Any:
        """β of a sample, of a weighted sample (or atoms with their probabilities), or of a law.

        Weights need not sum to one. Use `jax.vmap` for a batch of samples.
        """
        if isinstance(returns, DiscreteLaw):
            returns, probs = returns.atoms, returns.probs
        returns, probs = _array_like(returns), None if probs is None else _array_like(probs)
        xp, _ = namespace(returns, probs, self)
        x = as_float(returns, xp)
        p = None if probs is None else xp.asarray(probs, dtype=x.dtype)
        _check_sample(x, p)
        # F at every atom, ending at exactly one: h may be infinitely steep there.
        if p is None:
            x = np.sort(x) if xp is np else ascending(x)
            cdf = xp.arange(1, x.size + 1, dtype=x.dtype) / x.size
        else:
            order = xp.argsort(x)
            x, cdf = x[order], xp.cumsum(p[order])
            cdf = cdf / cdf[-1]
        h = self.weight(cdf)
        mass = h - xp.concatenate([xp.zeros_like(h[:1]), h[:-1]])
        return xp.sum(x * mass)


def _array_like(values: Any) -> Any:
    return values if hasattr(values, "__array__") or isinstance(values, Sequence) else list(values)


def _check_sample(x: Any, p: Any) -> None:
    if x.ndim != 1 or x.size == 0:
        raise RiskpathError(f"returns must be a non-empty one-dimensional array, got shape {x.shape}")
    if p is not None and p.shape != x.shape:
        raise RiskpathError(f"got {x.size} returns and probabilities of shape {p.shape}; they must match")
    if isinstance(x, np.ndarray) and not np.isfinite(x).all():
        wrong = int((~np.isfinite(x)).argmax())
        raise RiskpathError(f"return number {wrong} is {'NaN' if np.isnan(x[wrong]) else 'infinite'}")
    if isinstance(p, np.ndarray) and not ((p >= 0).all() and 0 < p.sum() < np.inf):
        raise RiskpathError("probabilities must be non-negative, finite and not all zero")


def as_level(value: Any) -> Level:
    """Numbers become Python floats, so that NumPy input stays NumPy; JAX arrays and tracers stay as they are."""
    if isinstance(value, jax.Array):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        shown = repr(value) if isinstance(value, str | None) else type(value).__name__
        raise RiskpathError(f"a risk level must be a number, got {shown}") from None


def _check_level(measure: Any, accepted: str, inside: Callable[[np.ndarray], Any]) -> None:
    """Refuses a level that is not `inside`; one that is being traced is taken on trust."""
    if isinstance(measure.level, Tracer):
        return
    level = np.atleast_1d(np.asarray(measure.level, dtype=np.float64))
    good = np.isfinite(level) & inside(level)
    if not good.all():
        raise RiskpathError(f"{type(measure).__name__} level must be {accepted}, got {level[~good].flat[0]:g}")


def level_text(level: Level) -> str:
    """Shortest text that reads back as the same number."""
    if isinstance(level, jax.Array) and (isinstance(level, Tracer) or level.ndim):
        return str(level)
    return repr(float(level)).removesuffix(".0").replace("e+", "e")  # a plus sign separates the parts of a mixture


class Mean(RiskMeasure):
    """The expected return: risk neutral, the limit of every other measure here."""

    def distort(self, tau: Tau) -> Any:
        """h⁻¹(τ) = τ."""
        return tau

    def weight(self, cdf: Tau) -> Any:
        """h(t) = t."""
        return cdf

    @property
    def concave(self) -> bool:
        """The identity is."""
        return True

    def __str__(self) -> str:
        return "mean"


class CVaR(RiskMeasure):
    """Conditional value at risk: the mean of the worst share `level` of all returns."""

    level: Level = eqx.field(converter=as_level)
    """η in (0, 1]; 1 is the mean."""

    def __check_init__(self):
        _check_level(self, "in (0, 1]", lambda eta: (eta > 0) & (eta <= 1))

    def distort(self, tau: Tau) -> Any:
        """h⁻¹(τ) = ητ."""
        return self.level * tau

    def weight(self, cdf: Tau) -> Any:
        """h(t) = min(t/η, 1): one, not zero, above η."""
        xp, _ = namespace(self.level, cdf)
        return xp.minimum(cdf / self.level, 1.0)

    @property
    def concave(self) -> bool:
        """At every level."""
        return True

    def __str__(self) -> str:
        return f"cvar:{level_text(self.level)}"


class Wang(RiskMeasure):
    """Wang's transform: the quantiles of a normal, shifted by `level` standard deviations."""

    level: Level = eqx.field(converter=as_level)
    """η, any real number: negative is averse, positive is seeking, 0 is the mean."""

    def __check_init__(self):
        _check_level(self, "a finite number", np.isfinite)

    def distort(self, tau: Tau) -> Any:
        """h⁻¹(τ) = Φ(Φ⁻¹(τ) + η)."""
        return self._shift(tau, self.level)

    def weight(self, cdf: Tau) -> Any:
        """h(t) = Φ(Φ⁻¹(t) − η)."""
        return self._shift(cdf, -self.level)

    def _shift(self, t: Tau, by: Level) -> Any:
        xp, special = namespace(t, by)
        return on_interior(lambda t: special.ndtr(special.ndtri(t) + by), t, xp)

    @property
    def concave(self) -> bool:
        """When averse."""
        return bool(self.level <= 0)

    def __str__(self) -> str:
        return f"wang:{level_text(self.level)}"


class POW(RiskMeasure):
    """The power measure; for averse whole levels, the expected worst of 1 + |level| draws."""

    level: Level = eqx.field(converter=as_level)
    """η, any real number: negative is averse, positive is seeking, 0 is the mean."""

    def __check_init__(self):
        _check_level(self, "a finite number", np.isfinite)

    def distort(self, tau: Tau) -> Any:
        """h⁻¹(τ) = τ^(1/(1+|η|)) if η ≥ 0, else 1 − (1−τ)^(1/(1+|η|))."""
        xp, _ = namespace(tau, self.level)
        return self._power(tau, 1 / (1 + xp.abs(self.level)), xp)

    def weight(self, cdf: Tau) -> Any:
        """h(t) = t^(1+|η|) if η ≥ 0, else 1 − (1−t)^(1+|η|)."""
        xp, _ = namespace(cdf, self.level)
        return self._power(cdf, 1 + xp.abs(self.level), xp)

    def _power(self, t: Tau, exponent: Any, xp: Any) -> Any:
        seeking = self.level >= 0
        return on_interior(lambda t: xp.where(seeking, t**exponent, 1 - (1 - t) ** exponent), t, xp)

    @property
    def concave(self) -> bool:
        """When averse."""
        return bool(self.level <= 0)

    def __str__(self) -> str:
        return f"pow:{level_text(self.level)}"


def _cpw(tau: Any, eta: Any) -> Any:
    xp, _ = namespace(tau, eta)
    return on_interior(lambda t: t**eta / (t**eta + (1 - t) ** eta) ** (1 / eta), tau, xp)


class CPW(RiskMeasure):
    """Cumulative probability weighting of prospect theory: both tails count for more than their share."""

    level: Level = eqx.field(converter=as_level)
    """η in [0.2793, 1], where h⁻¹ increases; 0.71 fits human choices, 1 is the mean."""

    def __check_init__(self):
        accepted = "in [0.2793, 1] (below that its distortion is not increasing)"
        _check_level(self, accepted, lambda eta: (eta >= 0.2793) & (eta <= 1))

    def distort(self, tau: Tau) -> Any:
        """h⁻¹(τ) = τ^η / (τ^η + (1−τ)^η)^(1/η)."""
        return _cpw(tau, self.level)

    def weight(self, cdf: Tau) -> Any:
        """h(t), for which there is no formula."""
        return inverse(lambda tau: _cpw(tau, self.level), cdf)

    @property
    def concave(self) -> bool:
        """Only where it is the mean."""
        return bool(self.level == 1)

    def __str__(self) -> str:
        return f"cpw:{level_text(self.level)}"
