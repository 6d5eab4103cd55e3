"""Measure training on a simulator that takes 20 ms a step, with its environments on a Ray cluster, and lose a node.

    python benchmarks/speed/ray_workers.py  # ten minutes; needs riskpath[all,ray]
    python benchmarks/speed/ray_workers.py --most 4 --seconds 2 --out runs/ray_workers.json
    python benchmarks/speed/ray_workers.py --only lost  # the lost node; --only rates: the rest

The cluster is on this machine: a head without work and three nodes, which are processes that listen on the loopback
interface. The simulator sleeps, so that it needs no core of its own. IQN trains on as many environments as there are
workers, one gradient step for 32 environment steps: with Ray workers, with worker processes and in this process, in
turn. Compilation and the start of the workers are not counted. At the end a node is killed in the middle of a training;
the other two have room for its workers. Each part replaces the earlier one in benchmarks/results/ray_workers.json, with
a picture beside it.
"""

import argparse
import importlib
import itertools
import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import riskpath as rp
from riskpath import plot
from riskpath.experiments.records import header, write_json

RESULTS = Path(__file__).parents[1] / "results" / "ray_workers.json"
STEP_S = 0.02
"""Seconds that the simulator takes for a step."""
EPISODE = 25
"""Steps of an episode; each is worth 1."""
NODES = 3
TRAIN_FREQ = 32
"""Environment steps for each gradient step."""
PATIENCE_S = 900.0
"""Seconds in which a worker has to begin: many of them share the cores of this machine while they import JAX."""
WAYS = ("Ray workers", "worker processes", "in this process")


class Simulator(gymnasium.Env):
    """Waits in every step, as for an answer of a simulator."""

    observation_space = spaces.Box(-1.0, 1.0, (8,), np.float32)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action):
        time.sleep(STEP_S)
        self.time += 1
        return self._observe(), 1.0, self.time == EPISODE, False, {}

    def _observe(self):
        return self.np_random.uniform(-1.0, 1.0, 8).astype(np.float32)


def agent() -> rp.IQN:
    """Return a small agent."""
    training = rp.Training(train_freq=TRAIN_FREQ, learning_starts=TRAIN_FREQ, target_update_interval=4)
    return rp.IQN("cvar:0.1", training=training)


def workers_of(way: str, count: int, address: str) -> Any:
    """Return the argument of `rp.train` for as many workers."""
    return {WAYS[0]: rp.RayWorkers(address, num_workers=count, patience=PATIENCE_S), WAYS[1]: True, WAYS[2]: False}[way]


def rate(way: str, count: int, address: str, seconds: float) -> dict[str, Any]:
    """Return the environment steps per second of training, after it was compiled."""
    began = time.perf_counter()
    warm = 6 * TRAIN_FREQ
    run = rp.train(agent(), Simulator, steps=warm, num_envs=count, workers=workers_of(way, count, address))
    ready = time.perf_counter() - began
    expected = (1 if way == WAYS[2] else count) / STEP_S
    steps = max(1, round(seconds * expected / (4 * TRAIN_FREQ))) * 4 * TRAIN_FREQ
    began = time.perf_counter()
    before = run.steps
    run = rp.train(run, steps=steps)
    taken = time.perf_counter() - began
    assert run.vector is not None
    run.vector.close()
    row = {"way": way, "workers": count, "steps": run.steps - before, "seconds": round(taken, 2)}
    row |= {"steps_per_second": round((run.steps - before) / taken, 1), "ready_s": round(ready, 1)}
    print(f"{way}, {count}: {row['steps_per_second']:,.0f} steps/s, ready after {ready:.0f} s", flush=True)
    return row


