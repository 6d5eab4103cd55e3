"""Returns of learned policies and their statistics: many episodes of every lane, with confidence intervals."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

import equinox as eqx
import numpy as np

from riskpath.errors import RiskpathError
from riskpath.evaluation.bootstrap import Bootstrap, Interval, Resampled, linear_form, quantile_weights
from riskpath.mdp.solution import Solution
from riskpath.plot import distributions
from riskpath.plot.notebook import html_lines
from riskpath.risk.compose import parse_risk
from riskpath.risk.measures import Mean, RiskMeasure


@dataclass(frozen=True)
class Evaluation:
    """Returns of many episodes of every lane's greedy policy: arrays [settings, seeds, episodes].

    `mean`, `risk` and `quantiles` compute a figure for each seed and return its mean over the seeds, one for each
    setting. Their intervals are for the mean over all seeds that could have been trained and all episodes that could
    have been played: seeds and episodes are resampled (`bootstrap.py`). With one seed only its episodes are resampled,
    so the interval says nothing about other seeds.

    `evaluation[0]` selects a setting, `evaluation[1:3]` several, `evaluation[:, :4]` the first four seeds of every
    setting. The result is an Evaluation; one setting or one seed keeps its axis.
    """

    returns: np.ndarray = field(repr=False)
    """Undiscounted returns."""
    discounted: np.ndarray = field(repr=False)
    """Returns with the agent's own discount, which the agent maximises."""
    risks: list[RiskMeasure]
    """The measure that each setting maximises; texts such as "cvar:0.1" are accepted."""
    finished: float
    """The fraction of episodes that ended by themselves or by the environment's own time limit, not by the
    `max_episode_steps` of the evaluation. A selection keeps the share of the whole evaluation."""
    discounts: list[float] | None = None
    """γ of each setting, if known."""

    def __post_init__(self):
        risks = [self.risks] if isinstance(self.risks, str | RiskMeasure) else self.risks
        object.__setattr__(self, "risks", [parse_risk(risk) for risk in risks])

    def __len__(self) -> int:
        """Return the number of settings."""
        return len(self.risks)

    def __iter__(self) -> Iterator["Evaluation"]:
        return (self[setting] for setting in range(len(self)))

    def __getitem__(self, key: Any) -> "Evaluation":
        """Select settings, or settings and seeds, by numbers, slices, or lists of numbers."""
        if isinstance(key, tuple) and len(key) != 2:
            raise RiskpathError(f"select evaluation[settings] or evaluation[settings, seeds], got {len(key)} parts")
        settings, seeds = key if isinstance(key, tuple) else (key, slice(None))
        rows = _positions("setting", settings, len(self))
        columns = _positions("seed", seeds, np.shape(self.returns)[1])
        pick = lambda array: np.asarray(array)[rows][:, columns]
        return replace(
            self,
            returns=pick(self.returns),
            discounted=pick(self.discounted),
            risks=[self.risks[row] for row in rows],
            discounts=None if self.discounts is None else [self.discounts[row] for row in rows],
        )

    def values(self, discounted: bool = False, risk: RiskMeasure | str | None = None) -> np.ndarray:
        """Return β of the whole return, [settings, seeds]: of each setting's own measure, or of the given one."""
        risk = None if risk is None else parse_risk(risk)
        pairs = zip(self.risks, self._checked(discounted), strict=True)
        return np.array([[float((risk or own).value(sample)) for sample in setting] for own, setting in pairs])

    def mean(
        self, discounted: bool = False, *, confidence: float = 0.95, resamples: int = 1_000, seed: int = 0
    ) -> list[Interval]:
        """Return the mean return of each setting."""
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
        """Return β of the whole return of each setting: of its own measure, or of the given one."""
        bootstrap = Bootstrap(confidence, resamples, seed)
        return [bootstrap.intervals(one)[0] for one in self.resample(measure, discounted, bootstrap)]

    def quantiles(
        self,
        levels: Iterable[float] | float,
        discounted: bool = False,
        *,
        confidence: float = 0.95,
        resamples: int = 1_000,
        seed: int = 0,
    ) -> list[list[Interval]]:
        """Return F⁻¹(τ) at each level τ, for each setting; its interval is unreliable where F jumps across τ."""
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
        """Return the share of an optimum that each setting reaches; a `Solution` fixes the measure and the discount."""
        measure = None
        if isinstance(optimum, Solution):
            discounted = optimum.mdp.discount != 1
            if discounted and not np.allclose(self.discounts or [], optimum.mdp.discount):
                raise RiskpathError(
                    f"the optimum has discount {optimum.mdp.discount:g}, the settings {self.discounts}; solve for these"
                )
            optimum, measure = optimum.value, optimum.risk
        if not isinstance(optimum, int | float | np.number) or not 0 < optimum < np.inf:
            raise RiskpathError(f"a share needs a positive optimum, got {optimum}; use the difference instead")
        reached = self.risk(measure, discounted, confidence=confidence, resamples=resamples, seed=seed)
        return [interval / float(optimum) for interval in reached]

    def plot(
        self,
        ax: Any = None,
        *,
        risk: RiskMeasure | str | bool | None = None,
        kind: str = "cdf",
        discounted: bool = False,
        labels: Sequence[str] | None = None,
        **style: Any,
    ) -> Any:
        """Draw the return distribution of every setting, its seeds pooled, and return the axes.

        A dashed line marks the risk value of each setting, a band its 95 % interval.

        Args:
            ax: Matplotlib axes; by default those of a new figure.
            risk: The measure of the lines: by default each setting's own; False for no lines.
            kind: "cdf", "histogram" or "quantiles".
            discounted: Draw discounted returns.
            labels: One for each setting; by default the measures.
            style: Passed to matplotlib, for example `linewidth=1`.
        """
        shown = replace(self, returns=self._checked(discounted))
        return distributions.compare(
            *shown, labels=labels or setting_labels(self.risks), risk=risk, ax=ax, kind=kind, **style
        )

    def resample(
        self, measure: RiskMeasure | str | None, discounted: bool, bootstrap: Bootstrap, stream: int = 0
    ) -> list[Resampled]:
        """Return bootstrap resamples of β of each setting."""
        returns, measure = self._checked(discounted), None if measure is None else parse_risk(measure)
        return [
            bootstrap(*linear_form(measure or own, sample), stream=stream)
            for own, sample in zip(self.risks, returns, strict=True)
        ]

    def _checked(self, discounted: bool) -> np.ndarray:
        """Return the returns as an array; refuse wrong shapes, NaN and infinite returns."""
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

    def _repr_html_(self) -> str:
        return html_lines(f"{self.returns.shape[-1]:,} episodes of each policy, 95% intervals", str(self).splitlines())

    def __str__(self) -> str:
        lines = []
        for setting, risk in enumerate(self.risks):
            one, discount = self[setting], (self.discounts or [None] * len(self))[setting]
            for name, measure in ((str(risk), None), *(() if isinstance(risk, Mean) else (("  mean", Mean()),))):
                figures = [f"undiscounted {one._with_seeds(measure, False)}"]
                figures += [] if discount == 1 else [f"discounted {one._with_seeds(measure, True)}"]
                lines.append(f"{name}: {', '.join(figures)}")
        return "\n".join(lines)

    def _with_seeds(self, measure: RiskMeasure | None, discounted: bool) -> str:
        """Return a figure of the first setting with its interval, and the lowest and highest of its seeds."""
        of_seeds = self.values(discounted, measure)[0]
        span = f" (seeds {of_seeds.min():.4g} to {of_seeds.max():.4g})" if of_seeds.size > 1 else ""
        return f"{self.risk(measure, discounted)[0]}{span}"


