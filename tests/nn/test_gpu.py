"""The kernels for GPUs, interpreted, beside plain JAX."""

import importlib
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.nn import gpu, kernels
from riskpath.nn.cosines import Cosines
from riskpath.nn.losses import midpoints, quantile_huber
from riskpath.nn.mlp import MLP
from riskpath.training.fused_loop import update, warm_up
from riskpath.training.inputs import as_environment
from riskpath.training.lanes import start

LANES = 2


@pytest.fixture
def with_kernels():
    with kernels.use_kernels(gpu):
        yield


class Sizes(NamedTuple):
    width: int = 64
    levels: int = 16
    batch: int = 16
    actions: int = 3


def embeddings(width: int, levels: int) -> tuple[Cosines, jax.Array]:
    """Return an embedding and levels for every lane."""
    keys = jax.random.split(jax.random.key(0), LANES)
    return eqx.filter_vmap(lambda key: Cosines(width, key=key))(keys), jax.random.uniform(keys[0], (LANES, levels))


def outputs_and_gradients(sizes: Sizes) -> Any:
    """Return a function without arguments: a weighted sum of the quantiles of a batch, and all its gradients."""
    cosines, taus = embeddings(sizes.width, sizes.levels)
    keys = jax.random.split(jax.random.key(1), 4)
    out = jax.random.normal(keys[0], (LANES, sizes.actions, sizes.width))
    features = jax.random.normal(keys[1], (LANES, sizes.batch, sizes.width))
    actions = jax.random.randint(keys[2], (LANES, sizes.batch), 0, sizes.actions)
    wanted = jax.random.normal(keys[3], (sizes.batch, sizes.levels))

    def total(parameters: Any, taus: jax.Array, actions: jax.Array) -> jax.Array:
        cosines, out, features = parameters
        one = lambda features, action: cosines.of_action(taus, out, features, action)
        return jnp.sum(wanted * kernels.over_batch(one)(features, actions))

    # A new function, which is traced anew, in every call.
    return lambda: eqx.filter_vmap(eqx.filter_value_and_grad(lambda *x: total(*x)))(
        (cosines, out, features), taus, actions
    )


@pytest.mark.parametrize(
    ("sizes", "kernel"),
    [
        (Sizes(), True),
        (Sizes(width=48), False),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                (Sizes(192, 128, 64, 1), True),
                (Sizes(actions=8), True),
                (Sizes(levels=12), False),
                (Sizes(levels=8), False),
                (Sizes(batch=10), False),
                (Sizes(batch=256), False),
                (Sizes(actions=9), False),
            )
        ),
    ],
)
def test_sizes_that_have_kernels(sizes: Sizes, kernel: bool, with_kernels: None):
    assert ("pallas_call" in str(jax.make_jaxpr(outputs_and_gradients(sizes))())) == kernel


@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(192, 32, 16, 5),
        *(pytest.param(sizes, marks=pytest.mark.long) for sizes in (Sizes(), Sizes(256, 64, 32, 8))),
    ],
)
def test_quantiles_and_their_gradients_are_those_of_plain_jax(sizes: Sizes, with_kernels: None):
    ours = jax.jit(outputs_and_gradients(sizes))()
    with kernels.use_kernels(None):
        plain = jax.jit(outputs_and_gradients(sizes))()
    for mine, expected in zip(*map(jax.tree.leaves, (ours, plain)), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("width", "levels"), [(192, 64), pytest.param(40, 16, marks=pytest.mark.long)])
def test_the_mean_embedding_and_its_gradient(width: int, levels: int, with_kernels: None):
    cosines, taus = embeddings(width, levels)
    x = jax.random.normal(jax.random.key(1), (width,))

    def program():
        of = lambda c, taus: jnp.sum(c.mean(taus) * x)
        return eqx.filter_jit(eqx.filter_vmap(eqx.filter_value_and_grad(of)))(cosines, taus)

    ours = program()
    with kernels.use_kernels(None):
        plain = program()
    for mine, expected in zip(*map(jax.tree.leaves, (ours, plain)), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)


def layer_and_gradients(inputs: int, width: int, batch: int) -> Any:
    """Return a function without arguments: a weighted sum of a layer's outputs for a batch, and all its gradients."""
    keys = jax.random.split(jax.random.key(1), 3)
    mlps = eqx.filter_vmap(lambda key: MLP(inputs, (width,), key=key))(jax.random.split(keys[0], LANES))
    x, wanted = jax.random.normal(keys[1], (LANES, batch, inputs)), jax.random.normal(keys[2], (batch, width))

    def total(given: Any) -> jax.Array:
        return jnp.sum(wanted * kernels.over_batch(given[0])(given[1]))

    return lambda: eqx.filter_vmap(eqx.filter_value_and_grad(lambda given: total(given)))((mlps, x))


@pytest.mark.parametrize(
    ("inputs", "width", "batch", "kernel"),
    [
        *((5, 192, 32, True), (33, 64, 16, False), (16, 48, 16, False), (16, 64, 10, False)),
        *(pytest.param(*case, marks=pytest.mark.long) for case in ((16, 64, 16, True), (32, 256, 128, True))),
    ],
)
def test_layers_that_have_kernels(inputs: int, width: int, batch: int, kernel: bool, with_kernels: None):
    assert ("pallas_call" in str(jax.make_jaxpr(layer_and_gradients(inputs, width, batch))())) == kernel