def lose_a_node(cluster: Any, nodes: list[Any], count: int, address: str, seconds: float) -> dict[str, Any]:
    """Train while a node is killed in the middle; return the steps over time, and what the run says."""
    steps = round(seconds * count / STEP_S / (4 * TRAIN_FREQ)) * 4 * TRAIN_FREQ
    run = rp.train(
        agent(), Simulator, steps=6 * TRAIN_FREQ, num_envs=count, workers=workers_of(WAYS[0], count, address)
    )
    start, began, seen = run.steps, time.perf_counter(), []
    killed: list[float] = []

    def note(run: rp.Run, record: dict[str, Any]) -> None:
        seen.append((round(time.perf_counter() - began, 3), run.steps - start))
        if not killed and run.steps - start >= steps / 2:
            cluster.remove_node(nodes[0], allow_graceful=False)
            killed.append(round(time.perf_counter() - began, 3))

    run = rp.train(run, steps=steps, callbacks=[note])
    assert run.vector is not None
    run.vector.close()
    returns = np.concatenate(
        [ring[:n, 0] for ring, n in zip(run.lanes.recent.ring, run.lanes.recent.count, strict=True)]
    )
    pause = max(b[0] - a[0] for a, b in itertools.pairwise(seen))
    print(*run.notices, f"longest time between two chunks: {pause:.1f} s", sep="\n")
    return {
        "workers": count,
        "steps": run.steps - start,
        "planned": steps,
        "killed_s": killed,
        "longest_pause_s": round(pause, 2),
        "notices": run.notices,
        "losses": [loss._asdict() for loss in run.losses],
        "whole_episodes_only": bool((returns == EPISODE).all()),
        "progress": seen,
    }


def draw(record: dict[str, Any], path: Path) -> Path:
    """Draw the rates by the number of workers, and the training that lost a node."""
    figure, ((left, right),) = plot.panels(1, 2, 4.6, 3.4)
    for way, colour in zip(WAYS, plot.PALETTE, strict=False):
        rows = [row for row in record["rates"]["rows"] if row["way"] == way]
        left.plot(
            *zip(*((r["workers"], r["steps_per_second"]) for r in rows), strict=True), "o-", color=colour, label=way
        )
    counts = sorted({row["workers"] for row in record["rates"]["rows"]})
    left.plot(counts, [count / STEP_S for count in counts], "--", color="0.5", linewidth=1.2, label="no overhead")
    left.set_xscale("log", base=2)
    left.set_yscale("log")
    left.set_xticks(counts, map(str, counts))
    left.set(xlabel="environments, and workers", ylabel="environment steps per second")
    left.legend(fontsize=8)
    seconds, steps = zip(*[(0.0, 0), *record["lost"]["progress"]], strict=True)
    right.plot(seconds, steps, color=plot.PALETTE[0])
    for at in record["lost"]["killed_s"]:
        right.axvline(at, color="0.5", linestyle="--", linewidth=1.2)
        right.annotate(" one node of three is killed", (at, 0), fontsize=8)
    right.set(xlabel="seconds", ylabel="environment steps")
    return plot.save(figure, path)


def main() -> None:
    """Start the cluster, measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=32, help="the largest number of workers")
    parser.add_argument("--seconds", type=float, default=6.0, help="seconds of each training, about")
    parser.add_argument("--only", choices=("rates", "lost"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    ray, began = importlib.import_module("ray"), time.perf_counter()
    local = {"node_ip_address": "127.0.0.1", "object_store_memory": 10**8}
    head = {"num_cpus": 0, "include_dashboard": False, **local}
    cluster = importlib.import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args=head)
    try:
        nodes = [cluster.add_node(num_cpus=options.most // 2, **local) for _ in range(NODES)]
        cluster.wait_for_nodes()
        counts = [count for count in (1, 2, 4, 8, 16, 32) if count <= options.most]
        record = json.loads(options.out.read_text()) if options.out.exists() else {}
        if options.only != "lost":
            rows = [rate(way, count, cluster.address, options.seconds) for count in counts for way in WAYS]
            record["rates"] = {**about(ray, began), "rows": rows}
            write_json(options.out, record)
        if options.only != "rates":
            lost = lose_a_node(cluster, nodes, options.most, cluster.address, 4 * options.seconds)
            record["lost"] = {**about(ray, began), **lost}
            write_json(options.out, record)
    finally:
        ray.shutdown()
        cluster.shutdown()
    print(f"written: {options.out}, {draw(record, options.out.with_suffix('.png'))}")


def about(ray: Any, began: float) -> dict[str, Any]:
    """Return what a part of the results was measured with."""
    machine = {"cores": os.cpu_count(), "load": [round(x, 2) for x in os.getloadavg()], "ray": ray.__version__}
    setting = {"step_s": STEP_S, "episode": EPISODE, "nodes": NODES, "train_freq": TRAIN_FREQ}
    return {**header(shlex.join(["python", *sys.argv]), time.perf_counter() - began), **machine, **setting}


if __name__ == "__main__":
    main()
