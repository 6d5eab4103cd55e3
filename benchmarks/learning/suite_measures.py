"""Adaptive and AdaptivePPO for measures that are not CVaR, on the suite, beside the exact optimum and the control.

    python benchmarks/learning/suite_measures.py --references        once: exact optima, some minutes on a CPU
    python benchmarks/learning/suite_measures.py                     everything: about an hour on a GPU
    python benchmarks/learning/suite_measures.py --only "Adaptive BettingGame evar"                one training
    python benchmarks/learning/suite_measures.py --only RandomMDP:2 --steps 40000 --seeds 1        to try it
    python benchmarks/learning/suite_measures.py --join              one file of all trainings, and the table

The value-based agents have the sizes and steps of `riskpath bench suite`; AdaptivePPO has 8,192 environments and twice
the steps. The measures of one kind and all seeds are lanes of one training, which is one file in the folder; trainings
that are there are left out, so several processes can share a GPU. Small finite problems are evaluated exactly, the
others by 100,000 episodes. The share is (value − value of the mean-optimal policy) / (optimum − value of the
mean-optimal policy).
"""

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import riskpath as rp
from riskpath.experiments.bench_cells import kind_of
from riskpath.experiments.bench_suite import SIZES, BenchProblem, as_problems, hyperparameters
from riskpath.experiments.records import write_json
from riskpath.training.measured import SITUATIONS

RESULTS = Path(__file__).parents[1] / "results" / "suite_measures.json"
SCALES = {  # the aversion of the entropic measure, about one over the standard deviation, and a target
    "RiskyGrid": (0.013, 80),
    "probe grid": (0.014, 90),
    "RandomMDP": (0.2, 2),
    "RandomMDP:2": (0.14, 8),
    "BettingGame": (0.01, 60),
    "WindyCliff": (0.2, 1),
    "Inventory": (0.008, 150),
    "Liquidation": (0.1, -12),
}
SPECTRAL, MIXTURE = "spectral:0.05=0.3,0.25=0.3,1=0.4", "0.5*mean+0.5*evar:0.1"
AGENTS = ("Adaptive", "AdaptivePPO", "mean control")
SMALL_ADVANTAGE = 0.05
"""Cells whose advantage is a smaller part of the standard deviation are left out, as in the benchmark."""
PPO_STEPS, PPO_ENVS = 16_000_000, 8_192


def measures(problem: str) -> list[str]:
    """Return the measures of a problem."""
    aversion, target = SCALES[problem]
    fixed = ("evar:0.1", "evar:0.5", "var:0.1", "var:0.25", "semidev:1", SPECTRAL, MIXTURE)
    return [*fixed, f"entropic:{aversion}", f"mmv:{aversion / 2}", f"reach:{target}"]


def references() -> dict[str, Any]:
    """Return value of the mean-optimal policy and optimum of every problem and measure, by exact solution."""
    found: dict[str, Any] = {}
    for name in SCALES:
        mdp = _problem(name).env.mdp()
        law = rp.solve(mdp, "mean").law
        found[name] = {"deviation": law.std, "measures": {}}
        for text in measures(name):
            risk = rp.parse_risk(text)
            found[name]["measures"][text] = [float(risk.value(law)), rp.solve(mdp, risk).value]
            print(name, text, *found[name]["measures"][text], flush=True)
    return found


