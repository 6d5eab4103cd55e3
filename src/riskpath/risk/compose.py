"""Mixtures of measures, measures of your own, and measures written as text.

A mixture Σᵢ wᵢ βᵢ is the distortion measure with h = Σᵢ wᵢ hᵢ. Mean-CVaR is one.
"""

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import numpy as np
from jax.core import Tracer

from riskpath.errors import RiskpathError, short_repr
from riskpath.risk.inverse import inverse
from riskpath.risk.measures import CPW, POW, CVaR, Level, Mean, RiskMeasure, Tau, Wang, as_level, level_text


class Mixture(RiskMeasure):
    """A convex mixture of measures: `Mixture([(0.7, "mean"), (0.3, CVaR(0.1))])` is mean-CVaR.

    Each part is a pair (share, measure); the measure may be a text.
    """

    shares: tuple[Level, ...]
    """The share of each measure: non-negative, with sum 1."""
    measures: tuple[RiskMeasure, ...]
    """The measures, in the order of their shares."""

    def __init__(self, parts: Iterable[tuple[Any, RiskMeasure | str]]):
        flat = [inner for part in parts for inner in _flatten(part)]
        self.shares = tuple(share for share, _ in flat)
        self.measures = tuple(measure for _, measure in flat)

    def __check_init__(self):
        if not self.shares:
            raise RiskpathError("a mixture needs at least one (share, measure) pair, got none")
        if any(isinstance(share, Tracer) for share in self.shares):
            return
        shares = np.asarray(self.shares)
        if not (shares >= 0).all() or (np.abs(shares.sum(axis=0) - 1) > 1e-6).any():
            listed = ", ".join(f"{share:g}" for share in shares.ravel())
            raise RiskpathError(f"shares of a mixture must be non-negative and sum to 1, got {listed}")

    def distort(self, tau: Tau) -> Any:
        """Return h⁻¹(τ) for the h of the mixture."""
        return inverse(self.weight, tau, side="left")

    def weight(self, cdf: Tau) -> Any:
        """Return h(t) = Σᵢ shareᵢ hᵢ(t)."""
        terms = [share * m.weight(cdf) for share, m in zip(self.shares, self.measures, strict=True)]
        return sum(terms[1:], terms[0])

    @property
    def concave(self) -> bool:
        """Whether all measures of the mixture are concave."""
        return all(measure.concave for measure in self.measures)

    def __str__(self) -> str:
        parts = zip(self.shares, self.measures, strict=True)
        return "+".join(f"{level_text(share)}*{measure}" for share, measure in parts)


def _flatten(part: Any) -> list[tuple[Level, RiskMeasure]]:
    """Return a (share, measure) pair as a list of such pairs in which no measure is itself a mixture."""
    try:
        share, measure = part
    except (TypeError, ValueError):
        raise RiskpathError(f"parts of a mixture must be (share, measure) pairs, got {short_repr(part)}") from None
    share, measure = as_level(share, "the share of a mixture"), as_risk(measure)
    if not isinstance(measure, Mixture):
        return [(share, measure)]
    return [(share * inner, part) for inner, part in zip(measure.shares, measure.measures, strict=True)]


def mean_and_cvar(risk: RiskMeasure) -> tuple[float, float] | None:
    """Return (w, η) if the measure is (1−w)·mean + w·CVaR_η, else None."""
    parts = zip(risk.shares, risk.measures, strict=True) if isinstance(risk, Mixture) else [(1.0, risk)]
    tails: dict[float, float] = {}
    for share, measure in parts:
        if isinstance(measure, CVaR):
            tails[float(measure.level)] = tails.get(float(measure.level), 0.0) + float(share)
        elif not isinstance(measure, Mean):
            return None
    if len(tails) > 1:
        return None
    return next(((w, eta) for eta, w in tails.items()), (0.0, 1.0))


