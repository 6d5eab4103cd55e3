"""What every risk measure has: a value, an influence function, and the order of dominance that it respects.

Moving from the distribution F to G changes a measure to first order by E_G[u] − E_F[u], where u is its influence
function at F. Solvers improve a policy for any measure with it: they maximise the expected utility u, take u again from
the new distribution, and repeat.
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
from riskpath.risk.inverse import as_float, namespace

Level: TypeAlias = float | Array
Tau: TypeAlias = float | Float[np.ndarray, "*N"] | Float[Array, "*N"]
"""Cumulative probabilities in [0, 1]: a number, or an array of any shape."""
Returns: TypeAlias = "DiscreteLaw | Real[np.ndarray, ' n'] | Real[Array, ' n'] | Iterable[float]"
Probs: TypeAlias = "Real[np.ndarray, ' n'] | Real[Array, ' n'] | Iterable[float] | None"


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

    A measure of your own is a subclass with the three abstract members; one that weighs outcomes by rank derives from
    `DistortionMeasure`.
    """

    @abc.abstractmethod
    def of(self, atoms: Any, probs: Any) -> Any:
        """Return β of the distribution with these values, in any order, and their probabilities, with sum 1."""

    @abc.abstractmethod
    def influence(self, z: Any, atoms: Any, probs: Any) -> Any:
        """Return u(z), the influence function at the distribution with these values and probabilities.

        Adding a constant to u changes nothing.
        """

    @property
    @abc.abstractmethod
    def order(self) -> int:
        """The order of stochastic dominance that the measure respects.

        1: returns that are larger with certainty are better. 2: so are less dispersed returns with the same mean.
        0: neither. Exact solvers discard policies that are dominated to this order; where 2 is correct, 1 is also
        correct, but slower.
        """

    @property
    def deterministic(self) -> bool:
        """Whether no draw between policies at the start of an episode is better than the best of these policies."""
        return False

    @property
    def monetary(self) -> bool:
        """Whether a sure amount adds to the value: β[Z + c] = β[Z] + c."""
        return True

    def value(self, returns: Returns, probs: Probs = None) -> Any:
        """Return β of a sample, of a weighted sample (atoms with their probabilities), or of a distribution.

        Probabilities are normalised, so counts work as well. Use `jax.vmap` for a batch of samples.
        """
        xp, x, p = as_distribution(self, returns, probs)
        return self.of(x, xp.full_like(x, 1 / x.size) if p is None else p / xp.sum(p))


class UtilityForm(RiskMeasure):
    """A measure that compares expected utilities: β = sup_θ β_θ, with β_θ[Z] ≥ x where E[margin(Z, θ, x)] ≥ 0.

    CVaR is one: b + E[min(Z − b, 0)]/η ≥ x where E[η(b − x) + min(Z − b, 0)] ≥ 0. For such measures the best policy
    follows from expected-utility problems, one for each θ, and a floor under the measure is linear in the distribution.
    """

    @abc.abstractmethod
    def margin(self, z: Any, parameter: Any, floor: Any) -> Any:
        """Return the utility of z whose mean is at least 0 where the value at the parameter reaches the floor."""

    @abc.abstractmethod
    def parameters(self, finals: Any) -> Any:
        """Return the parameters θ, ascending, that can be best where these are all returns; one if there is no θ."""

    @property
    def deterministic(self) -> bool:
        """True: the best policy for an expected utility is deterministic."""
        return True


class ExpectedUtility(UtilityForm):
    """A measure that compares expected utilities and has no θ."""

    def parameters(self, finals: Any) -> Any:
        """Return one placeholder: there is no θ."""
        return np.zeros(1)


def as_distribution(measure: RiskMeasure, returns: Returns, probs: Probs) -> tuple[Any, Any, Any]:
    """Return the array module, the values, and their probabilities before normalisation, None for a plain sample."""
    if isinstance(returns, DiscreteLaw):
        returns, probs = returns.atoms, returns.probs
    returns, probs = _as_sequence(returns), None if probs is None else _as_sequence(probs)
    xp, _ = namespace(returns, probs, measure)
    x = as_float(returns, xp)
    p = None if probs is None else xp.asarray(probs, dtype=x.dtype)
    _check_sample(x, p)
    return xp, x, p


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
    except (TypeError, ValueError, OverflowError):
        shown = repr(value) if isinstance(value, str | None) else type(value).__name__
        raise RiskpathError(f"{what} must be a number, got {shown}") from None


def check_level(measure: Any, accepted: str, inside: Callable[[np.ndarray], Any]) -> None:
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
