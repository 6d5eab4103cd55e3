"""Measures read from tables: the same numbers as the measures themselves, up to the spacing of the table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from riskpath import CPW, POW, CVaR, Mean, Wang
from riskpath.risk.tabulated import Tabulated

MEASURES = [Mean(), CVaR(0.25), Wang(0.75), Wang(-0.75), POW(-2.0), CPW(0.71)]


def test_tables_agree_with_their_measures_and_share_one_compiled_program():
    traces = []

    @jax.jit
    def results(tabulated, x, inside):
        traces.append(1)
        return tabulated.value(x), tabulated.distort(inside), tabulated.weight(inside)

    x, inside = np.random.default_rng(0).normal(size=300), np.linspace(0.01, 0.99, 50)
    for risk in MEASURES:
        tabulated = Tabulated(risk)
        value, distort, weight = results(tabulated, x.astype(np.float32), inside.astype(np.float32))
        assert float(value) == pytest.approx(float(risk.value(x)), abs=0.02), risk
        np.testing.assert_allclose(distort, risk.distort(inside), atol=2e-3, err_msg=str(risk))
        np.testing.assert_allclose(weight, risk.weight(inside), atol=2e-3, err_msg=str(risk))
        assert tabulated.concave == risk.concave
    assert len(traces) == 1


def test_a_table_of_a_text_is_that_of_its_measure():
    np.testing.assert_array_equal(Tabulated("wang:0.75").h, Tabulated(Wang(0.75)).h)


def test_a_table_is_exact_at_the_ends_and_constant_beyond_them():
    tabulated, places = Tabulated(POW(-2.0)), jnp.array([-1.0, 0.0, 1.0, 2.0])
    for values in jax.jit(lambda t: (tabulated.weight(t), tabulated.distort(t)))(places):
        assert values.tolist() == [0.0, 0.0, 1.0, 1.0]
