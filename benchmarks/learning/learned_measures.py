"""Train Adaptive for every measure that `rp.solve` knows, on a small problem, and compare with the exact optimum.

    python benchmarks/learning/learned_measures.py                           on a CPU: about a minute for each measure
    python benchmarks/learning/learned_measures.py --measures evar:0.1 best  only these

The share is (value − value of the mean-optimal policy) / (optimum − value of the mean-optimal policy), where the
optimum is that of `rp.solve`. The control is the same agent with the same training for the mean. Policies are evaluated
exactly. Results go to benchmarks/results/learned_measures.json after every measure.
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
    parser.add_argument("--steps", type=int, default=80_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    known = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    rows = {row["risk"]: row for row in known}
    env, mdp = rp.BettingGame(), rp.BettingGame().mdp()
    control, best_mean = train("mean", env, options.steps).law(), rp.solve(mdp, "mean").law
    for text in options.measures:
        measure = rp.parse_risk(MEASURES.get(text) or text)
        began = time.process_time()
        law = train(measure, env, options.steps).law()
        optimum, of_mean = rp.solve(mdp, measure).value, float(measure.value(best_mean))
        values: dict[str, Any] = {"value": float(measure.value(law)), "control": float(measure.value(control))}
        gain = optimum - of_mean
        share = (values["value"] - of_mean) / gain if gain > 1e-9 * max(1.0, abs(optimum)) else None
        seconds = {"cpu_seconds": round(time.process_time() - began, 1)}
        rows[text] = {"risk": text, **values, "mean_optimal": of_mean, "optimum": optimum, "share": share, **seconds}
        print(rows[text], flush=True)
        made = {
            "command": "python benchmarks/learning/learned_measures.py",
            "problem": "BettingGame",
            "steps": options.steps,
        }
        write_json(options.out, {**made, "rows": list(rows.values())})


def train(measure: rp.RiskMeasure | str, env: rp.BettingGame, steps: int) -> rp.Run:
    """Return one seed of Adaptive with a small network."""
    training = rp.Training(batch_size=64, num_quantiles=32, train_freq=16, learning_starts=4_000, buffer_size=80_000)
    agent = rp.Adaptive(measure, network=rp.Network(hidden=(64, 64)), training=training)
    return rp.train(agent, env, steps=steps, seeds=1, num_envs=16, seed=1, progress=False)


if __name__ == "__main__":
    main()
