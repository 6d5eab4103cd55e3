"""Measures made from others, measures of your own, and measures written as text.

A mixture Σᵢ wᵢ βᵢ is the distortion measure with h = Σᵢ wᵢ hᵢ, so mean-CVaR needs nothing new.
"""

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import numpy as np
from jax.core import Tracer

from riskpath.errors import RiskpathError
from riskpath.risk.inverse import inverse
from riskpath.risk.measures import CPW, POW, CVaR, Level, Mean, RiskMeasure, Tau, Wang, as_level, level_text


class Mixture(RiskMeasure):
    """A convex mixture of measures is a measure: `Mixture([(0.7, Mean()), (0.3, CVaR(0.1))])` is mean-CVaR."""

    shares: tuple[Level, ...]
    """How much of each; non-negative, their sum is one."""
    measures: tuple[RiskMeasure, ...]
    """What is mixed."""

    def __init__(self, parts: Iterable[tuple[Any, RiskMeasure]]):
        flat = [inner for share, measure in parts for inner in _flattened(as_level(share), measure)]
        self.shares = tuple(share for share, _ in flat)
        self.measures = tuple(measure for _, measure in flat)

    def __check_init__(self):
        if not self.shares:
            raise RiskpathError("a mixture needs at least one (share, measure) pair")
        if any(isinstance(share, Tracer) for share in self.shares):
            return
        shares = np.asarray(self.shares)
        if not (shares >= 0).all() or (np.abs(shares.sum(axis=0) - 1) > 1e-6).any():
            given = ", ".join(f"{share:g}" for share in shares.ravel())
            raise RiskpathError(f"shares of a mixture must be non-negative and sum to 1, got {given}")

    def distort(self, tau: Tau) -> Any:
        """h⁻¹(τ) of the mixed h."""
        return inverse(self.weight, tau, side="left")

    def weight(self, cdf: Tau) -> Any:
        """h(t) = Σᵢ shareᵢ hᵢ(t)."""
        terms = [share * m.weight(cdf) for share, m in zip(self.shares, self.measures, strict=True)]
        return sum(terms[1:], terms[0])

    @property
    def concave(self) -> bool:
        """When all its parts are."""
        return all(measure.concave for measure in self.measures)

    def __str__(self) -> str:
        parts = zip(self.shares, self.measures, strict=True)
        return "+".join(f"{level_text(share)}*{measure}" for share, measure in parts)


def _flattened(share: Level, measure: RiskMeasure) -> list[tuple[Level, RiskMeasure]]:
    """A mixture inside a mixture is one mixture."""
    if not isinstance(measure, Mixture):
        return [(share, measure)]
    return [(share * inner, part) for inner, part in zip(measure.shares, measure.measures, strict=True)]


class Distortion(RiskMeasure):
    """A measure of your own from its distortion: `Distortion(lambda tau: tau**2 * (3 - 2 * tau))`.

    The function must work on NumPy and JAX arrays alike. h is found by bisection unless `h` is given too.
    """

    function: Callable[[Any], Any] = eqx.field(static=True)
    """h⁻¹, increasing from h⁻¹(0) = 0 (and at most 1 at 1)."""
    h: Callable[[Any], Any] | None = eqx.field(static=True, default=None)
    """h, where it has a formula."""
    averse: bool = eqx.field(static=True, default=False)
    """Say that h is concave (h⁻¹ convex): exact solvers then prune more. Checked on a grid."""
    name: str = eqx.field(static=True, default="distortion")
    """How it prints."""

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
        """The function given."""
        return self.function(tau)

    def weight(self, cdf: Tau) -> Any:
        """h, given or found numerically."""
        return inverse(self.function, cdf) if self.h is None else self.h(cdf)

    @property
    def concave(self) -> bool:
        """As declared."""
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
    """Makes `parse_risk("name:level")` and the command line know a measure of your own."""
    if not name.isidentifier() or name != name.lower():
        raise RiskpathError(f"the name of a measure must be a lower-case word, got {name!r}")
    BY_NAME[name] = measure


def parse_risk(text: str | RiskMeasure) -> RiskMeasure:
    """Reads a measure: "mean", "cvar:0.25", "wang:-0.75", or a mixture, "0.7*mean+0.3*cvar:0.1".

    `str(measure)` writes it back. A measure passes through unchanged.
    """
    if isinstance(text, RiskMeasure):
        return text
    if not isinstance(text, str):
        raise RiskpathError(f"a risk measure is read from text such as 'cvar:0.25', got {text!r}")
    parts = text.replace(" ", "").split("+") if "*" in text else [text.strip()]
    if "*" not in text:
        return _one_risk(parts[0], text)
    shares_and_names = [part.partition("*") for part in parts]
    return Mixture([(_number(share, text), _one_risk(name, text)) for share, _, name in shares_and_names])


def _one_risk(part: str, text: str) -> RiskMeasure:
    name, colon, level = part.lower().partition(":")
    constructor = BY_NAME.get(name)
    if constructor is None or (constructor is Mean and colon):
        known = ", ".join("mean" if known == "mean" else f"{known}:LEVEL" for known in BY_NAME)
        raise RiskpathError(f"unknown risk measure {text!r}; use {known}, or a mixture like 0.7*mean+0.3*cvar:0.1")
    arguments = [_number(level, text)] if colon else []
    try:
        return constructor(*arguments)
    except TypeError:
        wanted = f"takes no level, got {level}" if colon else f"needs a level, for example {name}:0.5"
        raise RiskpathError(f"risk measure {part!r} {wanted}") from None


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RiskpathError(f"cannot read the number {text!r} in risk measure {whole!r}") from None
