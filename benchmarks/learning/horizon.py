"""How an agent's share of the optimum's advantage changes with the length of an episode.

    python benchmarks/learning/horizon.py --out runs/horizon.jsonl  on a GPU: about a quarter of an hour
    python benchmarks/learning/horizon.py --only random8 --seeds 2 --steps 40000                       to try it
    python benchmarks/learning/horizon.py --only random64 --set num_quantiles=96 --out runs/atoms.jsonl  another setting
    python benchmarks/learning/horizon.py --draw                                                       only the picture

The problems are `rp.RandomMDP(seed, depth)` of 8 to 256 steps and `rp.MeanReversionTrading(steps)` of 10 to 160. All
agents have the same sizes and the same budget everywhere. A line of the file is a problem, an agent and a measure. It
has for every seed the value of 100,000 episodes and the value that the agent itself predicts, beside the optimum, the
value of the mean-optimal policy and the standard deviation of its return. An interrupted run goes on after the lines
that are there; `--part 1/4` makes a quarter of the lines, so that several processes can share a GPU.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import riskpath as rp
from riskpath import plot

RESULTS = Path(__file__).parents[1] / "results"
SEED, EVALUATION_SEED, EPISODES = 1, 20_000, 100_000
STEPS, NUM_ENVS = 5_120_000, 128
HIDDEN = (256, 256)
TRAINING = {"batch_size": 1024, "train_freq": 128, "learning_starts": 16_000, "buffer_size": 1_280_000}
DEPTHS, TRADES = (8, 32, 64, 128, 256), (10, 40, 160)
MDP_SEEDS = (201, 202)
TRADING = {  # CVaR of the mean-optimal policy where it is known, and the best one that is known
    10: {"cvar:0.25": (-1.29, 0.123), "cvar:0.5": (-0.04, 0.494)},
    40: {"cvar:0.25": (9.50, 11.61), "cvar:0.5": (None, 14.09)},
    160: {"cvar:0.25": (86.17, 87.0), "cvar:0.5": (None, 93.6)},
}
AGENTS = {"Adaptive": rp.Adaptive, "IQN": rp.IQN, "mean control": rp.IQN, "Adaptive, mean": rp.Adaptive}
FOR_MEAN = ("mean control", "Adaptive, mean")


def cells(agents: list[str]) -> list[tuple[str, int, str]]:
    """Return all cells: a problem, its length and an agent."""
    problems = [("random", depth) for depth in DEPTHS] + [("trading", steps) for steps in TRADES]
    return [(name, length, agent) for agent in agents for name, length in problems]


def reference(env: Any, risk: str) -> dict[str, Any]:
    """Return the optimum, the value of the mean-optimal policy and the standard deviation of its return."""
    if isinstance(env, rp.MeanReversionTrading):
        control, best = TRADING[env.steps][risk]
        return {"optimum": best, "mean_optimal": control, "deviation": None}
    mdp = env.mdp()
    law = rp.solve(mdp, "mean").law
    return {
        "optimum": rp.solve(mdp, risk).value,
        "mean_optimal": law.risk(risk),
        "deviation": law.std,
        "mean": law.mean,
    }


def train_cell(
    name: str, length: int, agent: str, seeds: int, steps: int, num_envs: int, given: dict[str, float]
) -> list[dict[str, Any]]:
    """Train all lanes of a cell, and return a line for every problem and measure."""
    if name == "random":
        environments, risks = [rp.RandomMDP(seed=seed, depth=length) for seed in MDP_SEEDS], ("cvar:0.1", "cvar:0.5")
    else:
        environments, risks = [rp.MeanReversionTrading(steps=length)], ("cvar:0.25", "cvar:0.5")
    trained = [(env, "mean") for env in environments] if agent in FOR_MEAN else []
    seeds //= len(environments)
    trained = trained or [(env, risk) for env in environments for risk in risks]
    settings = {"discount": 1.0, "network": rp.Network(hidden=HIDDEN)}
    base = AGENTS[agent]()
    training = replace(base.training, **TRAINING | given)
    agents = [AGENTS[agent](risk, training=training, **settings) for _, risk in trained]
    began = time.perf_counter()
    run = rp.train(agents, [env for env, _ in trained], steps=steps, seeds=seeds, num_envs=num_envs, seed=SEED)
    seconds = round(time.perf_counter() - began, 1)
    evaluation, estimates, lines = run.evaluate(EPISODES, EVALUATION_SEED), run.estimates(), []
    for number, (env, own) in enumerate(trained):
        returns = np.asarray(evaluation[number].returns, np.float64).reshape(seeds, -1)
        for risk in risks if own == "mean" else (own,):
            values = np.array([float(rp.parse_risk(risk).value(one)) for one in returns])
            line: dict[str, Any] = {"problem": name, "length": length, "agent": agent, "risk": risk}
            line |= {"seed_of_problem": getattr(env, "seed", None), **reference(env, risk)}
            line |= {"values": values.round(4).tolist(), "means": returns.mean(axis=1).round(4).tolist()}
            line |= {"estimates": np.asarray(estimates[number]).round(4).tolist()}
            line |= {"range": [float(returns.min()), float(returns.max())]}
            line |= {"training": given, "num_envs": num_envs}
            line |= {"steps": run.steps, "seconds": seconds, "device": jax.devices()[0].device_kind}
            lines.append(line)
    return lines


def share(line: dict[str, Any]) -> np.ndarray:
    """Return for every seed the share of the optimum's advantage over the mean-optimal policy."""
    return (np.array(line["values"]) - line["mean_optimal"]) / (line["optimum"] - line["mean_optimal"])


