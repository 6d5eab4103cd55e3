"""QR-DQN and C51: losses beside NumPy, the support of C51, and that both learn the best policy for the mean."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.c51 import project
from riskpath.agents.episodes import no_episodes
from riskpath.nn.rescaling import rescale_critics
from riskpath.types import EnvSpec, Transition
from tests.agents.clocks import START

SPEC = EnvSpec(3, (2,), max_episode_steps=9)
SMALL = {
    "network": rp.Network(hidden=(4,), normalize_observations=False),
    "training": rp.Training(batch_size=2, num_quantiles=5, kappa=0.5, reward_scale=1.0),
}
MASK = jnp.array([True, False, True])


def batch(terminated: bool) -> Transition:
    end, no, time = jnp.array(terminated), jnp.array(False), jnp.int32(1)
    shown = jnp.array([0.3, -1.0]), jnp.int32(2), jnp.float32(0.7), jnp.array([0.5, 0.2])
    one = Transition(*shown, MASK, end, no, time, jnp.float32(1.0), ())
    return jax.tree.map(lambda x: jnp.asarray(np.stack([x] * 2)), one)


def states(agent) -> rp.AgentState:
    """Return a state whose target network is another one."""
    state, other = (agent.init(SPEC, key=jax.random.key(seed)) for seed in (0, 1))
    return eqx.tree_at(lambda s: s.target_params, state, other.params)


def outputs(critic, observation) -> np.ndarray:
    return np.asarray(critic(jnp.asarray(observation, jnp.float32)), np.float64)


def cvar(atoms: np.ndarray, probs: np.ndarray, level: float) -> float:
    order = np.argsort(atoms)
    cdf = np.minimum(np.cumsum(probs[order]), level)
    return float(np.diff(cdf, prepend=0.0) @ atoms[order] / level)


@pytest.mark.parametrize("terminated", [False, True])
def test_the_loss_of_qrdqn_is_its_equation(terminated):
    agent = rp.QRDQN("cvar:0.5", discount=0.9, **SMALL)
    state = states(agent)
    found = float(eqx.filter_jit(agent.update)(state, batch(terminated), START, key=jax.random.key(2))[1]["loss"])
    levels, probs = (np.arange(5) + 0.5) / 5, np.full(5, 0.2)
    ahead = outputs(state.params, [0.5, 0.2])
    best = max((0, 2), key=lambda a: cvar(ahead[:, a], probs, 0.5))
    future = outputs(state.target_params, [0.5, 0.2])[:, best]
    target, predicted = 0.7 + 0.9 * future * (not terminated), outputs(state.params, [0.3, -1.0])[:, 2]
    error = target[None, :] - predicted[:, None]
    huber = np.where(np.abs(error) <= 0.5, 0.5 * error**2, 0.5 * (np.abs(error) - 0.25))
    expected = (np.abs(levels[:, None] - (error < 0)) * huber / 0.5).mean(axis=1).sum()
    assert found == pytest.approx(expected, rel=1e-4)


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(axis=0)


@pytest.mark.parametrize("terminated", [False, True])
def test_the_loss_of_c51_is_its_equation(terminated):
    agent = rp.C51("cvar:0.5", discount=0.9, **SMALL)
    episodes = no_episodes(jnp.zeros((1, 2)), MASK[None])
    episodes = eqx.tree_at(
        lambda e: (e.count, e.low, e.high), episodes, (jnp.float32(3), jnp.float32(-1), jnp.float32(1))
    )
    state = eqx.tree_at(lambda s: s.episodes, states(agent), episodes, is_leaf=lambda x: x is None)
    found = float(eqx.filter_jit(agent.update)(state, batch(terminated), START, key=jax.random.key(2))[1]["loss"])
    z = np.linspace(-1.1, 1.1, 5)  # 5 % wider than the returns
    np.testing.assert_allclose(agent.atoms(state), z, rtol=1e-6)
    ahead = softmax(outputs(state.params, [0.5, 0.2]))
    best = max((0, 2), key=lambda a: cvar(z, ahead[:, a], 0.5))
    future = softmax(outputs(state.target_params, [0.5, 0.2])[:, best])
    target = np.zeros(5)
    for value, prob in zip(0.7 + 0.9 * z * (not terminated), future, strict=True):
        place = (np.clip(value, -1.1, 1.1) + 1.1) / 0.55
        low = min(int(np.floor(place)), 3)
        target[low] += prob * (1 - (place - low))
        target[low + 1] += prob * (place - low)
    predicted = softmax(outputs(state.params, [0.3, -1.0])[:, 2])
    assert found == pytest.approx(-(target * np.log(predicted)).sum(), rel=1e-4)


def test_a_projection_keeps_mass_and_mean_inside_of_the_support():
    z = jnp.linspace(-2.0, 2.0, 9)
    probs = jax.nn.softmax(jnp.arange(9.0) / 3)
    moved = project(0.3 + 0.5 * z, probs, z)
    assert float(moved.sum()) == pytest.approx(1.0, abs=1e-6)
    assert float(moved @ z) == pytest.approx(float(probs @ (0.3 + 0.5 * z)), abs=1e-5)
    np.testing.assert_allclose(project(z + 100.0, probs, z), np.eye(9)[8], atol=1e-6)


def test_the_support_holds_a_late_reward_that_the_discount_makes_small():
    episodes = jax.jit(no_episodes)(jnp.zeros((1, 2)), MASK[None])
    add = jax.jit(lambda episodes, *step: episodes.add(*step, jnp.zeros((1, 2)), MASK[None], 0.5))
    for time in range(4):
        last = time == 3
        reward = jnp.array([8.0 if last else 0.0])
        so_far = jnp.array([1.0 if last else 0.0])  # 8 · 0.5³
        episodes = add(episodes, reward, so_far, jnp.array([time], jnp.int32), jnp.array([last]))
    assert float(episodes.high) == 1.0
    assert [float(x) for x in episodes.reach] == [0.0, 8.0]  # just before the end the return to go is 8


def test_only_outputs_that_are_returns_follow_the_unit():
    for agent, factor in ((rp.QRDQN(**SMALL), 3.0), (rp.C51(**SMALL), 1.0)):
        critic = agent.init(SPEC, key=jax.random.key(0)).params
        moved = rescale_critics(critic, jnp.float32(3.0))
        np.testing.assert_allclose(outputs(moved, [0.1, 0.2]), factor * outputs(critic, [0.1, 0.2]), rtol=1e-5)


@pytest.mark.long  # their losses are their equations, above
@pytest.mark.parametrize("make", [rp.QRDQN, rp.C51])
def test_they_learn_the_best_policy_for_the_mean(make, unchecked):
    sizes = {"learning_starts": 200, "batch_size": 16, "target_update_interval": 20, "learning_rate": 3e-3}
    parts = {"training": rp.Training(**sizes), "exploration": rp.EpsilonGreedy(final_eps=0.2)}
    agent = make(discount=1.0, network=rp.Network(hidden=(16,)), **parts)
    run = rp.train(agent, "ThreeState", steps=1_600, seeds=2)
    best = rp.solve(rp.make("ThreeState").mdp(), rp.Mean(), "markov").value
    assert run.values().min() == pytest.approx(best)
    assert np.abs(run.estimates() - best).max() < 0.2 * abs(best)


@pytest.mark.parametrize("make", [rp.QRDQN, rp.C51])
def test_a_table_is_refused(make):
    with pytest.raises(rp.RiskpathError, match="a critic with fixed atoms has no 'table' head"):
        make(network=rp.Network(head="table")).init(SPEC, key=jax.random.key(0))
