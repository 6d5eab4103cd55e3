"""PPO: its loss and its advantages beside NumPy, masks, the unit of its critic, and that it learns in both loops."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.agent import EXPLORE, GREEDY
from riskpath.agents.ppo import Networks, follow_size
from riskpath.agents.rollout_agent import (
    clipped_objective,
    decay_of,
    final_returns,
    generalised_advantages,
    unfinished,
)
from riskpath.nn.policy_networks import Categorical, Gaussian
from riskpath.types import EnvSpec, Transition

DISCRETE = EnvSpec(3, (2,), max_episode_steps=9)
HEADS = EnvSpec(6, (2,), max_episode_steps=9, action_heads=(2, 3))
CONTINUOUS = EnvSpec(0, (2,), max_episode_steps=9, action_size=2)
SMALL = rp.Network(hidden=(4,))


def taken(agent: rp.PPO, spec: EnvSpec, count: int):
    """Return a state and transitions of `count` drawn actions."""
    state = agent.init(spec, key=jax.random.key(0))
    mask = spec.every_action() & jnp.asarray(np.arange(spec.num_actions).reshape(spec.mask_shape) != 1)

    def one(key):
        observe, act = jax.random.split(key)
        first = spec.first_time_step(jax.random.normal(observe, (2,)), mask)
        out = agent.act(state, (), first, key=act, mode=EXPLORE)
        zero, no = jnp.zeros(()), jnp.zeros((), bool)
        return Transition(
            first.observation, out.action, zero, first.observation, mask, no, no, first.time, zero, out.extras
        )

    return state, jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), count))


@pytest.mark.parametrize("spec", [DISCRETE, HEADS, CONTINUOUS], ids=["discrete", "heads", "continuous"])
@pytest.mark.parametrize("limit", [pytest.param(None, marks=pytest.mark.long), 0.05])
def test_the_loss_is_its_equation(spec, limit):
    agent = rp.PPO(
        network=SMALL, training=rp.RolloutTraining(clip_range_value=limit, entropy_weight=0.1, clip_range=0.1)
    )
    state, steps = taken(agent, spec, 8)
    rng = np.random.default_rng(0)
    steps = eqx.tree_at(
        lambda s: s.extras.log_prob, steps, steps.extras.log_prob + rng.normal(size=8).astype(np.float32) / 5
    )
    advantages, returns = rng.normal(size=(2, 8)).astype(np.float32)
    unit = jnp.float32(2.0)
    objective = clipped_objective(agent.training, Networks.of, unit, 0.1)
    loss, _ = eqx.filter_jit(objective)(state.params, steps, jnp.asarray(advantages), jnp.asarray(returns))
    x = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    expected = []
    for i in range(8):
        step = jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i], np.float64), steps)
        out = np.asarray(state.params.policy.network(jnp.asarray(steps.observation[i])), np.float64)
        if spec.action_size:
            std = np.exp(-0.5)
            z = (step.extras.drawn - out) / std
            log_prob = (-0.5 * z**2 - np.log(std) - 0.5 * np.log(2 * np.pi)).sum()
            entropy = spec.action_size * (np.log(std) + 0.5 * np.log(2 * np.pi * np.e))
        else:
            logits = np.where(step.extras.mask > 0, out.reshape(spec.mask_shape), -1e9)
            p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
            drawn = np.atleast_1d(step.extras.drawn).astype(int)
            log_prob = sum(np.log(row[a]) for row, a in zip(np.atleast_2d(p), drawn, strict=True))
            entropy = -sum(q * np.log(q) for q in p.ravel() if q > 0)
        ratio = np.exp(log_prob - step.extras.log_prob)
        value, old = float(state.params.critic(jnp.asarray(steps.observation[i]))[0]), step.extras.value / 2.0
        error = (value - returns[i]) ** 2
        if limit:
            error = max(error, (old + np.clip(value - old, -limit, limit) - returns[i]) ** 2)
        surrogate = min(ratio * x[i], np.clip(ratio, 0.9, 1.1) * x[i])
        expected.append(-surrogate + 0.5 * 0.5 * error - 0.1 * entropy)
    assert float(loss) == pytest.approx(np.mean(expected), rel=2e-4)


def test_advantages_end_with_the_episode():
    delta, decay = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    found = generalised_advantages(jnp.asarray(delta), jnp.asarray(decay))
    wanted, later = np.zeros((5, 3)), np.zeros(3)
    for time in reversed(range(5)):
        later = wanted[time] = delta[time] + decay[time] * later
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_an_episode_that_was_lost_ends_where_another_one_begins(unchecked):
    time = jnp.array([[3, 0], [0, 1], [1, 2], [0, 3], [1, 4]], jnp.int32)  # lost after row 0, ended after row 2
    no = jnp.zeros((5, 2), bool)
    ended = no.at[2, 0].set(True).at[4, 0].set(True)
    rewards = jnp.asarray(np.arange(10).reshape(5, 2), jnp.float32)
    steps = Transition(rewards, rewards, rewards, rewards, no, ended, no, time, rewards, ())
    np.testing.assert_array_equal(unfinished(steps), no.at[0, 0].set(True))
    assert unfinished(jax.tree.map(lambda x: x[:1], steps)).shape == (1, no.shape[1])  # rollouts of one step
    agent = rp.PPO(discount=0.5, training=rp.RolloutTraining(gae_lambda=0.5))
    np.testing.assert_array_equal(decay_of(agent, steps)[:, 0], [0.0, 0.25, 0.0, 0.25, 0.0])
    returns, known = final_returns(steps)
    np.testing.assert_array_equal(known[:, 0], [False, True, True, True, True])
    np.testing.assert_array_equal(returns[1:, 0], [4.0, 4.0, 8.0, 8.0])
    assert not known[:, 1].any()


def test_unavailable_actions_are_never_drawn():
    state, steps = taken(rp.PPO(network=SMALL), DISCRETE, 200)
    assert set(np.asarray(steps.action)) == {0, 2}
    policy = state.params.policy(jnp.zeros(2), jnp.array([False, True, False]))
    assert int(policy.best()) == 1
    assert float(policy.entropy()) == pytest.approx(0.0, abs=1e-5)


def test_continuous_actions_are_clipped_where_they_are_taken_only():
    agent = rp.PPO(network=SMALL, training=rp.RolloutTraining(log_std=2.0))
    state, steps = taken(agent, CONTINUOUS, 50)
    assert np.abs(steps.action).max() == 1.0
    assert np.abs(steps.extras.drawn).max() > 2.0
    shown = CONTINUOUS.first_time_step(jnp.ones(2), jnp.ones((0,), bool))
    greedy = agent.act(state, (), shown, key=jax.random.key(3), mode=GREEDY)
    np.testing.assert_array_equal(greedy.action, state.params.policy.network(jnp.ones(2)))


def test_distributions_are_normalised():
    x = np.linspace(-30, 30, 20_001, dtype=np.float32)
    gaussian = Gaussian(jnp.array([0.3]), jnp.array([0.7]))
    density = np.exp(jax.vmap(lambda x: gaussian.log_prob(x[None]))(jnp.asarray(x)))
    assert float(np.trapezoid(density, x)) == pytest.approx(1.0, abs=1e-3)
    logits = jnp.log(jnp.array([[0.2, 0.8], [0.5, 0.5]]))
    chosen = Categorical(logits).log_prob(jnp.array([1, 0], jnp.int32))
    assert float(chosen) == pytest.approx(np.log(0.8 * 0.5), rel=1e-5)


WRONG: Any = rp.Training()
TRAINING = rp.RolloutTraining(length=16, epochs=4, minibatches=2, learning_rate=0.02)


@pytest.fixture(scope="module")
def run() -> rp.Run:
    return rp.train(
        rp.PPO(discount=1.0, network=rp.Network(hidden=(16,)), training=TRAINING),
        "RiskyGrid",
        steps=4_096,
        num_envs=8,
        seeds=2,
    )


def test_it_learns_the_mean_in_the_compiled_loop(run):
    best = rp.solve(rp.make("RiskyGrid").mdp(), rp.Mean(), "markov").value
    assert run.values().min() > best - 1e-6
    assert np.abs(run.estimates() - best).max() < 0.1 * abs(best)


def test_a_run_is_continued_bit_for_bit(run, tmp_path):
    agent = run.agents[0]
    half = rp.train(
        rp.PPO(discount=1.0, network=agent.network, training=agent.training),
        "RiskyGrid",
        steps=2_048,
        num_envs=8,
        seeds=2,
    )
    half.save(tmp_path / "run")
    whole, again = rp.train(half, steps=2_048), rp.train(rp.load(tmp_path / "run"), steps=2_048)
    for one, other in zip(*(jax.tree.leaves(r.lanes.agent_state.params) for r in (whole, again)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_needs_quantiles_says_so_in_one_line(run, tmp_path):
    policy = run.policy()
    with pytest.raises(rp.RiskpathError, match="PPO predicts no return distribution: it has no quantiles"):
        policy.quantiles("start")
    with pytest.raises(rp.RiskpathError, match="PPO predicts no return distribution: it has no estimate"):
        policy.estimate("start")
    with pytest.raises(rp.RiskpathError, match=r"trained for mean and cannot serve cvar:0.1"):
        run.policy(risk="cvar:0.1")
    loaded = rp.load_policy(policy.export(tmp_path / "policy.zip"))
    start = next(iter(rp.make("RiskyGrid").mdp().start))
    assert loaded(start)[0] == policy(start)[0]


def test_the_critic_keeps_its_predictions_when_the_unit_changes(run):
    agent, state = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, (run.lanes.agent, run.lanes.agent_state))
    assert state.episodes is not None
    state = eqx.tree_at(lambda s: s.episodes.size, state, 3.0 * state.episodes.unit)
    shown = jax.tree.map(lambda x: x[0, 0], run.lanes.time_step)
    before, after = (float(agent.value(s, (), shown)) for s in (state, follow_size(state)))
    assert before == pytest.approx(after, rel=1e-5)
    moved = follow_size(state).episodes
    assert moved is not None
    assert float(moved.unit) == pytest.approx(3 * float(state.episodes.unit))


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: rp.PPO("cvar:0.1"), "PPO maximises the mean only, got cvar:0.1; use Adaptive"),
        (lambda: rp.PPO(network=rp.Network(head="table")), "PPO has no quantile head"),
        (lambda: rp.PPO(training=WRONG), "training of PPO must be a RolloutTraining, got a Training"),
        (lambda: rp.RolloutTraining(length=0), "length must be at least 1"),
        (lambda: rp.RolloutTraining(gae_lambda=1.5), "gae_lambda must be from 0 to 1"),
    ],
)
def test_bad_input_is_refused(make, line, unchecked):
    with pytest.raises(rp.RiskpathError, match=line):
        make()


def test_it_learns_on_the_host():
    run = rp.train(rp.PPO(network=rp.Network(hidden=(32,)), training=TRAINING), "CartPole-v1", steps=6_000, num_envs=8)
    assert np.asarray(run.lanes.recent.ring)[0, :, 0].mean() > 40  # random play: 22
    assert run.finished
