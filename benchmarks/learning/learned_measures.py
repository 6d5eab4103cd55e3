"""Train Adaptive for the measures that `rp.solve` knows, on small problems, and compare with the exact optimum.

    python benchmarks/learning/learned_measures.py                           on a CPU: some minutes for each measure
    python benchmarks/learning/learned_measures.py --measures evar:0.1 best  only these
    python benchmarks/learning/learned_measures.py --problem RiskyGrid --measures evar:0.1 var:0.1

The share is (value − value of the mean-optimal policy) / (optimum − value of the mean-optimal policy), where the
optimum is that of `rp.solve`. The control is the same agent with the same training for the mean. Policies are evaluated
exactly. Results go to benchmarks/results/learned_measures.json after every measure, with the objective that was used.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import riskpath as rp
from riskpath.experiments.records import write_json

RESULTS = Path(__file__).parents[1] / "results" / "learned_measures.json"
MEASURES: dict[str, rp.RiskMeasure | str] = {
    **{text: text for text in ("evar:0.1", "entropic:0.01", "var:0.1", "reach:120", "evar:0.5", "mmv:0.005")},
    "worst": "worst",
    "utility": rp.Utility(lambda z: z / (1.0 + abs(z) / 50.0), name="utility"),
    "oce": rp.OCE(lambda x: x - 0.9 * ((x**2 + 50.0**2) ** 0.5 - 50.0), name="oce"),
    "semidev:1": "semidev:1",
    **{text: text for text in ("spectral:0.05=0.3,0.25=0.3,1=0.4", "0.5*mean+0.5*evar:0.1", "best")},
}
"""Each measure by its text. u(z) = z/(1 + |z|/50), and v(x) = x − 0.9 (√(x² + 50²) − 50)."""


def main() -> None:
    """Train for the measures and write their values."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measures", nargs="*", default=list(MEASURES))
    parser.add_argument("--problem", default="BettingGame")
    parser.add_argument("--steps", type=int, default=80_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    known = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    rows = {(row["problem"], row["risk"]): row for row in known}
    env: Any = rp.make(options.problem)
    mdp, seeds = env.mdp(), options.seeds
    control, best_mean = train("mean", env, options.steps, seeds), rp.solve(mdp, "mean").law
    for text in options.measures:
        measure = rp.parse_risk(MEASURES.get(text) or text)
        began = time.process_time()
        learned = train(measure, env, options.steps, seeds)
        seconds = round(time.process_time() - began, 1)
        optimum, of_mean = rp.solve(mdp, measure).value, float(measure.value(best_mean))
        values, controls = ([float(measure.value(law)) for law in laws] for laws in (learned, control))
        gain = optimum - of_mean
        some = gain > 1e-9 * max(1.0, abs(optimum))
        shares = [(value - of_mean) / gain for value in values] if some else None
        row = {"problem": options.problem, "risk": text, "objective": type(rp.Adaptive(measure).objective).__name__}
        row |= {"values": values, "control": controls}
        row |= {"mean_optimal": of_mean, "optimum": optimum, "shares": shares, "cpu_seconds": seconds}
        print(row, flush=True)
        rows[options.problem, text] = row
        command = "python benchmarks/learning/learned_measures.py"
        write_json(options.out, {"command": command, "steps": options.steps, "rows": list(rows.values())})


def train(measure: rp.RiskMeasure | str, env: Any, steps: int, seeds: int) -> list[rp.Law]:
    """Return what several seeds of Adaptive with a small network earn."""
    training = rp.Training(batch_size=64, num_quantiles=32, train_freq=16, learning_starts=4_000, buffer_size=80_000)
    agent = rp.Adaptive(measure, network=rp.Network(hidden=(64, 64)), training=training)
    run = rp.train(agent, env, steps=steps, seeds=seeds, num_envs=16, seed=1, progress=False)
    return [run.law(seed=seed) for seed in range(seeds)]


if __name__ == "__main__":
    main()
