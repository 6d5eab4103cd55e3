"""Finite distributions of a return: atoms and their probabilities in float64, with arithmetic, statistics and
comparisons.

Two rules hold for every distribution. Atoms closer than `ATOM_TOLERANCE` (relative to the largest atom, at least 1) are
merged at their common mean, so that sums that differ only by rounding are equal. And a distribution with more than
`MAX_ATOMS` atoms, counted before the merge, is refused before it fills the memory.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from riskpath.errors import RiskpathError, in_one_line, short_repr
from riskpath.risk.compose import parse_risk
from riskpath.risk.measures import DistortionMeasure
from riskpath.risk.risk_measure import RiskMeasure
from riskpath.validation import require_counts

ATOM_TOLERANCE = 1e-9
"""Atoms closer than this are equal, relative to the largest atom (at least 1)."""
PROB_TOLERANCE = 1e-9
"""The accepted error of a sum of probabilities, for each of them."""
MAX_ATOMS = 2**21
"""The largest number of atoms of a distribution."""

Vector = Float[np.ndarray, " n"]


@dataclass(frozen=True, eq=False, slots=True)
class Law:
    """A return distribution with finitely many values: `Law([0.0, 100.0], [0.25, 0.75])`."""

    atoms: Vector
    """x₁ < … < xₙ."""
    probs: Vector
    """P(Z = xᵢ) > 0, with sum 1."""

    def __init__(self, atoms: Iterable[float], probs: Iterable[float]):
        x, p = _vector(atoms), _vector(probs)
        if x.ndim != 1 or x.shape != p.shape or x.size == 0:
            raise RiskpathError(
                f"a Law needs as many atoms as probabilities, at least one: got {x.shape} and {p.shape}"
            )
        _require_finite(x)
        _check_size(x.size)
        if not (p >= 0).all() or abs(p.sum() - 1) > PROB_TOLERANCE * max(1, p.size):
            raise RiskpathError(
                f"probabilities of a Law must be non-negative and sum to 1, their sum is {p.sum():.12g}"
            )
        x, p = _merge(x[p > 0], p[p > 0])
        object.__setattr__(self, "atoms", x)
        object.__setattr__(self, "probs", p / p.sum())

    @staticmethod
    def point(value: float) -> "Law":
        """Return the distribution of a certain return `value`."""
        return Law([value], [1.0])

    @staticmethod
    def of_sample(returns: Iterable[float]) -> "Law":
        """Return the empirical distribution of a sample."""
        x = _vector(returns)
        return Law(x, np.full(x.shape, 1 / max(1, x.size)))

    @staticmethod
    def mix(laws: Sequence["Law"], weights: Iterable[float]) -> "Law":
        """Return the distribution of a return drawn from `laws[i]` with probability `weights[i]`."""
        weights = _vector(weights)
        if weights.shape != (len(laws),) or not laws:
            raise RiskpathError(f"got {len(laws)} distributions and {weights.size} weights; they must match")
        _check_size(sum(len(law) for law in laws))
        atoms = np.concatenate([law.atoms for law in laws])
        return Law(atoms, np.concatenate([w * law.probs for w, law in zip(weights, laws, strict=True)]))

    def shift(self, by: float) -> "Law":
        """Return the distribution of Z + by."""
        return _trusted(*_merge(_require_finite(self.atoms + _number(by)), self.probs))

    def scale(self, by: float) -> "Law":
        """Return the distribution of by·Z."""
        return _trusted(*_merge(_require_finite(self.atoms * _number(by)), self.probs))

    def convolve(self, other: "Law") -> "Law":
        """Return the distribution of the sum of two independent returns."""
        _check_size(len(self) * len(other))
        few, many = (self, other) if len(self) <= len(other) else (other, self)
        if len(few) == 1:
            return many.shift(few.atoms[0])
        # With the shorter one first, the sums form a few long ascending runs, which a stable sort merges quickly.
        atoms, probs = np.add.outer(few.atoms, many.atoms).ravel(), np.multiply.outer(few.probs, many.probs).ravel()
        return _trusted(*_merge(atoms, probs))

    def coarsen(self, atoms: int) -> tuple["Law", float]:
        """Return a distribution with at most `limit` atoms, and the largest distance that a return was moved.

        The range is cut into equal bins; the atoms of a bin are merged at their common mean, so the mean is kept.
        """
        require_counts(atoms=atoms)
        if len(self) <= atoms:
            return self, 0.0
        low, width = self.atoms[0], (self.atoms[-1] - self.atoms[0]) / atoms
        number = np.minimum(((self.atoms - low) / width).astype(np.int64), atoms - 1)
        first = np.flatnonzero(np.diff(number, prepend=-1))
        mass = np.add.reduceat(self.probs, first)
        merged = np.add.reduceat(self.probs * self.atoms, first) / mass
        moved = np.abs(self.atoms - np.repeat(merged, np.diff(np.append(first, len(self)))))
        return _trusted(*_merge(merged, mass)), float(moved.max())

    def cdf(self, x: float | Float[np.ndarray, "*m"]) -> Any:
        """Return F(x) = P(Z ≤ x)."""
        steps = np.concatenate([[0.0], self.cumulative])
        return steps[np.searchsorted(self.atoms, _numbers(x, "a return"), side="right")]

    def quantile(self, tau: float | Float[np.ndarray, "*m"]) -> Any:
        """Return F⁻¹(τ) = min{x: F(x) ≥ τ}."""
        levels = _numbers(tau, "a quantile level")
        if not ((levels >= -PROB_TOLERANCE) & (levels <= 1 + PROB_TOLERANCE)).all():
            raise RiskpathError(f"a quantile level must be from 0 to 1, got {short_repr(tau)}")
        return self.atoms[np.searchsorted(self.cumulative[:-1], levels - 1e-12, side="left")]

    @property
    def cumulative(self) -> Vector:
        """F at every atom; the last entry is exactly 1."""
        cdf = np.cumsum(self.probs)
        cdf[-1] = 1.0
        return cdf

    @property
    def mean(self) -> float:
        """E[Z]."""
        return float(self.atoms @ self.probs)

    @property
    def std(self) -> float:
        """The standard deviation."""
        return math.sqrt(max(0.0, float((self.atoms - self.mean) ** 2 @ self.probs)))

    def risk(self, measure: RiskMeasure | str) -> float:
        """Return β[Z] for a measure or its text, for example "cvar:0.1"."""
        return float(parse_risk(measure).value(self))

    def shortfall(self, x: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Return E[(x − Z)⁺], the integrated distribution function."""
        below = np.searchsorted(self.atoms, x, side="right")
        mass = np.concatenate([[0.0], np.cumsum(self.probs)])[below]
        moment = np.concatenate([[0.0], np.cumsum(self.probs * self.atoms)])[below]
        return x * mass - moment

    def dominates(self, other: "Law", order: int = 1, tolerance: float = ATOM_TOLERANCE) -> bool:
        """Return whether this distribution dominates another one stochastically, to first or second order.

        Order 1: F(x) ≤ G(x) everywhere; then every distortion measure prefers this distribution. Order 2: E[(x−Z)⁺] ≤
        E[(x−W)⁺] everywhere; then every measure with concave h prefers it. Equal distributions dominate each other. The
        tolerance is relative to the largest atom: a measure can contradict the answer by no more than that.
        """
        slack = tolerance * max(1.0, *np.abs(self.atoms[[0, -1]]), *np.abs(other.atoms[[0, -1]]))
        if not isinstance(order, int) or order not in (1, 2):
            raise RiskpathError(f"order of dominance must be 1 or 2, got {short_repr(order)}")
        if order == 1:
            return bool((self.cumulative <= other.cdf(self.atoms + slack) + 1e-12).all())
        # Both sides are piecewise linear: comparing them at every kink and at infinity (the means) is enough.
        kinks = np.concatenate([self.atoms, other.atoms])
        behind = (self.shortfall(kinks) > other.shortfall(kinks) + slack).any()
        return bool(not behind and self.mean >= other.mean - slack)

    def wasserstein(self, other: "Law", p: float = 1.0) -> float:
        """Return d_p = (∫₀¹ |F⁻¹(ω) − G⁻¹(ω)|^p dω)^(1/p); p may be infinite."""
        if not isinstance(p, int | float) or not p >= 1:
            raise RiskpathError(f"the order p of a Wasserstein distance must be at least 1, got {short_repr(p, 60)}")
        p = float(p) if p < 1e300 else math.inf
        levels = np.union1d(self.cumulative, other.cumulative)
        widths = np.diff(levels, prepend=0.0)
        levels, widths = levels[widths > 1e-12], widths[widths > 1e-12]
        gaps = np.abs(self.quantile(levels) - other.quantile(levels))
        if math.isinf(p):
            return float(gaps.max())
        largest = gaps.max() or 1.0  # divided out, because a large p would overflow
        return float(largest * (((gaps / largest) ** p) @ widths) ** (1 / p))

    def sample(self, size: int, seed: int | np.random.Generator = 0) -> Float[np.ndarray, " size"]:
        """Return independent draws."""
        require_counts(0, size=size)
        with in_one_line(f"seed must be a whole number or a NumPy generator, got {short_repr(seed)}"):
            rng = np.random.default_rng(seed)
        return rng.choice(self.atoms, size=size, p=self.probs)

    def isclose(self, other: "Law", tolerance: float = 1e-7) -> bool:
        """Return whether the distance of two distributions is small compared with their atoms."""
        scale = max(1.0, *np.abs(self.atoms[[0, -1]]), *np.abs(other.atoms[[0, -1]]))
        return bool(self.wasserstein(other) <= tolerance * scale)

    def plot(self, ax: Any = None, *, kind: str = "cdf", label: str | None = None, **style: Any) -> Any:
        """Draw the distribution into matplotlib axes, or into new ones, and return the axes; needs `riskpath[plot]`.

        `kind` is "cdf" or one of the other kinds of `riskpath.plot.plot_law`; `style` goes to matplotlib.
        """
        from riskpath.plot import plot_law  # here, because matplotlib is optional

        return plot_law(self, ax, kind=kind, label=label, **style)

    def __len__(self) -> int:
        return self.atoms.size

    def __str__(self) -> str:
        shown = [f"{x:.6g} w.p. {p:.4g}" for x, p in zip(self.atoms[:8], self.probs[:8], strict=True)]
        if len(self) > 8:
            shown[7:] = [f"… {len(self) - 8} more …", f"{self.atoms[-1]:.6g} w.p. {self.probs[-1]:.4g}"]
        return ", ".join(shown)

    def __repr__(self) -> str:
        return f"Law({self})"


