"""Confidence intervals of estimates from seeds and episodes: a two-level bootstrap.

Every estimate here weights the sorted returns of a seed by rank and averages over seeds: θ̂ = mean_s Σᵣ wᵣ x₍ᵣ₎. One
resample draws seeds with replacement, and then episodes of each of these seeds. This plain form is biased in three
ways, which are corrected here:

- The estimate of a seed contains the noise of its episodes, and resampling the episodes would count this noise twice.
  Therefore the deviations of the seeds are first shrunk to the variance that the noise does not explain.
- The deviations of a few seeds underestimate those of their distribution. They are stretched by the ratio of the
  quantiles of Student's t and of the normal distribution.
- A tail of few episodes looks better than it is, and again in each resample. Twice the mean shift of the resamples is
  subtracted.

The form was chosen among six by simulation. Its 90 % intervals of means and CVaRs contained the true value in 84 to
94 % of cases (plain form: 54 to 98 %), on fresh data in 87 to 92 %, and in 83 % with two seeds that differ. Intervals
of quantiles are equally good on continuous distributions. Where F jumps close to the level, none of the six worked:
they contained the true value in 0 to 60 % of cases with several seeds.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.special
from jaxtyping import Float, Real

from riskpath.errors import RiskpathError
from riskpath.risk.measures import DistortionMeasure, RiskMeasure
from riskpath.validation import require_counts

BLOCK = 2**18
"""Number of draws that are held in memory at once."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval; it prints as `72.4 [71.8, 73.0]`."""

    estimate: float
    """The estimate from the whole sample."""
    low: float
    """Lower end."""
    high: float
    """Upper end."""
    confidence: float
    """The probability that such an interval contains the true value."""

    def __contains__(self, value: float) -> bool:
        return bool(self.low <= value <= self.high)

    def __truediv__(self, by: float) -> "Interval":
        return Interval(self.estimate / by, self.low / by, self.high / by, self.confidence)

    def __str__(self) -> str:
        width, size = self.high - self.low, max(abs(self.low), abs(self.high), abs(self.estimate))
        if width <= 1e-9 * size:
            return f"{self.estimate:.6g} [{self.low:.6g}, {self.high:.6g}]"
        places = max(0, 1 - math.floor(math.log10(width)))  # two digits of the width
        return f"{self.estimate:z.{places}f} [{self.low:z.{places}f}, {self.high:z.{places}f}]"


@dataclass(frozen=True)
class Resampled:
    """An estimate, and its value in each resample."""

    estimate: Float[np.ndarray, " M"]
    draws: Float[np.ndarray, "R M"]

    def minus(self, other: "Resampled") -> "Resampled":
        """Return the difference to an independent estimate."""
        return Resampled(self.estimate - other.estimate, self.draws - other.draws)


class Bootstrap:
    """Resamples seeds, and episodes within each of them; every call with the same seed draws the same resamples."""

    def __init__(self, confidence: float, resamples: int, seed: int):
        if not isinstance(confidence, int | float) or not 0 < confidence < 1:
            raise RiskpathError(f"confidence must lie between 0 and 1, for example 0.95, got {confidence}")
        require_counts(resamples=resamples)
        require_counts(0, seed=seed)
        self.confidence, self.resamples, self.seed = confidence, resamples, seed

    def __call__(
        self,
        returns: Real[np.ndarray, "S N"],
        weights: Float[np.ndarray, "N M"],
        *,
        smooth: bool = True,
        stream: int = 0,
    ) -> Resampled:
        """Return θ̂ and its resamples for M columns of weights; with one seed, only its episodes are resampled.

        Quantiles are not `smooth`: a quantile jumps from atom to atom, so its mean shift is not a bias. Each
        `stream` of resamples is independent.
        """
        rng = np.random.default_rng([self.seed, stream] if stream else self.seed)
        ordered = np.sort(np.asarray(returns, np.float64), axis=1)
        seeds, own = len(ordered), ordered @ weights
        deviation = own - own.mean(axis=0)
        chosen = rng.integers(seeds, size=(self.resamples, seeds))
        noise = np.empty((self.resamples, seeds, weights.shape[1]))
        for seed in range(seeds):
            slots = chosen == seed
            noise[slots] = _redraw(ordered[seed], weights, int(slots.sum()), rng) - own[seed]
        bias = noise.mean(axis=(0, 1)) if smooth else 0.0
        draws = (self._stretch(deviation, noise) * deviation[chosen] + noise).mean(axis=1)
        return Resampled(own.mean(axis=0), own.mean(axis=0) + draws - 2 * bias)

    def intervals(self, resampled: Resampled) -> list[Interval]:
        """Return an interval for each estimate."""
        ends = np.quantile(resampled.draws, [(1 - self.confidence) / 2, (1 + self.confidence) / 2], axis=0)
        rows = zip(resampled.estimate, *ends, strict=True)
        return [Interval(float(estimate), float(low), float(high), self.confidence) for estimate, low, high in rows]

    def _stretch(
        self, deviation: Float[np.ndarray, "S M"], noise: Float[np.ndarray, "R S M"]
    ) -> Float[np.ndarray, " M"]:
        """Return the factor on the deviations of the seeds."""
        seeds = len(deviation)
        observed = (deviation**2).mean(axis=0)  # the variance of resampled seeds
        if seeds == 1:
            return np.zeros_like(observed)
        unexplained = np.maximum(0.0, observed * seeds / (seeds - 1) - noise.var(axis=(0, 1)))
        tail = (1 + self.confidence) / 2
        student = scipy.special.stdtrit(seeds - 1, tail) / scipy.special.ndtri(tail)
        return student * np.sqrt(np.divide(unexplained, observed, out=np.zeros_like(observed), where=observed > 0))


