"""Brackets of the grid solver on random variations of its problems, and on long episodes.

    python benchmarks/grid_brackets.py --count 200 --out benchmarks/results/grid_brackets.jsonl
    python benchmarks/grid_brackets.py --part 1/4 …          # every fourth variation, for several processes
    python benchmarks/grid_brackets.py --long --out benchmarks/results/grid_brackets_long.jsonl

Every line of the output is one solved variation; variations that the file already holds are skipped. A variation is
challenged by the policy of an independent grid, whose prices and returns are twice as fine and whose axis of
positions is four times as wide: its plainly simulated value must not exceed `upper` by more than three standard errors.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import riskpath as rp
from riskpath.mdp.grid_form import form_of
from riskpath.mdp.grid_market import MARGIN, MarketPolicy, bracket_mean, choose_axes
from riskpath.mdp.grid_rows import returns
from riskpath.mdp.grid_solution import measured
from riskpath.mdp.grid_tail import solve_tail
from riskpath.mdp.grid_utility import KinkedUtility

EPISODES = 65_536
"""The number of episodes of a challenger."""
LONG = {
    **{
        f"MeanReversionTrading {steps}": ("MeanReversionTrading", {"steps": steps}, 0.25)
        for steps in (10, 40, 160, 640)
    },
    **{f"OptionHedging {steps}": ("OptionHedging", {"steps": steps}, 0.1) for steps in (10, 60, 250)},
    "AmericanPut 10": ("AmericanPut", {"steps": 10}, 0.1),
}
"""Long problems: environment, fields, level of CVaR."""


def variation(number: int) -> tuple[str, dict[str, Any], float, float]:
    """Return name, fields, discount and level of a random variation."""
    rng = np.random.default_rng([35, number])
    name = ("MeanReversionTrading", "OptionHedging", "AmericanPut")[number % 3]
    steps = round(float(np.exp(rng.uniform(np.log(5), np.log(200)))))
    around = lambda low, high: float(np.exp(rng.uniform(np.log(low), np.log(high))))  # noqa: E731
    fields: dict[str, Any] = {"steps": steps}
    if name == "MeanReversionTrading":
        fields |= {"kappa": around(0.5, 6), "sigma": around(0.3, 3), "dt": around(0.02, 0.3)}
        fields |= {"max_trade": around(0.5, 4), "cost": around(0.001, 0.05), "penalty": around(0.05, 2)}
        fields |= {"start_price": float(rng.uniform(0, 2)), "trades": int(rng.choice([5, 11, 21]))}
    elif name == "OptionHedging":
        fields |= {"sigma": around(0.1, 0.6), "dt": around(1 / 500, 1 / 50), "cost": around(1e-5, 1e-2)}
        fields |= {"start_price": around(0.85, 1.15), "hedges": int(rng.choice([5, 11, 21]))}
    else:
        fields |= {"mu": float(rng.uniform(-0.4, 0.1)), "sigma": around(0.1, 0.6), "years": around(0.5, 3)}
        fields |= {"start_price": around(0.8, 1.3)}
    discount = float(rng.choice([1.0, 1.0, 0.99, 0.95]))
    return name, fields, discount, float(rng.choice([0.05, 0.1, 0.25, 0.5]))


def solved(name: str, fields: dict[str, Any], discount: float, level: float, challenge: bool) -> dict[str, Any]:
    """Return the bracket of one variation and the value of its challenger."""
    began = time.perf_counter()
    problem = rp.make(name, **fields).grid_problem(discount=discount)
    solution = rp.solve_grid(problem, rp.CVaR(level))
    seconds = time.perf_counter() - began
    form = form_of(problem)
    assert not isinstance(form, str), form
    mean = bracket_mean(form, 16_384, 5, bound=False)
    mean_value = float(rp.CVaR(level).value(np.sort(mean.played.returns)))
    row = {
        "name": name, "fields": fields, "discount": discount, "level": level,
        "lower": solution.lower, "interval": solution.interval, "upper": solution.upper,
        "upper_interval": solution.upper_interval, "mean_optimal": mean_value, "touched": solution.touched,
        "share": (solution.bracket or np.inf) / max(1e-12, solution.lower - mean_value),
        "report": solution.report, "seconds": round(seconds, 1),
    }  # fmt: skip
    if challenge and solution.upper is not None and solution.upper_interval is not None:
        value, error = challenger(problem, name, fields, discount, level)
        slack = 3 * ((solution.upper_interval[1] - solution.upper) / 1.96 + error)
        row |= {"challenger": value, "challenger_error": error, "exceeds": bool(value > solution.upper + slack)}
    return row


def challenger(problem: rp.GridProblem, name: str, fields: dict, discount: float, level: float) -> tuple[float, float]:
    """Return the plainly simulated value of a policy from an independent grid, and its standard error."""
    form = form_of(rp.make(name, **fields).grid_problem(resolution=2.0, discount=discount))
    assert not isinstance(form, str), form
    mean = bracket_mean(form, 4096, 11, bound=False)
    axes = choose_axes(form, mean.policy.means, [mean.played], 512)
    if problem.endless:
        wide = round(4 * axes.rows / MARGIN)
        first = max(0, form.start - wide // 2)
        rows = min(wide, len(form.lattice) - first)
        every = max(1, -(-rows // 256))
        axes = axes._replace(first=first, positions=(rows - 1) // every + 1, every=every)
    tail = solve_tail(form, axes, KinkedUtility(0.0, 1 / level))
    goals = form.problem.start_potential - np.asarray(returns(axes.window, axes.points), np.float64)
    goal = float(goals[(goals + np.asarray(tail.tables[0][0, 0])).argmax()])
    found = measured(MarketPolicy(form, mean.policy.means, tail, goal).simulate(EPISODES, 77), rp.CVaR(level))
    return found.value, (found.interval[1] - found.value) / 1.96


def main() -> None:
    """Solve what the file does not hold yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="number of variations")
    parser.add_argument("--part", default="1/1", help="which part of them, for example 2/4")
    parser.add_argument("--steps", type=int, default=200, help="skip variations with more steps")
    parser.add_argument("--long", action="store_true", help="the long problems instead of the variations")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/grid_brackets.jsonl"))
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    rows = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {row["key"] for row in rows}
    listed = (
        {key: (name, fields, 1.0, level) for key, (name, fields, level) in LONG.items()}
        if options.long
        else {str(number): variation(number) for number in range(options.count) if number % parts == part - 1}
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for key, (name, fields, discount, level) in listed.items():
        if key in done or (fields["steps"] > options.steps and not options.long):
            continue
        try:
            row = {"key": key, **solved(name, fields, discount, level, not options.long)}
        except rp.RiskpathError as error:
            row = {"key": key, "name": name, "fields": fields, "error": str(error)}
        rows.append(row)
        with options.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        shown = {k: row.get(k) for k in ("lower", "upper", "share", "exceeds", "challenger", "seconds", "error")}
        print(key, name, fields["steps"], shown, flush=True)
    kept = [row for row in rows if "share" in row]
    narrow = sum(row["share"] <= 0.01 for row in kept)
    print(f"{len(kept)} solved, {narrow} within 1 %, {sum(bool(row.get('exceeds')) for row in kept)} exceeded")


if __name__ == "__main__":
    main()