def _trusted(atoms: Vector, probs: Vector) -> Law:
    """Return a distribution from arrays that are already sorted, merged and normalised."""
    law = object.__new__(Law)
    object.__setattr__(law, "atoms", atoms)
    object.__setattr__(law, "probs", probs)
    return law


def _require_finite(x: Vector) -> Vector:
    """Return the atoms, or refuse them if one is infinite or NaN."""
    if not np.isfinite(x).all():
        raise RiskpathError(f"atoms of a Law must be finite, got {x[~np.isfinite(x)][0]}")
    return x


def _vector(values: Iterable[float]) -> Vector:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise RiskpathError(f"expected a list of numbers, got {short_repr(values)}")
    return _numbers(values if isinstance(values, np.ndarray) else list(values))


def _number(value: Any) -> float:
    if np.ndim(number := _numbers(value, "a number")):
        raise RiskpathError(f"expected a number, got {short_repr(value)}")
    return float(number)


def _numbers(values: Any, what: str = "a list of numbers") -> np.ndarray:
    try:
        found = np.asarray(values)
        if found.dtype.kind not in "biufO":  # texts of numbers are not numbers
            raise TypeError
        return found.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise RiskpathError(f"expected {what}, got {short_repr(values)}") from None


def value_function(measure: RiskMeasure) -> Callable[[Law], float]:
    """Return β as a function of distributions; for many small ones it is several times as fast as `Law.risk`."""
    if not isinstance(measure, DistortionMeasure):
        return lambda law: float(measure.of(law.atoms, law.probs))
    weight = functools.partial(type(measure).weight, measure)  # `measure.weight` makes an object at every access

    def value(law: Law) -> float:
        cdf = np.cumsum(law.probs)
        return float(np.sum(law.atoms * np.diff(np.asarray(weight(cdf / cdf[-1])), prepend=0.0)))

    return value


def _check_size(size: int) -> None:
    if size > MAX_ATOMS:
        raise RiskpathError(
            f"a return distribution would need {size:,} atoms, more than the limit of {MAX_ATOMS:,}; "
            "round the rewards, use discount 1 or shorten the horizon"
        )


def _merge(x: Vector, p: Vector) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Return sorted atoms and their probabilities; atoms closer than the tolerance are merged."""
    if x.size == 1:
        return x, p
    order = np.argsort(x, kind="stable")
    x, p = x[order], p[order]
    apart = np.diff(x) > ATOM_TOLERANCE * max(1.0, abs(x[0]), abs(x[-1]))
    if apart.all():
        return x, p
    first = np.concatenate([[0], np.flatnonzero(apart) + 1])
    mass = np.add.reduceat(p, first)
    # First atom of a group plus the mean offset from it: an atom that is alone keeps its value to the last bit.
    offset = x - np.repeat(x[first], np.diff(np.append(first, x.size)))
    return x[first] + np.add.reduceat(p * offset, first) / mass, mass
