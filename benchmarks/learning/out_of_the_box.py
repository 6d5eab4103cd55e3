"""What a user gets without any setting: `rp.Adaptive` with its defaults on table problems that were never tuned for.

    python benchmarks/learning/out_of_the_box.py                            20 problems, about 40 minutes on one core
    python benchmarks/learning/out_of_the_box.py --problems 2 --steps 5000  to try it

A problem is a random table of 5 to 15 steps (2 to 4 states in a layer, 2 or 3 actions). Its states are pairs of
numbers, its level of CVaR is random as well. Nothing but the table and the measure is given. Values are exact: of the
learned policy, of the best one, of the mean-optimal one. A line of the file is a problem; an interrupted run goes on
after the lines that are there; `--part 1/4` trains a quarter of the problems, so that several processes can share them.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import riskpath as rp

RESULTS = Path(__file__).parents[1] / "results" / "out_of_the_box.jsonl"
FIRST, STEPS = 9_000, 60_000
LEVELS = (0.05, 0.1, 0.25, 0.5)
LEAST = 0.02
"""A problem counts if risk matters in it: the advantage is at least this many standard deviations."""


PARTS = ("hidden", "n_steps")
"""What can be set besides fields of `rp.Training`."""


def problem(seed: int) -> tuple[rp.FiniteMDP, str]:
    """Return the table of a seed, and its measure."""
    rng = np.random.default_rng(seed)
    depth, width, actions = int(rng.integers(5, 16)), int(rng.integers(2, 5)), int(rng.integers(2, 4))
    random: Any = rp.RandomMDP(seed=seed, depth=depth, width=width, actions=actions).mdp()
    pairs = {
        ((int(state[0]), int(state[1])), action): [
            (o.prob, o.reward, (int(o.next[0]), int(o.next[1]))) for o in outcomes
        ]
        for state, choices in random.outcomes.items()
        for action, outcomes in choices.items()
    }
    return rp.FiniteMDP.from_outcomes(pairs, (0, 0)), f"cvar:{rng.choice(LEVELS)}"


def train(seed: int, mdp: rp.FiniteMDP, risk: str, steps: int, given: dict[str, Any]) -> dict[str, Any]:
    """Return the line of a problem."""
    law, best = rp.solve(mdp, "mean").law, rp.solve(mdp, risk).value
    control, began = law.risk(risk), time.perf_counter()
    parts = {name: value for name, value in given.items() if name in PARTS}
    training = rp.Training(**{name: value for name, value in given.items() if name not in PARTS})
    if "hidden" in parts:
        parts["network"] = rp.Network(hidden=tuple(parts.pop("hidden")))
    run = rp.train(rp.Adaptive(risk, training=training, **parts), mdp, steps=steps, seed=seed)
    value = float(rp.parse_risk(risk).value(run.law(0, 0, 1.0, None)))
    return {
        "seed": seed,
        "length": mdp.max_episode_steps,
        "states": len(mdp.states),
        "risk": risk,
        "optimum": best,
        "mean_optimal": control,
        "advantage": (best - control) / law.std,
        "value": value,
        "share": (value - control) / (best - control),
        "estimate": float(run.estimates().item()),
        "training": given,
        "steps": run.steps,
        "seconds": round(time.perf_counter() - began, 1),
    }


def problems() -> Iterator[int]:
    """Yield the seeds of all problems that count."""
    for seed in itertools.count(FIRST):
        mdp, risk = problem(seed)
        law = rp.solve(mdp, "mean").law
        if rp.solve(mdp, risk).value - law.risk(risk) >= LEAST * law.std:
            yield seed


def main() -> None:
    """Train on all problems that are not stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--set", nargs="*", default=[], help="for example batch_size=128 hidden=[256,256]")
    parser.add_argument("--only", type=int, nargs="*", help="only the problems with these seeds")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    part, parts = (int(x) for x in options.part.split("/"))
    given = {name: json.loads(value) for name, value in (text.split("=") for text in options.set)}
    done = {line["seed"] for line in lines}
    chosen = options.only or list(itertools.islice(problems(), options.problems))
    for seed in [s for s in chosen[part - 1 :: parts] if s not in done]:
        lines.append(train(seed, *problem(seed), options.steps, given))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        with options.out.open("a") as file:
            file.write(json.dumps(lines[-1]) + "\n")
        print(*(f"{key} {value}" for key, value in lines[-1].items()), sep=", ", flush=True)
    shares = np.array([line["share"] for line in lines])
    print(f"{(shares > 0.97).sum()} of {len(shares)} within 3 % of the advantage; median share {np.median(shares):.3f}")


if __name__ == "__main__":
    main()
