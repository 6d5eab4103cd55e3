"""How much 60,000 steps of data can tell: the exact policy of a table that is estimated from random play.

    python benchmarks/learning/planner_on_data.py

The problems are those of `out_of_the_box.py`. Actions are drawn uniformly; the table of relative frequencies is solved
exactly for the measure, and the policy is evaluated exactly in the true problem. No network learns anything here: what
is missing to a share of 1 is missing in the data. Results go to benchmarks/results/planner_on_data.json.
"""

import argparse
import collections
import itertools
import json
import shlex
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
from out_of_the_box import STEPS, problem, problems

import riskpath as rp

RESULTS = Path(__file__).parents[1] / "results" / "planner_on_data.json"
NEAR = 0.97


def estimated(mdp: rp.FiniteMDP, steps: int, rng: np.random.Generator) -> rp.FiniteMDP:
    """Return the table of relative frequencies after this many steps of random play."""
    counts: dict[Any, collections.Counter] = collections.defaultdict(collections.Counter)
    start = state = next(iter(mdp.start))
    for _ in range(steps):
        choices = mdp.outcomes[state]
        action = list(choices)[rng.integers(len(choices))]
        outcomes = choices[action]
        number = min(np.searchsorted(np.cumsum([o.prob for o in outcomes]), rng.random()), len(outcomes) - 1)
        outcome = outcomes[number]
        counts[state, action][outcome.reward, outcome.next] += 1
        state = outcome.next if outcome.next in mdp.outcomes else start
    table = {
        pair: [(seen / found.total(), reward, following) for (reward, following), seen in found.items()]
        for pair, found in counts.items()
    }
    return rp.FiniteMDP.from_outcomes(table, start)


def shares(seed: int, steps: int, samples: int) -> dict[str, Any]:
    """Return the shares of the advantage that policies of estimated tables earn in the true problem."""
    mdp, risk = problem(seed)
    least, best = rp.solve(mdp, "mean").law.risk(risk), rp.solve(mdp, risk).value
    found = []
    for sample in range(samples):
        policy = rp.solve(estimated(mdp, steps, np.random.default_rng([seed, sample])), risk).policy
        found.append((mdp.evaluate(policy).risk(risk) - least) / (best - least))
    return {"seed": seed, "risk": risk, "shares": found}


def main() -> None:
    """Plan on samples of all problems, and count which policies come within 3 % of the advantage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    for seed in itertools.islice(problems(), options.problems):
        rows.append(shares(seed, options.steps, options.samples))
        print(seed, rows[-1]["risk"], " ".join(f"{share:.3f}" for share in rows[-1]["shares"]), flush=True)
    near = [sum(row["shares"][sample] >= NEAR for row in rows) for sample in range(options.samples)]
    middle = statistics.median(share for row in rows for share in row["shares"])
    print(f"within 3 %: {near} of {len(rows)}, median share {middle:.3f}")
    about = {"command": shlex.join(["python", *sys.argv]), "steps": options.steps, "near": near, "median": middle}
    options.out.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
