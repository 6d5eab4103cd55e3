"""Brackets of the grid solver on random variations of its problems, and on long episodes.

    python benchmarks/exact/grid_brackets.py --count 200     # adds to benchmarks/results/grid_brackets.jsonl
    python benchmarks/exact/grid_brackets.py --part 1/4 …    # every fourth variation, for several processes
    python benchmarks/exact/grid_brackets.py --long          # adds to benchmarks/results/grid_brackets_long.jsonl
    python benchmarks/exact/grid_brackets.py --summary       # only print what both files hold
    python benchmarks/exact/grid_brackets.py --out FOLDER …  # another folder than benchmarks/results

Every line of the output is one solved variation; variations that the file already holds are skipped. Several processes
may add to one folder at once. A variation is challenged by the policy of an independent grid, whose axes of positions
and returns are four times as wide, and whose prices, positions and returns are twice as fine as those of the solver's
first grid. It is simulated with the same random numbers; its value must not exceed `upper` by more than three standard
errors.
"""

import argparse
import fcntl
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import riskpath as rp
from riskpath.mdp.grid.axes import choose_axes, choose_positions, choose_returns, price_axis
from riskpath.mdp.grid.detect import form_of
from riskpath.mdp.grid.form import Form
from riskpath.mdp.grid.market import Bracket, bracket_mean, measure
from riskpath.mdp.grid.market_policy import BROADCASTING
from riskpath.mdp.grid.rows import Window
from riskpath.mdp.grid.tail import Axes, solve_tail
from riskpath.mdp.grid.utility import KinkedUtility
from riskpath.memory import free_bytes

EPISODES = 32_768
"""The number of episodes behind the value of the mean-optimal policy."""
LONG = {
    **{
        f"MeanReversionTrading {steps}": ("MeanReversionTrading", {"steps": steps}, 0.25)
        for steps in (10, 40, 160, 640)
    },
    **{f"OptionHedging {steps}": ("OptionHedging", {"steps": steps}, 0.1) for steps in (10, 60, 250)},
    "AmericanPut 10": ("AmericanPut", {"steps": 10}, 0.1),
}
"""Long problems: environment, fields, level of CVaR."""
FILES = {False: "grid_brackets.jsonl", True: "grid_brackets_long.jsonl"}
"""The output files of the variations and of the long problems."""


def variation(number: int) -> tuple[str, dict[str, Any], float, float]:
    """Return name, fields, discount and level of a random variation."""
    rng = np.random.default_rng([35, number])
    name = ("MeanReversionTrading", "OptionHedging", "AmericanPut")[number % 3]
    steps = round(float(np.exp(rng.uniform(np.log(5), np.log(200)))))
    around = lambda low, high: float(np.exp(rng.uniform(np.log(low), np.log(high))))
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


def solved(
    name: str, fields: dict[str, Any], discount: float, level: float, limit: float, challenge: bool
) -> dict[str, Any]:
    """Return the bracket of one variation and the value of its challenger."""
    began = time.perf_counter()
    problem = rp.make(name, **fields).grid_problem(discount=discount)
    solution = rp.solve(problem, rp.CVaR(level), time_limit=limit)
    seconds = time.perf_counter() - began
    form = form_of(problem)
    assert isinstance(form, Form), form
    with BROADCASTING():
        mean = bracket_mean(form, EPISODES, 5, bound=False)
        mean_value = float(rp.CVaR(level).value(np.sort(mean.played.returns)))
        row = {
            "name": name, "fields": fields, "discount": discount, "level": level,
            "lower": solution.lower, "interval": solution.interval, "upper": solution.upper,
            "upper_interval": solution.upper_interval, "mean_optimal": mean_value, "touched": solution.touched,
            "share": None if solution.bracket is None else solution.bracket / max(1e-12, solution.lower - mean_value),
            "report": solution.report, "cells": solution.cells, "seconds": round(seconds, 1),
            "device": jax.devices()[0].device_kind,
        }  # fmt: skip
        if challenge and solution.upper is not None and solution.upper_interval is not None:
            found = challenger(form, level, mean, mean_value)
            slack = 3 * np.hypot((solution.upper_interval[1] - solution.upper) / 1.96, found.lower_error)
            row |= {"challenger": found.lower, "challenger_error": found.lower_error, "challenger_cells": found.cells}
            row |= {"exceeds": bool(found.lower > solution.upper + slack)}
            row |= {"total_seconds": round(time.perf_counter() - began, 1)}
    return row


