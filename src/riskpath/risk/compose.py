"""Mixtures of measures, distortions of your own, and measures written as text.

A mixture Σᵢ wᵢ βᵢ of distortion measures is the distortion measure with h = Σᵢ wᵢ hᵢ. Mean-CVaR is one.
"""

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import numpy as np
from jax.core import Tracer

from riskpath.errors import RiskpathError, short_repr
from riskpath.risk.certainty_equivalents import MeanSemideviation, MonotoneMeanVariance
from riskpath.risk.entropic import Entropic, EVaR
from riskpath.risk.inverse import inverse
from riskpath.risk.measures import CPW, POW, CVaR, DistortionMeasure, Mean, Wang
from riskpath.risk.quantile_measures import BestCase, VaR, WorstCase
from riskpath.risk.risk_measure import Level, RiskMeasure, Tau, as_level, level_text
from riskpath.risk.utility_measures import ReachProbability


class Mixture(DistortionMeasure):
    """A convex mixture of measures: `Mixture([(0.7, "mean"), (0.3, CVaR(0.1))])` is mean-CVaR.

    Each part is a pair (share, measure); the measure may be a text.
    """

    shares: tuple[Level, ...]
    """The share of each measure: non-negative, with sum 1."""
    measures: tuple[DistortionMeasure, ...]
    """The measures, in the order of their shares."""

    def __init__(self, parts: Iterable[tuple[Any, RiskMeasure | str]]):
        self.shares, measures = _flatten(parts)
        self.measures = tuple(as_distortion(measure, "Mixture", "use WeightedSum to mix it") for measure in measures)

    def distort(self, tau: Tau) -> Any:
        """Return h⁻¹(τ) for the h of the mixture."""
        return inverse(self.weight, tau, side="left")

    def weight(self, cdf: Tau) -> Any:
        """Return h(t) = Σᵢ shareᵢ hᵢ(t)."""
        terms = [share * m.weight(cdf) for share, m in zip(self.shares, self.measures, strict=True)]
        return sum(terms[1:], terms[0])

    @property
    def concave(self) -> bool:
        return all(measure.concave for measure in self.measures)

    def __str__(self) -> str:
        return _mixture_text(self.shares, self.measures)


class Spectral(Mixture):
    """A mixture of CVaR levels from a table, as text LEVEL=WEIGHT,LEVEL=WEIGHT,…

    `Spectral([0.01, 0.1, 1.0], [0.2, 0.3, 0.5])`, or "spectral:0.01=0.2,0.1=0.3,1=0.5"; level 1 is the mean.
    """

    def __init__(self, levels: Iterable[Any], weights: Iterable[Any]):
        levels, weights = list(levels), list(weights)
        if len(levels) != len(weights):
            raise RiskpathError(f"Spectral needs as many weights as levels, got {len(levels)} and {len(weights)}")
        super().__init__([(weight, CVaR(level)) for level, weight in zip(levels, weights, strict=True)])


class WeightedSum(RiskMeasure):
    """A convex mixture of measures of any kind: `WeightedSum([(0.5, "mean"), (0.5, "evar:0.1")])`."""

    shares: tuple[Level, ...]
    """The share of each measure: non-negative, with sum 1."""
    measures: tuple[RiskMeasure, ...]
    """The measures, in the order of their shares."""

    def __init__(self, parts: Iterable[tuple[Any, RiskMeasure | str]]):
        self.shares, self.measures = _flatten(parts)

    def of(self, atoms: Any, probs: Any) -> Any:
        """Return Σᵢ shareᵢ βᵢ."""
        return sum(share * m.of(atoms, probs) for share, m in zip(self.shares, self.measures, strict=True))

    def influence(self, z: Any, atoms: Any, probs: Any) -> Any:
        """Return Σᵢ shareᵢ uᵢ(z)."""
        return sum(share * m.influence(z, atoms, probs) for share, m in zip(self.shares, self.measures, strict=True))

    @property
    def order(self) -> int:
        return min(measure.order for measure in self.measures)

    @property
    def monetary(self) -> bool:
        return all(measure.monetary for measure in self.measures)

    def __str__(self) -> str:
        return _mixture_text(self.shares, self.measures)


def _mixture_text(shares: Iterable[Level], measures: Iterable[RiskMeasure]) -> str:
    parts = zip(shares, measures, strict=True)
    return "+".join(f"{level_text(share)}*{measure}" for share, measure in parts)


def _check_shares(listed: tuple[Level, ...]) -> None:
    if not listed:
        raise RiskpathError("a mixture needs at least one (share, measure) pair, got none")
    if any(isinstance(share, Tracer) for share in listed):
        return
    shares = np.asarray(listed)
    if not (shares >= 0).all() or (np.abs(shares.sum(axis=0) - 1) > 1e-6).any():
        text = ", ".join(f"{share:g}" for share in shares.ravel())
        raise RiskpathError(f"shares of a mixture must be non-negative and sum to 1, got {text}")


