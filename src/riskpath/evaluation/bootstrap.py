"""How sure an estimate from seeds and episodes is: a bootstrap on two levels.

Every figure here weighs the returns of a seed by their rank and averages over the seeds: θ̂ = mean_s Σᵣ wᵣ x₍ᵣ₎. One
resample draws as many seeds, with replacement, and as many episodes of each seed drawn. Done plainly, that is wrong in
three ways, which are mended here. This form was chosen among six by simulation, where 90 % intervals of means and CVaRs
held the truth in 84 to 94 % of cases (done plainly: 54 to 98 %); on fresh data afterwards in 87 to 92 %, with two seeds
that differ 83 %. Quantiles do as well on continuous laws, but where F jumps close to the level no form held: 0 to 60 %
with several seeds.

- A seed's own estimate holds the noise of its episodes, which resampling them would count again. So the seeds'
  deviations are first shrunk to the variance that this noise does not explain.
- Few seeds show less spread than there is; deviations are stretched as Student's t is against the normal.
- A tail of few episodes looks better than it is, in each resample once more. What resampling shifts is taken off twice.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.special
from jaxtyping import Float, Real

from riskpath.errors import RiskpathError
from riskpath.risk.measures import RiskMeasure
from riskpath.validation import require_counts

BLOCK = 2**18
"""How many draws are held at once."""


@dataclass(frozen=True)
class Interval:
    """An estimate and where the truth may be: `72.4 [71.8, 73.0]`."""

    estimate: float
    """From the sample as it is."""
    low: float
    """Lower end."""
    high: float
    """Upper end."""
    confidence: float
    """In what share of cases such an interval holds the truth."""

    def __contains__(self, value: float) -> bool:
        return bool(self.low <= value <= self.high)

    def __truediv__(self, by: float) -> "Interval":
        """By a positive number."""
        return Interval(self.estimate / by, self.low / by, self.high / by, self.confidence)

    def __str__(self) -> str:
        width, size = self.high - self.low, max(abs(self.low), abs(self.high), abs(self.estimate))
        if width <= 1e-9 * size:
            return f"{self.estimate:.6g} [{self.low:.6g}, {self.high:.6g}]"
        places = max(0, 1 - math.floor(math.log10(width)))  # two digits of what is uncertain
        return f"{self.estimate:z.{places}f} [{self.low:z.{places}f}, {self.high:z.{places}f}]"


@dataclass(frozen=True)
class Resampled:
    """An estimate, and what it was in each resample."""

    estimate: Float[np.ndarray, " M"]
    draws: Float[np.ndarray, "R M"]

    def minus(self, other: "Resampled") -> "Resampled":
        """The difference to an independent one."""
        return Resampled(self.estimate - other.estimate, self.draws - other.draws)


class Bootstrap:
    """Resamples of seeds and of episodes within each; the same seed gives the same."""

    def __init__(self, confidence: float, resamples: int, seed: int):
        if not 0 < confidence < 1:
            raise RiskpathError(f"confidence must lie between 0 and 1, for example 0.95, got {confidence:g}")
        require_counts(resamples=resamples)
        require_counts(0, seed=seed)
        self.confidence, self.resamples, self.rng = confidence, resamples, np.random.default_rng(seed)

    def __call__(
        self, returns: Real[np.ndarray, "S N"], weights: Float[np.ndarray, "N M"], smooth: bool = True
    ) -> Resampled:
        """θ̂ and its resamples; with one seed only episodes are resampled. Quantiles are not `smooth`."""
        ordered = np.sort(np.asarray(returns, np.float64), axis=1)
        seeds, own = len(ordered), ordered @ weights
        apart = own - own.mean(axis=0)
        chosen = self.rng.integers(seeds, size=(self.resamples, seeds))
        noise = np.empty((self.resamples, seeds, weights.shape[1]))
        for seed in range(seeds):
            slots = chosen == seed
            noise[slots] = self._redrawn(ordered[seed], weights, int(slots.sum())) - own[seed]
        # A quantile jumps from atom to atom: what it does on average tells no bias.
        bias = noise.mean(axis=(0, 1)) if smooth else 0.0
        draws = (self._stretch(apart, noise) * apart[chosen] + noise).mean(axis=1)
        return Resampled(own.mean(axis=0), own.mean(axis=0) + draws - 2 * bias)

    def intervals(self, resampled: Resampled) -> list[Interval]:
        """One for each figure."""
        ends = np.quantile(resampled.draws, [(1 - self.confidence) / 2, (1 + self.confidence) / 2], axis=0)
        rows = zip(resampled.estimate, *ends, strict=True)
        return [Interval(float(estimate), float(low), float(high), self.confidence) for estimate, low, high in rows]

    def _redrawn(
        self, x: Float[np.ndarray, " N"], weights: Float[np.ndarray, "N M"], rows: int
    ) -> Float[np.ndarray, "rows M"]:
        """The figures of so many resamples of a sorted sample: ranks are drawn and sorted, not returns."""
        size, block = len(x), max(1, BLOCK // len(x))
        found = np.empty((rows, weights.shape[1]))
        for first in range(0, rows, block):
            shape = (min(block, rows - first), size)
            ranks = self.rng.integers(size, size=shape, dtype=np.int32)  # sorted twice as fast as 64 bits
            ranks.sort(axis=1)
            found[first : first + block] = x[ranks] @ weights
        return found

    def _stretch(self, apart: Float[np.ndarray, "S M"], noise: Float[np.ndarray, "R S M"]) -> Float[np.ndarray, " M"]:
        """What the seeds' deviations are multiplied by."""
        seeds = len(apart)
        seen = (apart**2).mean(axis=0)  # the variance that resampling would give them
        if seeds == 1:
            return np.zeros_like(seen)
        theirs = np.maximum(0.0, seen * seeds / (seeds - 1) - noise.var(axis=(0, 1)))
        tail = (1 + self.confidence) / 2
        few = scipy.special.stdtrit(seeds - 1, tail) / scipy.special.ndtri(tail)
        return few * np.sqrt(np.divide(theirs, seen, out=np.zeros_like(seen), where=seen > 0))


def risk_weights(risk: RiskMeasure, episodes: int) -> Float[np.ndarray, "N 1"]:
    """wᵣ = h(r/N) − h((r−1)/N): β of a sorted sample as a weighted sum."""
    h = np.asarray(risk.weight(np.arange(1, episodes + 1) / episodes), np.float64)
    return np.diff(h, prepend=0.0)[:, None]


def quantile_weights(levels: Iterable[float], episodes: int) -> Float[np.ndarray, "N M"]:
    """All on the rank at which F reaches the level, as in `Law.quantile`."""
    levels = np.array(list(levels), np.float64)
    if not levels.size or not ((levels >= 0) & (levels <= 1)).all():
        raise RiskpathError(f"levels of quantiles must be numbers in [0, 1], at least one, got {levels.tolist()}")
    ranks = np.maximum(0, np.ceil(levels * episodes - 1e-9).astype(int) - 1)
    return (np.arange(episodes)[:, None] == ranks).astype(np.float64)
