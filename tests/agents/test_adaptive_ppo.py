"""AdaptivePPO: what a step earns, first goals, what early episodes may not ruin, one training for all levels, and any
measure by its influence function."""

import dataclasses
import itertools
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.adaptive.adaptive_ppo import OFFSETS, follow_unit, without_extremes
from riskpath.agents.adaptive.goals import LEVELS, NEARBY, Goal, GoalObjective, serves
from riskpath.agents.adaptive.played_returns import PlayedReturns, with_played
from riskpath.agents.adaptive.utilities import ATOMS
from riskpath.agents.episodes import ENOUGH, PATH, WINDOW, Units, no_episodes
from riskpath.agents.rollout_agent import _squared
from riskpath.training.checkpoint import Checkpointer
from tests.agents.clocks import START, clock_at
from tests.agents.test_adaptive import YEARS
from tests.training.test_checkpoint import bits

UNITS = Units(jnp.float32(2.0), jnp.float32(0.0), jnp.float32(-10.0), jnp.float32(10.0), jnp.zeros(PATH))


@pytest.mark.parametrize("discount", [1.0, 0.8])
@pytest.mark.parametrize("risk", ["cvar:0.2", "0.4*mean+0.6*cvar:0.3", "mean", "wang:-0.75", "entropic:0.2"])
def test_an_episode_earns_the_utility_of_its_return(risk, discount):
    objective, rewards = rp.AdaptivePPO(risk).objective, [1.0, -4.0, 2.5, 0.3]
    plan, candidate = objective.plan(), jnp.int32(objective.candidates - 1)
    first = context = Goal(jnp.float32(1.7)) if serves(rp.parse_risk(risk)) else objective.first(plan, candidate)
    utility = lambda context, z: objective.utility(context, jnp.float32(z) / UNITS.unit, objective.plan(), UNITS)
    earned = 0.0
    for time, reward in enumerate(rewards):
        earned += discount**time * float(utility(context, reward) - utility(context, 0.0))
        context = objective.advance(context, jnp.float32(reward), discount)
    whole = sum(discount**time * reward for time, reward in enumerate(rewards))
    assert earned == pytest.approx(float(utility(first, whole) - utility(first, 0.0)), abs=1e-5)


@pytest.mark.parametrize("risk", ["wang:-0.75", "entropic:0.2", "evar:0.5"])
def test_an_episode_earns_a_finite_utility_where_all_returns_were_equal(risk):
    objective = rp.AdaptivePPO(risk).objective
    plan, equal = objective.plan(), dataclasses.replace(UNITS, low=jnp.float32(-3.0), high=jnp.float32(-3.0))
    earned = objective.utility(objective.first(plan, jnp.int32(0)), jnp.array([-3.0, 0.0, 3.0]), plan, equal)
    assert np.isfinite(np.asarray(earned)).all()
    assert np.all(np.asarray(earned[1:] - earned[:-1]) > 0)


def test_first_goals_are_near_the_best_ones_of_all_levels():
    objective = GoalObjective(rp.CVaR(0.2), OFFSETS)
    best = 10.0 * jnp.arange(1.0, len(LEVELS) + 1)
    plan = eqx.tree_at(lambda p: (p.first, p.levels), objective.plan(), (jnp.full(objective.candidates, -10.0), best))
    draws = jax.random.uniform(jax.random.key(0), (4_000, 2))
    goals = np.asarray(jax.vmap(lambda d: objective.near(plan, UNITS, d).goal)(draws))
    nearest = np.round(goals / 10.0)
    assert np.std(goals - 10.0 * nearest) == pytest.approx(NEARBY * 2.0, rel=0.1)
    shares = {number: (nearest == number).mean() for number in (-1, *range(1, len(LEVELS) + 1))}
    assert sum(shares.values()) == 1.0
    assert shares.pop(-1) == pytest.approx(2 / 8, abs=0.03)
    np.testing.assert_allclose(list(shares.values()), 1 / 8, atol=0.03)


def test_values_stay_within_what_the_returns_seen_allow():
    agent = rp.AdaptivePPO("cvar:0.2", network=rp.Network(hidden=(2,)))
    state = agent.init(rp.EnvSpec(2, (), num_states=3), key=jax.random.key(0))
    episodes = no_episodes(jnp.zeros((1,), jnp.int32), jnp.ones((1, 2), bool))
    seen = dataclasses.replace(episodes, unit=jnp.float32(2.0), extremes=jnp.array([-2.0, 6.0]))
    state = dataclasses.replace(state, episodes=seen)
    # With the goal 4, which is 2 units, the worst return of −1 unit loses 1 and the best one of 3 units gains 2.
    bounded = lambda value: float(agent.within_reach(state, Goal(jnp.float32(4.0)), jnp.float32(value)))
    assert [bounded(value) for value in (-5.0, 0.5, 5.0)] == pytest.approx([-1.0, 0.5, 2.0], abs=1e-3)