def as_distortion(
    value: RiskMeasure | str, user: str = "a learning agent", others: str = "rp.solve accepts it"
) -> DistortionMeasure:
    """Return a measure that weighs outcomes by rank, or refuse another one for its `user`."""
    measure = parse_risk(value)
    if not isinstance(measure, DistortionMeasure):
        raise RiskpathError(
            f"{user} needs a measure that weighs outcomes by rank, such as cvar:0.1, wang:-0.75 or var:0.1; "
            f"{measure} does not: {others}"
        )
    return measure


def _flatten(parts: Iterable[Any]) -> tuple[tuple[Level, ...], tuple[RiskMeasure, ...]]:
    """Return the shares and the measures of (share, measure) pairs; a mixture among them becomes its own parts."""
    shares: list[Level] = []
    measures: list[RiskMeasure] = []
    for part in parts:
        try:
            share, measure = part
        except (TypeError, ValueError):
            raise RiskpathError(f"parts of a mixture must be (share, measure) pairs, got {short_repr(part)}") from None
        share, measure = as_level(share, "the share of a mixture"), parse_risk(measure)
        if isinstance(measure, Mixture | WeightedSum):
            shares += [share * inner for inner in measure.shares]
            measures += measure.measures
        else:
            shares.append(share)
            measures.append(measure)
    _check_shares(tuple(shares))
    return tuple(shares), tuple(measures)


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


class Distortion(DistortionMeasure):
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
        return self.function(tau)

    def weight(self, cdf: Tau) -> Any:
        """Return h(t), by bisection if there is no formula."""
        return inverse(self.function, cdf) if self.h is None else self.h(cdf)

    @property
    def concave(self) -> bool:
        return self.averse

    def __str__(self) -> str:
        return self.name


BY_NAME: dict[str, Callable[..., RiskMeasure]] = {
    "mean": Mean,
    "cvar": CVaR,
    "wang": Wang,
    "cpw": CPW,
    "pow": POW,
    "entropic": Entropic,
    "evar": EVaR,
    "var": VaR,
    "reach": ReachProbability,
    "mmv": MonotoneMeanVariance,
    "semidev": MeanSemideviation,
    "worst": WorstCase,
    "best": BestCase,
    "spectral": Spectral,
}
WITHOUT_LEVEL = {"mean", "worst", "best"}
"""The names of measures that have no level."""


def text_of(name: str) -> str:
    """Return the text form of a measure: "mean", "cvar:LEVEL"."""
    if name == "spectral":
        return "spectral:TABLE"
    return name if name in WITHOUT_LEVEL else f"{name}:LEVEL"


def register_risk(name: str, measure: Callable[..., RiskMeasure]) -> None:
    """Register a measure of your own for texts such as "name:level", also on the command line."""
    if not name.isidentifier() or name != name.lower():
        raise RiskpathError(f"the name of a measure must be a lower-case word, got {short_repr(name)}")
    BY_NAME[name] = measure


def parse_risk(text: RiskMeasure | str) -> RiskMeasure:
    """Return the measure of a text: "mean", "cvar:0.25", "evar:0.1", or a mixture, "0.7*mean+0.3*cvar:0.1".

    `str(measure)` is the inverse. A measure passes through unchanged, also if its level is an array or is being traced,
    so this is the converter of every field and argument that is a measure.
    """
    if isinstance(text, RiskMeasure):
        return text
    if isinstance(text, str):
        return _read_risk(text)
    hint = f"; write {text.__name__}(…)" if isinstance(text, type) and issubclass(text, RiskMeasure) else ""
    accepted = "a risk measure such as CVaR(0.25) or a text such as 'cvar:0.25'"
    raise RiskpathError(f"expected {accepted}, got {short_repr(text)}{hint}")


def _read_risk(text: str) -> RiskMeasure:
    if "*" not in text:
        return _read_one(text.strip(), text)
    parts = [part.partition("*") for part in text.replace(" ", "").split("+")]
    read = [(_read_number(share, text), _read_one(name, text)) for share, _, name in parts]
    ranked = all(isinstance(measure, DistortionMeasure) for _, measure in read)
    return Mixture(read) if ranked else WeightedSum(read)


def _read_one(part: str, text: str) -> RiskMeasure:
    """Return the measure of `part`, which has no "*"; messages show the whole `text`."""
    name, colon, level = part.lower().partition(":")
    constructor = BY_NAME.get(name)
    if constructor is None or (constructor is Mean and colon):
        known = ", ".join(map(text_of, BY_NAME))
        raise RiskpathError(f"unknown risk measure {text!r}; use {known}, or a mixture like 0.7*mean+0.3*cvar:0.1")
    if constructor is Spectral:
        pairs = [pair.partition("=") for pair in level.split(",")] if level else []
        return Spectral([_read_number(x, text) for x, _, _ in pairs], [_read_number(w, text) for *_, w in pairs])
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
