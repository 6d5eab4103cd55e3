"""Trade a mean-reverting price with every kind of agent, for CVaR 0.25 and 0.5, and draw what they earn.

    python benchmarks/peers/trading.py  on a GPU: minutes for each row; --quick on a CPU: minutes
    python benchmarks/peers/trading.py --only Adaptive --atoms 64 --steps 32000000 --out runs/larger.json  larger

The problem is `rp.MeanReversionTrading`: ten trades in a price that returns to its mean. Its optima are known from the
exact solver (`results/suite_optima.json`). All agents have equal networks and environment steps: the mean-trained
control and IQN, which see no rewards, `rp.Adaptive` with 21 different trades, and `rp.AdaptiveContinuous` with any,
whose critics make twice as many gradient steps. Both levels and all seeds are lanes of one training.

Results go to benchmarks/results/trading.json and .png, with --quick to the folder `runs`, after every row. A second
call with the same budget goes on after the rows that are there. Each row names the device it was trained on.
"""

import argparse
import dataclasses
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from market_paths import add_options, budget_of, sized_like, stored_rows, versions
from qrsrm_peer import references

import riskpath as rp
from riskpath import plot
from riskpath.experiments.bench_suite import SIZES, hyperparameters
from riskpath.experiments.records import write_json
from riskpath.validation import given

STEPS = 16_000_000
LEVELS = (0.25, 0.5)
FULL = {**SIZES["large"], "hidden": (512, 512, 512), "batch_size": 512, "buffer_size": 8_000_000}
SEED, EVALUATION_SEED = 1, 20_000
LEVEL_SHOWN = 0.25
"""The picture shows policies that are trained for this level."""