def setting_labels(risks: Sequence[RiskMeasure]) -> list[str]:
    """Return a label for each setting: its measure, with the number of the setting where measures repeat."""
    names = [str(risk) for risk in risks]
    return names if len(set(names)) == len(names) else [f"{name} (setting {i})" for i, name in enumerate(names)]


def _positions(what: str, key: Any, count: int) -> list[int]:
    """Return the numbers of the selected settings or seeds."""
    if isinstance(key, slice):
        chosen = list(range(count))[key]
    else:
        listed = [key] if isinstance(key, Integral) else list(key) if isinstance(key, Iterable) else []
        if not listed or any(not isinstance(one, Integral) or isinstance(one, bool) for one in listed):
            raise RiskpathError(f"select a {what} by a number, a slice or a list of numbers, got {key!r}")
        wrong = [one for one in listed if not -count <= int(one) < count]
        if wrong:
            raise RiskpathError(f"there is no {what} {wrong[0]}; the evaluation has {count}")
        chosen = [int(one) % count for one in listed]
    if not chosen:
        raise RiskpathError(f"{key} selects none of the {count} {what}s")
    return chosen


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
    """Return the risk value of the first evaluation minus that of the second, one interval for each setting.

    Settings are compared one by one; an evaluation of one setting is compared with every setting of the other. The runs
    behind the two evaluations must be independent. An interval that does not contain 0 shows a difference.

    Args:
        first: An evaluation, `run.evaluate()`; select settings by `evaluation[0]` or `evaluation[1:3]`.
        second: The evaluation to subtract.
        measure: β of both sides; by default the measure that both settings maximise.
        discounted: Compare discounted returns.
        confidence: The probability that such an interval contains the true difference.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.
    """
    for one in (first, second):
        if not isinstance(one, Evaluation):
            raise RiskpathError(f"compare takes two evaluations, run.evaluate(); got a {type(one).__name__}")
    count = max(len(first), len(second))
    if not {len(first), len(second)} <= {1, count}:
        raise RiskpathError(
            f"got {len(first)} and {len(second)} settings; give the same number on both sides, or one on either side"
        )
    if measure is None:
        for ours, theirs in zip(_repeat(first.risks, count), _repeat(second.risks, count), strict=True):
            if not eqx.tree_equal(ours, theirs):
                raise RiskpathError(f"one setting maximises {ours}, the other {theirs}; give the measure to compare by")
    else:
        measure = parse_risk(measure)
    bootstrap = Bootstrap(confidence, resamples, seed)
    ours = first.resample(measure, discounted, bootstrap)
    theirs = second.resample(measure, discounted, bootstrap, stream=1)
    pairs = zip(_repeat(ours, count), _repeat(theirs, count), strict=True)
    return [bootstrap.intervals(a.minus(b))[0] for a, b in pairs]


def _repeat(listed: list[Any], count: int) -> list[Any]:
    return listed * count if len(listed) == 1 else listed
