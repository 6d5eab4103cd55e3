"""Differences between evaluations: their intervals, and which settings are compared with which."""

from typing import Any

import numpy as np
import pytest

import riskpath as rp
from riskpath.evaluation.evaluation import compare
from tests.evaluation.test_bootstrap import evaluation, sample


@pytest.mark.long
def test_the_interval_of_a_difference_contains_the_true_difference():
    pairs = [(sample(5, 100, 0.3, seed), sample(8, 150, 0.3, seed + 1_000) - 0.5) for seed in range(200)]
    first, second = (evaluation(*side) for side in zip(*pairs, strict=True))
    found = compare(first, second, "mean", confidence=0.9, resamples=200)
    assert 0.84 <= np.mean([0.5 in interval for interval in found]) <= 0.96
    widths = [
        np.mean([interval.high - interval.low for interval in one])
        for one in (found, first.mean(confidence=0.9, resamples=200), second.mean(confidence=0.9, resamples=200))
    ]
    assert widths[0] == pytest.approx(np.hypot(widths[1], widths[2]), rel=0.1)
    assert found[0].estimate == pytest.approx(pairs[0][0].mean() - pairs[0][1].mean())


def test_both_sides_are_resampled_independently():
    one, other = evaluation(sample(3, 50), sample(3, 50)), evaluation(sample(3, 50), sample(3, 50) - 9.0)
    equal, apart = compare(one, other)
    assert equal.estimate == 0.0
    assert equal.low < -0.01 < 0.01 < equal.high  # not one point, as the same resamples would give
    assert apart.estimate == pytest.approx(9.0)
    assert 0.0 not in apart
    assert compare(one, other, discounted=True)[1].estimate == pytest.approx(4.5)


def test_one_setting_is_compared_with_every_setting_of_the_other_evaluation():
    several, one = evaluation(sample(3, 50), sample(3, 50) + 4.0), evaluation(sample(2, 40, seed=1) + 1.0)
    for settings in (compare(several, one), compare(several, one, "cvar:0.25")):
        assert settings == [compare(several[0], one)[0], compare(several[1], one)[0]]
    gap = several.values().mean(axis=1) - one.values().mean()
    assert [interval.estimate for interval in compare(several, one)] == pytest.approx(gap)
    assert [interval.estimate for interval in compare(one, several)] == pytest.approx(-gap)
    assert compare(several, several)[1] == compare(several[1], several[1])[0]


GOOD, THREE = evaluation(sample(2, 10)), evaluation(*[sample(2, 10)] * 3)
NUMBER: Any = 3.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: compare(evaluation(*[sample(2, 10)] * 2), THREE),
            r"^got 2 and 3 settings; give the same number on both sides, or one on either side$",
        ),
        (
            lambda: compare(GOOD, evaluation(sample(2, 10), risk="mean")),
            r"^one setting maximises cvar:0.25, the other mean; give the measure to compare by$",
        ),
        (
            lambda: compare(rp.Evaluation(THREE.returns, THREE.discounted, [*THREE.risks[1:], rp.Mean()], 1.0), GOOD),
            r"^one setting maximises mean, the other cvar:0.25; give the measure to compare by$",
        ),
        (lambda: compare(GOOD, GOOD, "cvr:0.1"), r"^unknown risk measure 'cvr:0.1'"),
        (lambda: compare(GOOD, NUMBER), r"^compare takes two evaluations, run.evaluate\(\); got a float$"),
        (lambda: compare(GOOD, GOOD, confidence=2.0), r"^confidence must lie between 0 and 1, for example 0.95, got 2"),
    ],
)
def test_a_wrong_call_raises_one_line(call, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
