"""The sorting network against NumPy: values and gradients."""

import jax
import numpy as np
import pytest

from riskpath.risk.sorting import LARGEST, ascending


@pytest.mark.parametrize("size", [1, 2, 3, 16, LARGEST - 200, LARGEST + 1])
def test_the_network_sorts_every_row(size):
    rows = np.random.default_rng(size).normal(size=(5, size)).round(1).astype(np.float32)  # rounded: ties occur
    np.testing.assert_array_equal(jax.jit(jax.vmap(ascending))(rows), np.sort(rows))


def test_the_gradient_is_that_of_a_sort():
    x, weights = np.random.default_rng(0).normal(size=20).astype(np.float32), np.arange(20.0, dtype=np.float32) ** 2
    gradient = jax.jit(jax.grad(lambda x: weights @ ascending(x)))(x)
    np.testing.assert_array_equal(gradient, weights[np.argsort(np.argsort(x))])
