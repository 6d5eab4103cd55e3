"""Logged data: bad input in one line, a Minari round trip, data from play, and training without an environment."""

from contextlib import nullcontext
from typing import Any

import jax
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.episodes import no_episodes
from riskpath.training.logged import LoggedEnvironment
from tests.conftest import without_training
from tests.training.fakes import Counting
from tests.training.sizes import TINY_ADAPTIVE

TABLE: dict[str, Any] = {
    "network": rp.Network(head="table"),
    "training": rp.Training(learning_rate=0.03, batch_size=16),
}


@pytest.fixture(scope="module")
def random_play() -> rp.Dataset:
    return rp.record("random", "RiskyGrid", 150, seed=1)


def same(one: rp.Dataset, other: rp.Dataset) -> bool:
    """Tell whether two data sets have the same bits."""
    assert len(one.episodes) == len(other.episodes)
    for a, b in zip(one.episodes, other.episodes, strict=True):
        for name in ("observations", "actions", "rewards", "action_masks"):
            x, y = getattr(a, name), getattr(b, name)
            if (x is None) != (y is None) or (x is not None and (x.dtype, x.tobytes()) != (y.dtype, y.tobytes())):
                return False
        if a.terminated != b.terminated:
            return False
    return True


def test_a_minari_round_trip_loses_no_bit(random_play, monkeypatch, tmp_path):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    random_play.to_minari("grid/random-v0")
    assert same(random_play, rp.Dataset.from_minari("grid/random-v0"))
    assert same(random_play, rp.Dataset.from_minari(tmp_path / "grid" / "random-v0"))
    rng = np.random.default_rng(0)
    lengths, floats = (3, 5), lambda *shape: rng.normal(size=shape).astype(np.float32)
    continuous = rp.Dataset.from_episodes(
        [floats(n + 1, 2) for n in lengths],
        [np.tanh(floats(n, 3)) for n in lengths],
        [rng.normal(size=n) for n in lengths],  # double precision stays
        [True, False],
    )
    continuous.to_minari("reach/random-v0")
    again = rp.Dataset.from_minari("reach/random-v0")
    assert same(continuous, again)
    assert (again.spec.action_size, again.spec.observation_shape) == (3, (2,))


def test_episodes_of_gymnasium_keep_its_own_actions(monkeypatch, tmp_path):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    data = rp.record("random", "Pendulum-v1", 2, seed=3)
    actions = np.concatenate([episode.actions for episode in data.episodes])
    assert 1.5 < np.abs(actions).max() <= 2.0
    assert not any(episode.terminated for episode in data.episodes)
    data.to_minari("pendulum/random-v0")
    again = rp.Dataset.from_minari("pendulum/random-v0")
    assert same(data, again)
    assert same(data, rp.record("random", "Pendulum-v1", 2, seed=3))


@pytest.fixture(scope="module")
def run(random_play) -> rp.Run:
    return rp.train(rp.IQN(discount=1.0, **TABLE), data=random_play, steps=2_000, seeds=2)


def test_random_play_teaches_the_best_policy_without_an_environment(run):
    mdp = rp.make("RiskyGrid").mdp()
    best = rp.solve(mdp, rp.Mean(), "markov").value
    values = run.evaluate(4_000, env="RiskyGrid").returns.mean(axis=-1)
    assert run.steps == 2_000
    assert (values > 0.9 * best).all()
    assert isinstance(run.environments[0], LoggedEnvironment)


def test_statistics_are_those_of_the_data(run, random_play):
    returns = np.array([episode.rewards.sum() for episode in random_play.episodes])
    episodes = jax.tree.map(lambda x: np.asarray(x[1]), run.lanes.agent_state.episodes)
    assert episodes.count == len(returns)
    assert (episodes.low, episodes.high) == (returns.min(), returns.max())
    assert same(run.dataset(1), random_play)