class Distortion(RiskMeasure):
    """A measure of your own, defined by its distortion: `Distortion(lambda tau: tau**2 * (3 - 2 * tau))`.

    The function must work on NumPy arrays and on JAX arrays. Without `h`, h is computed by bisection.
    """

    function: Callable[[Any], Any] = eqx.field(static=True)
    """h⁻¹, increasing, with h⁻¹(0) = 0 and h⁻¹(1) ≤ 1."""
    h: Callable[[Any], Any] | None = eqx.field(static=True, default=None)
    """h, if it has a formula."""
    averse: bool = eqx.field(static=True, default=False)
    """Whether h is concave (h⁻¹ convex). Exact solvers prune more if it is. Checked on a grid."""
    name: str = eqx.field(static=True, default="distortion")
    """The text of the measure."""

    def __check_init__(self):
        tau = np.linspace(0, 1, 513)
        values = np.broadcast_to(np.asarray(self.function(tau), dtype=np.float64), tau.shape)
        if not np.isfinite(values).all() or (np.diff(values) < -1e-12).any():
            raise RiskpathError(f"{self.name}: the distortion must be finite and increasing on [0, 1]")
        if abs(values[0]) > 1e-9 or values[-1] > 1 + 1e-9:
            raise RiskpathError(f"{self.name}: the distortion must start at 0 and end at or below 1")
        if self.averse and (np.diff(values, 2) < -1e-9).any():
            raise RiskpathError(f"{self.name}: averse=True needs a convex distortion (a concave h)")

    def distort(self, tau: Tau) -> Any:
        """Return h⁻¹(τ)."""
        return self.function(tau)

    def weight(self, cdf: Tau) -> Any:
        """Return h(t), by bisection if there is no formula."""
        return inverse(self.function, cdf) if self.h is None else self.h(cdf)

    @property
    def concave(self) -> bool:
        """Whether the measure was declared averse."""
        return self.averse

    def __str__(self) -> str:
        return self.name


BY_NAME: dict[str, Callable[..., RiskMeasure]] = {
    "mean": Mean,
    "cvar": CVaR,
    "wang": Wang,
    "cpw": CPW,
    "pow": POW,
}


def register_risk(name: str, measure: Callable[..., RiskMeasure]) -> None:
    """Register a measure of your own for texts such as "name:level", also on the command line."""
    if not name.isidentifier() or name != name.lower():
        raise RiskpathError(f"the name of a measure must be a lower-case word, got {short_repr(name)}")
    BY_NAME[name] = measure


def as_risk(value: RiskMeasure | str) -> RiskMeasure:
    """Return a measure from a measure or from its text: the converter of every field and argument that is a measure.

    A measure passes through unchanged, also if its level is an array or is being traced.
    """
    if isinstance(value, RiskMeasure):
        return value
    if isinstance(value, str):
        return _read_risk(value)
    hint = f"; write {value.__name__}(…)" if isinstance(value, type) and issubclass(value, RiskMeasure) else ""
    accepted = "a risk measure such as CVaR(0.25) or a text such as 'cvar:0.25'"
    raise RiskpathError(f"expected {accepted}, got {short_repr(value)}{hint}")


def parse_risk(text: str | RiskMeasure) -> RiskMeasure:
    """Return the measure of a text: "mean", "cvar:0.25", "wang:-0.75", or a mixture, "0.7*mean+0.3*cvar:0.1".

    `str(measure)` is the inverse. A measure passes through unchanged.
    """
    return as_risk(text)


def _read_risk(text: str) -> RiskMeasure:
    if "*" not in text:
        return _read_one(text.strip(), text)
    parts = [part.partition("*") for part in text.replace(" ", "").split("+")]
    return Mixture([(_read_number(share, text), _read_one(name, text)) for share, _, name in parts])


def _read_one(part: str, text: str) -> RiskMeasure:
    """Return the measure of `part`, which has no "*"; messages show the whole `text`."""
    name, colon, level = part.lower().partition(":")
    constructor = BY_NAME.get(name)
    if constructor is None or (constructor is Mean and colon):
        known = ", ".join("mean" if known == "mean" else f"{known}:LEVEL" for known in BY_NAME)
        raise RiskpathError(f"unknown risk measure {text!r}; use {known}, or a mixture like 0.7*mean+0.3*cvar:0.1")
    arguments = [_read_number(level, text)] if colon else []
    try:
        return constructor(*arguments)
    except TypeError:
        wanted = f"takes no level, got {level}" if colon else f"needs a level, for example {name}:0.5"
        raise RiskpathError(f"risk measure {part!r} {wanted}") from None


def _read_number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RiskpathError(f"cannot read the number {text!r} in risk measure {whole!r}") from None
