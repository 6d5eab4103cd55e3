"""Measure how long a single greedy action takes on one core: `run.policy()`, its export, and a bare jitted network.

    taskset -c 0 python benchmarks/speed/latency.py  # Linux: one core

The bare network is an `eqx.nn.MLP` of the same hidden layers, jitted with its parameters compiled in; its argmax is
returned as an integer. Every policy acts in `rp.MeanReversionTrading` with the default network of its agent. The median
and the 99 % quantile of many calls are reported, all in one process, in turns. Results go to
benchmarks/results/latency.json.
"""

import argparse
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import riskpath as rp
from riskpath.experiments.records import write_json

AGENTS: dict[str, Any] = {"IQN": rp.IQN, "TQL": rp.TQL, "Adaptive": rp.Adaptive, "CVaRDRL": rp.CVaRDRL}
TURNS = 10


def calls(name: str, folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the three ways to act: the policy, its export, and a bare network of the same size."""
    run = rp.train(AGENTS[name](rp.CVaR(0.25)), rp.MeanReversionTrading(), steps=300)
    policy, spec = run.policy(), run.spec
    exported = rp.load_policy(policy.export(folder / f"{name}.zip", platforms=("cpu",)))
    observation = np.zeros(spec.observation_shape, np.float32)
    _, memory = policy(observation)
    _, exported_memory = exported(observation)
    hidden = policy.agent.network.hidden
    net = eqx.nn.MLP(observation.size, spec.num_actions, hidden[0], len(hidden), key=jax.random.key(0))
    bare = jax.jit(lambda x: jnp.argmax(net(x)))
    return {
        "policy": lambda: policy(observation, memory, 0.5),
        "export": lambda: exported(observation, exported_memory, 0.5),
        "bare network": lambda: int(bare(observation)),
    }


def measure(ways: dict[str, Callable[[], Any]], count: int) -> dict[str, dict[str, float]]:
    """Return the median and the 99 % quantile of each way in microseconds; ways take turns."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(TURNS + 1):
        for name, call in ways.items():
            for _ in range(max(1, count // TURNS)):
                began = time.perf_counter()
                call()
                if turn:  # the first one compiles
                    times[name].append(time.perf_counter() - began)
    quantiles = {name: np.quantile(taken, [0.5, 0.99]) * 1e6 for name, taken in times.items()}
    return {name: {"median": round(float(q[0]), 1), "99 %": round(float(q[1]), 1)} for name, q in quantiles.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--agents", nargs="+", choices=list(AGENTS), default=list(AGENTS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "latency.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = {name: measure(calls(name, Path(folder)), options.calls) for name in options.agents}
    lines = ["| agent | policy | export | bare network |", "|---|---:|---:|---:|"]
    for name, row in rows.items():
        lines.append(f"| {name} | " + " | ".join(f"{one['median']:.0f} µs" for one in row.values()) + " |")
    print("\n".join(lines))
    versions = {"riskpath": rp.__version__, "jax": jax.__version__, "python": platform.python_version()}
    write_json(options.out, {"machine": platform.machine(), "versions": versions, "microseconds": rows})


if __name__ == "__main__":
    main()