def cells(optima: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    """Return agent, problem and measures of every training: those of a kind whose optimum has an advantage."""
    found = []
    for agent in AGENTS:
        for name in SCALES:
            kinds: dict[str, list[str]] = {}
            for text, (of_mean, optimum) in optima[name]["measures"].items():
                unit = 1.0 if text.startswith("reach") else optima[name]["deviation"]
                if optimum - of_mean > (0.01 if text.startswith("reach") else SMALL_ADVANTAGE) * unit:
                    kinds.setdefault("" if agent == "mean control" else kind_of(text), []).append(text)
            found += [(agent, name, texts) for texts in kinds.values()]
    return found


def train_cell(agent: str, name: str, texts: list[str], optima: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Train all measures and seeds of a cell; return their values."""
    problem = _problem(name)
    size = {**SIZES[problem.size], "num_quantiles": options.quantiles}
    size |= {"steps": options.steps} if options.steps else {}
    trained, num_envs, steps = ["mean"] if agent == "mean control" else texts, size["num_envs"], size["steps"]
    if agent == "AdaptivePPO":
        training = rp.RolloutTraining(length=20, epochs=4, minibatches=16)
        agents: list[Any] = [
            rp.AdaptivePPO(text, network=rp.Network(hidden=(256, 256)), training=training) for text in trained
        ]
        num_envs, steps = (
            (PPO_ENVS, options.steps or PPO_STEPS) if problem.size == "large" else (1_024, options.steps or 4_000_000)
        )
    else:
        kind = rp.IQN if agent == "mean control" else rp.Adaptive
        agents = [kind(text, discount=1.0, **hyperparameters(size)) for text in trained]
    began = time.perf_counter()
    run = rp.train(agents, problem.env, steps=steps, seeds=options.seeds, num_envs=num_envs, seed=1, progress=False)
    seconds = time.perf_counter() - began
    found = run.measure(size["episodes"], 2, None if problem.size == "small" else SITUATIONS)
    rows = []
    for lane, text in enumerate(texts):
        setting, (of_mean, optimum) = 0 if agent == "mean control" else lane, optima[name]["measures"][text]
        values = np.asarray(found.values(rp.parse_risk(text)))[setting]
        row: dict[str, Any] = {"measure": text, "values": values.tolist(), "mean_optimal": of_mean, "optimum": optimum}
        row["shares"] = ((values - of_mean) / (optimum - of_mean)).tolist()
        if agent != "mean control":
            row |= {
                "objective": type(agents[lane].objective).__name__,
                "estimates": np.asarray(run.estimates())[lane].tolist(),
            }
        rows.append(row)
    made = {"steps": run.steps, "num_envs": num_envs, "seconds": round(seconds, 1), "episodes": found.episodes}
    made |= {"device": jax.local_devices()[0].device_kind, "jax": jax.__version__, "riskpath": rp.__version__}
    return {"agent": agent, "problem": name, **made, "rows": rows}


def _problem(name: str) -> BenchProblem:
    return as_problems([name], False)[0]


def main() -> None:
    """Run what the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--references", action="store_true")
    parser.add_argument("--join", action="store_true")
    parser.add_argument("--list", action="store_true", help="print the names of all trainings")
    parser.add_argument("--only", default="", help="trainings with this text in their name")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--quantiles", type=int, default=32, help="atoms of the critic of Adaptive")
    parser.add_argument("--out", type=Path, default=Path("runs/suite_measures"))
    options = parser.parse_args()
    command = "python benchmarks/learning/suite_measures.py"
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"command": command, "cells": []}
    if options.references:
        write_json(RESULTS, {**stored, "references": references()})
        return
    optima = stored["references"]
    for agent, name, texts in cells(optima):
        title = f"{agent} {name} {'' if agent == 'mean control' else kind_of(texts[0])}".strip()
        file = options.out / (re.sub(r"[^a-z0-9]+", "_", title.lower()) + ".json")
        if options.list:
            print(title)
        elif options.only in title and not options.join and not file.exists():
            result = train_cell(agent, name, texts, optima, options)
            options.out.mkdir(parents=True, exist_ok=True)
            write_json(file, result)
            for row in result["rows"]:
                print(title, row["measure"], np.round(row["shares"], 2), f"{result['seconds']} s", flush=True)
    if options.join:
        found = [json.loads(path.read_text()) for path in sorted(options.out.glob("*.json"))]
        names = {(cell["agent"], cell["problem"], cell["rows"][0]["measure"]) for cell in found}
        kept = [
            cell
            for cell in stored["cells"]
            if (cell["agent"], cell["problem"], cell["rows"][0]["measure"]) not in names
        ]
        write_json(RESULTS, {**stored, "cells": kept + found})
        print(table(kept + found))


def table(found: list[dict[str, Any]]) -> str:
    """Return the median share of each agent for every problem and measure."""
    shares = {(c["problem"], row["measure"], c["agent"]): row["shares"] for c in found for row in c["rows"]}
    keys = sorted({key[:2] for key in shares}, key=lambda key: (list(SCALES).index(key[0]), key[1]))
    lines = ["| problem | measure | " + " | ".join(AGENTS) + " |", "|---|---|" + "---:|" * len(AGENTS)]
    for key in keys:
        found_shares = [shares.get((*key, agent)) for agent in AGENTS]
        texts = ["–" if values is None else f"{np.median(values):.2f}" for values in found_shares]
        lines.append(f"| {key[0]} | `{key[1]}` | " + " | ".join(texts) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
