"""How good learned policies are: many episodes of every lane at once, and what they say of the policies behind them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import equinox as eqx
import numpy as np

from riskpath.errors import RiskpathError
from riskpath.evaluation.bootstrap import Bootstrap, Interval, Resampled, quantile_weights, risk_weights
from riskpath.mdp.solution import Solution
from riskpath.risk.compose import parse_risk
from riskpath.risk.measures import Mean, RiskMeasure


@dataclass(frozen=True)
class Evaluation:
    """Returns of many episodes of every lane's greedy policy: arrays [settings, seeds, episodes].

    `mean`, `risk` and `quantiles` are the mean over the seeds of each seed's own figure, one for each setting. Their
    intervals are for the mean over all seeds that might have been trained and all episodes that might have been seen:
    both are resampled (`intervals.py`). With one seed only its episodes are, and they tell nothing of other seeds.
    """

    returns: np.ndarray = field(repr=False)
    """Undiscounted."""
    discounted: np.ndarray = field(repr=False)
    """With the agent's own discount, which is what it maximises."""
    risks: list[RiskMeasure]
    """What each setting maximises."""
    finished: float
    """The share of episodes that ended by themselves or by the environment's own time limit, not by `limit`."""
    discounts: list[float] | None = None
    """γ of each setting, if known."""

    def values(self, discounted: bool = False, risk: RiskMeasure | str | None = None) -> np.ndarray:
        """β of the whole return, [settings, seeds]: of each setting's own measure, or of a given one."""
        risk = None if risk is None else parse_risk(risk)
        returns = self.discounted if discounted else self.returns
        return np.array(
            [
                [float((risk or own).value(sample)) for sample in setting]
                for own, setting in zip(self.risks, returns, strict=True)
            ]
        )

    def mean(
        self, discounted: bool = False, *, confidence: float = 0.95, resamples: int = 1_000, seed: int = 0
    ) -> list[Interval]:
        """The mean return of each setting."""
        return self.risk(Mean(), discounted, confidence=confidence, resamples=resamples, seed=seed)

    def risk(
        self,
        measure: RiskMeasure | str | None = None,
        discounted: bool = False,
        *,
        confidence: float = 0.95,
        resamples: int = 1_000,
        seed: int = 0,
    ) -> list[Interval]:
        """β of the whole return of each setting: of its own measure, or of a given one."""
        bootstrap = Bootstrap(confidence, resamples, seed)
        return [bootstrap.intervals(one)[0] for one in self._resampled(measure, discounted, bootstrap)]

    def quantiles(
        self,
        levels: Iterable[float],
        discounted: bool = False,
        *,
        confidence: float = 0.95,
        resamples: int = 1_000,
        seed: int = 0,
    ) -> list[list[Interval]]:
        """F⁻¹(τ) at each level τ, of each setting; little is known of it where F jumps across τ."""
        bootstrap, returns = Bootstrap(confidence, resamples, seed), self._checked(discounted)
        weights = quantile_weights(levels, returns.shape[-1])
        return [bootstrap.intervals(bootstrap(sample, weights, smooth=False)) for sample in returns]

    def against(
        self,
        optimum: float | Solution,
        discounted: bool = False,
        *,
        confidence: float = 0.95,
        resamples: int = 1_000,
        seed: int = 0,
    ) -> list[Interval]:
        """The share of an optimum that each setting reaches; a `Solution` says itself of what measure and discount."""
        measure = None
        if isinstance(optimum, Solution):
            discounted = optimum.mdp.discount != 1
            if discounted and not np.allclose(self.discounts or [], optimum.mdp.discount):
                raise RiskpathError(
                    f"the optimum has discount {optimum.mdp.discount:g}, the settings {self.discounts}; solve for these"
                )
            optimum, measure = optimum.value, optimum.risk
        if not 0 < optimum < np.inf:
            raise RiskpathError(f"a share needs a positive optimum, got {optimum:g}; look at the difference instead")
        reached = self.risk(measure, discounted, confidence=confidence, resamples=resamples, seed=seed)
        return [interval / optimum for interval in reached]

    def _resampled(self, measure: RiskMeasure | str | None, discounted: bool, bootstrap: Bootstrap) -> list[Resampled]:
        returns, measure = self._checked(discounted), None if measure is None else parse_risk(measure)
        return [
            bootstrap(sample, risk_weights(measure or own, returns.shape[-1]))
            for own, sample in zip(self.risks, returns, strict=True)
        ]

    def _checked(self, discounted: bool) -> np.ndarray:
        returns = np.asarray(self.discounted if discounted else self.returns)
        if returns.ndim != 3 or returns.size == 0 or len(returns) != len(self.risks):
            raise RiskpathError(
                f"returns must be [settings, seeds, episodes], at least one of each and {len(self.risks)} settings: "
                f"got {list(returns.shape)}"
            )
        if not np.isfinite(returns).all():
            setting, seed, episode = np.argwhere(~np.isfinite(returns))[0]
            wrong = "NaN" if np.isnan(returns[setting, seed, episode]) else "infinite"
            raise RiskpathError(f"the return of setting {setting}, seed {seed}, episode {episode} is {wrong}")
        return returns

    def __str__(self) -> str:
        columns = []
        for discounted in (False, True):
            spans = [f" (seeds {v.min():.4g} to {v.max():.4g})" if v.size > 1 else "" for v in self.values(discounted)]
            columns.append([f"{own}{span}" for own, span in zip(self.risk(None, discounted), spans, strict=True)])
        lines = [
            f"{risk}: undiscounted {plain}, discounted {discounted}"
            for risk, plain, discounted in zip(self.risks, *columns, strict=True)
        ]
        return "\n".join(lines)


def compare(
    first: Evaluation,
    second: Evaluation,
    measure: RiskMeasure | str | None = None,
    discounted: bool = False,
    *,
    confidence: float = 0.95,
    resamples: int = 1_000,
    seed: int = 0,
) -> list[Interval]:
    """How much better the first is, for each setting, in its own measure or a given one; their runs are independent."""
    for one in (first, second):
        if not isinstance(one, Evaluation):
            raise RiskpathError(f"compare takes two evaluations, run.evaluate(); got a {type(one).__name__}")
    if len(first.risks) != len(second.risks):
        raise RiskpathError(f"got {len(first.risks)} and {len(second.risks)} settings; they are compared one by one")
    for ours, theirs in zip(first.risks, second.risks, strict=True):
        if measure is None and not eqx.tree_equal(ours, theirs):
            raise RiskpathError(f"one maximises {ours}, the other {theirs}: say by which measure to compare them")
    bootstrap = Bootstrap(confidence, resamples, seed)
    both = (one._resampled(measure, discounted, bootstrap) for one in (first, second))
    return [bootstrap.intervals(ours.minus(theirs))[0] for ours, theirs in zip(*both, strict=True)]
