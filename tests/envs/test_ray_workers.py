"""Environments on a real Ray cluster of nodes on this machine: the numbers, a lost node, a killed training.

`make test-ray` runs this file in an environment of its own; `test_ray_vector.py` has the same with a stand-in for Ray.
"""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import jax
import pytest

import riskpath as rp
from tests.envs.test_ray_vector import AGENT, Broken, Clock, assert_whole_episodes, rows
from tests.ray_cluster import add_node
from tests.ray_cluster import cluster as cluster  # a fixture

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("unchecked")]  # warnings are Ray's own
HOW: dict[str, Any] = {"seeds": 2, "num_envs": 3, "seed": 3}


class Slow(Clock):
    """Takes some time for a step."""

    def step(self, action):
        time.sleep(0.01)
        return super().step(action)


class Dying(Clock):
    """Ends its process."""

    def step(self, action):
        os._exit(1)


def test_numbers_a_lost_node_and_errors(cluster, monkeypatch):
    nodes = [add_node(cluster, 2) for _ in range(3)]
    cluster.wait_for_nodes()
    workers = rp.RayWorkers(cluster.address, num_workers=3, patience=60.0)

    here, there = rp.train(AGENT, Clock, steps=120, **HOW), rp.train(AGENT, Clock, steps=120, **HOW, workers=workers)
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(rows(here)), jax.tree.leaves(rows(there)), strict=True))
    returns = there.evaluate(8, seed=1).returns
    assert (returns == here.evaluate(8, seed=1).returns).all()
    close(there)

    def note(run: rp.Run, record: dict[str, Any]) -> None:
        if run.steps >= 600 and len(nodes) == 3:
            cluster.remove_node(nodes.pop(), allow_graceful=False)

    lost = rp.train(AGENT, Slow, steps=1_800, **HOW, workers=workers, callbacks=[note])
    assert_whole_episodes(lost)
    assert lost.steps == 1_800
    line = lost.notices[-1]  # the agent of this test counts its updates instead of estimating
    assert "lost 2 of 6 environments with their workers on 127.0.0.1: new episodes began elsewhere" in line
    close(lost)

    with pytest.raises(rp.TrainingStopped, match="ValueError: the motor is broken") as stopped:
        rp.train(AGENT, Broken, steps=120, **HOW, workers=workers)
    close(stopped.value.run)
    with pytest.raises(rp.TrainingStopped, match="a Ray worker was lost 5 times in a row") as stopped:
        rp.train(AGENT, Dying, steps=120, **HOW, workers=rp.RayWorkers(cluster.address, num_workers=1))
    assert "\n" not in str(stopped.value)
    close(stopped.value.run)
    with pytest.raises(rp.RiskpathError, match="4 of 6 Ray workers did not begin within 30 seconds: each needs 2 CPU"):
        rp.train(AGENT, Clock, steps=120, **HOW, workers=rp.RayWorkers(cluster.address, 6, num_cpus=2.0, patience=30.0))


def close(run: rp.Run) -> None:
    """End the workers of a run."""
    assert run.vector is not None
    run.vector.close()


def test_a_training_that_was_killed_goes_on(cluster, tmp_path):
    _ = add_node(cluster, 2), add_node(cluster, 2)
    cluster.wait_for_nodes()
    small = ("--agent.network.hidden", "4", "--agent.learning-starts", "100", "--agent.target-update-interval", "10")
    words = ("train", "--env", "CartPole-v1", "--agent", "iqn", *small, "--seeds", "2", "--steps", "3000")
    command = [sys.executable, "-m", "riskpath", *words, "--checkpoint-steps", "100", "--workers", cluster.address]
    log = tmp_path / "run" / "log.jsonl"
    with subprocess.Popen([*command, "--out", str(tmp_path / "run")], stdout=subprocess.DEVNULL) as process:
        while not log.exists() or len(log.read_text().splitlines()) < 5:
            assert process.poll() is None
            time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
    again = [sys.executable, "-m", "riskpath", "resume", str(tmp_path / "run"), "--workers", cluster.address]
    done = subprocess.run(again, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert rp.load(tmp_path / "run" / "run").steps >= 3_000