def challenger(form: Form, level: float, mean: Bracket, mean_value: float) -> Bracket:
    """Return the policy of an independent grid with its simulated value."""
    utility = KinkedUtility(0.0, 1 / level)
    window = choose_returns(form, utility, mean.lower, mean_value, mean.played)
    axes = choose_axes(form, price_axis(form, 2.0, 1.25), [mean.played, mean.played], window, 512)
    if form.problem.endless:
        middle, half = axes.first + axes.rows // 2, 2 * axes.rows
        last = len(form.lattice) - 1
        first, positions, every = choose_positions(form, max(0, middle - half), min(last, middle + half))
        axes = axes._replace(first=first, positions=positions, every=every)
    axes = _returns(form, axes)
    tail = solve_tail(form, axes, utility)
    return measure(form, mean.policy.means, tail, 4096, 0)


def _returns(form: Form, axes: Axes) -> Axes:
    """Return axes with returns four times as wide and twice as fine, or as many as the memory holds."""
    room = 0.4 * (free_bytes() or 8e9) / (4 * axes.prices.size * axes.positions * (form.problem.steps + 8))
    points = 2 * int(min(4 * axes.points, max(256, room / 2)))
    low, step = axes.window
    width = 4 * step * axes.points
    step = width / points
    low = np.floor((low - 1.5 * width / 4) / step) * step
    return axes._replace(window=Window(float(low), float(step)), points=points)


def summary(rows: list[dict[str, Any]]) -> str:
    """Return what the rows say about the brackets, by problem and in all."""
    lines = []
    for name in (*sorted({row["name"] for row in rows}), ""):
        kept = [row for row in rows if "lower" in row and name in row["name"]]
        if not kept:
            continue
        apart = [row for row in kept if row["lower"] - row["mean_optimal"] > 1e-6 * max(1e-3, abs(row["lower"]))]
        shares = np.array([np.inf if row["share"] is None else row["share"] for row in apart or [{"share": 0.0}]])
        ended = sum(any(end["share"] > 0.001 for end in row["touched"].values()) for row in kept)
        lines.append(
            f"{name or 'all'}: {len(kept)} solved, {len(apart)} where the policies differ: {(shares <= 0.01).sum()} "
            f"within 1 %, {(shares <= 0.05).sum()} within 5 %, median {np.median(shares):.2%}; "
            f"{sum(bool(row.get('exceeds')) for row in kept)} exceeded by {sum('challenger' in row for row in kept)} "
            f"challengers; {ended} touch an end; median {np.median([row['seconds'] for row in kept]):.0f} s"
        )
    errors = [f"{row['name']} {row['key']}: {row['error']}" for row in rows if "error" in row]
    return "\n".join([*lines, *sorted(errors)])


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; none if it does not exist."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path: Path, row: dict[str, Any]) -> None:
    """Add a row to a file that other processes add to as well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
        file.write(json.dumps(row) + "\n")


def main() -> None:
    """Solve what the file does not hold yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="number of variations")
    parser.add_argument("--part", default="1/1", help="which part of them, for example 2/4")
    parser.add_argument("--steps", type=int, default=np.inf, help="skip problems with more steps")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of a solution")
    parser.add_argument("--until", type=float, default=np.inf, help="begin no variation after this many seconds")
    parser.add_argument("--long", action="store_true", help="the long problems instead of the variations")
    parser.add_argument("--summary", action="store_true", help="only print what the files hold")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="folder of the output files")
    options = parser.parse_args()
    if options.summary:
        print(*(summary(read(options.out / FILES[long])) for long in (True, False)), sep="\n\n")
        return
    began, path = time.perf_counter(), options.out / FILES[options.long]
    part, parts = map(int, options.part.split("/"))
    done = {row["key"] for row in read(path)}
    listed = {str(number): variation(number) for number in range(options.count)}
    if options.long:
        listed = {key: (name, fields, 1.0, level) for key, (name, fields, level) in LONG.items()}
    for key, (name, fields, discount, level) in list(listed.items())[part - 1 :: parts]:
        if key in done or fields["steps"] > options.steps or time.perf_counter() - began > options.until:
            continue
        try:
            row = {"key": key, **solved(name, fields, discount, level, options.limit, not options.long)}
        except (rp.RiskpathError, jax.errors.JaxRuntimeError) as error:  # the others are solved nevertheless
            row = {"key": key, "name": name, "fields": fields, "error": str(error).splitlines()[0]}
        append(path, row)
        shown = {k: row.get(k) for k in ("lower", "upper", "share", "exceeds", "challenger", "seconds", "error")}
        print(key, name, fields["steps"], shown, flush=True)


if __name__ == "__main__":
    main()
