"""How often TQL with its defaults finds the best history policy of small grids; values are exact.

    python benchmarks/learning/tql_grids.py                           eight seeds of each, an hour on one core
    python benchmarks/learning/tql_grids.py --only forks --steps 500  to try it

`forks`: yellow pays only if it is chosen at all four forks. `probe`: the harder grid of the grid page, where the policy
with the best mean is not the best one at CVaR 0.1 and quantile functions jump next to the level. `unseen`: the first
twelve random grids of three forks in which the mean-optimal or the per-step policy is not the best one, one seed each.
The best policy that sees the history but not the rewards is computed by `rp.solve`. A line of the file is a grid and a
measure, or all random grids.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import riskpath as rp

OUT = Path(__file__).parents[1] / "results" / "tql_grids.jsonl"
NEAR = 1e-3
"""A policy counts as optimal if its value is this close to the optimum."""
JOBS = ("forks cvar:0.75", "probe cvar:0.1", "probe cvar:0.25", "probe cvar:0.5", "unseen")
UNSEEN = 12


def random_grid(number: int) -> tuple[Any, str]:
    """Return one of the random grids and its measure."""
    rng = np.random.default_rng(70_000 + number)
    risk = f"cvar:{rng.choice((0.1, 0.25, 0.5, 0.75))}"
    numbers = {
        "blue": rng.uniform(5, 50),
        "yellow": rng.uniform(30, 120),
        "p_yellow": rng.uniform(0.3, 0.9),
    }
    rounded: dict[str, Any] = {name: round(float(x), 2) for name, x in numbers.items()}
    return rp.RiskyGrid(**rounded), risk


def controls(env: Any, risk: str) -> tuple[float, float, float]:
    """Return the values of the best history policy, the mean-optimal and the per-step policy."""
    mdp = env.mdp()
    mean_optimal = float(rp.solve(mdp, "mean").law.risk(risk))
    return rp.solve(mdp, risk, "history").value, mean_optimal, rp.solve(mdp, risk, "markov").value


def unseen() -> list[tuple[Any, str]]:
    """Return the first random grids in which ignoring risk or weighing it at every step is not the best."""
    listed, number = [], 0
    while len(listed) < UNSEEN:
        best, *others = controls(*random_grid(number))
        if best - min(others) > 10 * NEAR:
            listed.append(random_grid(number))
        number += 1
    return listed


def grids(job: str, seeds: int) -> tuple[list[Any], list[str], int]:
    """Return the grids of a job, the measure of each, and the seeds of each."""
    if job == "unseen":
        listed = unseen()
        return [env for env, _ in listed], [risk for _, risk in listed], 1
    name, risk = job.split()
    if name == "forks":
        return [rp.RiskyGrid(forks=4, step_reward=-5.0, blue=13.0, yellow=45.0, p_yellow=0.4)], [risk], seeds
    return [rp.RiskyGrid(p_yellow=0.8, blue=38.0)], [risk], seeds


def measure(job: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train all lanes of a job and return the line of the file."""
    envs, risks, seeds = grids(job, options.seeds)
    optima, mean_optimal, per_step = zip(*map(controls, envs, risks), strict=True)
    began = time.process_time()
    run = rp.train([rp.TQL(risk) for risk in risks], envs, steps=options.steps, seeds=seeds)
    seconds = time.process_time() - began
    laws = [[run.law(seed, setting) for seed in range(seeds)] for setting in range(len(envs))]
    values = [[float(rp.parse_risk(r).value(law)) for law in row] for r, row in zip(risks, laws, strict=True)]
    return {
        "job": job,
        "risks": risks,
        "seeds": seeds,
        "steps": options.steps,
        "optima": np.round(optima, 4).tolist(),
        "mean_optimal": np.round(mean_optimal, 4).tolist(),
        "per_step": np.round(per_step, 4).tolist(),
        "values": np.round(values, 4).tolist(),
        "optimal": int((np.asarray(values) > np.asarray(optima)[:, None] - NEAR).sum()),
        "of": len(envs) * seeds,
        "cpu_s": round(seconds, 1),
        "version": rp.__version__,
    }


def read(out: Path) -> list[dict[str, Any]]:
    """Return the lines of the file."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[""], help="jobs with one of these texts in their name")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    for job in JOBS:
        if any(text in job for text in options.only) and all(line["job"] != job for line in read(options.out)):
            line = measure(job, options)
            print(json.dumps(line), flush=True)
            with options.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