def agents(settings: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the agents of every row, one for each level; the control is trained once."""
    continuous = sized_like(rp.AdaptiveContinuous(), settings)
    training = dataclasses.replace(continuous.training, decay_ends=0.9)
    continuous = dataclasses.replace(continuous, training=training)
    discrete = {"discount": 1.0, **hyperparameters(settings)}
    return {
        "mean control": [rp.IQN("mean", **discrete)],
        "IQN": [rp.IQN(rp.CVaR(level), **discrete) for level in LEVELS],
        "Adaptive": [rp.Adaptive(rp.CVaR(level), **discrete) for level in LEVELS],
        "AdaptiveContinuous": [dataclasses.replace(continuous, risk=rp.CVaR(level)) for level in LEVELS],
    }


def run_row(name: str, settings: dict[str, Any], seeds: int, episodes: int) -> dict[str, Any]:
    """Train all lanes of a row; return CVaR and mean of every seed, and quantiles of the returns, for each level."""
    trained, began = agents(settings)[name], time.perf_counter()
    env = rp.MeanReversionTrading(continuous=trained[0].actions == "continuous")
    run = rp.train(trained, env, steps=settings["steps"], seeds=seeds, num_envs=settings["num_envs"], seed=SEED)
    seconds = time.perf_counter() - began
    evaluation, levels = run.evaluate(episodes, EVALUATION_SEED), {}
    for number, level in enumerate(LEVELS):
        one = evaluation[min(number, len(trained) - 1)]
        returns = np.asarray(one.returns, np.float64).reshape(seeds, -1)
        interval = one.risk(rp.CVaR(level))[0]
        levels[f"{level:g}"] = {
            "cvars": [round(float(rp.CVaR(level).value(returns_of_seed)), 5) for returns_of_seed in returns],
            "low": round(float(interval.low), 5),
            "high": round(float(interval.high), 5),
            "means": [round(float(x), 5) for x in returns.mean(axis=1)],
            "quantiles": [round(float(x), 4) for x in np.quantile(returns, (np.arange(200) + 0.5) / 200)],
        }
    updates = int(run.lanes.clock.updates)
    device = jax.devices()[0].device_kind
    return {"agent": name, "updates": updates, "seconds": round(seconds, 1), "device": device, "levels": levels}


def table(rows: list[dict[str, Any]]) -> str:
    """Return a table in Markdown: the median, lowest and highest CVaR over seeds."""
    lines = ["| agent | " + " | ".join(f"CVaR {level:g}" for level in LEVELS) + " |", "|---|" + "---:|" * len(LEVELS)]
    for row in rows:
        cells = []
        for one in row["levels"].values():
            values = one["cvars"]
            cells.append(f"{np.median(values):z.3f} ({min(values):z.3f} … {max(values):z.3f})")
        lines.append(f"| {row['agent']} | {' | '.join(cells)} |")
    for name, label in (("mean-optimal", "mean-optimal, exact"), ("best", "optimum, exact")):
        exact = [references(level).get(name) for level in LEVELS]
        if None not in exact:
            lines.append(f"| {label} | {' | '.join(f'{value:z.3f}' for value in exact)} |")
    return re.sub(r"-(?=\d)", "−", "\n".join(lines))


def draw(rows: list[dict[str, Any]], path: Path) -> Path:
    """Draw the distribution functions of the returns; a point marks each one's CVaR."""
    figure, axes = plot.panels(1, 1, 6.4, 4.2)
    axis, probability = axes[0, 0], (np.arange(200) + 0.5) / 200
    shown = [row for row in rows if row["agent"] != "AdaptiveContinuous"]
    for row, colour in zip(shown, plot.PALETTE, strict=False):
        one = row["levels"][f"{LEVEL_SHOWN:g}"]
        cvar = float(np.mean(one["cvars"]))
        label = {"mean control": "trained for the mean"}.get(row["agent"], f"{row['agent']}, trained for CVaR")
        label = f"{label}: worst quarter {cvar:+.2f}, mean {np.mean(one['means']):+.2f}".replace("-", "−")
        axis.plot(one["quantiles"], probability, color=colour, linewidth=1.8, label=label)
        axis.plot([cvar], [LEVEL_SHOWN / 2], "o", color=colour, markersize=6)
    axis.axhspan(0.0, LEVEL_SHOWN, color="0.5", alpha=0.12, linewidth=0)
    axis.text(
        0.995,
        LEVEL_SHOWN - 0.015,
        "worst quarter",
        transform=axis.get_yaxis_transform(),
        ha="right",
        va="top",
        fontsize=8,
    )
    axis.axvline(0.0, color="0.6", linewidth=0.8)
    axis.set_xlim(-4.0, 5.0)
    axis.set_ylim(0.0, 1.0)
    axis.set_xlabel("earned in an episode", fontsize=9)
    axis.set_ylabel("share of episodes that earn less", fontsize=9)
    axis.legend(fontsize=8, frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 1.0))
    return plot.save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(agents(FULL)), help="train only these")
    parser.add_argument("--atoms", type=int, help="atoms or quantiles of discrete agents (default: 32)")
    parser.add_argument("--batch", type=int, help="samples of a gradient step (default: 512)")
    parser.add_argument("--envs", type=int, help="environments of each seed (default: 256); a gradient step follows")
    add_options(parser, STEPS, "20,000 steps, one seed, 20,000 evaluation episodes")
    options = parser.parse_args()
    steps, seeds, episodes, out = budget_of(options, STEPS, "trading.json")
    envs = {"num_envs": options.envs, "train_freq": options.envs}
    changed = given(num_quantiles=options.atoms, batch_size=options.batch, **envs)
    settings = {**(SIZES["quick"] if options.quick else FULL), **changed, "steps": steps}
    budget = {"steps": steps, "evaluation_episodes": episodes, **changed}
    order = list(agents(settings))
    rows = stored_rows(out, budget)
    for name in order:
        if name not in (options.only or order) or any(row["agent"] == name for row in rows):
            continue
        rows.append(run_row(name, settings, seeds, episodes))
        rows.sort(key=lambda row: order.index(row["agent"]))
        command = shlex.join(["python", "benchmarks/peers/trading.py", *sys.argv[1:]])
        report = {"command": command, "versions": versions("jax", "jaxlib", "numpy"), "budget": budget, "rows": rows}
        write_json(out, report)
        print(f"{name}, {rows[-1]['seconds']:.0f} s", flush=True)
    print(table(rows))
    print(f"\n{out}, {draw(rows, out.with_suffix('.png'))}")


if __name__ == "__main__":
    main()