def gap(line: dict[str, Any]) -> np.ndarray:
    """Return for every seed the gap to the optimum in standard deviations of the mean-optimal return."""
    return (line["optimum"] - np.array(line["values"])) / line["deviation"]


def relative(line: dict[str, Any]) -> np.ndarray:
    """Return for every seed the value relative to the best one that is known."""
    return np.array(line["values"]) / line["optimum"]


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw what is reached against the length of an episode: medians as lines, all seeds as points."""
    figure, axes = plot.panels(1, 3, 4.0, 3.4)
    panels = (
        ("random", gap, "gap, standard deviations", (-0.02, 0.3), 0.0),
        ("random", share, "share of the advantage", (-1.0, 1.2), 1.0),
        ("trading", relative, "CVaR relative to the best", (-0.2, 1.1), 1.0),
    )
    for axis, (name, function, label, limits, best) in zip(axes[0], panels, strict=True):
        for agent, colour in zip(AGENTS, plot.PALETTE, strict=False):
            own = [line for line in lines if (line["problem"], line["agent"]) == (name, agent)]
            lengths = sorted({line["length"] for line in own})
            seeds = [np.concatenate([function(x) for x in own if x["length"] == length]) for length in lengths]
            for length, values in zip(lengths, seeds, strict=True):
                axis.plot(np.full(len(values), length), values, ".", color=colour, alpha=0.25, markersize=3)
            if seeds:
                axis.plot(lengths, [np.median(v) for v in seeds], "o-", color=colour, label=agent, markersize=4)
        axis.set_xscale("log", base=2)
        axis.set_xticks(
            list(DEPTHS if name == "random" else TRADES), labels=map(str, DEPTHS if name == "random" else TRADES)
        )
        axis.set_xlabel("steps in an episode")
        axis.set_ylabel(label)
        axis.set_title({"random": "RandomMDP", "trading": "MeanReversionTrading"}[name], fontsize=10)
        axis.axhline(best, color="0.6", linewidth=0.8)
        axis.set_ylim(*limits)
    axes[0, 0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
    print(f"wrote {path}")


def main() -> None:
    """Train all cells that are not stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", choices=list(AGENTS), default=["Adaptive", "mean control", "IQN"])
    parser.add_argument("--only", nargs="*", default=[], help="only these problems, for example random64 trading160")
    parser.add_argument("--seeds", type=int, default=8, help="trainings for each measure, over all problems")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--num-envs", type=int, default=NUM_ENVS)
    parser.add_argument("--set", nargs="*", default=[], help="numbers of rp.Training, for example num_quantiles=96")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--draw", action="store_true", help="only draw")
    parser.add_argument("--out", type=Path, default=RESULTS / "horizon.jsonl")
    options = parser.parse_args()
    given = {name: json.loads(value) for name, value in (text.split("=") for text in options.set)}
    if not options.draw:
        done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
        stored = {(line["problem"], line["length"], line["agent"]) for line in done}
        wanted = [c for c in cells(options.agents) if not options.only or f"{c[0]}{c[1]}" in options.only]
        part, parts = (int(x) for x in options.part.split("/"))
        for cell in [cell for cell in wanted[part - 1 :: parts] if cell not in stored]:
            lines = train_cell(*cell, options.seeds, options.steps, options.num_envs, given)
            options.out.parent.mkdir(parents=True, exist_ok=True)
            with options.out.open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
            for line in lines:
                print(
                    *cell,
                    line["risk"],
                    np.median(line["values"]),
                    "of",
                    line["optimum"],
                    line["seconds"],
                    "s",
                    flush=True,
                )

    lines = [json.loads(line) for line in options.out.read_text().splitlines()]
    draw(lines, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
