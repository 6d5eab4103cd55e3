"""Mixtures of the candidates of a population, judged by samples of returns."""

import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.adaptive.mixing import MixtureSample, advantage, best_above_floor, best_mixture

RNG = np.random.default_rng(0)
# A sure 1, or 5.393 with probability 0.05 and else 0: for Wang 0.75 each is worth 1, a fair coin between them 1.289.
ARMS = np.stack([np.ones(2_000), RNG.permutation(np.repeat([5.393, 0.0], [100, 1_900]))])


@pytest.mark.parametrize("text", ["mean", "cvar:0.2", "wang:0.75", "wang:-0.75", "cpw:0.71", "pow:-2"])
@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.5, 0.5), (0.3, 0.7)])
def test_the_value_of_a_mixture_is_that_of_the_mixed_law(text, weights):
    risk = rp.parse_risk(text)
    laws = [rp.Law(*(np.asarray(x, float) for x in zip(*pairs, strict=True))) for pairs in atoms_of(ARMS)]
    expected = rp.Law.mix(laws, list(weights)).risk(risk)
    assert MixtureSample(risk, ARMS).value(np.array(weights)) == pytest.approx(expected, abs=1e-6)


def atoms_of(returns: np.ndarray) -> list[list[tuple[float, float]]]:
    counts = [np.unique(row, return_counts=True) for row in returns]
    return [[(float(x), n / returns.shape[1]) for x, n in zip(*count, strict=True)] for count in counts]


def test_a_coin_is_better_than_both_arms_where_h_is_convex():
    weights = best_mixture(rp.Wang(0.75), ARMS)
    assert weights == pytest.approx([0.5, 0.5], abs=0.11)
    assert MixtureSample(rp.Wang(0.75), ARMS).value(weights) == pytest.approx(1.289, abs=0.03)


@pytest.mark.parametrize("text", ["cvar:0.2", "wang:-0.75", "pow:-2", "mean"])
def test_one_candidate_is_played_where_h_is_concave(text):
    risk = rp.parse_risk(text)
    returns = RNG.normal([[0.0], [0.4], [0.2]], [[1.0], [2.0], [0.3]], size=(3, 500))
    best = int(np.argmax([risk.value(row) for row in returns]))
    np.testing.assert_array_equal(best_mixture(risk, returns), np.eye(3)[best])


@pytest.mark.parametrize("text", ["wang:0.75", "cpw:0.71"])
def test_candidates_that_do_the_same_are_not_mixed(text):
    returns = RNG.normal(size=(4, 1_000))
    assert sorted(best_mixture(rp.parse_risk(text), returns).tolist()) == [0, 0, 0, 1]


@pytest.mark.parametrize("text", ["cvar:0.2", "cpw:0.71"])
def test_a_candidate_that_is_known_to_be_best_is_played(text):
    returns = np.random.default_rng(0).normal(size=(3, 1_000))
    assert best_mixture(rp.parse_risk(text), returns, best=1).tolist() == [0, 1, 0]


@pytest.mark.parametrize("text", ["mean", "cvar:0.2", "wang:-0.75"])
def test_the_error_of_an_advantage_is_that_of_paired_episodes(text):
    risk, rng = rp.parse_risk(text), np.random.default_rng(0)
    found = []
    for _ in range(200):
        shared, own = rng.normal(size=1_000), 0.2 * rng.normal(size=1_000)
        found.append(advantage(risk, shared + own + 0.1, shared))
    gains, errors = np.array(found).T
    assert gains.std() == pytest.approx(errors.mean(), rel=0.15)
    assert errors.mean() < 0.02  # that of independent samples is 0.045 for the mean


@pytest.mark.parametrize(("floor", "sure"), [(-2.0, 0.0), (0.0, 0.0), (0.5, 0.8), (5.0, 1.0)])
def test_the_best_draw_above_a_floor(floor, sure):
    # A sure 1, or 0 and 6 with probability 1/2 each: the worst fifth of a draw that takes the sure 1 with probability p
    # is 0 up to p = 0.6 and grows to 1. A candidate that is worse in both has no part.
    returns = np.stack([np.ones(2_000), RNG.permutation(np.repeat([0.0, 6.0], 1_000)), np.zeros(2_000)])
    weights = best_above_floor(rp.Mean(), returns, rp.CVaR(0.2), floor)
    assert weights[2] == 0.0
    reached = MixtureSample(rp.CVaR(0.2), returns).value(weights)
    assert weights[0] == pytest.approx(sure, abs=1e-6)
    assert reached >= min(floor, 1.0) - 1e-9
