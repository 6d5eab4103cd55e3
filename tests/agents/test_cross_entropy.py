"""Cross-entropy sampling: densities and weights, the fit to the worst episodes, and the loop that starts episodes."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy import stats

import riskpath as rp
from riskpath.agents import cross_entropy, cvar_policy_gradient
from riskpath.agents.cross_entropy import Drawn
from riskpath.envs.environment import Conditioned
from riskpath.types import EnvSpec
from tests.agents.clocks import START
from tests.agents.test_rivals import ENDED, KEY, SPEC, rollout, taken

SHIFTED = {
    "PatrolledMaze": (rp.PatrolledMaze(), [0.6, 3.0]),
    "constant cost": (rp.PatrolledMaze(random_cost=False), [0.6, 3.0]),
    "Driving": (rp.Driving(), [0.3, 0.25, 0.25, 0.1, 0.1]),
    "Servers": (rp.Servers(), [0.7]),
}
WEIGHT = np.array([[2, 1, 0.5], [2, 0.2, 0.5], [9, 0.2, 0.5], [9, 0.2, 0.5], [9, 9, 9]], np.float32)
"""Weights of the episodes of `rollout`, whose returns are 5, −2, 3 and 10; unknown ones are 9."""
pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.mark.parametrize(
    "name",
    [
        "constant cost",
        "Servers",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("PatrolledMaze", "Driving")),
    ],
)
def test_weights_are_bounded_and_unbiased(name):
    env, means = SHIFTED[name]
    first = eqx.tree_at(lambda d: d.means, cross_entropy.nothing_drawn(env.spec), jnp.array(means))
    keys = jax.random.split(KEY, 40_000)
    drawn = jax.device_get(jax.jit(jax.vmap(lambda key: cross_entropy.draw(env, first, 0.75, key=key)[2]))(keys))
    assert 0 <= drawn.weight.min() < drawn.weight.max() <= 4.0 + 1e-5
    error = 4 * float(drawn.weight.std()) / 200
    assert drawn.weight.mean() == pytest.approx(1.0, abs=error)
    mixed = 0.25 * np.asarray(env.usual) + 0.75 * np.array(means)
    if name == "constant cost":
        mixed[1] = 2.0
    np.testing.assert_allclose(drawn.statistics.mean(axis=0), mixed, atol=0.06)
    np.testing.assert_allclose((drawn.weight[:, None] * drawn.statistics).mean(axis=0), env.usual, atol=0.06)
    fresh = cross_entropy.nothing_drawn(env.spec)
    assert float(jax.jit(lambda key: cross_entropy.draw(env, fresh, 0.75, key=key)[2])(KEY).weight) == 1.0


@pytest.mark.parametrize(
    ("env", "statistics", "means", "wanted"),
    [
        (rp.PatrolledMaze(), [1, 3.0], [0.5, 4.0], np.log(0.5) + stats.expon(scale=4.0).logpdf(3.0)),
        (rp.PatrolledMaze(), [0, 0.1], [0.3, 2.0], np.log(0.7) + stats.expon(scale=2.0).logpdf(0.1)),
        (rp.PatrolledMaze(), [0, 0.1], [1 + 2e-7, 2.0], -np.inf),  # a fitted mean, with rounding
        (rp.Servers(), [2], [1.5], stats.binom(3600, 1.5 / 3600).logpmf(2) - np.log(3600 * 3599 / 2)),
        (rp.Servers(), [0], [0.0], 0.0),
        (rp.Driving(), [0.5, 0.2, 0.3, 0, 0], [0.4, 0.1, 0.4, 0.1, 0], 20 * np.log(0.4**0.8 * 0.1**0.2)),
        (rp.Driving(), [0.5, 0.2, 0.2, 0.1, 0], [0.4, 0.1, 0.5, 0.0, 0], -np.inf),
    ],
)
def test_densities_are_those_of_the_conditions(env, statistics, means, wanted):
    found = env.log_density(jnp.array(statistics, jnp.float32), jnp.array(means, jnp.float32))
    assert float(found) == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def conditions() -> Drawn:
    """Return the conditions of the episodes of `rollout`, with one statistic."""
    statistics = np.array([[1, 2, 6], [1, 4, 6], [0, 4, 6], [0, 4, 6], [0, 0, 0]], np.float32)[..., None]
    return Drawn(jnp.zeros((5, 3, 1)), jnp.asarray(statistics), jnp.asarray(WEIGHT))


@pytest.mark.parametrize(
    ("level", "wanted"),
    [
        (0.05, 2.0),  # only the worst episode: the one that returns −2
        (0.3, (2 * 1 + 4 * 0.2) / 1.2),  # of a total weight of 3.7, 1 is at −2 and 0.2 at 3
        (0.5, (2 * 1 + 4 * 0.2 + 1 * 2) / 3.2),
    ],
)
def test_the_distribution_is_fitted_to_the_worst_episodes(level, wanted):
    batch = rollout(None, None, ())
    returns = jnp.asarray(batch.steps.return_so_far)
    means = cross_entropy.refitted(jnp.array([7.0]), conditions(), returns, jnp.asarray(ENDED), level)
    assert float(means[0]) == pytest.approx(wanted)
    none = cross_entropy.refitted(jnp.array([7.0]), conditions(), returns, jnp.zeros((5, 3), bool), level)
    assert float(none[0]) == 7.0


def test_the_gradient_counts_episodes_with_their_weights(monkeypatch):
    given: list[Any] = []

    def keep(agent, state, loss, samples, clock, *, key):
        given[:] = samples
        return state, {}

    monkeypatch.setattr(cvar_policy_gradient, "several_epochs", keep)
    agent = rp.CVaRPolicyGradient("cvar:0.3", cross_entropy=0.8, network=rp.Network(hidden=(4,)))
    state = agent.init(replace(SPEC, conditions=1), key=KEY)
    state, _ = agent.update(state, rollout(agent, state, (taken(), conditions())), START, key=KEY)
    # The quantile is 3: below it lies a weight of 1, of all 3.7 no more than 1.11.
    whole = np.array([[5, -2, 10], [5, 3, 10], [0, 3, 10], [0, 3, 10], [0, 0, 0]])
    known = np.array([[1, 1, 1], [1, 1, 1], [0, 1, 1], [0, 1, 1], [0, 0, 0]])
    wanted = known * WEIGHT * np.minimum(whole - 3, 0) * 15 / (0.3 * 3.7)
    np.testing.assert_allclose(np.asarray(given[1]).reshape(5, 3), wanted, rtol=1e-5)
    assert float(state.params.cvar) == pytest.approx(3 + 1 * (-5) / (0.3 * 3.7), rel=1e-5)
    assert float(state.initial_memory.means[0]) == pytest.approx((2 * 1 + 4 * 0.2) / 1.2)


class Storm(Conditioned):
    """One step, which returns a uniform number, and −10 more if there is a storm: once in ten times."""

    p: float = 0.1

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(2, (1,), max_episode_steps=1, conditions=1)

    @property
    def usual(self) -> Array:
        return jnp.asarray(self.p)[None]

    def draw(self, means: Any, *, key: Any) -> Any:
        storm = (jax.random.uniform(key, (1,)) < means).astype(jnp.float32)
        return storm, storm

    def log_density(self, statistics: Any, means: Any) -> Array:
        return jnp.log(jnp.where(statistics[0] > 0, means[0], 1.0 - means[0]))

    def start(self, condition: Any, *, key: Any) -> Any:
        return jnp.zeros((1,)), condition

    def step(self, key: Any, state: Any, action: Any) -> Any:
        yes = jnp.ones((), bool)
        return jnp.zeros((1,)), state, jax.random.uniform(key) - 10.0 * state[0], yes, ~yes

    def action_mask(self, state: Any) -> Array:
        return jnp.ones((2,), bool)


@pytest.mark.long  # trains; its equations are asked for above
def test_training_draws_from_the_tail_and_estimates_the_usual_cvar():
    training = rp.RolloutTraining(length=64, epochs=1, minibatches=1)
    agent = rp.CVaRPolicyGradient("cvar:0.1", cross_entropy=0.8, network=rp.Network(hidden=(4,)), training=training)
    run = rp.train(agent, Storm(), steps=16 * 64 * 12, num_envs=16)
    state = run.lanes.agent_state
    assert float(state.initial_memory.means[0, 0]) > 0.8
    assert float(state.params.cvar[0]) == pytest.approx(-9.5, abs=0.3)
    drawn = jax.device_get(run.lanes.memory)
    usual, shifted = (np.where(drawn.statistics == 1, p, 1 - p) for p in (0.1, drawn.means))
    np.testing.assert_allclose(drawn.weight, (usual / (0.2 * usual + 0.8 * shifted))[..., 0], rtol=1e-4)
    assert run.evaluate(2_000).returns.min(axis=-1) < -9  # evaluated under usual conditions


def test_environments_without_conditions_are_refused():
    agent = rp.CVaRPolicyGradient("cvar:0.1", cross_entropy=0.8)
    for env in ("GuardedMaze", "riskpath/PatrolledMaze-v0"):
        with pytest.raises(rp.RiskpathError, match="cross_entropy needs an environment that exposes the conditions"):
            rp.train(agent, env, steps=10)
    with pytest.raises(rp.RiskpathError, match="cross_entropy must be from 0 to 1, got 2"):
        rp.CVaRPolicyGradient("cvar:0.1", cross_entropy=2.0)
