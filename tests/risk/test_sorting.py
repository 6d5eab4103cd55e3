"""The sorting network against `jnp.sort`: values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from riskpath.risk.sorting import LARGEST, ascending


@pytest.mark.parametrize("size", [1, 2, 3, 16, 144, 256, 300, LARGEST + 1])
def test_the_network_sorts_every_row(size):
    rows = jax.random.normal(jax.random.key(size), (5, size)).round(1)  # rounded, so that ties occur
    np.testing.assert_array_equal(jax.jit(jax.vmap(ascending))(rows), np.sort(rows))


def test_the_gradient_is_that_of_a_sort():
    x, weights = jax.random.normal(jax.random.key(0), (100,)), jnp.arange(100.0) ** 2
    actual, expected = (jax.jit(jax.grad(lambda x, s=sort: weights @ s(x)))(x) for sort in (ascending, jnp.sort))
    np.testing.assert_array_equal(actual, expected)
