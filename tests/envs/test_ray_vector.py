"""Environments on a Ray cluster, which is a stand-in here: what travels, and what happens if a node is lost."""

import functools
import json
import re
import threading
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import riskpath as rp
from riskpath.agents.replay_buffer import unpack
from riskpath.envs import ray_vector
from riskpath.envs.ray_vector import MOST_LOSSES
from riskpath.envs.workers import LocalWorkers, as_workers
from tests.cli.conftest import cli as cli  # a fixture
from tests.envs.fake_ray import FakeRay, RayActorError
from tests.envs.fake_ray import cluster as cluster  # a fixture
from tests.training.fakes import Counting

AGENT = Counting(
    discount=1.0, training=rp.Training(learning_starts=16, buffer_size=400, batch_size=4, target_update_interval=10)
)
HOW: dict[str, Any] = {"steps": 116, "seeds": 2, "num_envs": 2, "seed": 3}
THREE = rp.RayWorkers(num_workers=3)
LENGTH = 5


class Clock(gymnasium.Env):
    """Observes which episode this is (its seed, or a draw after it) and the time; each step is worth 1."""

    observation_space = spaces.Box(-1.0, 2.0**24, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen = np.array([self.np_random.integers(2**24), 0], np.float32)
        return self.seen.copy(), {"action_mask": np.array([1, 1, 0], np.int8)}

    def step(self, action):
        assert action < 2
        self.seen[1] += 1
        over = self.seen[1] == LENGTH
        return self.seen.copy(), 1.0, bool(over), False, {"action_mask": np.array([1, 1, 0], np.int8)}


class Broken(Clock):
    """Fails at its third step."""

    def step(self, action):
        if self.seen[1] == 2:
            raise ValueError("the motor\nis broken")
        return super().step(action)


def rows(run: rp.Run) -> Any:
    """Return the transitions of a run: leaves have leading axes of rows and columns."""
    store = run.lanes.store
    return jax.device_get(
        jax.vmap(jax.vmap(lambda row: unpack(store.example, row)))(store.rows[: int(store.num_added)])
    )


def assert_whole_episodes(run: rp.Run) -> None:
    """Check that no transition and no return crosses from one episode to another."""
    steps = rows(run)
    assert (steps.observation[..., 0] == steps.next_observation[..., 0]).all()
    assert (steps.observation[..., 1] == steps.time).all()
    assert (steps.return_so_far == steps.time + 1).all()
    recent = run.lanes.recent
    for ring, count in zip(np.asarray(recent.ring), np.asarray(recent.count), strict=True):
        assert (ring[:count] == LENGTH).all()
    assert run.lanes.agent_state.episodes is not None
    assert (np.asarray(run.lanes.agent_state.episodes.low) == LENGTH).all()


def lose_a_node(cluster: FakeRay, monkeypatch: Any, at: int, node: str = "2") -> None:
    """Lose a node when so many questions were answered."""
    plain = cluster.get

    def get(reference: Any) -> Any:
        if len(cluster.asked) >= at and node in cluster.free:
            cluster.lose(node)
        return plain(reference)

    monkeypatch.setattr(cluster, "get", get)


def test_the_numbers_are_those_of_this_process_and_each_worker_answers_once_a_step(cluster, unchecked):
    here, there = rp.train(AGENT, Clock, **HOW), rp.train(AGENT, Clock, **HOW, workers=THREE)
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(rows(here)), jax.tree.leaves(rows(there)), strict=True))
    steps = HOW["steps"] // HOW["num_envs"]
    assert sorted(cluster.asked) == sorted([*[("begin", n) for n in "123"], *[("step", n) for n in "123" * steps]])
    assert cluster.options["max_restarts"] == 0
    assert len(cluster.actors) == 3
    again = rp.train(there, steps=20)  # with the same workers
    assert len(cluster.actors) == 3
    assert again.steps == 136
    assert there.vector is not None
    there.vector.close()
    assert cluster.actors == []
    assert_whole_episodes(again)
    assert again.notices == []


