"""Distortion measures: their common properties, known values, and the agreement of NumPy and JAX."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from riskpath import CPW, POW, CVaR, Law, Mean, Mixture, RiskpathError, Wang, parse_risk
from tests.risk.examples import (
    LAWS,
    MEAN_CVAR,
    MEASURES,
    SMOOTH,
    THREE_STATE,
    YYY,
    close,
    every_measure,
    fast,
    number,
    thorough,
)

# CVaR below level 1 is missing: its h is constant at the top, so that h⁻¹(h(t)) is not t there.
STRICT = [m for m in MEASURES if str(m) not in ("cvar:0.05", "cvar:0.25")]
sample = st.lists(number, min_size=1, max_size=12).map(np.array)


# Properties of every distortion measure.


@every_measure
@fast
@given(sample, st.data())
@thorough(20)
def test_the_value_is_monotone_in_the_returns(measure, x, data):
    more = data.draw(st.lists(st.floats(0, 50), min_size=len(x), max_size=len(x)))
    assert x.min() - 1e-9 <= measure.value(x) <= measure.value(x + np.array(more)) + 1e-9


@every_measure
@fast
@given(sample, number, st.floats(0, 100), st.randoms(use_true_random=False))
@thorough(20)
def test_the_value_is_positively_homogeneous_and_translation_equivariant(measure, x, amount, factor, random):
    changed = list(factor * x + amount)
    random.shuffle(changed)
    assert close(measure.value(changed), factor * measure.value(x) + amount, within=1e-8)


@every_measure
@fast
@given(sample)
@thorough(20)
def test_the_value_is_additive_for_comonotone_returns(measure, u):
    rising, stairs = np.maximum(u, 0) ** 2, 10 * np.floor(u / 10)
    assert close(measure.value(rising + stairs), measure.value(rising) + measure.value(stairs), within=1e-8)


@pytest.mark.parametrize("neutral", [CVaR(1), Wang(0), POW(0), CPW(1), Mixture([(1, Mean())])], ids=str)
@fast
@given(sample)
@thorough(20)
def test_the_neutral_level_of_every_family_is_the_mean(neutral, x):
    assert close(neutral.value(x), x.mean())


@pytest.mark.parametrize(("averse", "seeking"), [(Wang(-0.75), Wang(0.75)), (POW(-2), POW(2))], ids=str)
@fast
@given(sample)
@thorough(20)
def test_averse_and_seeking_levels_mirror_each_other(averse, seeking, x):
    assert close(averse.value(-x), -seeking.value(x))
    assert averse.value(x) <= x.mean() + 1e-9


# The distortion and its inverse.


@every_measure
def test_weight_inverts_distort(measure):
    tau = np.linspace(0.001, 0.999, 97)
    assert close(measure.weight(measure.distort(tau)), tau)


@pytest.mark.parametrize("measure", STRICT, ids=str)
def test_distort_inverts_weight(measure):
    t = np.linspace(0.01, 0.9, 97)
    assert close(measure.distort(measure.weight(t)), t)


@every_measure
def test_weight_and_distort_increase_from_zero(measure):
    t = np.concatenate([[0, 1e-300, 1e-17, 1e-9], np.linspace(0.001, 0.999, 999), [1 - 1e-9, 1 - 2**-53, 1]])
    for values in (measure.weight(t), measure.distort(t)):
        assert values[0] == 0
        assert (np.diff(values) >= -1e-15).all()
        assert values[-1] <= 1
    assert measure.weight(t)[-1] == 1


@pytest.mark.parametrize("measure", STRICT, ids=str)
def test_distort_ends_at_one_if_no_tail_is_left_out(measure):
    assert measure.distort(1.0) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("measure", [*MEASURES, Mixture([(0.5, Mean()), (0.5, Wang(0.75))])], ids=str)
def test_concave_agrees_with_the_curvature_of_weight(measure):
    weight = measure.weight(np.linspace(0, 1, 401))
    assert measure.concave == bool((np.diff(weight, 2) < 1e-9).all())


@every_measure
@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
def test_weight_and_distort_keep_the_shape(measure, shape):
    t = np.random.default_rng(0).uniform(size=shape)
    assert np.shape(measure.weight(t)) == np.shape(measure.distort(t)) == shape


# Values.


counted = st.dictionaries(st.integers(-40, 40), st.integers(1, 5), min_size=1, max_size=6)


@every_measure
@fast
@given(counted)
@thorough(20)
def test_a_sample_its_law_and_its_counts_have_the_same_value(measure, counts):
    atoms, times = np.array(list(counts)) / 4, np.array(list(counts.values()))
    drawn = np.repeat(atoms, times)
    of_law = measure.value(Law.of_sample(drawn))
    assert close(measure.value(drawn), of_law)
    assert close(measure.value(atoms, times), of_law)


@every_measure
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_the_value_is_the_integral_of_distorted_quantiles(measure, law):
    n = 50_000
    tau = measure.distort((np.arange(n) + 0.5) / n)
    quantiles = law.atoms[np.searchsorted(np.cumsum(law.probs)[:-1], tau)]
    # The midpoint rule misplaces each of the jumps by at most half a cell.
    assert abs(measure.value(law) - quantiles.mean()) <= np.ptp(law.atoms) / (2 * n) * 1.01 + 1e-9


@pytest.mark.parametrize(
    ("text", "law", "expected"),
    [
        ("mean", THREE_STATE, 178.0),
        ("cvar:0.1", THREE_STATE, 79.0),
        ("cvar:0.01", THREE_STATE, -20.0),
        ("cvar:0.19", THREE_STATE, (90 * 0.18 - 20 * 0.01) / 0.19),
        ("mean", YYY, 213.0),
        ("cvar:0.25", YYY, 119.25),
        ("cvar:0.1", YYY, 72.375),
        ("0.5*mean+0.5*cvar:0.25", YYY, (213 + 119.25) / 2),
        ("wang:-0.75", YYY, 157.418),
        ("pow:-2", YYY, 150.962),
        ("pow:-5", YYY, 115.629),
        ("cpw:0.71", YYY, 211.423),
        ("pow:1", Law([0.0, 1.0], [0.5, 0.5]), 0.75),
        ("wang:-1", Law([0.0, 1.0], [0.5, 0.5]), 1 - scipy.stats.norm.cdf(1)),
    ],
)
def test_known_values(text, law, expected):
    assert parse_risk(text).value(law) == pytest.approx(expected, abs=5.1e-4)


def test_cvar_is_exact_at_a_jump_and_between_jumps():
    x = np.array([4.0, 1.0, 3.0, 2.0])
    assert [CVaR(level).value(x) for level in (0.25, 0.5, 0.625, 1)] == [1.0, 1.5, 1.8, 2.5]


@pytest.mark.parametrize(("level", "best"), [(-2, min), (2, max)])
@fast
@given(st.lists(number, min_size=1, max_size=5))
@thorough(20)
def test_pow_is_the_expected_extreme_of_three_draws(level, best, x):
    assert close(POW(level).value(x), np.mean([best(draws) for draws in itertools.product(x, repeat=3)]))


@pytest.mark.parametrize("level", [-0.75, 0.75])
def test_wang_shifts_a_normal_by_its_level_in_standard_deviations(level):
    n = 20_000
    x = scipy.stats.norm.ppf((np.arange(n) + 0.5) / n, loc=5, scale=2)
    assert Wang(level).value(x) == pytest.approx(5 + 2 * level, abs=2e-3)


# NumPy and JAX.


X = np.array([3.0, -1.0, 10.0, 0.5, -7.0, 2.25, 4.0])
P = np.array([0.1, 0.2, 0.05, 0.25, 0.1, 0.2, 0.1])


# Levels are leaves, so that all measures of a class share one compiled program.
@jax.jit
def value_and_gradients(measure, x, p):
    return jax.value_and_grad(lambda measure, x, p: measure.value(x, p), argnums=(0, 1, 2))(measure, x, p)


def under_jax(measure, x, p, precision="float64"):
    """Return (value, (gradient in the measure, in the returns, in the probabilities))."""
    return value_and_gradients(*jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=precision), (measure, x, p)))


def gradient_by_differences(f, x, step=1e-6):
    x = np.asarray(x, dtype=float)
    gradient = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[i] = step
        gradient[i] = (f(x + e) - f(x - e)) / (2 * step)
    return gradient


@every_measure
@pytest.mark.usefixtures("x64")
def test_jax_agrees_with_numpy_and_with_differences(measure):
    value, (_, in_returns, in_probs) = under_jax(measure, X, P)
    assert close(value, measure.value(X, P))
    assert close(in_returns, gradient_by_differences(lambda x: measure.value(x, P), X), within=1e-6)
    assert close(in_probs, gradient_by_differences(lambda p: measure.value(X, p), P), within=1e-5)


@every_measure
def test_single_precision_stays_single_and_agrees(measure):
    value, gradients = under_jax(measure, X, P, "float32")
    assert {leaf.dtype for leaf in jax.tree.leaves((value, gradients))} == {np.dtype("float32")}
    assert close(value, measure.value(X, P), within=2e-5)


@every_measure
def test_numpy_input_gives_numpy_output_in_double_precision(measure):
    for returns in (X, X.astype(int), list(X), YYY):
        value = measure.value(returns)
        assert isinstance(value, np.floating)
        assert value.dtype == np.float64


@pytest.mark.parametrize("compiled", [lambda f: f, jax.jit], ids=["numpy", "jax"])
def test_returns_may_be_integers(compiled):
    value = compiled(CVaR(0.5).value)
    assert value(np.array([3, -1, 10, 0])) == -0.5
    assert value(np.array([3, 10, 0, -8]), np.array([2, 1, 1, 0])) == 1.5


def mean_cvar(share):
    return Mixture([(1 - share, Mean()), (share, CVaR(0.25))])


@pytest.mark.parametrize(
    ("family", "levels"),
    [
        (CVaR, [0.05, 0.25, 0.6, 1.0]),
        (Wang, [-0.75, 0.0, 0.75, 2.0]),
        (POW, [-5.0, -2.0, 0.0, 2.0]),
        (CPW, [0.3, 0.5, 0.71, 1.0]),
        (mean_cvar, [0.0, 0.3, 0.5, 1.0]),
    ],
)
@pytest.mark.usefixtures("x64")
def test_vmap_over_levels_and_samples_equals_a_loop_and_traces_once(family, levels):
    traces = []

    @jax.jit
    def table(levels, samples):
        traces.append(1)
        return jax.vmap(lambda level: jax.vmap(family(level).value)(samples))(levels)

    samples = np.random.default_rng(2).normal(size=(3, 9))
    for levels_now in (levels, levels[::-1]):
        expected = [[family(level).value(x) for x in samples] for level in levels_now]
        assert close(table(jnp.array(levels_now), jnp.asarray(samples)), expected)
    assert len(traces) == 1


def test_a_measure_with_an_array_of_levels_is_a_batch_of_measures():
    values = jax.jit(jax.vmap(lambda measure: measure.value(jnp.asarray(X))))(POW(jnp.array([-2.0, 0.0, 2.0])))
    assert close(values, [POW(level).value(X) for level in (-2, 0, 2)], within=2e-5)


@pytest.mark.parametrize(
    "measure",
    [CVaR(0.33), CVaR(0.9), Wang(-0.75), Wang(0), Wang(1.5), POW(-2.5), POW(1.5), CPW(0.4), CPW(0.71)],
    ids=str,
)
@pytest.mark.usefixtures("x64")
def test_the_gradient_in_the_level_agrees_with_differences(measure):
    _, (in_measure, _, _) = under_jax(measure, X, P)
    expected = gradient_by_differences(lambda level: type(measure)(level).value(X, P), measure.level)
    assert close(in_measure.level, expected, within=1e-6)


@pytest.mark.usefixtures("x64")
def test_the_gradient_in_a_share_is_the_value_of_its_part():
    _, (in_measure, _, _) = under_jax(MEAN_CVAR, X, P)
    assert close(in_measure.shares, [part.value(X, P) for part in MEAN_CVAR.measures])


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize(
    "measure",
    [CVaR(1e-3), CVaR(1), Wang(0), Wang(-6), Wang(6), POW(0), POW(30), POW(-30), CPW(0.28), CPW(1), SMOOTH],
    ids=str,
)
def test_gradients_are_finite_with_ties_and_with_zero_probabilities(measure, precision, request):
    if precision == "float64":
        request.getfixturevalue("x64")
    ties = np.array([1.0, 1.0, 2.0, -2.0, 5.0, 5.0, 7.0])
    empty_ends = np.array([0.25, 0.25, 1e-12, 0.0, 0.5, 0.0, 0.0])
    value, gradients = under_jax(measure, ties, empty_ends, precision)
    assert 1 - 1e-6 <= value <= 5 + 1e-5
    assert all(np.isfinite(gradient).all() for gradient in jax.tree.leaves(gradients))
    assert close(gradients[1].sum(), 1, within=1e-5)


@pytest.mark.parametrize("measure", [POW(-2), POW(2), CPW(0.5)], ids=str)
def test_the_gradient_of_distort_is_finite_even_where_the_true_slope_is_infinite(measure):
    slopes = jax.jit(jax.vmap(jax.grad(measure.distort)))(jnp.array([0.0, 1e-30, 1e-9, 0.5, 1.0]))
    assert np.isfinite(slopes).all()
    assert slopes[3] > 0


# Wrong input.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CVaR(0), r"CVaR level must be in \(0, 1\], got 0$"),
        (lambda: CVaR(1.2), r"CVaR level must be in \(0, 1\], got 1.2$"),
        (lambda: CVaR(-0.1), r"CVaR level must be in \(0, 1\], got -0.1$"),
        (lambda: CVaR(math.nan), r"CVaR level must be in \(0, 1\], got nan$"),
        (lambda: CVaR(jnp.array([0.5, 1.5])), r"CVaR level must be in \(0, 1\], got 1.5$"),
        (lambda: CVaR("much"), r"a risk level must be a number, got 'much'$"),
        (lambda: CVaR(None), r"a risk level must be a number, got None$"),
        (lambda: Wang(math.inf), r"Wang level must be a finite number, got inf$"),
        (lambda: POW(math.nan), r"POW level must be a finite number, got nan$"),
        (lambda: CPW(0.1), r"CPW level must be in \[0.279\d*, 1\] .*not increasing.*, got 0.1$"),
        (lambda: CPW(1.01), r"CPW level must be in \[0.279\d*, 1\] .*, got 1.01$"),
        (lambda: Mean().value([]), r"returns must be a non-empty one-dimensional array, got shape \(0,\)$"),
        (lambda: Mean().value(np.ones((2, 3))), r"returns must be .* one-dimensional array, got shape \(2, 3\)$"),
        (lambda: Mean().value(jnp.ones((2, 3))), r"returns must be .* one-dimensional array, got shape \(2, 3\)$"),
        (lambda: Mean().value(np.array(1.0)), r"returns must be .* one-dimensional array, got shape \(\)$"),
        (lambda: Mean().value([1.0, math.nan]), r"return number 1 is NaN$"),
        (
            lambda: Mean().value([1.0, 2.0], [0.5, -0.5]),
            r"probabilities must be non-negative, finite and not all zero$",
        ),
        (lambda: Mean().value([1.0, 2.0], [0.5, math.nan]), r"probabilities must be non-negative, finite"),
        (lambda: Mean().value([1.0, 2.0], [1.0, math.inf]), r"probabilities must be non-negative, finite"),
        (lambda: Mean().value([1.0, 2.0], [0.0, 0.0]), r"probabilities must be .* not all zero$"),
        (lambda: Mean().value([1.0, 2.0], [1.0]), r"got 2 returns and probabilities of shape \(1,\); they must match$"),
        (lambda: Mean().value(jnp.ones(2), jnp.ones(3)), r"got 2 returns and probabilities of shape \(3,\)"),
        (lambda: CVaR(jnp.array(0.0)), r"CVaR level must be in \(0, 1\], got 0$"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_level_or_sample_is_refused_in_one_line(call, message):
    with pytest.raises(RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_single_precision_numpy_is_computed_in_double():
    assert Mean().value(np.array([0.1, 0.2], dtype=np.float32)).dtype == np.float64


def test_returns_may_come_from_any_iterable():
    assert Mean().value(x for x in (1.0, 2.0)) == 1.5
