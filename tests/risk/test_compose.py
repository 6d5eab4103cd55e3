"""Mixtures, measures of a user's own, and measures written as text."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riskpath import (
    CPW,
    POW,
    CVaR,
    Distortion,
    DistortionMeasure,
    Mean,
    Mixture,
    RiskMeasure,
    RiskpathError,
    Wang,
    parse_risk,
    register_risk,
)
from tests.risk.examples import (
    LAWS,
    MEAN_CVAR,
    READABLE,
    SMOOTH,
    YYY,
    close,
    fast,
    smoothstep,
    smoothstep_inverse,
    thorough,
)


class Proportional(DistortionMeasure):
    """A measure with a level, as a user would write it: the proportional hazard transform."""

    level: float

    def distort(self, tau: Any) -> Any:
        return tau**self.level

    def weight(self, cdf: Any) -> Any:
        return cdf ** (1 / self.level)

    @property
    def concave(self) -> bool:
        return self.level >= 1


def untyped(function: Any) -> Any:
    """Return a function for calls that the type checker would refuse."""
    return function


# Mixtures.


def test_the_value_of_a_mixture_is_the_mixture_of_the_values():
    half = Mixture([(0.5, CVaR(0.25)), (0.5, Wang(0.75))])
    for law in LAWS.values():
        assert half.value(law) == pytest.approx((CVaR(0.25).value(law) + Wang(0.75).value(law)) / 2)


def test_the_distortion_of_two_mixed_tails_ends_at_the_longer_one():
    tails = Mixture([(0.5, CVaR(0.1)), (0.5, CVaR(0.25))])
    assert close(tails.distort(np.array([0.0, 0.7, 0.9, 1.0])), [0, 0.1, 0.2, 0.25])


def test_parts_of_a_mixture_may_be_texts():
    assert Mixture([(0.7, "mean"), (0.3, "cvar:0.1")]) == MEAN_CVAR
    assert Mixture([(0.5, "0.5*mean+0.5*cvar:0.1"), (0.5, CVaR(0.1))]).shares == (0.25, 0.25, 0.5)


def test_equal_measures_in_a_mixture_add_up():
    twice = Mixture([(0.25, CVaR(0.1)), (0.75, "cvar:0.1")])
    assert twice.value(YYY) == pytest.approx(72.375)
    assert parse_risk(str(twice)) == twice


# Measures of a user's own.


def test_the_numeric_weight_agrees_with_a_formula_for_h():
    t = np.linspace(0, 1, 101)
    with_formula = Distortion(smoothstep, h=smoothstep_inverse)
    assert close(SMOOTH.weight(t), with_formula.weight(t))
    assert close(SMOOTH.value(YYY), with_formula.value(YYY))


def test_a_distortion_that_ends_below_one_ignores_the_best_returns():
    measure = Distortion(lambda tau: 0.25 * tau, averse=True)
    assert measure.value(YYY) == pytest.approx(119.25)
    assert measure.concave


# Measures as text.


@pytest.mark.parametrize("measure", READABLE, ids=str)
def test_text_reads_back_as_the_same_measure(measure):
    assert parse_risk(str(measure)) == measure
    assert parse_risk(measure) is measure


@pytest.mark.parametrize("family", [CVaR, Wang, POW, CPW])
@fast
@given(st.floats(0.28, 1))
@thorough(40)
def test_text_keeps_every_digit_of_the_level(family, level):
    assert parse_risk(str(family(level))) == family(level)


@pytest.mark.parametrize(
    ("text", "measure"),
    [
        ("  mean ", Mean()),
        ("Mean", Mean()),
        ("CVaR:0.25", CVaR(0.25)),
        ("cvar:.25", CVaR(0.25)),
        ("cvar:25e-2", CVaR(0.25)),
        ("cvar: 0.25", CVaR(0.25)),
        ("cvar:1", CVaR(1)),
        ("WANG:-0.75", Wang(-0.75)),
        ("wang:+0.75", Wang(0.75)),
        ("pow:-2.0", POW(-2)),
        ("cpw:0.71", CPW(0.71)),
        ("0.7*mean+0.3*cvar:0.1", MEAN_CVAR),
        (" 0.7 * mean + 0.3 * cvar:0.1 ", MEAN_CVAR),
        ("1*cvar:0.1", Mixture([(1, CVaR(0.1))])),
        ("0.25*wang:-1+0.25*pow:-2+0.5*mean", Mixture([(0.25, Wang(-1)), (0.25, POW(-2)), (0.5, Mean())])),
    ],
)
def test_accepted_spellings(text, measure):
    assert parse_risk(text) == measure


@pytest.mark.parametrize(
    ("measure", "text"),
    [
        (Mean(), "mean"),
        (CVaR(1), "cvar:1"),
        (CVaR(jnp.array(0.25)), "cvar:0.25"),
        (Wang(-0.75), "wang:-0.75"),
        (POW(-2), "pow:-2"),
        (CPW(0.71), "cpw:0.71"),
        (MEAN_CVAR, "0.7*mean+0.3*cvar:0.1"),
        (SMOOTH, "smoothstep"),
    ],
)
def test_the_text_of_a_measure(measure, text):
    assert str(measure) == text


def test_the_text_of_a_mixture_with_a_huge_level_reads_back():
    mixture = Mixture([(0.5, Mean()), (0.5, Wang(1e20))])
    assert parse_risk(str(mixture)) == mixture


def test_a_registered_measure_can_be_written_as_text(monkeypatch):
    monkeypatch.setattr("riskpath.risk.compose.BY_NAME", {"mean": Mean, "cvar": CVaR})
    register_risk("proportional", Proportional)
    register_risk("smooth", lambda: SMOOTH)
    assert parse_risk("proportional:1.5") == Proportional(1.5)
    assert parse_risk("smooth") is SMOOTH
    assert parse_risk("0.5*proportional:2+0.5*smooth") == Mixture([(0.5, Proportional(2.0)), (0.5, SMOOTH)])
    with pytest.raises(RiskpathError, match="proportional:LEVEL"):
        parse_risk("nothing:1")


# Measures or texts as fields.


class Holder(eqx.Module):
    """A module with a measure as a field, like every agent."""

    risk: RiskMeasure = eqx.field(converter=parse_risk, default="mean")


def test_a_field_with_the_converter_accepts_measures_and_texts():
    assert Holder("cvar:0.1").risk == CVaR(0.1)
    assert Holder().risk == Mean()
    assert Holder(SMOOTH).risk is SMOOTH


def test_the_converter_passes_arrays_and_tracers_inside_a_measure():
    levels = jnp.array([0.25, 1.0])
    risk = Holder(CVaR(levels)).risk
    assert isinstance(risk, CVaR)
    assert risk.level is levels
    values = jax.jit(jax.vmap(lambda level: Holder(CVaR(level)).risk.value(jnp.array([0.0, 4.0, 8.0, 8.0]))))(levels)
    assert close(values, [0.0, 5.0])


# Wrong input.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Mixture([]), r"a mixture needs at least one"),
        (lambda: Mixture([(0.7, Mean())]), r"shares of a mixture must .* sum to 1, got 0.7$"),
        (lambda: Mixture([(1.5, Mean()), (-0.5, CVaR(0.1))]), r"shares .* non-negative .*, got 1.5, -0.5$"),
        (lambda: Mixture([(math.nan, Mean())]), r"shares .*, got nan$"),
        (lambda: Mixture([("half", Mean())]), r"the share of a mixture must be a number, got 'half'$"),
        (lambda: untyped(Mixture)([Mean()]), r"parts of a mixture must be \(share, measure\) pairs, got Mean\(\)$"),
        (
            lambda: untyped(Mixture)([(1.0, 0.1)]),
            r"expected a risk measure such as CVaR\(0.25\) or a text .*, got 0.1$",
        ),
        (lambda: Mixture([(1.0, "tail:0.1")]), r"unknown risk measure 'tail:0.1'; use mean, cvar:LEVEL"),
        (
            lambda: untyped(parse_risk)(CVaR),
            r"expected a risk measure such as .*, got <class '.*CVaR'>; write CVaR\(…\)$",
        ),
        (lambda: untyped(parse_risk)(None), r"expected a risk measure such as CVaR\(0.25\) or a text .*, got None$"),
        (lambda: untyped(Holder)(0.1), r"expected a risk measure such as CVaR\(0.25\) or a text .*, got 0.1$"),
        (lambda: untyped(parse_risk)(np.zeros((40, 40))), r"expected a risk measure such as .*, got array\(.*…$"),
        (lambda: parse_risk("foo:1"), r"unknown risk measure 'foo:1'; use mean, cvar:LEVEL, .* or a mixture like"),
        (lambda: parse_risk(""), r"unknown risk measure ''; use"),
        (lambda: parse_risk("mean:0.5"), r"unknown risk measure 'mean:0.5'; use"),
        (lambda: parse_risk("mean+cvar:0.1"), r"unknown risk measure 'mean\+cvar:0.1'; use"),
        (lambda: parse_risk("0.5*mean+0.5*foo:1"), r"unknown risk measure '0.5\*mean\+0.5\*foo:1'; use"),
        (lambda: parse_risk("cvar"), r"risk measure 'cvar' needs a level, for example cvar:0.5$"),
        (lambda: parse_risk("CPW"), r"risk measure 'CPW' needs a level, for example cpw:0.5$"),
        (lambda: parse_risk("cvar:x"), r"cannot read the number 'x' in risk measure 'cvar:x'$"),
        (lambda: parse_risk("cvar:"), r"cannot read the number '' in risk measure 'cvar:'$"),
        (lambda: parse_risk("cvar:nan"), r"CVaR level must be in \(0, 1\], got nan$"),
        (lambda: parse_risk("half*mean+0.5*cvar:1"), r"cannot read the number 'half' in risk measure 'half\*mean"),
        (lambda: parse_risk("0.5*mean+0.3*cvar:0.1"), r"shares of a mixture must .* sum to 1, got 0.5, 0.3$"),
        (lambda: register_risk("Entropic", Mean), r"name of a measure must be a lower-case word, got 'Entropic'$"),
        (lambda: register_risk("two words", Mean), r"name of a measure must be a lower-case word, got 'two words'$"),
        (lambda: Distortion(lambda t: 1 - t), r"distortion: the distortion must be finite and increasing on \[0, 1\]$"),
        (lambda: Distortion(lambda t: t - np.sin(7 * t), name="wavy"), r"wavy: .* increasing on \[0, 1\]$"),
        (lambda: Distortion(lambda t: t * np.nan), r"distortion: the distortion must be finite"),
        (lambda: Distortion(lambda t: (1 + t) / 2), r"the distortion must start at 0 and end at or below 1$"),
        (lambda: Distortion(lambda t: 2 * t), r"the distortion must start at 0 and end at or below 1$"),
        (lambda: Distortion(np.sqrt, averse=True), r"averse=True needs a convex distortion \(a concave h\)$"),
        (lambda: Distortion(smoothstep, averse=True, name="s"), r"s: averse=True needs a convex distortion"),
        (lambda: parse_risk("Mean:1"), r"unknown risk measure 'Mean:1'; use"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_measure_is_refused_in_one_line(call, message):
    with pytest.raises(RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
