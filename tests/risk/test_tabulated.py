"""Measures read from tables: the same numbers as the measures themselves, up to the spacing of the table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from riskpath import CPW, POW, CVaR, Mean, Wang
from riskpath.risk.tabulated import Tabulated

MEASURES = [Mean(), CVaR(0.25), Wang(0.75), Wang(-0.75), POW(-2.0), CPW(0.71)]


@pytest.mark.parametrize("risk", MEASURES, ids=str)
def test_a_table_agrees_with_the_measure(risk):
    tabulated = Tabulated(risk)
    sample = np.random.default_rng(0).normal(size=300)
    value = float(tabulated.value(jnp.asarray(sample, jnp.float32)))
    assert value == pytest.approx(float(risk.value(sample)), abs=0.02)
    inside = np.linspace(0.01, 0.99, 50)
    for name in ("distort", "weight"):
        table = getattr(tabulated, name)(jnp.asarray(inside, jnp.float32))
        np.testing.assert_allclose(table, getattr(risk, name)(inside), atol=2e-3)
    assert tabulated.concave == risk.concave


def test_measures_of_different_kinds_share_one_compiled_program():
    traces = []

    @jax.jit
    def value(tabulated, x):
        traces.append(1)
        return tabulated.value(x)

    x = np.random.default_rng(1).normal(size=40).astype(np.float32)
    for risk in MEASURES:
        assert float(value(Tabulated(risk), x)) == pytest.approx(float(risk.value(x)), abs=0.02)
    assert len(traces) == 1


def test_a_table_of_a_text_is_that_of_its_measure():
    np.testing.assert_array_equal(Tabulated("wang:0.75").h, Tabulated(Wang(0.75)).h)


@pytest.mark.parametrize("end", [0.0, 1.0])
def test_a_table_is_exact_at_the_ends_and_constant_beyond_them(end):
    tabulated = Tabulated(POW(-2.0))
    beyond = jnp.float32(3 * end - 1)  # -1 or 2
    assert float(tabulated.weight(jnp.float32(end))) == float(tabulated.weight(beyond)) == end
    assert float(tabulated.distort(jnp.float32(end))) == float(tabulated.distort(beyond)) == end
