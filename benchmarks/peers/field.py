"""Agents of this library and published rivals on the rivals' own tasks: the guarded maze and the autonomous vehicle.

    python benchmarks/peers/field.py --out benchmarks/results/field.jsonl      two busy CPU cores: about an hour
    python benchmarks/peers/field.py --only PPO --tasks GuardedMaze --steps 4096 --seeds 1     to try it
    python benchmarks/peers/field.py --draw benchmarks/results/field.png       only the picture

All agents take the same number of environment steps with the same sizes of networks, discount 1 and 4 seeds. A line of
the file is a task, an agent and a level: the CVaR of every seed's greedy policy in many episodes, its mean, the optimum
and the value of the policy with the best mean. A control is trained for the mean, and judged by CVaR. An interrupted
run goes on after the lines that are there.

What differs from the public code of Return Capping: rewards are not divided by 256, the discount is 1 instead of 0.99,
networks have two layers of 64 instead of 256, the return so far and the time are encoded, and the budget is smaller.
"""

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import riskpath as rp
from riskpath import plot

RESULTS = Path(__file__).parents[1] / "results"
LEVELS = (0.05, 0.2)
STEPS, NUM_ENVS, SEEDS = 51_200, 16, 4
SEED, EVALUATION_SEED, EPISODES = 1, 20_000, 2_000
NETWORK = rp.Network(hidden=(64, 64))
ROLLOUT = rp.RolloutTraining(length=64, epochs=4, minibatches=4)
GRADIENT = rp.RolloutTraining(length=128, epochs=4, minibatches=4)
"""Episodes must end within a rollout of the CVaR policy gradient; several epochs, as in Return Capping's code."""
REPLAY: Any = {"batch_size": 64, "train_freq": 8, "learning_starts": 4_000, "buffer_size": 100_000}
REPLAY |= {"num_quantiles": 16, "num_target_quantiles": 16, "num_action_quantiles": 32}
TASKS = {"GuardedMaze": rp.GuardedMaze, "AutonomousVehicle": rp.AutonomousVehicle}


def agents() -> dict[str, list[Any]]:
    """Return every agent: one for each level, or one for all levels."""
    shared: Any = {"network": NETWORK, "discount": 1.0}
    risks = [rp.CVaR(level) for level in LEVELS]
    replay = {**shared, "training": rp.Training(**REPLAY)}
    gradient = {**shared, "training": GRADIENT}
    return {
        "AdaptivePPO": [rp.AdaptivePPO(risks[0], training=ROLLOUT, selection_episodes=400, **shared)],
        "return capping": [rp.ReturnCapping(risk, training=ROLLOUT, **shared) for risk in risks],
        "GCVaR": [rp.CVaRPolicyGradient(risk, **gradient) for risk in risks],
        "GCVaR, soft risk": [rp.CVaRPolicyGradient(risk, soft_risk=0.8, **gradient) for risk in risks],
        "WCPG": [rp.WCPG(risk, training=ROLLOUT, **shared) for risk in risks],
        "PPO, mean control": [rp.PPO(training=ROLLOUT, **shared)],
        "Adaptive": [rp.Adaptive(risks[0], selection_episodes=400, **replay)],
        "IQN": [rp.IQN(risk, **replay) for risk in risks],
    }


def reference(env: Any, level: float) -> tuple[float, float]:
    """Return CVaR of the policy with the best mean, and the best CVaR."""
    if isinstance(env, rp.GuardedMaze):
        return env.best(rp.CVaR(level))
    return rp.solve(env.mdp(), "mean").law.risk(rp.CVaR(level)), rp.solve(env.mdp(), rp.CVaR(level)).value


