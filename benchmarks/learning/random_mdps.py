"""Train agents on twenty random problems with random transitions, and compare them with the exact optimum.

    python benchmarks/learning/random_mdps.py  on a GPU: minutes for each part
    python benchmarks/learning/random_mdps.py --agents Adaptive --risks cvar:0.1 --out runs/x.json  to try it

The problems are `rp.RandomMDP(seed, depth)` with the seeds 1 to 20 and five to eight steps. Those of equal depth, and
all levels of CVaR, are lanes of one call of `rp.train`. The networks and training are those of small problems in
`riskpath bench suite`. Policies are evaluated exactly. A run is near the optimum (randomised where that is better) if
it misses it by at most 1 % of its absolute value. Some optima are close to 0: the last column of the table counts the
runs that miss it by at most 1 % of the standard deviation of the mean-optimal policy's return.

Every part (an agent, a kind of measure, a depth) is one file in the folder of parts, so an interrupted run goes on
where it was. Results go to benchmarks/results/random_mdps.json.
"""

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import riskpath as rp
from riskpath.experiments.bench_cells import kind_of
from riskpath.experiments.bench_scores import solve_reference
from riskpath.experiments.bench_suite import AGENTS, SIZES, hyperparameters
from riskpath.experiments.records import write_json

RESULTS = Path(__file__).parents[1] / "results"
PROBLEMS = range(1, 21)
RISKS = ("cvar:0.1", "cvar:0.25", "cvar:0.5", "wang:-0.75", "pow:-2", "cpw:0.71")
NEAR = 0.01
"""A run is near the optimum if it misses it by at most this share of its absolute value."""


def problem(number: int) -> rp.RandomMDP:
    """Return a problem by its number, the seed."""
    return rp.RandomMDP(seed=number, depth=5 + number % 4)


def parts(agents: list[str], risks: list[str]) -> list[tuple[str, str, list[str], int]]:
    """Return all parts: an agent, a kind of measure with its measures, and a depth."""
    kinds: dict[str, list[str]] = {}
    for risk in risks:
        kinds.setdefault(kind_of(risk), []).append(risk)
    depths = sorted({problem(number).depth for number in PROBLEMS})
    return [(agent, kind, own, depth) for agent in agents for kind, own in kinds.items() for depth in depths]


def train_part(agent: str, risks: list[str], depth: int, seeds: int, steps: int) -> dict[str, Any]:
    """Train one part, and return the values of all seeds for every problem and measure."""
    settings = {**SIZES["small"], "steps": steps}
    numbers = [number for number in PROBLEMS if problem(number).depth == depth]
    pairs = [(number, risk) for number in numbers for risk in risks]
    trained = [AGENTS[agent].make(rp.parse_risk(risk), hyperparameters(settings)) for _, risk in pairs]
    environments = [problem(number) for number, _ in pairs]
    began = time.perf_counter()
    run = rp.train(trained, environments, steps=steps, seeds=seeds, num_envs=settings["num_envs"], seed=1)
    seconds = time.perf_counter() - began
    values = run.values()
    rows = [
        {"problem": number, "risk": risk, "values": one.tolist(), **reference(number, risk)}
        for (number, risk), one in zip(pairs, values, strict=True)
    ]
    made = {"steps": run.steps, "batch_size": settings["batch_size"], "seconds": round(seconds, 1)}
    return {"agent": agent, **made, "device": jax.devices()[0].device_kind, "rows": rows}


def reference(number: int, risk: str) -> dict[str, float | None]:
    """Return the exact optimum, randomised where that is better, the mean-optimal policy's value, and its spread."""
    return solve_reference(problem(number).mdp(), risk)._asdict()


def near(row: dict[str, Any], scale: str = "optimum") -> np.ndarray:
    """Tell for every seed whether it is near the optimum, relative to the optimum or to the spread."""
    return row["optimum"] - np.array(row["values"]) <= NEAR * abs(row[scale]) + 1e-6


def summary(done: list[dict[str, Any]]) -> str:
    """Return a table: for every agent and measure the share of runs that are near the optimum."""
    agents = list(dict.fromkeys(part["agent"] for part in done))
    risks = list(dict.fromkeys(row["risk"] for part in done for row in part["rows"]))
    lines = [f"{'':14}" + "".join(f"{risk:>12}" for risk in (*risks, "all", "all, spread"))]
    for agent in agents:
        rows = [row for part in done if part["agent"] == agent for row in part["rows"]]
        shares = [[near(row) for row in rows if row["risk"] == risk] for risk in risks]
        shares += [[near(row, scale) for row in rows] for scale in ("optimum", "spread")]
        cells = (f"{np.concatenate(one).mean():12.1%}" if one else f"{'–':>12}" for one in shares)
        lines.append(f"{agent:14}" + "".join(cells))
    return "\n".join(lines)


def main() -> None:
    """Train all parts that are not stored, then write and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", choices=list(AGENTS), default=["IQN", "TQL", "Adaptive"])
    parser.add_argument("--risks", nargs="+", default=list(RISKS))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=SIZES["small"]["steps"], help="environment steps of each seed")
    parser.add_argument("--parts", type=Path, default=Path("runs/random_mdps"), help="the folder of finished parts")
    parser.add_argument("--only", nargs="*", default=[], help="train only parts whose name has one of these words")
    parser.add_argument("--out", type=Path, default=RESULTS / "random_mdps.json")
    options = parser.parse_args()
    try:
        _ = [rp.parse_risk(risk) for risk in options.risks]
    except rp.RiskpathError as error:
        parser.error(str(error))
    done = []
    for agent, kind, risks, depth in parts(options.agents, options.risks):
        name = f"{agent} {kind} depth {depth}"
        words = (*name.lower().split(), *risks, options.seeds, options.steps)
        path = options.parts / f"{'-'.join(map(str, words)).replace(':', '_')}.json"
        if path.exists():
            done.append(json.loads(path.read_text()))
        elif not options.only or any(word in name for word in options.only):
            part = train_part(agent, risks, depth, options.seeds, options.steps)
            write_json(path, part)
            done.append(part)
            print(f"{name}: {np.mean([near(row).mean() for row in part['rows']]):.1%}, {part['seconds']} s", flush=True)
    write_json(options.out, {"command": shlex.join(["python", *sys.argv]), "parts": done})
    print(summary(done))


if __name__ == "__main__":
    main()
