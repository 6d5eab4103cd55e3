"""Quantile heads: one action against all of them, and the gradients that are written by hand."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from riskpath.nn.cosines import cos_pi
from riskpath.nn.heads import DeepHead, FactoredHead, Head, TableHead

WIDTH, ACTIONS, LEVELS = 6, 3, 5


def head_and_features(kind: str) -> tuple[Head, jax.Array]:
    if kind == "table":
        cells = jax.random.normal(jax.random.key(0), (4, LEVELS, ACTIONS))
        return eqx.tree_at(lambda h: h.cells, TableHead(4, LEVELS, ACTIONS), cells), jnp.asarray(2, jnp.int32)
    make = {"factored": FactoredHead, "deep": DeepHead}[kind]
    return make(WIDTH, ACTIONS, key=jax.random.key(0)), jax.random.normal(jax.random.key(1), (WIDTH,))


@pytest.mark.parametrize("kind", ["factored", "deep", "table"])
@pytest.mark.parametrize("action", range(ACTIONS))
def test_the_quantiles_of_one_action_are_its_column_and_so_is_the_gradient(kind, action):
    head, features = head_and_features(kind)
    (one, column), gradients = one_and_column(head, features, jnp.asarray(action, jnp.int32))
    np.testing.assert_allclose(one, column, atol=1e-6)
    for mine, expected in zip(*map(jax.tree.leaves, gradients), strict=True):
        np.testing.assert_allclose(mine, expected, atol=1e-5)


@eqx.filter_jit
def one_and_column(head: Head, features: jax.Array, action: jax.Array) -> Any:
    """Return the quantiles of one action computed in both ways, and the gradients of a weighted sum of them."""
    taus, wanted = jnp.array([0.05, 0.3, 0.5, 0.99]), jnp.array([1.0, -2.0, 0.5, 3.0])
    ways = (lambda head: head.of_action(features, taus, action), lambda head: head(features, taus)[:, action])
    gradients = [eqx.filter_grad(lambda h, f=f: jnp.sum(wanted * f(h)))(head) for f in ways]
    return [f(head) for f in ways], gradients


def test_the_gradient_of_the_embedding_is_that_of_plain_products():
    head, features = head_and_features("factored")
    assert isinstance(head, FactoredHead)
    taus = jnp.array([0.1, 0.4, 0.8])

    def plain(weight: jax.Array, bias: jax.Array) -> jax.Array:
        waves = cos_pi(jnp.arange(weight.shape[1], dtype=jnp.float32)[None, :] * taus[:, None])
        return jnp.sum(jax.nn.relu(waves @ weight.T + bias[None, :]) @ features)

    linear = head.cosines.linear
    ours = eqx.filter_grad(lambda h: jnp.sum(h.cosines(taus) @ features))(head).cosines.linear
    weight, bias = jax.grad(plain, argnums=(0, 1))(linear.weight, linear.bias)
    np.testing.assert_allclose(ours.weight, weight, atol=1e-5)
    np.testing.assert_allclose(ours.bias, bias, atol=1e-5)


def test_cosines_are_cosines():
    x = np.concatenate([np.linspace(0.0, 63.0, 5_001), np.arange(64) / 2]).astype(np.float32)
    np.testing.assert_allclose(cos_pi(jnp.asarray(x)), np.cos(np.pi * x.astype(np.float64)), atol=1e-6)
