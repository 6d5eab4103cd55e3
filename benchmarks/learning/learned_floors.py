"""Train for a floor under CVaR 0.1 and compare the policies of several floors with the exact frontier.

    python benchmarks/learning/learned_floors.py                            all problems and agents, on a CPU
    python benchmarks/learning/learned_floors.py --problems RiskyGrid       only this one
    python benchmarks/learning/learned_floors.py --draw                     only the figure, from stored results

    python benchmarks/learning/learned_floors.py --scale 10                 with ten times the steps, in own rows

Every agent is trained once for the mean with a floor; this training serves all floors. The controls are Adaptive for
the mean without a floor, and IQN for CVaR 0.1, with the same budget; AdaptivePPO takes 25 times the steps, in 128
environments. Policies are evaluated exactly, draws between two policies in sampled episodes. A floor is *reached* if
the mean is at most 2 % of the extent of the frontier below the best one, and CVaR at most 2 % below the floor; the
extent is the distance between the policy with the best mean and the safest one, in each coordinate. Results go to
benchmarks/results/learned_floors.json after every agent.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import riskpath as rp
from riskpath import plot
from riskpath.experiments.records import write_json

RESULTS = Path(__file__).parents[1] / "results" / "learned_floors.json"
RISK = "cvar:0.1"
FLOORS = {"RiskyGrid": (73.0, 75.0, 79.0), "BettingGame": (-10.0, 0.0, 10.0)}
"""Floors inside the frontier; training is for the one in the middle."""
STEPS = {"RiskyGrid": 40_000, "BettingGame": 80_000}
REPLAY = rp.Training(batch_size=64, num_quantiles=32, train_freq=16, learning_starts=4_000, buffer_size=80_000)
NETWORK = rp.Network(hidden=(64, 64))
ROLLOUTS = rp.RolloutTraining(length=16, epochs=4, minibatches=8)
NUM_ENVS, BUDGET = {"AdaptivePPO": 128}, {"AdaptivePPO": 25}
"""Environments (16 for all others), and steps as a multiple of those of the others."""
NEAR = 0.02


def agents(floor: float) -> dict[str, rp.Agent]:
    """Return the agents by their names in the results."""
    floored: dict[str, Any] = {"subject_to": {RISK: floor}, "network": NETWORK}
    return {
        "Adaptive": rp.Adaptive("mean", training=REPLAY, **floored),
        "AdaptivePPO": rp.AdaptivePPO("mean", training=ROLLOUTS, **floored),
        "Adaptive for the mean": rp.Adaptive("mean", network=NETWORK, training=REPLAY),
        "IQN": rp.IQN(RISK, network=NETWORK, training=rp.Training(train_freq=16, learning_starts=4_000)),
    }


def frontier_of(problem: str) -> dict[str, Any]:
    """Return the exact frontier: whole, and at the floors."""
    mdp, risk = rp.make(problem).mdp(), rp.parse_risk(RISK)
    whole, own = (rp.frontier(mdp, risk=risk, floors=floors) for floors in (5, list(FLOORS[problem])))
    return {"means": whole.means.tolist(), "values": whole.values.tolist(), "best": own.means.tolist()}


def measure(agent: rp.Agent, problem: str, seeds: int, steps: int, num_envs: int) -> dict[str, Any]:
    """Train one agent and return mean and CVaR of its policies: a list over floors of lists over seeds."""
    began = time.process_time()
    run = rp.train(agent, problem, steps=steps, seeds=seeds, num_envs=num_envs, seed=1, progress=False)
    if isinstance(agent, rp.Adaptive | rp.AdaptivePPO) and agent.subject_to is not None:
        found = run.floors(FLOORS[problem])
        means, values = found.means, found.values
    else:
        laws = [run.law(seed) for seed in range(seeds)]
        means, values = (np.array([[float(rp.parse_risk(r).value(law)) for law in laws]]) for r in ("mean", RISK))
    seconds = round(time.process_time() - began, 1)
    return {"means": means.tolist(), "values": values.tolist(), "cpu_seconds": seconds}


def reached(record: dict[str, Any], row: dict[str, Any]) -> list[int]:
    """Return for every floor the number of seeds within 2 % of the frontier's extent in both coordinates."""
    exact = record["exact"]
    room = [NEAR * (max(exact[key]) - min(exact[key])) for key in ("means", "values")]
    columns = zip(record["floors"], exact["best"], row["means"], row["values"], strict=True)
    near = lambda floor, best, mean, value: best - mean <= room[0] and floor - value <= room[1]
    return [sum(near(x, best, *one) for one in zip(means, values, strict=True)) for x, best, means, values in columns]


def draw(problems: dict[str, Any], path: Path) -> None:
    """Draw the exact frontiers, every seed's policy at every floor, and the controls."""
    figure, axes = plot.panels(1, len(problems), 4.2, 3.4)
    for axis, (name, record) in zip(axes[0], problems.items(), strict=True):
        exact = record["exact"]
        axis.plot(exact["values"], exact["means"], ".", color="0.6", label="exact frontier", zorder=1)
        axis.plot(record["floors"], exact["best"], "|", color="0.4", markersize=14, label="floors", zorder=1)
        for row, colour, mark in zip(record["rows"], plot.PALETTE, "osx^", strict=False):
            axis.plot(
                np.ravel(row["values"]), np.ravel(row["means"]), mark, color=colour, markersize=4, label=row["agent"]
            )
        axis.set_xlabel(f"{RISK} of the return")
        axis.set_ylabel("mean return")
        axis.set_title(name, fontsize=10)
    axes[0, 0].legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=150)
    print(f"wrote {path}")


def main() -> None:
    """Train, measure, store and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="*", default=list(FLOORS), choices=list(FLOORS))
    parser.add_argument("--agents", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="instead of each problem's own")
    parser.add_argument("--scale", type=int, default=1, help="multiplies the steps; other numbers than 1 make new rows")
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    problems = json.loads(options.out.read_text())["problems"] if options.out.exists() else {}
    for problem in [] if options.draw else options.problems:
        base, floors = options.scale * (options.steps or STEPS[problem]), FLOORS[problem]
        stored = problems.get(problem, {})
        known = stored.get("floors") == list(floors)  # the exact frontier takes minutes
        record = {"floors": list(floors), "exact": stored["exact"] if known else frontier_of(problem)}
        rows = {row["agent"]: row for row in stored.get("rows", [])}
        for name, agent in agents(floors[1]).items():
            if options.agents and name not in options.agents:
                continue
            steps = base * BUDGET.get(name, 1)
            title = name if options.scale == 1 else f"{name}, {options.scale} × the steps"
            row = {"agent": title, "steps": steps, "seeds": options.seeds}
            row |= measure(agent, problem, options.seeds, steps, NUM_ENVS.get(name, 16))
            if len(row["means"]) == len(floors):
                row["reached"] = reached(record, row)
            rows[title] = row
            print(problem, row, flush=True)
            problems[problem] = {**record, "rows": list(rows.values())}
            command = "python benchmarks/learning/learned_floors.py"
            write_json(options.out, {"command": command, "risk": RISK, "near": NEAR, "problems": problems})
    draw(problems, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