@pytest.mark.parametrize("at", [20, 21, 22])
def test_a_lost_node_ends_the_episodes_that_were_there_and_nothing_else(
    cluster, at, monkeypatch, unchecked, caplog, tmp_path
):
    here = rp.train(AGENT, Clock, **HOW)
    lose_a_node(cluster, monkeypatch, at)
    run = rp.train(AGENT, Clock, **HOW, workers=THREE)
    assert run.steps == here.steps
    assert_whole_episodes(run)
    alone, lost = rows(here), rows(run)
    same = [bool((alone.observation[:, i] == lost.observation[:, i]).all()) for i in range(4)]
    assert same == [True, False, True, True]  # the second of three workers has one of four environments
    assert int(here.lanes.recent.count.sum() - run.lanes.recent.count.sum()) in (0, 1)
    (line,) = run.notices
    lost = "lost 1 of 4 environments with their workers on 10.0.0.2"
    assert re.fullmatch(rf"at step 1\d: {lost}: new episodes began elsewhere, the unfinished ones do not count", line)
    assert sum(lost in record.message for record in caplog.records) == 1
    run.save(tmp_path / "run")
    assert rp.load(tmp_path / "run", agent=AGENT, env=Clock).notices == [line]
    assert line in run.report(tmp_path / "page.html").read_text()


def test_several_losses_are_one_line(cluster, monkeypatch, unchecked):
    lose_a_node(cluster, monkeypatch, 20, "1")
    lose_a_node(cluster, monkeypatch, 40, "2")
    run = rp.train(AGENT, Clock, **HOW, workers=THREE)
    assert_whole_episodes(run)
    (line,) = run.notices
    assert line.startswith("lost environments with their workers 2 times, the last time at step ")


def test_an_evaluation_is_played_there_too_and_repeats_lost_episodes(cluster, monkeypatch, unchecked):
    run = rp.train(AGENT, Clock, **HOW, workers=THREE)
    returns = run.evaluate(10, seed=1).returns
    before = len(cluster.asked)
    lose_a_node(cluster, monkeypatch, before + 7)
    again = run.evaluate(10, seed=1)
    assert (again.returns == returns).all()
    assert (returns == LENGTH).all()
    assert again.finished == 1.0
    assert ("step", "1") in cluster.asked[before:]
    assert cluster.options["num_cpus"] == 0
    assert run.notices == []
    assert rp.train(run, steps=20).notices  # those of training were on that node, too


def test_without_room_training_stops_with_one_line_and_goes_on_later(cluster, monkeypatch, tmp_path, unchecked):
    monkeypatch.setattr(cluster, "free", {"2": 3.0})
    lose_a_node(cluster, monkeypatch, 100)
    line = r"\d of 3 Ray workers did not begin within 0.2 seconds: each needs 1 CPU, and 0 nodes have 0 CPUs free"
    with pytest.raises(rp.TrainingStopped, match=line) as stopped:
        rp.train(AGENT, Clock, **HOW, workers=rp.RayWorkers(num_workers=3, patience=0.2), checkpoint=tmp_path / "run")
    assert "\n" not in str(stopped.value)
    saved = rp.load(tmp_path / "run", agent=AGENT, env=Clock)
    assert saved.steps == stopped.value.run.steps < 116
    cluster.free["4"] = cluster.size = 3.0
    run = rp.train(saved, workers="ray")
    assert run.steps == 116
    assert_whole_episodes(run)


def test_an_error_of_the_environment_is_one_line_as_without_ray(cluster, unchecked):
    lines = []
    for workers in (False, THREE):
        with pytest.raises(rp.TrainingStopped) as stopped:
            rp.train(AGENT, Broken, **HOW, workers=workers)
        lines.append(str(stopped.value))
        assert stopped.value.run.losses == []
    assert lines[0] == lines[1]
    assert "ValueError: the motor is broken" in lines[0]


def test_an_environment_that_ends_its_process_again_and_again_is_one_line(cluster, monkeypatch, unchecked):
    plain = cluster.get

    def get(reference: Any) -> Any:
        if reference.method == "step":
            raise RayActorError("The actor died.\nThe worker process ended.")
        return plain(reference)

    monkeypatch.setattr(cluster, "get", get)
    line = f"lost {MOST_LOSSES} times in a row, the environment may end its process: The worker process ended"
    with pytest.raises(rp.TrainingStopped, match=line):
        rp.train(AGENT, Clock, **HOW, workers=THREE)


def test_what_fails_while_a_worker_begins_is_in_the_line(cluster, monkeypatch, unchecked):
    monkeypatch.setattr(ray_vector, "PAUSE", 0.01)

    def get(reference: Any) -> Any:
        raise RayActorError("The actor died.\nModuleNotFoundError: No module named 'riskpath'")

    monkeypatch.setattr(cluster, "get", get)
    with pytest.raises(rp.RiskpathError, match=r"did not begin within 0.1 seconds.*No module named 'riskpath'"):
        rp.train(AGENT, Clock, **HOW, workers=rp.RayWorkers(patience=0.1))
    assert cluster.actors == []


