"""The kernels for GPUs, interpreted, beside plain JAX."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.nn import gpu_kernels, kernels
from riskpath.nn.cosines import Cosines
from riskpath.nn.losses import midpoints, quantile_huber
from riskpath.training.fused_loop import update, warm_up
from riskpath.training.inputs import as_environment
from riskpath.training.lanes import start

LANES = 2


@pytest.fixture
def with_kernels(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernels, "_load", lambda: gpu_kernels)


def inputs(width: int, levels: int, batch: int) -> tuple[Cosines, jax.Array, jax.Array, jax.Array]:
    """Return embeddings, levels, rows and weights of the result, for every lane."""
    keys = jax.random.split(jax.random.key(0), 4)
    cosines = eqx.filter_vmap(lambda key: Cosines(width, key=key))(jax.random.split(keys[0], LANES))
    taus = jax.random.uniform(keys[1], (LANES, levels))
    return cosines, taus, jax.random.normal(keys[2], (LANES, batch, width)), jax.random.normal(keys[3], (batch, levels))


def total(cosines: Cosines, x: jax.Array, taus: jax.Array, wanted: jax.Array) -> jax.Array:
    return jnp.sum(wanted * jax.vmap(lambda row: cosines.dot(taus, row))(x))


@pytest.mark.parametrize(
    ("width", "levels", "batch", "kernel"),
    [
        (64, 16, 16, True),
        (192, 128, 64, True),
        (48, 16, 16, False),
        (64, 12, 16, False),
        (64, 16, 10, False),
        (64, 8, 16, False),
        (64, 16, 256, False),
    ],
)
def test_sizes_that_have_kernels(width: int, levels: int, batch: int, kernel: bool, with_kernels: None):
    cosines, taus, x, wanted = inputs(width, levels, batch)
    program = jax.make_jaxpr(lambda x: eqx.filter_vmap(total)(cosines, x, taus, jnp.stack([wanted] * LANES)))(x)
    assert ("pallas_call" in str(program)) == kernel


@pytest.mark.parametrize(("width", "levels", "batch"), [(64, 16, 32), (192, 32, 16)])
def test_products_and_their_gradients_are_those_of_plain_jax(width: int, levels: int, batch: int, with_kernels: None):
    cosines, taus, x, wanted = inputs(width, levels, batch)

    def both(cosines: Cosines, x: jax.Array, taus: jax.Array) -> tuple[jax.Array, tuple[Cosines, jax.Array]]:
        return eqx.filter_value_and_grad(lambda pair: total(pair[0], pair[1], taus, wanted))((cosines, x))

    program = lambda: eqx.filter_jit(eqx.filter_vmap(lambda c, x, t: both(c, x, t)))(cosines, x, taus)  # noqa: E731
    ours = program()
    with kernels.without_kernels():
        plain = program()
    for mine, expected in zip(*map(jax.tree.leaves, (ours, plain)), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("width", "levels"), [(192, 64), (40, 16)])
def test_the_mean_embedding_and_its_gradient(width: int, levels: int, with_kernels: None):
    cosines, taus, x, _ = inputs(width, levels, 1)

    def program():
        of = lambda c, taus, x: jnp.sum(c.mean(taus) * x[0])  # noqa: E731
        return eqx.filter_jit(eqx.filter_vmap(eqx.filter_value_and_grad(of)))(cosines, taus, x)

    ours = program()
    with kernels.without_kernels():
        plain = program()
    for mine, expected in zip(*map(jax.tree.leaves, (ours, plain)), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("online", "target"), [(32, 128), (12, 16)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_quantile_loss_and_its_gradient(online: int, target: int, weighted: bool, with_kernels: None):
    keys = jax.random.split(jax.random.key(1), 3)
    predicted, targets = jax.random.normal(keys[0], (3, online)), jax.random.normal(keys[1], (3, target))
    probs = jax.nn.softmax(jax.random.normal(keys[2], (target,))) if weighted else None

    def total(predicted: jax.Array) -> jax.Array:
        one = lambda p, y: quantile_huber(p, midpoints(online), y, 0.2, probs)  # noqa: E731
        return jnp.sum(jax.vmap(one)(predicted, targets))

    program = lambda: jax.jit(jax.value_and_grad(lambda predicted: total(predicted)))(predicted)  # noqa: E731
    ours = program()
    with kernels.without_kernels():
        plain = program()
    np.testing.assert_allclose(ours[0], plain[0], rtol=1e-5)
    np.testing.assert_allclose(ours[1], plain[1], atol=1e-6)


def test_an_update_is_the_same(with_kernels: None):
    training = rp.Training(batch_size=16, online_taus=16, target_taus=16, act_taus=16, buffer_size=50)
    agent = rp.IQN(rp.CVaR(0.25), network=rp.Network(hidden=(64,)), training=training)
    environment = as_environment(rp.RiskyGrid())
    lanes = start([agent], [environment], LANES, 1, 0)
    with kernels.without_kernels():
        lanes = warm_up(lanes, environment.spec, jnp.asarray(20, jnp.int32))
        plain = eqx.filter_jit(lambda lanes: update(lanes, environment.spec)[0])(lanes)
    ours = eqx.filter_jit(lambda lanes: update(lanes, environment.spec)[0])(lanes)
    for mine, expected in zip(*(jax.tree.leaves(x.agent_state.params) for x in (ours, plain)), strict=True):
        np.testing.assert_allclose(mine, expected, atol=2e-4)


def test_there_are_no_kernels_without_a_gpu():
    kernels._load.cache_clear()
    assert jax.default_backend() != "cpu" or kernels.gpu_kernels() is None