def _redraw(
    x: Float[np.ndarray, " N"], weights: Float[np.ndarray, "N M"], rows: int, rng: np.random.Generator
) -> Float[np.ndarray, "rows M"]:
    """Return the estimates from `rows` resamples of a sorted sample; ranks are drawn and sorted, not returns."""
    size, block = len(x), max(1, BLOCK // len(x))
    estimates = np.empty((rows, weights.shape[1]))
    for first in range(0, rows, block):
        shape = (min(block, rows - first), size)
        ranks = rng.integers(size, size=shape, dtype=np.int32)  # sorted twice as fast as 64 bits
        ranks.sort(axis=1)
        estimates[first : first + block] = x[ranks] @ weights
    return estimates


def exact_interval(values: Float[np.ndarray, " S"], resamples: int = 1_000, confidence: float = 0.95) -> Interval:
    """Return the mean over seeds of exact values, with its interval: only seeds are resampled."""
    bootstrap = Bootstrap(confidence, resamples, 0)
    return bootstrap.intervals(bootstrap(values[:, None], np.ones((1, 1))))[0]


def risk_weights(risk: DistortionMeasure, episodes: int) -> Float[np.ndarray, "N 1"]:
    """Return wᵣ = h(r/N) − h((r−1)/N), with which β of a sorted sample is a weighted sum."""
    h = np.asarray(risk.weight(np.arange(1, episodes + 1) / episodes), np.float64)
    return np.diff(h, prepend=0.0)[:, None]


def linear_form(risk: RiskMeasure, returns: Real[np.ndarray, "S N"]) -> tuple[np.ndarray, Float[np.ndarray, "N 1"]]:
    """Return numbers and weights for every seed, so that β is the weighted sum of the sorted numbers.

    A distortion weights the returns themselves by rank. Any other measure is replaced by the mean of its influence
    function u at the returns of the seed, shifted so that this mean is β.
    """
    if isinstance(risk, DistortionMeasure):
        return returns, risk_weights(risk, returns.shape[-1])
    count = returns.shape[-1]
    even = np.full(count, 1 / count)
    rows = []
    for sample in np.asarray(returns, np.float64):
        counted = np.asarray(risk.influence(sample, sample, even), np.float64)
        rows.append(float(risk.value(sample)) + counted - counted.mean())
    return np.stack(rows), even[:, None]


def quantile_weights(levels: Iterable[float] | float, episodes: int) -> Float[np.ndarray, "N M"]:
    """Return weight 1 for the rank at which F reaches the level, as in `Law.quantile`; one column for each level."""
    listed = list(levels) if isinstance(levels, Iterable) else [levels]
    if not listed or not all(isinstance(level, int | float | np.number) and 0 <= level <= 1 for level in listed):
        raise RiskpathError(f"levels of quantiles must be numbers in [0, 1], at least one, got {listed}")
    ranks = np.maximum(0, np.ceil(np.array(listed, np.float64) * episodes - 1e-9).astype(int) - 1)
    return (np.arange(episodes)[:, None] == ranks).astype(np.float64)
