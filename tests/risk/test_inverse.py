"""The numeric inverse of an increasing function, in NumPy and in JAX."""

import jax
import numpy as np
import pytest

from riskpath import CPW, inverse
from tests.risk.examples import close, smoothstep, smoothstep_inverse

both = pytest.mark.parametrize("compiled", [lambda f: f, jax.jit], ids=["numpy", "jax"])


def flat_in_the_middle(x):
    x = np.float64(x) if isinstance(x, float) else x
    return x - (x - 0.25).clip(0, 0.45) + 1.5 * (x - 0.7).clip(0, 0.3)


@both
@pytest.mark.parametrize(("side", "end"), [("right", 0.7), ("left", 0.25)])
def test_on_a_flat_part_the_inverse_is_the_end_on_the_chosen_side(compiled, side, end):
    x = compiled(lambda y: inverse(flat_in_the_middle, y, side))(np.array([0.0, 0.125, 0.25, 0.625, 1.0]))
    assert close(x, [0, 0.125, end, 0.85, 1], within=1e-6)


@both
@pytest.mark.parametrize("shape", [(), (1,), (3, 4), (200,)])
def test_the_inverse_agrees_with_a_formula_for_every_number_of_values(compiled, shape):
    y = np.random.default_rng(0).uniform(size=shape)
    x = compiled(lambda y: inverse(smoothstep, y))(y)
    assert np.shape(x) == shape
    assert close(x, smoothstep_inverse(y), within=2e-6 if compiled is jax.jit else 1e-12)


@pytest.mark.usefixtures("x64")
def test_the_gradient_is_one_over_the_slope_of_the_function():
    y = np.linspace(0.05, 0.95, 7)
    slopes = jax.jit(jax.vmap(jax.grad(lambda y: inverse(smoothstep, y))))(y)
    x = smoothstep_inverse(y)
    assert close(slopes, 1 / (6 * x * (1 - x)), within=1e-6)


def test_the_inverse_of_cpw_at_its_lowest_level_undoes_its_distortion():
    tau = np.linspace(0, 1, 1001)
    distorted = CPW(0.2793).distort(tau)
    assert (np.diff(distorted) >= 0).all()
    assert close(CPW(0.2793).distort(CPW(0.2793).weight(distorted)), distorted)