def test_extreme_advantages_do_not_silence_the_others():
    advantages = np.random.default_rng(0).normal(size=(10, 200)).astype(np.float32)
    ordinary = np.asarray(without_extremes(jnp.asarray(advantages)))
    np.testing.assert_array_equal(ordinary, advantages)
    advantages[3, :10] = -1e4
    clipped = np.asarray(without_extremes(jnp.asarray(advantages)))
    assert clipped.std() < 2.5
    np.testing.assert_array_equal(np.delete(clipped, np.s_[:10], 1), np.delete(advantages, np.s_[:10], 1))


def test_large_errors_of_a_value_count_linearly():
    errors = jnp.array([-5.0, -1.0, 0.5, 2.0, 7.0])
    found = [float(_squared(rp.RolloutTraining(value_huber=2.0), error)) for error in errors]
    np.testing.assert_allclose(found, [16.0, 1.0, 0.25, 4.0, 24.0])


@pytest.fixture(scope="module")
def run() -> rp.Run:
    training = rp.RolloutTraining(length=4, epochs=4, minibatches=4, learning_rate=3e-3, final_learning_rate=3e-5)
    settings: Any = {"network": rp.Network(hidden=(32,)), "training": training, "selection_episodes": 300}
    mdp = rp.FiniteMDP.from_outcomes(YEARS, start="now")
    return rp.train(rp.AdaptivePPO("cvar:0.2", **settings), mdp, steps=32_768, num_envs=64, seeds=2)


@pytest.mark.usefixtures("unchecked")
def test_one_training_reaches_the_optimum_of_two_levels(run):
    levels = (0.2, 0.75)
    mdp = rp.FiniteMDP.from_outcomes(YEARS, start="now")
    optima = [rp.solve(mdp, rp.CVaR(level)).value for level in levels]
    served = run.serve(*(rp.CVaR(level) for level in levels))
    np.testing.assert_allclose(served.values(), np.tile(np.array(optima)[:, None], 2))


def test_the_critic_keeps_its_predictions_when_the_unit_changes(run):
    state: Any = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, run.lanes.agent_state)
    old = state.episodes.unit
    wider = 5.0 * state.episodes.ring
    early = eqx.tree_at(lambda s: (s.episodes.steps, s.episodes.ring), state, (jnp.zeros(()), wider))
    moved: Any = follow_unit(early, START)
    assert float(moved.episodes.unit) > 2 * float(old)
    for one, other in zip(*(jax.tree.leaves(s.params.critic.out) for s in (early, moved)), strict=True):
        np.testing.assert_allclose(old * one, moved.episodes.unit * other, rtol=1e-5)
    late = eqx.tree_at(lambda s: s.episodes.ring, state, wider)
    settled: Any = follow_unit(late, clock_at(0.9))
    assert float(settled.episodes.unit) == float(old)


def test_the_latest_returns_of_each_candidate_are_kept():
    played, rng, expected = PlayedReturns.none(3), np.random.default_rng(0), [[], [], []]
    assert not played.known
    for count in (40, 40, 400):
        candidate, over = rng.integers(0, 3, (count, 2)), rng.random((count, 2)) < 0.7
        returns = rng.normal(size=(count, 2)).astype(np.float32)
        played = played.add(jnp.asarray(candidate, jnp.int32), jnp.asarray(returns), jnp.asarray(over))
        for number in range(3):
            expected[number] += returns[over & (candidate == number)].tolist()
            latest = np.sort(expected[number][-WINDOW:])
            levels = (np.arange(ATOMS, dtype=np.float32) + 0.5) / ATOMS
            found = played.quantiles(jnp.int32(number), jnp.asarray(levels))
            places = levels * len(latest) - 0.5
            np.testing.assert_allclose(found, np.interp(places, np.arange(len(latest)), latest), rtol=1e-5, atol=1e-6)
        assert bool(played.known) == (min(map(len, expected)) >= ENOUGH)


@pytest.mark.usefixtures("unchecked")
def test_episodes_that_are_cut_are_not_kept():
    agent = rp.AdaptivePPO("wang:-0.75", network=rp.Network(hidden=(2,)))
    state = agent.init(rp.EnvSpec(2, (), num_states=3), key=jax.random.key(0))
    episodes = no_episodes(jnp.zeros((1,), jnp.int32), jnp.ones((1, 2), bool), limit=5)
    state = dataclasses.replace(state, episodes=episodes)
    times, none = jnp.array([[1], [2], [4], [0]], jnp.int32), jnp.zeros((4, 1))
    context = SimpleNamespace(candidate=jnp.array([[2], [2], [3], [2]], jnp.int32))
    ends = {"terminated": jnp.array([[False], [True], [False], [False]]), "truncated": times != 2}
    steps: Any = SimpleNamespace(extras=((), (), context), return_so_far=none, time=times, **ends)
    # The first and the last step are cut, the second one ends an episode, and the third one is the limit.
    np.testing.assert_array_equal(with_played(state, steps).params.played.count, [0, 0, 1, 1, 0, 0])