@pytest.mark.parametrize(
    ("inputs", "width", "batch"),
    [
        *((5, 192, 32), (33, 64, 16)),
        *(pytest.param(*sizes, marks=pytest.mark.long) for sizes in ((16, 64, 16), (32, 256, 128))),
    ],
)
def test_a_layer_and_its_gradients(inputs: int, width: int, batch: int, with_kernels: None):
    ours = jax.jit(layer_and_gradients(inputs, width, batch))()
    with kernels.use_kernels(None):
        plain = jax.jit(layer_and_gradients(inputs, width, batch))()
    for mine, expected in zip(*map(jax.tree.leaves, (ours, plain)), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-4)


def test_one_sample_has_gradients_as_well(with_kernels: None):
    """JAX cannot differentiate the kernels for a batch inside of `vmap`, nor forwards, so they are not used there."""
    mlp, x = MLP(5, (64,), key=jax.random.key(0)), jax.random.normal(jax.random.key(1), (16, 5))
    of = lambda x: jnp.sum(mlp(x) ** 2)
    one, each = jax.grad(of)(x[0]), jax.vmap(jax.grad(of))(x)
    np.testing.assert_allclose(one, each[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.jvp(of, (x[0],), (x[1],))[1], one @ x[1], rtol=1e-4)


def test_a_loss_may_use_what_all_samples_share(with_kernels: None):
    mlp, x = MLP(5, (64,), key=jax.random.key(0)), jax.random.normal(jax.random.key(1), (16, 5))

    def gradients() -> Any:
        loss = lambda mlp, y: jnp.sum(mlp(x[0]) * mlp(y))
        return eqx.filter_grad(lambda mlp: jnp.mean(kernels.over_batch(lambda y: loss(mlp, y))(x)))(mlp)

    ours = gradients()
    with kernels.use_kernels(None):
        plain = gradients()
    for mine, expected in zip(*map(jax.tree.leaves, (ours, plain)), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)


def test_other_activations_have_no_kernel(with_kernels: None):
    mlp = MLP(16, (64,), jax.nn.silu, key=jax.random.key(0))
    assert "pallas_call" not in str(jax.make_jaxpr(kernels.over_batch(mlp))(jnp.ones((16, 16))))


@pytest.mark.parametrize(
    ("online", "target", "weighted"),
    [
        *((32, 128, True), (12, 16, False)),
        *(pytest.param(*case, marks=pytest.mark.long) for case in ((32, 128, False), (12, 16, True))),
    ],
)
def test_the_quantile_loss_and_its_gradient(online: int, target: int, weighted: bool, with_kernels: None):
    keys = jax.random.split(jax.random.key(1), 3)
    predicted, targets = jax.random.normal(keys[0], (3, online)), jax.random.normal(keys[1], (3, target))
    probs = jax.nn.softmax(jax.random.normal(keys[2], (target,))) if weighted else None

    def total(predicted: jax.Array) -> jax.Array:
        one = lambda p, y: quantile_huber(p, midpoints(online), y, 0.2, probs)
        return jnp.sum(jax.vmap(one)(predicted, targets))

    program = lambda: jax.jit(jax.value_and_grad(lambda predicted: total(predicted)))(predicted)
    ours = program()
    with kernels.use_kernels(None):
        plain = program()
    np.testing.assert_allclose(ours[0], plain[0], rtol=1e-5)
    np.testing.assert_allclose(ours[1], plain[1], atol=1e-6)


@pytest.mark.long  # its parts are compared above
def test_an_update_is_the_same(with_kernels: None):
    training = rp.Training(
        batch_size=16, num_quantiles=16, num_target_quantiles=16, num_action_quantiles=16, buffer_size=50
    )
    agent = rp.IQN(rp.CVaR(0.25), network=rp.Network(hidden=(64,)), training=training)
    environment = as_environment(rp.RiskyGrid())
    lanes = start([agent], [environment], LANES, 1, 0)
    with kernels.use_kernels(None):
        lanes, _ = warm_up(lanes, environment.spec, jnp.asarray(20, jnp.int32))
        plain = eqx.filter_jit(lambda lanes: update(lanes)[0])(lanes)
    ours = eqx.filter_jit(lambda lanes: update(lanes)[0])(lanes)
    for mine, expected in zip(*(jax.tree.leaves(x.agent_state.params) for x in (ours, plain)), strict=True):
        np.testing.assert_allclose(mine, expected, atol=2e-4)


def test_kernels_are_refused_without_a_gpu():
    agent = rp.IQN(network=rp.Network(hidden=(64,), gpu_kernels=True))
    if jax.default_backend() == "cpu":
        with pytest.raises(rp.RiskpathError, match=r"gpu_kernels=True needs an NVIDIA GPU .*; this device is cpu"):
            rp.train(agent, "RiskyGrid", steps=10)


@pytest.mark.long  # a kernel is compared with plain JAX above
def test_a_training_uses_kernels_that_it_asks_for(monkeypatch: pytest.MonkeyPatch):
    """They are used where a chunk is compiled, and not by what a callback compiles."""
    seen: list[Any] = []
    module = importlib.import_module("riskpath.training.train")  # `riskpath.training.train` is the function
    monkeypatch.setattr(module, "chosen_kernels", lambda agent: gpu)
    monkeypatch.setattr("riskpath.nn.cosines.gpu_kernels", lambda: seen.append(kernels.gpu_kernels()))
    training = rp.Training(
        batch_size=4, learning_starts=5, target_update_interval=5, num_quantiles=4, num_target_quantiles=4
    )
    agent = rp.IQN(network=rp.Network(hidden=(8,)), training=training)
    rp.train(agent, "RiskyGrid", steps=20, callbacks=[lambda run, record: seen.append(kernels.gpu_kernels())])
    assert gpu in seen
    assert seen[-1] is None
