"""Policy gradients on goals: `rp.AdaptivePPO`, trained once for all levels of CVaR, beside the optimum.

    python benchmarks/learning/policy_gradients.py --out runs/policy_gradients.jsonl  on a GPU: minutes
    python benchmarks/learning/policy_gradients.py --only Inventory --seeds 2         one problem
    python benchmarks/learning/policy_gradients.py --only RandomMDP:64:201            a random problem of 64 steps
    python benchmarks/learning/policy_gradients.py --only BettingGame --seeds 1 --steps 4000 --num-envs 32 --length 10
        --hidden 16 --episodes 200                                                to try it

A line of the file is a problem. It has the value of every seed at every level, by episodes that were used neither for
training nor for choosing the first goal, the optimum where it is known, and the seconds of training and of the rest.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import riskpath as rp

LEVELS = (0.05, 0.1, 0.25, 0.5)
TRAINED = 0.1
"""The level that the agent is trained for; the others are served by the same networks."""
STEPS, NUM_ENVS, LENGTH, SEEDS = 30_000_000, 8_192, 20, 4
EPOCHS, MINIBATCHES, LEARNING_RATE, HIDDEN = 4, 16, 1e-3, (256, 256, 256)
EPISODES, EVALUATION_SEED = 100_000, 20_000
SELECTION_STEPS, MOST_SELECTION = 400_000, 10_000
"""Environment steps of one candidate's first round of selection, and the most episodes."""
RANDOM = [f"RandomMDP:{depth}:{seed}" for depth in (8, 32, 64, 128, 256) for seed in (201, 202)]
"""Random problems by depth and seed; their optima are computed."""
PROBLEMS: dict[str, tuple[Any, tuple[float | None, ...]]] = {
    "Inventory": (lambda: rp.make("Inventory"), (125.02, 137.19, 158.73, 182.83)),
    "BettingGame": (lambda: rp.make("BettingGame"), (6.778, 16.118, 36.513, 81.742)),
    "MeanReversionTrading": (rp.MeanReversionTrading, (0.0, 0.0, 0.1226, 0.4937)),
    "MeanReversionTrading:40": (lambda: rp.MeanReversionTrading(steps=40), (None, None, 11.61, 14.09)),
    "MeanReversionTrading:160": (lambda: rp.MeanReversionTrading(steps=160), (None, None, 87.0, 93.6)),
}
"""How each problem is made, and its optimum at every level."""


def problem(name: str) -> tuple[Any, dict[str, Any]]:
    """Return a problem and its references: the optimum and, for tables, the mean-optimal policy at every level."""
    if name in PROBLEMS:
        make, optimum = PROBLEMS[name]
        return make(), {"optimum": optimum}
    depth, seed = (int(part) for part in name.split(":")[1:])
    env = rp.RandomMDP(seed=seed, depth=depth)
    law = rp.solve(env, "mean").law
    optimum = [rp.solve(env, rp.CVaR(level)).value for level in LEVELS]
    references = {"mean_optimal": [law.risk(rp.CVaR(level)) for level in LEVELS], "deviation": law.std}
    return env, {"optimum": np.round(optimum, 4).tolist(), **references}


def agent(args: argparse.Namespace, length: int) -> rp.AdaptivePPO:
    """Return the agent for episodes of this length."""
    training = rp.RolloutTraining(
        learning_rate=args.learning_rate, length=args.length, epochs=args.epochs, minibatches=args.minibatches
    )
    episodes = min(MOST_SELECTION, SELECTION_STEPS // length, args.episodes)
    network = rp.Network(hidden=tuple(args.hidden))
    return rp.AdaptivePPO(rp.CVaR(TRAINED), network=network, training=training, selection_episodes=episodes)


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Train on one problem and return the line of the file."""
    (env, references), began = problem(name), time.perf_counter()
    learner = agent(args, env.spec.max_episode_steps)
    run = rp.train(learner, env, steps=args.steps, seeds=args.seeds, num_envs=args.num_envs)
    jax.block_until_ready(run.lanes.agent_state.params)
    trained = time.perf_counter()
    served = run.serve(*(rp.CVaR(level) for level in LEVELS))
    evaluation = served.evaluate(args.episodes, seed=EVALUATION_SEED)
    done = time.perf_counter()
    episodes: Any = run.lanes.agent_state.episodes
    return {
        "problem": name,
        "device": jax.devices()[0].device_kind,
        "version": rp.__version__,
        **{key: getattr(args, key) for key in ("steps", "num_envs", "seeds", "length", "epochs", "minibatches")},
        **{key: getattr(args, key) for key in ("hidden", "learning_rate", "episodes")},
        "train_s": round(trained - began, 1),
        "serve_and_evaluate_s": round(done - trained, 1),
        "steps_per_s": round(run.steps * args.seeds / (trained - began)),
        "levels": LEVELS,
        **references,
        "values": np.round(evaluation.values(), 4).tolist(),
        "means": np.round(evaluation.returns.mean(axis=-1), 4).tolist(),
        "predicted": np.round(served.estimates(), 4).tolist(),
        "unit": np.round(np.asarray(episodes.unit), 4).tolist(),
    }


def show(line: dict[str, Any]) -> None:
    """Print the values of a problem beside the optimum."""
    speed = f"{line['steps_per_s'] / 1e6:.2f} million steps/s"
    served = f"{line['serve_and_evaluate_s']} s to choose goals and evaluate"
    print(f"{line['problem']}: {line['train_s']} s of training, {speed}; {served}")
    rows = zip(line["levels"], line["optimum"], line["values"], line["predicted"], strict=True)
    for level, best, values, predicted in rows:
        known = "–" if best is None else f"{best:g}"
        seeds, claims = (" ".join(f"{value:.3f}" for value in row) for row in (values, predicted))
        print(f"  CVaR {level:<5g} optimum {known:<8} median {np.median(values):<9.3f} {seeds}   predicted {claims}")


def main() -> None:
    """Read the arguments and run."""
    lines = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=lines)
    parser.add_argument("--only", nargs="+", choices=[*PROBLEMS, *RANDOM], default=list(PROBLEMS), help="some problems")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=STEPS, help="environment steps of each seed")
    parser.add_argument("--out", type=Path, help="a file of JSON lines to append to")
    parser.add_argument("--num-envs", type=int, default=NUM_ENVS)
    parser.add_argument("--length", type=int, default=LENGTH, help="steps of a rollout")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--minibatches", type=int, default=MINIBATCHES)
    parser.add_argument("--learning-rate", type=float, default=LEARNING_RATE)
    parser.add_argument("--hidden", type=int, nargs="+", default=list(HIDDEN))
    parser.add_argument("--episodes", type=int, default=EPISODES, help="of the evaluation")
    args = parser.parse_args()
    for name in args.only:
        line = measure(name, args)
        show(line)
        if args.out:
            args.out.parent.mkdir(parents=True, exist_ok=True)
            with args.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