@pytest.fixture(scope="module", params=["wang:-0.75", pytest.param("entropic:0.05", marks=pytest.mark.long)])
def other(request) -> rp.Run:
    training = rp.RolloutTraining(length=4, epochs=4, minibatches=4, learning_rate=3e-3, final_learning_rate=3e-5)
    settings: Any = {"network": rp.Network(hidden=(32,)), "training": training, "selection_episodes": 300}
    mdp = rp.FiniteMDP.from_outcomes(YEARS, start="now")
    return rp.train(rp.AdaptivePPO(request.param, **settings), mdp, steps=32_768, num_envs=64, seeds=2)


@pytest.mark.usefixtures("unchecked")
def test_any_measure_is_learned_by_its_influence_function(other):
    risk, mdp = other.agents[0].risk, rp.FiniteMDP.from_outcomes(YEARS, start="now")
    optimum, of_mean = rp.solve(mdp, risk).value, float(risk.value(rp.solve(mdp, "mean").law))
    assert of_mean < optimum - 1.0
    np.testing.assert_allclose(other.values(), optimum)
    unit = float(other.lanes.agent_state.episodes.unit[0])
    assert np.abs(other.estimates() - other.values()).max() < 0.2 * unit


@pytest.mark.usefixtures("unchecked")
def test_a_training_for_any_measure_goes_on_where_it_stopped(other, tmp_path):
    agent, mdp = other.agents[0], rp.FiniteMDP.from_outcomes(YEARS, start="now")
    keeper = Checkpointer(tmp_path / "run", every_seconds=None, every_steps=1_280)
    save: Any = {"progress": lambda run, _: keeper.save_if_due(run)}
    every: Any = {"evaluate_every": 256, "evaluator": lambda run: {}}
    whole = rp.train(agent, mdp, steps=2_048, num_envs=64, seeds=2, **save, **every)
    part = rp.load(tmp_path / "run")
    assert part.steps == 1_280
    assert bits(rp.train(part, steps=768).lanes) == bits(whole.lanes)
    assert bool(jnp.all(whole.lanes.agent_state.params.played.count >= ENOUGH))


@pytest.mark.usefixtures("unchecked")
def test_a_policy_for_any_measure_is_exported(other, tmp_path):
    policy = other.policy(seed=0)
    exported = rp.load_policy(policy.export(tmp_path / "policy.zip", platforms=("cpu",)))
    for rewards in itertools.product((20.0, -20.0, 5.0), repeat=2):
        memory = own_memory = None
        for observation, reward in zip(("now", "slump"), rewards, strict=True):
            own, own_memory = policy(observation, own_memory, reward)
            action, memory = exported(observation, memory, reward)
            assert action == own


@pytest.mark.parametrize("risk", ["entropic:0.01", pytest.param("wang:-0.75", marks=pytest.mark.long)])
def test_continuous_actions_are_trained_for_any_measure(risk, unchecked):
    training = rp.RolloutTraining(length=5, epochs=1, minibatches=2)
    agent = rp.AdaptivePPO(risk, network=rp.Network(hidden=(4,)), training=training, selection_episodes=0)
    run = rp.train(agent, rp.RiskyMountainCar(0.5, max_episode_steps=7), steps=1_400, num_envs=20, seeds=2)
    params: Any = run.lanes.agent_state.params
    # Of 70 steps an environment plays 10 episodes, but 9 where the first one is cut: in all but three of them.
    assert params.played.count.sum(axis=1).tolist() == [183, 183]
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(eqx.filter(params, eqx.is_inexact_array)))


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: rp.AdaptivePPO(network=rp.Network(window=3)), "AdaptivePPO has no history: leave network.window out"),
        (lambda: rp.AdaptivePPO(network=rp.Network(head="table")), "AdaptivePPO has its own head and no 'table'"),
        (lambda: rp.RolloutTraining(value_huber=0.0), "value_huber must be more than 0, got 0"),
        (lambda: rp.RolloutTraining(final_entropy_weight=-1.0), "final_entropy_weight must"),
    ],
)
def test_bad_input_is_refused(make, line):
    with pytest.raises(rp.RiskpathError, match=line):
        make()