def test_a_run_from_data_is_saved_and_continued(run, random_play, tmp_path):
    half = rp.train(run.agents[0], data=random_play, steps=1_000, seeds=2)
    half.save(tmp_path / "run")
    whole, again = rp.train(half, steps=1_000), rp.train(rp.load(tmp_path / "run"), steps=1_000)
    for one, other in zip(*(jax.tree.leaves(r.lanes.agent_state.params) for r in (whole, again)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("agent", "trained"),
    [
        (Counting(training=rp.Training(learning_starts=40, buffer_size=100, target_update_interval=20)), False),
        pytest.param(rp.Adaptive("cvar:0.3", **TINY_ADAPTIVE, selection_episodes=0), True, marks=pytest.mark.long),
    ],
    ids=["Counting", "Adaptive"],
)
def test_a_run_gives_its_episodes_and_one_line_warns(agent, trained, caplog, unchecked):
    run = rp.train(agent, "RiskyGrid", steps=160, seeds=2)
    data = run.dataset(seed=1)
    assert 80 < len(data) <= 100
    assert {int(e.observations[0]) for e in data.episodes} == {int(data.episodes[0].observations[0])}
    with caplog.at_level("WARNING", "riskpath"), nullcontext() if trained else without_training():
        again = rp.train(agent, data=data, steps=20)
    name = type(agent).__name__
    assert f"{name} learns from data alone, and may overestimate actions that the data never" in caplog.text
    assert again.policy()(np.int32(0))[0] in (0, 1)
    assert isinstance(again.agents[0].training, rp.Training)


NOT_DATA: Any = [1]
STEPS: dict[str, Any] = {"observations": [[0, 1, 2]], "actions": [[0, 1]], "rewards": [[0.0, 1.0]]}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"observations": [[0, 1]]}, "an episode of 2 rewards needs 3 observations, got 2"),
        ({"actions": [[0]]}, "an episode of 2 rewards needs 2 actions, got 1"),
        ({"rewards": [[0.0, np.nan]]}, "rewards of an episode must be finite numbers"),
        ({"rewards": []}, "of the same episodes, got 1 observations, 1 actions, 0 rewards"),
        ({"observations": None}, "observations must be a list with one array for each episode, got None"),
        ({"rewards": "12"}, "rewards must be a list with one array for each episode, got '12'"),
        ({"num_actions": 2.5}, "num_actions must be a whole number, got 2.5"),
        ({"actions": [[[2.0], [0.0]]]}, "actions must be whole numbers, or vectors with entries from −1 to 1"),
        ({"num_actions": 1}, "num_actions is 1, but the data contain number 1"),
        ({"num_states": 2}, "num_states is 2, but the data contain number 2"),
    ],
)
def test_bad_episodes_are_refused(change, line, unchecked):
    with pytest.raises(rp.RiskpathError, match=line):
        rp.Dataset.from_episodes(**{**STEPS, **change})


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda data: rp.train(rp.PPO(), data=data, steps=10), "PPO learns from its own actions; data need an agent"),
        (lambda data: rp.train(rp.IQTD3(), data=data, steps=10), "IQTD3 needs continuous actions"),
        (lambda data: rp.train(rp.CVaRDRL(), data=data, steps=10), "CVaRDRL stores numbers of its own"),
        (lambda data: rp.train(rp.IQN(), data=data, steps=10, num_envs=2), "leave num_envs at 1, got 2"),
        (lambda data: rp.train(rp.IQN(), data=NOT_DATA, steps=10), "data must be a rp.Dataset, got a list"),
        (lambda data: rp.train(rp.IQN(), "ThreeState", data=data, steps=10), "another number of states"),
        (lambda data: rp.train(rp.IQN(), data=data, steps=10, evaluate_every=5), "data cannot evaluate a policy"),
        (lambda data: rp.record(3, "RiskyGrid", 1), "policy must be run.policy"),
        (lambda data: rp.Dataset.from_minari("no/such-v0"), "cannot read the Minari data set no/such-v0"),
    ],
)
def test_bad_calls_are_refused(call, line, random_play, unchecked):
    with pytest.raises(rp.RiskpathError, match=line):
        call(random_play)


def test_without_an_environment_nothing_is_played(run):
    with pytest.raises(rp.RiskpathError, match="trained on data, without an environment: give evaluate"):
        run.evaluate(10)
    assert np.isfinite(run.estimates()).all()
    first = run.environments[0].starts[:1]
    assert no_episodes(first, run.environments[0].masks[:1]).count == 0
