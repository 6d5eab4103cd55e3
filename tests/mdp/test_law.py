"""Finite laws: construction, arithmetic, statistics, distances, dominance and sampling."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from riskpath import POW, CVaR, Law, RiskpathError, parse_risk
from tests.risk.examples import fast, thorough

COIN = Law([0.0, 4.0], [0.5, 0.5])
BIASED = Law([0.0, 4.0], [0.75, 0.25])
NUMBER: Any = 3
WORD: Any = "six"


def law_of(weights: dict[float, int]) -> Law:
    total = sum(weights.values())
    return Law(list(weights), [weight / total for weight in weights.values()])


laws = st.dictionaries(st.integers(-20, 20).map(float), st.integers(1, 9), min_size=1, max_size=6).map(law_of)


def table(law: Law) -> dict[float, float]:
    return dict(zip(law.atoms.tolist(), law.probs.tolist(), strict=True))


def agree(law: Law, expected: dict[float, float]) -> bool:
    atoms, probs = np.array(sorted((x, p) for x, p in expected.items() if p > 0)).T
    return len(law) == len(atoms) and bool(np.allclose([law.atoms, law.probs], [atoms, probs], rtol=1e-12, atol=1e-12))


def brute_cdf(law: Law, x: float) -> float:
    return sum(p for atom, p in table(law).items() if atom <= x)


def brute_shortfall(law: Law, x: float) -> float:
    return sum(p * max(x - atom, 0) for atom, p in table(law).items())


# Construction.


def test_atoms_are_sorted_and_positive_probabilities_sum_to_one():
    law = Law([3.0, -1.0, 2.0, 7.0], [0.5, 0.25, 0.25, 0.0])
    assert table(law) == {-1.0: 0.25, 2.0: 0.25, 3.0: 0.5}
    assert len(law) == 3
    assert law.cumulative.tolist() == [0.25, 0.5, 1.0]
    assert law.atoms.dtype == law.probs.dtype == np.float64


def test_rounding_errors_in_probabilities_are_normalised_away():
    law = Law([0.0, 1.0, 2.0], [0.1 + 1e-10, 0.2, 0.7])
    assert law.probs.sum() == pytest.approx(1, abs=1e-15)


def test_the_cumulative_probabilities_end_at_exactly_one():
    law = Law.of_sample(np.arange(49.0))
    assert np.cumsum(law.probs)[-1] != 1
    assert law.cumulative[-1] == 1


@pytest.mark.parametrize(
    ("atoms", "probs", "merged"),
    [
        ([1.0, 1.0], [0.25, 0.75], {1.0: 1.0}),
        ([0.0, 5e-10], [0.5, 0.5], {2.5e-10: 1.0}),
        ([0.0, 2e-9], [0.5, 0.5], {0.0: 0.5, 2e-9: 0.5}),
        ([1e6, 1e6 + 5e-4], [0.25, 0.75], {1e6 + 3.75e-4: 1.0}),
        ([1e6, 1e6 + 2e-3], [0.25, 0.75], {1e6: 0.25, 1e6 + 2e-3: 0.75}),
        ([-1e6, 0.0, 5e-4], [0.2, 0.4, 0.4], {-1e6: 0.2, 2.5e-4: 0.8}),
        ([-1e6, 0.0, 2e-3], [0.2, 0.4, 0.4], {-1e6: 0.2, 0.0: 0.4, 2e-3: 0.4}),
        ([3.0, 1.0, 3.0, 1.0], [0.1, 0.2, 0.3, 0.4], {1.0: 0.6, 3.0: 0.4}),
    ],
)
def test_atoms_closer_than_the_tolerance_are_merged_at_their_mean(atoms, probs, merged):
    law = Law(atoms, probs)
    assert law.atoms == pytest.approx(np.array(list(merged)), rel=1e-15, abs=1e-15)
    assert law.probs == pytest.approx(np.array(list(merged.values())))


@fast
@given(laws, st.sampled_from([1.0, 1e9]))
@thorough(100)
def test_merging_keeps_the_mean_and_the_total_probability(law, by):
    shaken = Law([*law.atoms * by, *(law.atoms * by + 5e-10)], [*law.probs / 2] * 2)
    assert len(shaken) == len(law)
    assert shaken.mean == pytest.approx(law.mean * by + 2.5e-10, rel=1e-14, abs=1e-13)
    assert shaken.probs.sum() == pytest.approx(1)


def test_equal_sums_with_different_rounding_errors_are_merged():
    tenth = Law([0.0, 0.1], [0.5, 0.5])
    total = tenth
    for _ in range(9):
        total = total.convolve(tenth)
    assert total.atoms == pytest.approx(np.arange(11) / 10)
    assert total.probs == pytest.approx(scipy.stats.binom.pmf(np.arange(11), 10, 0.5))


def test_the_law_of_a_sample_has_the_relative_frequencies():
    assert table(Law.of_sample([2.0, 1.0, 2.0, 2.0])) == {1.0: 0.25, 2.0: 0.75}


# Arithmetic.


@fast
@given(laws, st.integers(-50, 50).map(float))
@thorough(100)
def test_shift_moves_every_atom(law, by):
    assert table(law.shift(by)) == {x + by: p for x, p in table(law).items()}


@fast
@given(laws, st.sampled_from([-3.0, -1.0, -0.5, 0.25, 1.0, 2.5]))
@thorough(100)
def test_scale_multiplies_every_atom_and_keeps_them_sorted(law, by):
    scaled = law.scale(by)
    assert agree(scaled, {by * x: p for x, p in table(law).items()})
    assert (np.diff(scaled.atoms) > 0).all()


@pytest.mark.parametrize("law", [COIN, Law.point(3.0), Law([-1.0, 1.0, 5.0], [0.2, 0.3, 0.5])], ids=str)
def test_scale_by_zero_gives_a_certain_zero(law):
    assert table(law.scale(0.0)) == {0.0: pytest.approx(1.0)}


def test_scaling_down_merges_atoms_that_become_too_close():
    assert len(Law([0.0, 1e-6], [0.5, 0.5]).scale(1e-4)) == 1


@fast
@given(laws, laws)
@thorough(100)
def test_convolve_is_the_law_of_the_sum(a, b):
    expected: dict[float, float] = {}
    for (x, p), (y, q) in itertools.product(table(a).items(), table(b).items()):
        expected[x + y] = expected.get(x + y, 0.0) + p * q
    total = a.convolve(b)
    assert agree(total, expected)
    assert (np.diff(total.atoms) > 0).all()
    assert total.mean == pytest.approx(a.mean + b.mean)
    assert total.std**2 == pytest.approx(a.std**2 + b.std**2, abs=1e-9)


@fast
@given(laws, laws, st.floats(0, 1))
@thorough(100)
def test_mix_is_the_law_of_a_two_stage_draw(a, b, share):
    expected = {x: share * p for x, p in table(a).items()}
    for y, q in table(b).items():
        expected[y] = expected.get(y, 0.0) + (1 - share) * q
    assert agree(Law.mix([a, b], [share, 1 - share]), expected)


def test_mix_accepts_any_number_of_laws():
    mixed = Law.mix([COIN, Law.point(1.0), BIASED], iter([0.5, 0.25, 0.25]))
    assert table(mixed) == {0.0: 0.4375, 1.0: 0.25, 4.0: 0.3125}


# Statistics.


@fast
@given(laws)
@thorough(100)
def test_mean_and_standard_deviation_agree_with_sums_over_the_atoms(law):
    mean = sum(x * p for x, p in table(law).items())
    assert law.mean == pytest.approx(mean, abs=1e-12)
    assert law.std == pytest.approx(math.sqrt(sum((x - mean) ** 2 * p for x, p in table(law).items())), abs=1e-6)


@pytest.mark.parametrize(
    ("law", "mean", "std"), [(COIN, 2.0, 2.0), (BIASED, 1.0, 3**0.5), (Law.point(-7.5), -7.5, 0.0)]
)
def test_known_mean_and_standard_deviation(law, mean, std):
    assert law.mean == pytest.approx(mean)
    assert law.std == pytest.approx(std)


@pytest.mark.parametrize(("risk", "value"), [("mean", 1.0), ("cvar:0.8", 0.25), (CVaR(0.8), 0.25), (POW(-1), 0.25)])
def test_the_risk_of_a_law_accepts_a_measure_or_its_text(risk, value):
    assert BIASED.risk(risk) == pytest.approx(value)


@fast
@given(laws)
@thorough(100)
def test_cdf_agrees_with_a_sum_over_the_atoms(law):
    x = np.arange(-21, 21.25, 0.5)
    assert law.cdf(x) == pytest.approx(np.array([brute_cdf(law, at) for at in x]))


@fast
@given(laws, st.floats(1e-6, 1), st.integers(-42, 42).map(lambda i: i / 2))
@thorough(100)
def test_the_quantile_is_at_most_x_exactly_if_the_cdf_at_x_is_at_least_tau(law, tau, x):
    reached = law.cdf(np.array([x]))[0]
    if abs(reached - tau) > 1e-9:
        assert (law.quantile(np.array([tau]))[0] <= x) == (tau <= reached)


@fast
@given(laws)
@thorough(100)
def test_the_quantile_at_a_jump_is_the_atom_of_the_jump(law):
    assert law.quantile(law.cumulative).tolist() == law.atoms.tolist()
    middles = law.cumulative - law.probs / 2
    assert law.quantile(middles).tolist() == law.atoms.tolist()
    assert law.quantile(np.array([0.0])).tolist() == law.atoms[:1].tolist()


def test_the_quantile_at_a_jump_tolerates_rounding():
    tenths = Law.of_sample(np.arange(10.0))
    tau = np.arange(1, 11) / 10
    assert (tenths.cumulative != tau).any()
    assert tenths.quantile(tau).tolist() == list(range(10))


def test_quantiles_and_cdf_keep_the_shape():
    tau = np.array([[0.1, 0.5], [0.6, 1.0]])
    assert COIN.quantile(tau).tolist() == [[0, 0], [4, 4]]
    assert COIN.cdf(4 * tau).tolist() == [[0.5, 0.5], [0.5, 1.0]]


@fast
@given(laws)
@thorough(100)
def test_shortfall_agrees_with_a_sum_over_the_atoms(law):
    x = np.linspace(-25, 25, 21)
    assert law.shortfall(x) == pytest.approx(np.array([brute_shortfall(law, at) for at in x]), abs=1e-9)


# Distance.


@pytest.mark.parametrize(
    ("a", "b", "p", "distance"),
    [
        (Law.point(0.0), Law.point(-3.0), 1.0, 3.0),
        (Law.point(0.0), Law.point(-3.0), 2.0, 3.0),
        (Law.point(0.0), Law.point(-3.0), math.inf, 3.0),
        (COIN, Law.point(1.0), 1.0, 2.0),
        (COIN, Law.point(1.0), 2.0, 5**0.5),
        (COIN, Law.point(1.0), math.inf, 3.0),
        (COIN, BIASED, 1.0, 1.0),
        (COIN, BIASED, 2.0, 2.0),
        (COIN, BIASED, 4.0, 4 * 0.25**0.25),
        (COIN, BIASED, math.inf, 4.0),
        (COIN, COIN, 1.0, 0.0),
        (COIN, COIN, math.inf, 0.0),
        (Law.point(0.0), Law.point(1e10), 300.0, 1e10),
    ],
)
def test_known_wasserstein_distances(a, b, p, distance):
    assert a.wasserstein(b, p) == pytest.approx(distance)


@fast
@given(laws, laws, laws, st.sampled_from([1.0, 2.0, 5.0, math.inf]), st.integers(-30, 30).map(float))
@thorough(100)
def test_wasserstein_is_a_metric_that_respects_shift_and_scale(a, b, c, p, by):
    d = a.wasserstein(b, p)
    assert b.wasserstein(a, p) == pytest.approx(d)
    assert a.wasserstein(c, p) <= d + b.wasserstein(c, p) + 1e-9
    assert a.wasserstein(a, p) == 0
    assert (d > 1e-9) == (not agree(a, table(b)))
    assert a.shift(by).wasserstein(b.shift(by), p) == pytest.approx(d, abs=1e-9)
    assert a.wasserstein(a.shift(by), p) == pytest.approx(abs(by))
    assert a.scale(2.5).wasserstein(b.scale(2.5), p) == pytest.approx(2.5 * d, abs=1e-9)


@fast
@given(laws, laws)
@thorough(100)
def test_wasserstein_agrees_with_scipy_and_grows_with_p(a, b):
    d = [a.wasserstein(b, p) for p in (1.0, 1.5, 2.0, 8.0, math.inf)]
    assert d[0] == pytest.approx(scipy.stats.wasserstein_distance(a.atoms, b.atoms, a.probs, b.probs), abs=1e-9)
    assert (np.diff(d) >= -1e-9).all()


@pytest.mark.parametrize(("by", "same"), [(0.0, True), (1e-8, True), (1e-5, False)])
def test_isclose_tolerates_small_distances_only(by, same):
    assert COIN.isclose(COIN.shift(by)) is same
    assert COIN.scale(1e6).isclose(COIN.shift(by).scale(1e6)) is same


# Dominance.


WIDE, NARROW = Law([0.0, 10.0], [0.5, 0.5]), Law([4.0, 6.0], [0.5, 0.5])


@pytest.mark.parametrize(
    ("better", "worse", "order", "dominates"),
    [
        (COIN, COIN, 1, True),
        (COIN, COIN, 2, True),
        (COIN, BIASED, 1, True),
        (COIN, BIASED, 2, True),
        (BIASED, COIN, 1, False),
        (BIASED, COIN, 2, False),
        (COIN.shift(1.0), COIN, 1, True),
        (COIN, COIN.shift(1.0), 1, False),
        (COIN, COIN.shift(1.0), 2, False),
        (NARROW, WIDE, 1, False),
        (NARROW, WIDE, 2, True),
        (WIDE, NARROW, 2, False),
        (Law.point(2.0), COIN, 1, False),
        (Law.point(2.0), COIN, 2, True),
        (Law.point(1.9), COIN, 2, False),
        (Law([0.0, 100.0], [0.01, 0.99]), Law.point(1.0), 2, False),
        (COIN.shift(-1e-10), COIN, 1, True),
        (COIN.shift(-1e-6), COIN, 1, False),
        (COIN.shift(-1e-6), COIN, 2, False),
    ],
)
def test_known_dominance(better, worse, order, dominates):
    assert better.dominates(worse, order) is dominates


@pytest.mark.parametrize("order", [1, 2])
def test_dominance_with_a_larger_tolerance_allows_a_larger_gap(order):
    assert not COIN.shift(-1e-3).dominates(COIN, order)
    assert COIN.shift(-1e-3).dominates(COIN, order, tolerance=1e-2)


@fast
@given(laws, laws)
@example(NARROW, WIDE)
@thorough(100)
def test_dominance_agrees_with_its_definition(a, b):
    points = np.union1d(a.atoms, b.atoms)
    first = all(brute_cdf(a, x) <= brute_cdf(b, x) + 1e-9 for x in points)
    second = all(brute_shortfall(a, x) <= brute_shortfall(b, x) + 1e-9 for x in points) and a.mean >= b.mean - 1e-9
    assert a.dominates(b) is first
    assert a.dominates(b, order=2) is second
    assert second or not first


# Rows (outcome, weight, change): the change is added to the outcome, or is the stake of a fair bet on it.
outcomes = st.lists(st.tuples(st.integers(-20, 20), st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=5)
ALL = [parse_risk(text) for text in ("mean", "cvar:0.2", "wang:-0.75", "wang:0.75", "pow:-2", "pow:2", "cpw:0.71")]


@fast
@given(outcomes)
@thorough(100)
def test_every_measure_respects_dominance_of_order_one(rows):
    x, weights, more = np.array(rows, dtype=float).T
    law, better = Law(x, weights / weights.sum()), Law(x + more, weights / weights.sum())
    assert better.dominates(law)
    assert law.dominates(better) is bool(more.max() == 0)
    for measure in ALL:
        assert measure.value(better) >= measure.value(law) - 1e-9


@fast
@given(outcomes)
@thorough(100)
def test_every_averse_measure_respects_dominance_of_order_two(rows):
    x, weights, spread = np.array(rows, dtype=float).T
    law = Law(x, weights / weights.sum())
    spread_out = Law([*(x - spread), *(x + spread)], [*weights / weights.sum() / 2] * 2)
    assert law.dominates(spread_out, order=2)
    assert spread_out.dominates(law, order=2) is bool(spread.max() == 0)
    for measure in ALL:
        if measure.order == 2:
            assert measure.value(law) >= measure.value(spread_out) - 1e-9


# Samples, limits, text.


def test_the_frequencies_of_a_sample_agree_with_the_law():
    law = Law([-3.0, 0.5, 10.0], [0.2, 0.7, 0.1])
    draws = law.sample(20_000, seed=3)
    for x, p in table(law).items():
        assert abs((draws == x).mean() - p) < 4 * math.sqrt(p * (1 - p) / 20_000)
    assert set(draws) == set(law.atoms)


def test_equal_seeds_repeat_draws_and_a_generator_advances():
    rng = np.random.default_rng(5)
    assert COIN.sample(50, seed=5).tolist() == COIN.sample(50, rng).tolist() != COIN.sample(50, rng).tolist()
    assert COIN.sample(50, seed=5).tolist() != COIN.sample(50, seed=6).tolist()


def test_a_law_with_too_many_atoms_is_refused(monkeypatch):
    monkeypatch.setattr("riskpath.mdp.law.MAX_ATOMS", 3)
    three = Law([0.0, 1.0, 2.0], [0.25, 0.25, 0.5])
    assert len(three.convolve(Law.point(1.0))) == 3
    assert len(Law.mix([COIN, Law.point(1.0)], [0.5, 0.5])) == 3
    too_large = "a return distribution would need 4 atoms, more than the limit of 3; round the rewards, use discount 1"
    with pytest.raises(RiskpathError, match=too_large):
        COIN.convolve(Law([0.0, 10.0], [0.5, 0.5]))
    with pytest.raises(RiskpathError, match=too_large):
        Law.mix([three, Law.point(9.0)], [0.5, 0.5])


def test_plot_draws_into_the_axes_and_returns_them():
    ax = Figure().subplots()
    assert BIASED.plot(ax, label="biased", color="red") is ax
    _, labels = ax.get_legend_handles_labels()
    assert labels == ["biased"]


def test_plot_passes_its_arguments_on(monkeypatch):
    calls = []
    monkeypatch.setattr("riskpath.plot.plot_law", lambda *args, **options: calls.append((args, options)) or "axes")
    assert COIN.plot(kind="quantile", linewidth=2) == "axes"
    assert calls == [((COIN, None), {"kind": "quantile", "label": None, "linewidth": 2})]


@pytest.mark.parametrize(
    ("law", "text"),
    [
        (COIN, "Law(0 w.p. 0.5, 4 w.p. 0.5)"),
        (Law.of_sample(np.arange(8.0)), "Law(" + ", ".join(f"{i} w.p. 0.125" for i in range(8)) + ")"),
        (
            Law.of_sample(np.arange(10.0)),
            "Law(" + ", ".join(f"{i} w.p. 0.1" for i in range(7)) + ", … 2 more …, 9 w.p. 0.1)",
        ),
    ],
)
def test_the_text_of_a_law(law, text):
    assert repr(law) == text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Law([], []), r"as many atoms as probabilities, at least one: got \(0,\) and \(0,\)$"),
        (lambda: Law([1.0, 2.0], [1.0]), r"as many atoms as probabilities, .* got \(2,\) and \(1,\)$"),
        (lambda: Law(np.ones((2, 2)), np.full((2, 2), 0.25)), r"as many atoms .* got \(2, 2\) and \(2, 2\)$"),
        (lambda: Law(WORD, [1.0]), r"expected a list of numbers, got 'six'$"),
        (lambda: Law([0.0], NUMBER), r"expected a list of numbers, got 3$"),
        (lambda: Law.of_sample([]), r"at least one: got \(0,\) and \(0,\)$"),
        (lambda: Law([0.0, math.nan], [0.5, 0.5]), r"atoms of a Law must be finite, got nan$"),
        (lambda: Law([0.0, -math.inf], [0.5, 0.5]), r"atoms of a Law must be finite, got -inf$"),
        (lambda: Law.point(math.inf), r"atoms of a Law must be finite, got inf$"),
        (lambda: Law.of_sample([1.0, math.nan]), r"atoms of a Law must be finite, got nan$"),
        (lambda: COIN.scale(math.nan), r"atoms of a Law must be finite, got nan$"),
        (lambda: COIN.scale(1e308), r"atoms of a Law must be finite, got inf$"),
        (lambda: COIN.shift(math.nan), r"atoms of a Law must be finite, got nan$"),
        (lambda: COIN.shift(math.inf), r"atoms of a Law must be finite, got inf$"),
        (lambda: Law([0.0, 1.0], [0.5, 0.4]), r"non-negative and sum to 1, their sum is 0.9$"),
        (lambda: Law([0.0, 1.0], [0.5, 0.5 + 1e-7]), r"non-negative and sum to 1, their sum is 1.0000001$"),
        (lambda: Law([0.0, 1.0], [1.5, -0.5]), r"probabilities of a Law must be non-negative and sum to 1"),
        (lambda: Law([0.0, 1.0], [math.nan, 1.0]), r"probabilities of a Law must be non-negative and sum to 1"),
        (lambda: Law.mix([COIN], [0.5, 0.5]), r"got 1 distributions and 2 weights; they must match$"),
        (lambda: Law.mix([], []), r"got 0 distributions and 0 weights; they must match$"),
        (lambda: Law.mix([COIN, BIASED], [0.5, 0.6]), r"sum to 1, their sum is 1.1$"),
        (lambda: Law.mix([COIN, BIASED], [1.5, -0.5]), r"must be non-negative and sum to 1"),
        (lambda: COIN.risk("tail:0.1"), r"unknown risk measure 'tail:0.1'; use mean, cvar:LEVEL"),
        (lambda: COIN.risk(NUMBER), r"expected a risk measure such as CVaR\(0.25\) or a text .*, got 3$"),
        (lambda: COIN.sample(-1), r"size must be at least 0, got -1$"),
        (lambda: COIN.sample(1, seed=WORD), r"seed must be a whole number or a NumPy generator, got 'six': TypeError"),
        (lambda: COIN.dominates(BIASED, order=3), r"order of dominance must be 1 or 2, got 3$"),
        (lambda: COIN.wasserstein(BIASED, 0.5), r"order p of a Wasserstein distance must be at least 1, got 0.5$"),
        (lambda: COIN.wasserstein(BIASED, math.nan), r"order p of a Wasserstein distance .*, got nan$"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_input_is_refused_in_one_line(call, message):
    with pytest.raises(RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_cdf_and_quantile_accept_a_number():
    assert COIN.cdf(0.0) == 0.5
    assert COIN.quantile(0.75) == 4


def test_an_atom_that_is_not_merged_keeps_its_exact_value():
    total = Law([0.0, 3.0], [0.5, 0.5]).convolve(Law([0.0, 3.0], [0.6, 0.4]))
    assert total.cdf(np.array([6.0]))[0] == 1


def test_atoms_that_become_equal_by_a_shift_are_merged():
    assert len(Law([0.0, 1e-8], [0.5, 0.5]).shift(1e9)) == 1
