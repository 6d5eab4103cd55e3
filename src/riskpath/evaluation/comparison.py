"""The difference between two evaluations, with its confidence interval."""

from typing import Any

import equinox as eqx

from riskpath.errors import RiskpathError
from riskpath.evaluation.bootstrap import Bootstrap, Interval
from riskpath.evaluation.evaluation import Evaluation
from riskpath.risk.compose import parse_risk
from riskpath.risk.measures import RiskMeasure


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
