"""Distortion risk measures: one number for the risk of a return distribution.

For a return Z with distribution function F, a distortion measure weights the outcomes by their rank:

    β[Z] = ∫ x d(h∘F)(x) = ∫₀¹ F⁻¹(h⁻¹(τ)) dτ,     h: [0,1] → [0,1] increasing, h(0) = 0, h(1) = 1.

`weight` is h, `distort` is h⁻¹. On a law with atoms x₁ < … < xₙ the integral is the sum
Σᵢ xᵢ (h(Fᵢ) − h(Fᵢ₋₁)), which `value` computes; a sample is the law that gives each draw probability 1/n.

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
    """An object with atoms and their probabilities, such as `riskpath.Law`."""

    @property
    def atoms(self) -> Any:
        """The values, one-dimensional."""
        ...

    @property
    def probs(self) -> Any:
        """Their probabilities, of the same length."""
        ...


class RiskMeasure(eqx.Module, Registered):
    """A risk measure β: a number for a distribution of returns; larger is better.

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
        """Whether h is concave: the measure is risk averse and prefers less spread at the same mean."""

    def value(
        self,
        returns: DiscreteLaw | Real[np.ndarray, " n"] | Real[Array, " n"] | Iterable[float],
        probs: Real[np.ndarray, " n"] | Real[Array, " n"] | Iterable[float] | None = None,
    ) -> Any:
        """Return β of a sample, of a weighted sample (atoms with their probabilities), or of a law.

        Probabilities are normalised, so counts work as well. Use `jax.vmap` for a batch of samples.
        """
        if isinstance(returns, DiscreteLaw):
            returns, probs = returns.atoms, returns.probs
        returns, probs = _as_sequence(returns), None if probs is None else _as_sequence(probs)
        xp, _ = namespace(returns, probs, self)
        x = as_float(returns, xp)
        p = None if probs is None else xp.asarray(probs, dtype=x.dtype)
        _check_sample(x, p)
        # F at every atom. Its last value must be exactly 1, where h may be infinitely steep.
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


def _as_sequence(values: Any) -> Any:
    """Return an array or sequence unchanged, any other iterable as a list."""
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


def as_level(value: Any, what: str = "a risk level") -> Level:
    """Return a number as a Python float, which keeps NumPy input in NumPy; JAX arrays and tracers pass through."""
    if isinstance(value, jax.Array):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        shown = repr(value) if isinstance(value, str | None) else type(value).__name__
        raise RiskpathError(f"{what} must be a number, got {shown}") from None


def _check_level(measure: Any, accepted: str, inside: Callable[[np.ndarray], Any]) -> None:
    """Refuse a level that is not `inside`. A traced level has no value yet and is not checked."""
    if isinstance(measure.level, Tracer):
        return
    level = np.atleast_1d(np.asarray(measure.level, dtype=np.float64))
    good = np.isfinite(level) & inside(level)
    if not good.all():
        raise RiskpathError(f"{type(measure).__name__} level must be {accepted}, got {level[~good].flat[0]:g}")


def level_text(level: Level) -> str:
    """Return the shortest text that reads back as the same number."""
    if isinstance(level, jax.Array) and (isinstance(level, Tracer) or level.ndim):
        return str(level)
    return repr(float(level)).removesuffix(".0").replace("e+", "e")  # a plus sign separates the parts of a mixture


class Mean(RiskMeasure):
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

    def __str__(self) -> str:
        return "mean"


class CVaR(RiskMeasure):
    """Conditional value at risk: the mean of the worst `level` share of all returns."""

    level: Level = eqx.field(converter=as_level)
    """η in (0, 1]; 1 is the mean."""

    def __check_init__(self):
        _check_level(self, "in (0, 1]", lambda eta: (eta > 0) & (eta <= 1))

    def distort(self, tau: Tau) -> Any:
        """Return h⁻¹(τ) = ητ."""
        return self.level * tau

    def weight(self, cdf: Tau) -> Any:
        """Return h(t) = min(t/η, 1)."""
        xp, _ = namespace(self.level, cdf)
        return xp.minimum(cdf / self.level, 1.0)

    @property
    def concave(self) -> bool:
        """True at every level."""
        return True

    def __str__(self) -> str:
        return f"cvar:{level_text(self.level)}"


class Wang(RiskMeasure):
    """The Wang transform: it shifts the mean of a normal distribution by `level` standard deviations."""

    level: Level = eqx.field(converter=as_level)
    """η, any real number: negative is averse, positive is seeking, 0 is the mean."""

    def __check_init__(self):
        _check_level(self, "a finite number", np.isfinite)

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
        """Whether the level is averse or neutral."""
        return bool(self.level <= 0)

    def __str__(self) -> str:
        return f"wang:{level_text(self.level)}"


class POW(RiskMeasure):
    """The power measure. For negative integer levels, the expected worst of 1 + |level| draws."""

    level: Level = eqx.field(converter=as_level)
    """η, any real number: negative is averse, positive is seeking, 0 is the mean."""

    def __check_init__(self):
        _check_level(self, "a finite number", np.isfinite)

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
        """Whether the level is averse or neutral."""
        return bool(self.level <= 0)

    def __str__(self) -> str:
        return f"pow:{level_text(self.level)}"


def _cpw(tau: Any, eta: Any) -> Any:
    """Return h⁻¹(τ) of CPW."""
    xp, _ = namespace(tau, eta)
    return on_interior(lambda t: t**eta / (t**eta + (1 - t) ** eta) ** (1 / eta), tau, xp)


class CPW(RiskMeasure):
    """Cumulative probability weighting of prospect theory: both tails get more weight than their probability."""

    level: Level = eqx.field(converter=as_level)
    """η in [0.2793, 1], where h⁻¹ is increasing; 0.71 fits human choices, 1 is the mean."""

    def __check_init__(self):
        accepted = "in [0.2793, 1] (below that its distortion is not increasing)"
        _check_level(self, accepted, lambda eta: (eta >= 0.2793) & (eta <= 1))

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
