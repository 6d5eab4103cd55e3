"""Measures beyond rank weights: properties, closed forms, limits, influence functions, intervals, bad input."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import riskpath as rp
from riskpath.risk.risk_measure import UtilityForm
from tests.risk.examples import LAWS, THREE_STATE, YYY, close, fast, number, thorough


def concave(x):
    return (
        jnp.minimum(x, 0.0) * 2.0 + jnp.maximum(x, 0.0) * 0.5
        if isinstance(x, jax.Array)
        else 0.5 * x - 1.5 * (np.maximum(-x, 0.0))
    )


def tanh(x):
    return (jnp if isinstance(x, jax.Array) else np).tanh(x / 100)


TEXTS = ["entropic:0.01", "entropic:2", "evar:0.1", "evar:0.5", "evar:1", "var:0.1", "reach:50", "mmv:0.002"]
TEXTS += ["mmv:0.5", "semidev:0.5", "worst", "best", "0.5*mean+0.5*evar:0.1"]
MEASURES = [*map(rp.parse_risk, TEXTS), rp.Utility(tanh), rp.OCE(concave), rp.Spectral([0.13, 0.57], [0.3, 0.7])]
MONETARY = [m for m in MEASURES if m.monetary]
SMOOTH = [m for m in MEASURES if str(m) not in ("var:0.1", "worst", "best")]
every = pytest.mark.parametrize("measure", MEASURES, ids=str)
sample = st.lists(number, min_size=1, max_size=12).map(np.array)
X, P = np.array([3.0, -1.0, 10.0, 0.5, -7.0, 2.25, 4.0]), np.array([0.1, 0.2, 0.05, 0.25, 0.1, 0.2, 0.1])


# Properties.


@every
@fast
@given(sample, st.data())
@thorough(8)
def test_more_money_is_never_worse(measure, x, data):
    more = data.draw(st.lists(st.floats(0, 50), min_size=len(x), max_size=len(x)))
    assert measure.value(x) <= measure.value(x + np.array(more)) + 1e-7


@pytest.mark.parametrize("measure", MONETARY, ids=str)
@fast
@given(sample, number)
@thorough(8)
def test_a_sure_amount_adds_to_the_value(measure, x, amount):
    assert close(measure.value(x + amount), measure.value(x) + amount, within=1e-6)
    assert close(measure.value([amount]), amount, within=1e-8)


@every
@fast
@given(sample)
@thorough(8)
def test_measures_of_order_two_prefer_less_spread(measure, x):
    wider = np.concatenate([x - 3.0, x + 3.0])
    if measure.order == 2:
        assert measure.value(wider) <= measure.value(x) + 1e-7
        if measure.monetary:
            assert measure.value(x) <= x.mean() + 1e-7


@pytest.mark.parametrize("measure", [m for m in SMOOTH if m.deterministic], ids=str)
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_where_a_deterministic_policy_suffices_no_mixture_is_better_than_its_best_part(measure, share, unchecked):
    for one in (THREE_STATE, YYY):
        for other in (YYY, LAWS["skewed"]):
            parts = max(one.risk(measure), other.risk(measure))
            assert rp.Law.mix([one, other], [share, 1 - share]).risk(measure) <= parts + 1e-7 * abs(parts)


# Values.


@pytest.mark.parametrize(
    ("text", "law", "expected"),
    [
        ("entropic:0.01", THREE_STATE, -100 * np.log(0.81 * np.exp(-2) + 0.18 * np.exp(-0.9) + 0.01 * np.exp(0.2))),
        ("entropic:1", rp.Law.point(-3.0), -3.0),
        ("evar:0.001", THREE_STATE, -20.0),  # its worst return has a larger probability
        ("evar:1", THREE_STATE, 178.0),
        ("var:0.1", THREE_STATE, 90.0),
        ("var:0.01", THREE_STATE, 90.0),  # P(Z < 90) is 0.01
        ("var:0.009", THREE_STATE, -20.0),
        ("var:0.19", THREE_STATE, 200.0),
        ("reach:90", THREE_STATE, 0.99),
        ("reach:90.1", THREE_STATE, 0.81),
        ("mmv:0.001", THREE_STATE, 178 - 0.001 * THREE_STATE.std**2),
        ("semidev:1", THREE_STATE, 178 - 0.18 * 88 - 0.01 * 198),
        ("worst", YYY, -12.0),
        ("best", YYY, 288.0),
        ("spectral:0.1=0.5,1=0.5", THREE_STATE, (79 + 178) / 2),
    ],
)
def test_known_values(text, law, expected):
    assert law.risk(text) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("level", [0.01, 0.1, 0.5])
def test_normal_returns_have_closed_forms(level):
    n = 200_000
    x = scipy.stats.norm.ppf((np.arange(n) + 0.5) / n, loc=5, scale=2)
    assert rp.EVaR(level).value(x) == pytest.approx(5 - 2 * np.sqrt(-2 * np.log(level)), abs=5e-2)
    assert rp.Entropic(level).value(x) == pytest.approx(5 - level * 2, abs=1e-3)
    assert rp.VaR(level).value(x) == pytest.approx(scipy.stats.norm.ppf(level, 5, 2), abs=1e-3)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_evar_agrees_with_a_search_over_the_aversion(law):
    for level in (0.05, 0.3, 0.9):
        aversions = np.geomspace(1e-6, 1e4, 20_001) / max(np.ptp(law.atoms), 1e-9)
        low = law.atoms[0]
        totals = np.log(np.exp(-aversions[:, None] * (law.atoms - low)) @ law.probs)
        best = (low + (np.log(level) - totals) / aversions).max()
        assert law.risk(rp.EVaR(level)) == pytest.approx(best, abs=1e-3 * max(1, np.ptp(law.atoms)))
        assert law.atoms[0] - 1e-6 <= law.risk(rp.EVaR(level)) <= law.risk(rp.CVaR(level)) + 1e-9


def test_the_limits_are_the_mean_and_the_worst_case():
    for law in LAWS.values():
        span = max(1.0, np.ptp(law.atoms))
        for averse, mean in [(rp.Entropic(1e8), rp.Entropic(1e-10)), (rp.EVaR(1e-300), rp.EVaR(1.0))]:
            assert law.risk(averse) == pytest.approx(law.risk("worst"), abs=1e-6 * span)
            assert law.risk(mean) == pytest.approx(law.mean, abs=1e-6 * span)


@pytest.mark.parametrize("level", [0.1, 0.5])
def test_certainty_equivalents_contain_cvar_and_entropic_risk(level):
    for law in LAWS.values():
        cvar = rp.OCE(lambda x: np.minimum(x, 0.0) / level)
        assert law.risk(cvar) == pytest.approx(law.risk(rp.CVaR(level)), abs=1e-6)
    entropic = rp.OCE(lambda x: -np.expm1(-0.1 * x) / 0.1)
    assert YYY.shift(-100).scale(0.1).risk(entropic) == pytest.approx(YYY.shift(-100).scale(0.1).risk("entropic:0.1"))


def test_monotone_mean_variance_is_the_best_mean_variance_after_giving_money_away():
    kappa, law = 0.02, rp.Law([0.0, 10.0, 100.0], [0.2, 0.6, 0.2])

    def plain(cap):
        cut = rp.Law(np.minimum(law.atoms, cap), law.probs)
        return cut.mean - kappa * cut.std**2

    assert law.risk(f"mmv:{kappa}") == pytest.approx(max(plain(cap) for cap in np.linspace(30, 60, 301)), abs=1e-3)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6, 1e12])
def test_returns_may_have_any_size(size):
    law = rp.Law(np.array([-3.0, 1.0, 2.0]) * size, [0.2, 0.3, 0.5])
    for text in ("evar:0.1", "evar:0.9", "entropic:1", "entropic:1e-6", "mmv:1"):
        value = law.risk(text)
        assert law.atoms[0] - 1e-9 * size <= value <= law.mean + 1e-9 * size
    assert law.risk("evar:0.3") == pytest.approx(size * law.scale(1 / size).risk("evar:0.3"), rel=1e-7)


# Influence functions and utility forms.


@pytest.mark.parametrize("measure", SMOOTH, ids=str)
def test_the_influence_is_the_slope_towards_another_distribution(measure):
    law = LAWS["normal"].scale(10.0)
    other = rp.Law([-30.0, 1.0, 4.0, 60.0], [0.05, 0.45, 0.3, 0.2])
    atoms = np.union1d(law.atoms, other.atoms)
    p = np.array([dict(zip(law.atoms, law.probs, strict=True)).get(x, 0.0) for x in atoms])
    q = np.array([dict(zip(other.atoms, other.probs, strict=True)).get(x, 0.0) for x in atoms])
    u = measure.influence(atoms, law.atoms, law.probs)
    step = 1e-6
    slope = (measure.value(atoms, (1 - step) * p + step * q) - measure.value(atoms, p)) / step
    assert slope == pytest.approx(float(u @ (q - p)), rel=2e-2, abs=1e-4)


@pytest.mark.parametrize("measure", [m for m in MEASURES if isinstance(m, UtilityForm)], ids=str)
def test_margins_are_reached_exactly_where_the_value_is(measure):
    for law in LAWS.values():
        value = law.risk(measure)
        for floor in (value - 0.01 * max(1, abs(value)), value + 0.01 * max(1, abs(value))):
            thetas = np.asarray(measure.parameters(law.atoms))
            margins = measure.margin(law.atoms[:, None], thetas[None, :], floor)
            assert (law.probs @ margins).max() >= 0 if floor < value else (law.probs @ margins).max() < 0


# NumPy and JAX, texts, bad input.


# Levels are leaves, so that all measures of a class share one compiled program.
@jax.jit
def value_and_gradient(measure, x, p):
    return jax.value_and_grad(lambda x: measure.value(x, p))(x)


@pytest.mark.parametrize("measure", [m for m in MEASURES if str(m) != "oce"], ids=str)
def test_jax_agrees_with_numpy(measure):
    arrays = jax.tree.map(np.float32, measure)
    value, gradient = value_and_gradient(arrays, X.astype(np.float32), P.astype(np.float32))
    assert float(value) == pytest.approx(float(measure.value(X, P)), abs=2e-3)
    assert np.isfinite(gradient).all()
    if measure.monetary:
        assert np.asarray(gradient).sum() == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize("text", [*TEXTS, "0.25*cvar:0.1+0.75*cvar:0.5"])
def test_texts_read_back(text):
    assert str(rp.parse_risk(str(rp.parse_risk(text)))) == str(rp.parse_risk(text)) == text


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: rp.Entropic(0), "Entropic level must be more than 0, got 0"),
        (lambda: rp.Entropic(-1), "Entropic level must be more than 0, got -1"),
        (lambda: rp.Entropic(float("nan")), "Entropic level must be more than 0, got nan"),
        (lambda: rp.EVaR(1.2), r"EVaR level must be in \(0, 1\], got 1.2"),
        (lambda: rp.VaR(0), r"VaR level must be in \(0, 1\), got 0"),
        (lambda: rp.VaR(1), r"VaR level must be in \(0, 1\), got 1"),
        (lambda: rp.MeanSemideviation(2), r"MeanSemideviation level must be in \[0, 1\], got 2"),
        (lambda: rp.MonotoneMeanVariance(0), "MonotoneMeanVariance level must be more than 0"),
        (lambda: rp.ReachProbability(float("inf")), "ReachProbability level must be a finite number"),
        (lambda: rp.Utility(lambda x: -x), "utility: the utility must not decrease"),
        (lambda: rp.Utility(np.exp, averse=True), "utility: the utility must be concave"),
        (lambda: rp.Utility(cast("Any", 3)), "utility: a utility must be a function of the return, got a int"),
        (lambda: rp.Utility(np.log).value([-1.0, 1.0]), "utility: the utility of the return -1 is not a finite number"),
        (lambda: rp.OCE(lambda x: 2 * x), "oce: the utility of an OCE must have slope 1 at 0, got 2"),
        (lambda: rp.OCE(lambda x: x + 1), "oce: the utility of an OCE must be 0 at 0, got 1"),
        (lambda: rp.Spectral([0.1, 0.5], [0.5, 0.4]), "shares of a mixture must be non-negative and sum to 1"),
        (lambda: rp.Spectral([0.1], [0.5, 0.5]), "Spectral needs as many weights as levels, got 1 and 2"),
        (lambda: rp.parse_risk("entropic"), "risk measure 'entropic' needs a level"),
        (lambda: rp.parse_risk("worst:1"), "risk measure 'worst:1' takes no level"),
        (lambda: rp.Mixture([(1.0, "evar:0.1")]), "Mixture needs a measure that weighs outcomes by rank"),
        (
            lambda: rp.IQN("entropic:1"),
            "a learning agent needs a measure .* entropic:1 does not: rp.solve accepts it",
        ),
        (lambda: rp.Tabulated("evar:0.1"), "Tabulated needs a measure that weighs outcomes by rank"),
        (lambda: rp.solve(rp.make("AmericanPut"), "evar:0.1"), "a problem on a grid needs a measure that weighs"),
    ],
)
@fast
def test_bad_input_is_answered_in_one_line(make, line):
    with pytest.raises(rp.RiskpathError, match=line) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_intervals_contain_the_true_value():
    rng = np.random.default_rng(0)
    returns = rng.normal(5.0, 2.0, size=(1, 4, 4_000))
    evaluation = rp.Evaluation(returns, returns, [rp.Entropic(0.5)], 1.0)
    for text, truth in [("entropic:0.5", 4.0), ("evar:0.5", 5 - 2 * np.sqrt(2 * np.log(2))), ("reach:5", 0.5)]:
        interval = evaluation.risk(text)[0]
        assert truth in interval
        assert 0 < interval.high - interval.low < 0.5
        assert interval.estimate == pytest.approx(np.mean([rp.parse_risk(text).value(x) for x in returns[0]]))
