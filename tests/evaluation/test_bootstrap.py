"""Confidence intervals, compared with a plain loop over resamples, and how often they contain the true value."""

import time
from typing import Any

import numpy as np
import pytest
import scipy.special

import riskpath as rp
from riskpath.evaluation.bootstrap import Interval
from riskpath.evaluation.evaluation import Evaluation

MEASURES = ["mean", "cvar:0.25", "wang:-0.75", "pow:2", "cpw:0.71", "0.7*mean+0.3*cvar:0.1"]


def evaluation(*settings: np.ndarray, risk: str = "cvar:0.25", **fields) -> Evaluation:
    """Return an evaluation with these returns [seeds, episodes] of each setting; discounted returns are half."""
    returns = np.stack(settings)
    return Evaluation(returns, returns / 2, [rp.parse_risk(risk)] * len(settings), 1.0, **fields)


def sample(seeds: int, episodes: int, effect: float = 0.0, seed: int = 0) -> np.ndarray:
    """Return standard exponential returns with a normal shift of each seed."""
    rng = np.random.default_rng(seed)
    return rng.exponential(size=(seeds, episodes)) + effect * rng.normal(size=(seeds, 1))


def by_loops(returns: np.ndarray, figure, smooth: bool, confidence: float, resamples: int, seed: int) -> Interval:
    """Compute an interval by its definition: every resample consists of returns, one resample after the other."""
    rng, (seeds, episodes) = np.random.default_rng(seed), returns.shape
    returns = np.sort(returns, axis=1)
    own = [figure(row) for row in returns]
    chosen = rng.integers(seeds, size=(resamples, seeds))
    noise = np.zeros((resamples, seeds))
    for s in range(seeds):
        slots = [(r, slot) for r in range(resamples) for slot in range(seeds) if chosen[r, slot] == s]
        drawn = rng.integers(episodes, size=(len(slots), episodes), dtype=np.int32)  # one block
        for place, episodes_drawn in zip(slots, drawn, strict=True):
            noise[place] = figure(returns[s][episodes_drawn]) - own[s]
    stretch = 0.0
    if seeds > 1:
        unexplained = max(0.0, np.var(own, ddof=1) - noise.var())
        tail = 0.5 + confidence / 2
        stretch = np.sqrt(unexplained / np.var(own)) * scipy.special.stdtrit(seeds - 1, tail)
        stretch /= scipy.special.ndtri(tail)
    centre, draws = np.mean(own), []
    for r in range(resamples):
        moved = [own[s] - centre for s in chosen[r]]
        draws.append(centre + stretch * np.mean(moved) + noise[r].mean() - (2 * noise.mean() if smooth else 0.0))
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(centre), float(low), float(high), confidence)


def same(fast: Interval, slow: Interval) -> bool:
    return all(
        getattr(fast, name) == pytest.approx(getattr(slow, name), abs=1e-9)
        for name in ("estimate", "low", "high", "confidence")
    )


@pytest.mark.parametrize("seeds", [1, 4])
@pytest.mark.parametrize("measure", MEASURES)
def test_risk_intervals_equal_those_of_the_plain_loop(measure, seeds):
    returns = sample(seeds, 12, effect=0.4)
    (fast,) = evaluation(returns).risk(measure, confidence=0.8, resamples=60, seed=3)
    slow = by_loops(returns, rp.parse_risk(measure).value, True, 0.8, 60, 3)
    assert same(fast, slow)
    assert fast.low < fast.high
    assert fast.estimate == pytest.approx(np.mean([rp.parse_risk(measure).value(row) for row in returns]))


@pytest.mark.parametrize("tau", [0.0, 0.3, 0.5, 1.0])
def test_quantile_intervals_equal_those_of_the_plain_loop(tau):
    returns = sample(3, 10, effect=0.4)
    (fast,) = evaluation(returns).quantiles(tau, confidence=0.8, resamples=60, seed=3)[0]
    assert same(fast, by_loops(returns, lambda row: rp.Law.of_sample(row).quantile(tau), False, 0.8, 60, 3))
    (several,) = evaluation(returns).quantiles([0.1, tau, 0.9], confidence=0.8, resamples=60, seed=3)
    assert same(several[1], fast)


LONG = pytest.mark.long
COVERED = [
    # seeds, episodes, effect of the seed, a measure and its true value
    pytest.param(5, 200, 0.0, "mean", 1.0, id="no effect, mean", marks=LONG),
    pytest.param(5, 200, 0.0, "cvar:0.25", 1 - 3 * np.log(4 / 3), id="no effect, CVaR"),
    pytest.param(20, 100, 0.0, "cvar:0.1", 1 - 9 * np.log(10 / 9), id="no effect, small tail", marks=LONG),
    pytest.param(1, 400, 0.0, "mean", 1.0, id="one seed"),
    pytest.param(20, 50, 0.5, "mean", 1.0, id="effect, 20 seeds", marks=LONG),
    pytest.param(20, 100, 0.5, "cvar:0.25", 1 - 3 * np.log(4 / 3), id="effect, 20 seeds, CVaR", marks=LONG),
    pytest.param(4, 100, 0.5, "mean", 1.0, id="effect, 4 seeds"),
]


@pytest.mark.parametrize(("seeds", "episodes", "effect", "risk", "truth"), COVERED)
def test_90_percent_of_the_90_percent_intervals_contain_the_true_value(seeds, episodes, effect, risk, truth):
    many = [sample(seeds, episodes, effect, seed) for seed in range(200)]
    found = evaluation(*many, risk=risk).risk(confidence=0.9, resamples=200)
    covered = np.mean([truth in interval for interval in found])
    print(f"covered {covered:.3f}")
    assert 0.84 <= covered <= 0.96