def measure(task: str, name: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Train an agent on a task and return its lines, one for each level."""
    env, listed, began = TASKS[task](), agents()[name], time.process_time()
    run = rp.train(listed, env, steps=args.steps, seeds=args.seeds, num_envs=NUM_ENVS, seed=SEED)
    if name in ("Adaptive", "AdaptivePPO"):
        run = run.serve(*(rp.CVaR(level) for level in LEVELS))
    evaluation = run.evaluate(args.episodes, seed=EVALUATION_SEED)
    seconds, episodes = time.process_time() - began, run.lanes.agent_state.episodes
    lines = []
    for number, level in enumerate(LEVELS):
        returns = np.sort(evaluation.returns[min(number, len(evaluation.returns) - 1)], axis=-1)
        mean_optimal, optimum = reference(env, level)
        values = returns[:, : max(1, round(level * returns.shape[-1]))].mean(axis=-1)
        lines.append(
            {
                "task": task,
                "agent": name,
                "level": level,
                "values": values.round(4).tolist(),
                "means": returns.mean(axis=-1).round(4).tolist(),
                "optimum": round(optimum, 4),
                "mean_optimal": round(mean_optimal, 4),
                "steps": run.steps,
                "training_episodes": np.asarray(episodes.count).ravel().astype(int).tolist() if episodes else None,
                "num_envs": NUM_ENVS,
                "episodes": args.episodes,
                "cpu_seconds": round(seconds, 1),
                "device": jax.devices()[0].device_kind,
                "versions": {"riskpath": rp.__version__, "jax": jax.__version__, "python": platform.python_version()},
            }
        )
    return lines


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw every seed's CVaR beside the optimum and the value of the policy with the best mean."""
    import matplotlib.pyplot as plt

    names = [name for name in agents() if any(line["agent"] == name for line in lines)]
    found = {line["task"] for line in lines}
    shown = [(task, level) for task in TASKS if task in found for level in LEVELS]
    figure, axes = plt.subplots(1, len(shown), figsize=(2 + 3 * len(shown), 0.45 * len(names) + 1.6), sharey=True)
    for ax, (task, level) in zip(axes, shown, strict=True):
        for line in lines:
            if (line["task"], line["level"]) == (task, level):
                row = names.index(line["agent"])
                values = np.asarray(line["values"])
                low = line["optimum"] - 1.6 * (line["optimum"] - line["mean_optimal"])
                spread = row + np.linspace(-0.22, 0.22, len(values))
                inside = values >= low
                ax.plot(values[inside], spread[inside], "o", color="#2f6da8", markersize=4, alpha=0.8)
                ax.plot(np.full((~inside).sum(), low), spread[~inside], "<", color="#b5452f", markersize=5)
                ax.axvline(line["optimum"], color="#2c7a46", linewidth=1)
                ax.axvline(line["mean_optimal"], color="#8a949e", linewidth=1, linestyle="--")
        ax.set_title(f"{task}, CVaR {level:g}", fontsize=9)
        ax.tick_params(labelsize=8)
    axes[0].set_yticks(range(len(names)), names, fontsize=9)
    axes[0].invert_yaxis()
    figure.supxlabel(
        "a dot is a seed; green: optimum, dashed: the policy with the best mean, red: off the scale", fontsize=9
    )
    figure.tight_layout()
    plot.save(figure, path)


def main() -> None:
    """Read the arguments and run."""
    lines = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=lines)
    parser.add_argument("--out", type=Path, help="a file of JSON lines to append to")
    parser.add_argument("--only", nargs="+", choices=list(agents()), default=list(agents()), help="some agents")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--steps", type=int, default=STEPS, help="environment steps of each seed")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--episodes", type=int, default=EPISODES, help="of the evaluation of each seed")
    parser.add_argument("--draw", type=Path, help="write a picture of what is in the file of results, and end")
    args = parser.parse_args()
    out = args.out or RESULTS / "field.jsonl"
    done = [json.loads(text) for text in out.read_text().splitlines()] if out.exists() else []
    if args.draw:
        draw(done, args.draw)
        return
    finished = {(line["task"], line["agent"]) for line in done}
    for task in args.tasks:
        for name in args.only:
            if args.out and (task, name) in finished:
                continue
            found = measure(task, name, args)
            for line in found:
                values = " ".join(f"{value:.2f}" for value in line["values"])
                print(f"{task}, {name}, CVaR {line['level']:g}: {values} of {line['optimum']:.2f}", flush=True)
            if args.out:
                args.out.parent.mkdir(parents=True, exist_ok=True)
                with args.out.open("a") as file:
                    file.writelines(json.dumps(line) + "\n" for line in found)


if __name__ == "__main__":
    main()
