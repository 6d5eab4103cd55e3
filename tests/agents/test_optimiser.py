"""Optimisers: clipping, Optax transformations by name or as functions, and runs that are saved with them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import riskpath as rp
from riskpath.agents.optimiser import Optimiser
from tests.agents.clocks import clock_at

PARAMS = {"weight": jnp.array([1.0, -2.0]), "mean": jnp.array([3.0, 4.0])}
SLOPES = [[3.0, -4.0], [0.0, 5.0]]


def momentum(rate: Any) -> optax.GradientTransformation:
    return optax.sgd(rate, momentum=0.5)


def steps(optimiser: Optimiser) -> np.ndarray:
    """Return the weight after two steps, at the start and halfway; nothing else has a gradient, or changes."""
    params, state = PARAMS, optimiser.init(PARAMS)
    for slope, done in zip(SLOPES, (0.0, 0.5), strict=True):
        gradient = {"weight": jnp.array(slope), "mean": jnp.zeros(2)}
        params, state = optimiser.step(params, gradient, state, clock_at(done))
    np.testing.assert_array_equal(params["mean"], PARAMS["mean"])
    return np.asarray(params["weight"])


@pytest.mark.parametrize(
    ("kind", "decay", "kept"),
    [
        ("sgd", 0.0, 0.0),
        (momentum, 0.0, 0.5),
        (lambda rate: optax.chain(optax.add_decayed_weights(0.1), optax.sgd(rate)), 0.1, 0.0),
    ],
)
def test_a_step_is_the_transformation_of_the_clipped_gradient_at_the_rate_of_the_schedule(kind, decay, kept):
    weight, trace = np.array([1.0, -2.0]), np.zeros(2)
    for slope, rate in zip(np.array(SLOPES), (0.1, 0.06), strict=True):
        trace = kept * trace + slope * 2.0 / 5.0 + decay * weight  # both gradients have the norm 5
        weight = weight - rate * trace
    found = steps(Optimiser(0.1, 0.02, max_grad_norm=2.0, kind=kind))
    np.testing.assert_allclose(found, weight, rtol=1e-5)


def test_adam_is_the_default_and_has_its_own_epsilon():
    weight, first, second = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    for count, slope in enumerate(np.array(SLOPES), 1):
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        weight = weight - 0.1 * (first / (1 - 0.9**count)) / (np.sqrt(second / (1 - 0.999**count)) + 0.5)
    np.testing.assert_allclose(steps(Optimiser(0.1, 0.1, eps=0.5)), weight, rtol=1e-5)
    assert rp.Training().optimiser().kind == rp.RolloutTraining().optimiser.kind == "adam"


SIZES: dict[str, Any] = {"batch_size": 2, "num_quantiles": 2, "num_target_quantiles": 2, "num_action_quantiles": 2}


def agent_of(name: str, kind: Any) -> rp.Agent:
    if name == "PPO":
        training = rp.RolloutTraining(length=4, epochs=1, minibatches=1, gradient_transformation=kind)
        return rp.PPO(network=rp.Network(hidden=(4,)), training=training)
    training = rp.Training(**SIZES, learning_starts=0, buffer_size=50, gradient_transformation=kind)
    return rp.IQN(network=rp.Network(head="table"), n_steps=1, training=training)


@pytest.mark.parametrize("name", ["IQN", pytest.param("PPO", marks=pytest.mark.long)])
def test_a_run_is_trained_and_saved_with_its_optimiser(name, tmp_path, unchecked):
    run = rp.train(agent_of(name, optax.sgd), "ThreeState", steps=20)  # the function of Optax is stored by its name
    assert "gradient_transformation='sgd'" in repr(run.agents[0])
    assert not [x for x in jax.tree.leaves(run.lanes.agent_state.opt_state) if eqx.is_inexact_array(x)]  # no moments
    run.save(tmp_path / "run")
    loaded = rp.load(tmp_path / "run")
    assert loaded.agents == run.agents
    start = jax.tree.leaves(agent_of(name, "sgd").init(run.spec, key=jax.random.key(0)).params)
    trained = [jax.tree.leaves(one.lanes.agent_state.params) for one in (run, loaded)]
    assert any(x.shape[1:] == y.shape and (x[0] != y).any() for x, y in zip(trained[0], start, strict=True))
    for one, other in zip(*trained, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_function_is_not_stored_but_given_again(tmp_path, unchecked, untrained):
    run = rp.train(agent_of("PPO", momentum), "ThreeState", steps=8)
    run.save(tmp_path / "run")
    with pytest.raises(
        rp.RiskpathError, match=r"holds a function momentum, which a file cannot hold: load with agent=…"
    ):
        rp.load(tmp_path / "run")
    assert rp.load(tmp_path / "run", agent=run.agents[0]).steps == run.steps


@pytest.mark.parametrize("wrong", ["adamm", 3, optax.sgd(0.1), len, "__name__"])
def test_what_is_no_optimiser_is_refused_in_one_line(wrong, unchecked):
    with pytest.raises(
        rp.RiskpathError, match="gradient_transformation must be the name of an optimiser in Optax"
    ) as error:
        rp.RolloutTraining(gradient_transformation=wrong)
    assert "\n" not in str(error.value)
    assert ("did you mean adam" in str(error.value)) == (wrong == "adamm")