def made_with(something: Any) -> gymnasium.Env:
    """Make an environment with something that has to be sent."""
    return Clock()


class Unreadable:
    """Cannot be read on a node."""

    def __reduce__(self):
        return (lambda: __import__("nowhere")), ()


@pytest.mark.parametrize(
    ("env", "workers", "message"),
    [
        (Clock, 3, r"workers must be True, False, .*, got 3"),
        (Clock, "nowhere", r"workers must be True, False, .*, got 'nowhere'"),
        (Clock, "host:port", r'a Ray address is "auto", "local" or "HOST:PORT", got \'host:port\''),
        ("RiskyGrid", "ray", "workers on a Ray cluster step Gymnasium environments; this one runs in the program"),
        (lambda: object(), "ray", "a factory must return a gymnasium.Env"),
        (Clock(), "ray", "a Ray cluster makes environments itself: give an id or a function that makes one"),
        (
            SyncVectorEnv([Clock], autoreset_mode=AutoresetMode.SAME_STEP),
            "ray",
            "a Ray cluster makes environments itself: give an id or a function that makes one",
        ),
        (
            functools.partial(made_with, threading.Lock()),
            "ray",
            "cannot send the environment to the Ray cluster: TypeError: cannot pickle '_thread.lock'",
        ),
        (
            functools.partial(made_with, Unreadable()),
            "ray",
            "a Ray worker failed, does its node have the same packages. ModuleNotFoundError: No module named 'nowhere'",
        ),
    ],
)
def test_bad_input_is_one_line(cluster, env, workers, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        rp.train(AGENT, env, steps=20, workers=workers)
    assert "\n" not in str(refused.value)
    assert cluster.actors == []


@pytest.mark.parametrize(
    "fields", [{"address": 3}, {"num_workers": 0}, {"num_cpus": -1.0}, {"patience": 0.0}, {"patience": float("nan")}]
)
def test_fields_of_ray_workers_are_checked(fields, unchecked):
    with pytest.raises(rp.RiskpathError):
        rp.RayWorkers(**fields)


def test_words_and_addresses():
    assert as_workers(True) == as_workers("processes") == LocalWorkers(True)
    assert as_workers(False) == as_workers("none") == LocalWorkers()
    assert as_workers("ray") == rp.RayWorkers() == as_workers(rp.RayWorkers())
    assert as_workers("ray://a:1") == rp.RayWorkers("ray://a:1")
    assert THREE.for_evaluation() == rp.RayWorkers(num_workers=3, num_cpus=0.0)


def test_a_run_changes_its_workers_only_if_asked(cluster, unchecked):
    run = rp.train(AGENT, Clock, **HOW)
    run = rp.train(run, steps=20, workers=THREE)
    assert len(cluster.actors) == 3
    run = rp.train(run, steps=20)
    assert run.workers == THREE
    run = rp.train(run, steps=20, workers=False)
    assert cluster.actors == []
    assert run.steps == 176
    assert_whole_episodes(run)


def test_the_command_line_keeps_a_word_but_an_address_is_given_again(cluster, cli, tmp_path, unchecked, untrained):
    words = ("--agent", "iqn", "--agent.network.hidden", "4", "--steps", "80", "--seeds", "1")
    train, out = ("train", "--env", "CartPole-v1", *words), str(tmp_path / "run")
    assert cli(*train, "--workers", "ray", "--out", out)[0] == 0
    seen = len(cluster.asked)
    assert seen
    assert cli("resume", out, "--steps", "20")[0] == 0
    assert len(cluster.asked) > seen
    config = tmp_path / "run" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"workers": "10.0.0.1:6379"}))
    status, _, error = cli("resume", out, "--steps", "20")
    hint = "give --workers 10.0.0.1:6379, or --workers none for this process"
    assert status == 2
    assert f"was trained with workers on 10.0.0.1:6379: {hint}" in " ".join(error.split())
    seen = len(cluster.asked)
    assert cli("resume", out, "--steps", "20", "--workers", "none")[0] == 0
    assert len(cluster.asked) == seen
    assert cli(*train, "--workers", "nowhere")[0] == 2