def test_the_same_seed_gives_the_same_interval():
    result = evaluation(sample(3, 50), sample(3, 50) + 10.0)
    assert result.risk() == result.risk(seed=0)
    assert result.risk() != result.risk(seed=1)
    low, high = result.risk(discounted=True)
    assert high.estimate == pytest.approx(low.estimate + 5.0)
    assert result[1].risk(discounted=True) == [high]  # an interval does not depend on the other settings
    assert [one.confidence for one in result.mean(confidence=0.5)] == [0.5, 0.5]
    narrow, wide = (result.mean(confidence=confidence)[0] for confidence in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_thousands_of_episodes_take_seconds():
    result = evaluation(sample(8, 5_000))
    began = time.process_time()
    result.risk(rp.CPW(0.71))
    spent = time.process_time() - began
    print(f"8 seeds, 5000 episodes, 1000 resamples: {spent:.2f} s")
    assert spent < 10  # about one second


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(72.41, 71.83, 73.02, 0.95), "72.4 [71.8, 73.0]"),
        (Interval(72.375, 72.361, 72.389, 0.95), "72.375 [72.361, 72.389]"),
        (Interval(-523.4, -612.3, -432.9, 0.95), "-523 [-612, -433]"),
        (Interval(-0.01, -0.6, 0.6, 0.95), "0.0 [-0.6, 0.6]"),
        (Interval(48.0, 48.0, 48.0 + 1e-14, 0.95), "48 [48, 48]"),
        (Interval(0.0, 0.0, 0.0, 0.95), "0 [0, 0]"),
    ],
)
def test_an_interval_prints_two_digits_of_its_width(interval, text):
    assert str(interval) == text


def test_against_returns_the_share_of_an_optimum():
    mdp = rp.RiskyGrid().mdp()
    best, later = (rp.solve(one, rp.CVaR(0.1), "history") for one in (mdp, mdp.with_discount(0.9)))
    returns = np.stack([mdp.simulate(best.policy, 500, seed=seed) for seed in range(2)])
    result = evaluation(returns, risk="mean", discounts=[0.9])
    (share,) = result.against(best)  # by the measure of the solution, not of the setting
    assert 1.0 in share
    assert share.estimate == pytest.approx(np.mean([rp.CVaR(0.1).value(row) for row in returns]) / 72.375)
    assert result.against(100.0)[0].estimate == pytest.approx(returns.mean() / 100.0)
    assert result.against(100.0, discounted=True)[0].estimate == pytest.approx(returns.mean() / 200.0)
    halved = result.risk(rp.CVaR(0.1), discounted=True)[0]
    assert result.against(later)[0].estimate == pytest.approx(halved.estimate / later.value)


GOOD = evaluation(sample(2, 10))
TEXT: Any = "text"
BROKEN = sample(2, 10)
BROKEN[1, 3] = np.nan
THREE = rp.ThreeState().mdp()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GOOD.risk(confidence=1.0), r"confidence must lie between 0 and 1, for example 0.95, got 1.0$"),
        (lambda: GOOD.mean(confidence=95.0), r"confidence must lie between 0 and 1, for example 0.95, got 95.0$"),
        (lambda: GOOD.mean(confidence=float("nan")), r"confidence must lie between 0 and 1, .* got nan$"),
        (lambda: GOOD.mean(resamples=0), r"resamples must be at least 1, got 0$"),
        (lambda: GOOD.mean(seed=-1), r"seed must be at least 0, got -1$"),
        (lambda: GOOD.quantiles([0.5, 1.5]), r"levels of quantiles must be numbers in \[0, 1\], .* got \[0.5, 1.5\]$"),
        (lambda: GOOD.quantiles([]), r"at least one, got \[\]$"),
        (lambda: GOOD.quantiles([TEXT]), r"must be numbers in \[0, 1\], at least one, got \['text'\]$"),
        (lambda: GOOD.quantiles(25), r"must be numbers in \[0, 1\], at least one, got \[25\]$"),
        (lambda: GOOD.risk(confidence=TEXT), r"confidence must lie between 0 and 1, for example 0.95, got text$"),
        (lambda: GOOD.against(TEXT), r"a share needs a positive optimum, got text; use the difference instead$"),
        (lambda: GOOD.risk("cvr:0.1"), r"unknown risk measure 'cvr:0.1'"),
        (lambda: evaluation(BROKEN).mean(), r"the return of setting 0, seed 1, episode 3 is NaN$"),
        (lambda: evaluation(-np.inf * BROKEN).mean(), r"the return of setting 0, seed 0, episode 0 is infinite$"),
        (lambda: evaluation(np.zeros((2, 0))).risk(), r"at least one of each and 1 settings: got \[1, 2, 0\]$"),
        (lambda: evaluation(np.zeros(3)).risk(), r"returns must be \[settings, seeds, episodes\], .* got \[1, 3\]$"),
        (lambda: GOOD.against(0.0), r"a share needs a positive optimum, got 0.0; use the difference instead$"),
        (lambda: GOOD.against(float("nan")), r"a share needs a positive optimum, got nan"),
        (lambda: GOOD.against(rp.solve(THREE, "cvar:0.1", "markov")), r"a positive optimum, got -10.0; use the"),
        (
            lambda: evaluation(sample(2, 10), discounts=[0.99]).against(
                rp.solve(THREE.with_discount(0.9), "cvar:0.1", "history")
            ),
            r"the optimum has discount 0.9, the settings \[0.99\]; solve for these$",
        ),
    ],
)
def test_a_wrong_call_raises_one_line(call, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
