"""Policy gradients for measures other than CVaR: `rp.AdaptivePPO` beside the optimum, on a CPU.

    python benchmarks/learning/policy_gradient_measures.py             all: about half an hour on one core
    python benchmarks/learning/policy_gradient_measures.py --problems BettingGame --risks wang:-0.75        one of them
    python benchmarks/learning/policy_gradient_measures.py --problems RiskyGrid --steps 2000 --num-envs 8 --hidden 8
        --out runs/measures.json                                                          to try it

The share is (value − value of the mean-optimal policy) / (optimum − value of the mean-optimal policy), where the
optimum is that of `rp.solve`. The control is the same agent with the same training for the mean. Policies are evaluated
exactly. Results are written after every training.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import riskpath as rp
from riskpath.experiments.records import write_json

RESULTS = Path(__file__).parents[1] / "results" / "policy_gradient_measures.json"
PROBLEMS = ("BettingGame", "Inventory")
RISKS = ("wang:-0.75", "evar:0.5", "entropic:0.01", "semidev:1", "spectral:0.05=0.3,0.25=0.3,1=0.4")
STEPS, SEEDS, NUM_ENVS, LENGTH, EPOCHS, MINIBATCHES, HIDDEN = 300_000, 2, 64, 16, 4, 8, (64, 64)
SETTINGS = ("steps", "seeds", "num_envs", "length", "epochs", "minibatches", "hidden")


def main() -> None:
    """Train for the measures and write their values."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS))
    parser.add_argument("--risks", nargs="+", default=list(RISKS))
    parser.add_argument("--steps", type=int, default=STEPS, help="environment steps of each seed")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--num-envs", type=int, default=NUM_ENVS)
    parser.add_argument("--length", type=int, default=LENGTH, help="steps of a rollout")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--minibatches", type=int, default=MINIBATCHES)
    parser.add_argument("--hidden", type=int, nargs="+", default=list(HIDDEN))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    known = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    rows = {(row["problem"], row["risk"]): row for row in known}
    for problem in options.problems:
        env: Any = rp.make(problem)
        control, mdp = train("mean", env, options), env.mdp()
        controls = [control.law(seed) for seed in range(options.seeds)]
        best_mean = rp.solve(mdp, "mean").law
        for text in options.risks:
            risk, began = rp.parse_risk(text), time.process_time()
            run = train(text, env, options)
            values: dict[str, Any] = {
                "values": run.values()[0].tolist(),
                "control": [float(risk.value(law)) for law in controls],
                "mean_optimal": float(risk.value(best_mean)),
                "optimum": rp.solve(mdp, risk).value,
                "estimates": np.asarray(run.estimates())[0].tolist(),
            }
            gain = values["optimum"] - values["mean_optimal"]
            values["shares"] = [(value - values["mean_optimal"]) / gain for value in values["values"]]
            settings = {name: getattr(options, name) for name in SETTINGS}
            seconds = round(time.process_time() - began, 1)
            rows[problem, text] = {"problem": problem, "risk": text, **values, **settings, "cpu_seconds": seconds}
            print(rows[problem, text], flush=True)
            made = {"command": "python benchmarks/learning/policy_gradient_measures.py", "version": rp.__version__}
            write_json(options.out, {**made, "device": jax.devices()[0].device_kind, "rows": list(rows.values())})


def train(risk: str, env: Any, options: argparse.Namespace) -> rp.Run:
    """Return all seeds of AdaptivePPO for a measure."""
    training = rp.RolloutTraining(length=options.length, epochs=options.epochs, minibatches=options.minibatches)
    agent = rp.AdaptivePPO(risk, network=rp.Network(hidden=tuple(options.hidden)), training=training)
    return rp.train(
        agent, env, steps=options.steps, seeds=options.seeds, num_envs=options.num_envs, seed=1, progress=False
    )


if __name__ == "__main__":
    main()
