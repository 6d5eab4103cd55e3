"""Train agents on a GPU with and without the kernels of `riskpath.nn.gpu`, and compare what they have learned.

    python benchmarks/speed/kernels.py  a GPU from NVIDIA; minutes
    python benchmarks/speed/kernels.py --agents IQN --seeds 64 --steps 5000 --out runs/kernels.json

The kernels round differently from XLA's program, so the same seed does not end with the same weights. What has to agree
are results: the exact value of the greedy policy, CVaR 0.25, its mean over many seeds with an interval of 95 %. The
sizes are those of `throughput.py`, 512 wide. Results go to benchmarks/results/kernels.json.
"""

import argparse
import dataclasses
import itertools
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import workload

import riskpath as rp
from riskpath.experiments.records import write_json

PROBLEMS = ("RiskyGrid", "BettingGame")
NORMAL = 1.96
"""A mean plus and minus this many standard errors is its interval of 95 %."""


def train(name: str, problem: str, kernels: bool, seeds: int, steps: int) -> dict[str, Any]:
    """Train one agent, and return the exact values of all seeds."""
    agent = workload.PAPER.agent(name)
    training = dataclasses.replace(agent.training, learning_starts=1_000)
    network = dataclasses.replace(agent.network, gpu_kernels=kernels)
    agent = dataclasses.replace(agent, training=training, network=network)
    began = time.perf_counter()
    run = rp.train(agent, problem, steps=steps, seeds=seeds, num_envs=1, seed=1)
    values = run.values().ravel()
    seconds = round(time.perf_counter() - began, 1)
    about = {"agent": name, "problem": problem, "kernels": kernels, "steps": run.steps, "seconds": seconds}
    return {**about, "values": values.tolist()}


def mean(values: np.ndarray) -> tuple[float, float]:
    """Return the mean and half the length of its interval."""
    return float(values.mean()), float(NORMAL * values.std(ddof=1) / np.sqrt(len(values)))


def table(rows: list[dict[str, Any]]) -> str:
    """Return one line for each agent and problem: both means, and their difference."""
    lines = ["agent            problem      with kernels      without           difference"]
    for name, problem in dict.fromkeys((row["agent"], row["problem"]) for row in rows):
        own = [row for row in rows if (row["agent"], row["problem"]) == (name, problem)]
        both = {row["kernels"]: np.array(row["values"]) for row in own}
        if len(both) == 2:
            (first, wide), (second, other) = mean(both[True]), mean(both[False])
            parts = (first, wide), (second, other), (first - second, np.hypot(wide, other))
            cells = "".join(f"{f'{value:.2f} ± {half:.2f}':18}" for value, half in parts)
            lines.append(f"{name:17}{problem:13}{cells}".rstrip())
    return "\n".join(lines)


def main() -> None:
    """Train what is asked for, store the values and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", choices=list(workload.AGENTS), default=["IQN", "TQL trajectory"])
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=512)
    parser.add_argument("--steps", type=int, default=10_000, help="environment steps, and gradient steps, of each seed")
    parser.add_argument("--out", type=Path, default=workload.RESULTS / "kernels.json")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    about = {"command": shlex.join(["python", *sys.argv]), "device": jax.devices()[0].device_kind}
    for name, problem, kernels in itertools.product(options.agents, options.problems, (True, False)):
        rows.append(train(name, problem, kernels, options.seeds, options.steps))
        print(json.dumps({key: value for key, value in rows[-1].items() if key != "values"}), flush=True)
        write_json(options.out, {**about, "rows": rows})
    print(table(rows))


if __name__ == "__main__":
    main()
