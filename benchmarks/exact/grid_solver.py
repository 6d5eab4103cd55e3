"""The time of the grid solver against the size of its grid, on MeanReversionTrading.

    python benchmarks/exact/grid_solver.py --sizes 1 4 16 64

For every size (in millions of cells) one process-wide measurement of: the layout of the problem, the mean-optimal
policy that finds the range of returns, the backward pass for CVaR at every level with its compilation ("first"), the
same pass again ("again"), and the simulation of the policy for CVaR 0.25. "total" is all of it but the second pass.
Sizes whose estimated memory is above --device-limit are skipped. Writes JSON and a PNG of seconds against cells.
"""

import argparse
import importlib.metadata
import platform
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import riskpath as rp
from riskpath.experiments.records import write_json
from riskpath.mdp.grid.backward import backward, mean_tables
from riskpath.mdp.grid.layout import layout, needed_bytes
from riskpath.mdp.grid.solution import measured
from riskpath.mdp.grid.solver import best_goal, returns_axis
from riskpath.mdp.grid.utility import SHORTFALL
from riskpath.memory import free_bytes, in_units
from riskpath.plot import panels, save

RESULTS = Path(__file__).parents[1] / "results"


def problem_of(millions: float) -> rp.GridProblem:
    """Return MeanReversionTrading with at least this many million cells; inventories keep their number."""
    env = rp.MeanReversionTrading()
    resolution = (millions * 1e6 / env.grid_problem().cells) ** 0.5
    while (problem := env.grid_problem(resolution)).cells < millions * 1e6:
        resolution *= 1.002
    return problem


def measure(problem: rp.GridProblem, level: float, episodes: int) -> dict[str, Any]:
    """Return the seconds of every part of a solution, and its value."""
    clock = [time.perf_counter()]

    def lap() -> float:
        clock.append(time.perf_counter())
        return clock[-1] - clock[-2]

    row: dict[str, Any] = {"cells": problem.cells, "shape": [*problem.shape, problem.return_points]}
    plan = layout(problem)
    row["layout_s"] = lap()
    base, mean = mean_tables(plan)
    axis = returns_axis(plan, rp.GridPolicy(problem, base))
    row["range_s"] = lap()
    result = backward(plan, axis, SHORTFALL)
    row["first_s"] = lap()
    value, goal = best_goal(plan, result, level)
    policy = rp.GridPolicy(problem, base, result, goal)
    lap()
    lower, interval = measured(policy.simulate(episodes, 1), rp.CVaR(level))
    row["simulation_s"] = lap()
    row["total_s"] = row["layout_s"] + row["range_s"] + row["first_s"] + row["simulation_s"]
    row["memory_bytes"] = policy.memory_bytes
    del policy, result
    lap()
    backward(plan, axis, SHORTFALL)
    row["again_s"] = lap()
    row |= {"mean": mean, "level": level, "value": value, "lower": lower, "interval": interval}
    return {name: round(x, 4) if isinstance(x, float) else x for name, x in row.items()}


def draw(rows: list[dict[str, Any]], path: Path, device: str) -> None:
    """Draw seconds against cells."""
    figure, axes = panels(1, 1, 4.6, 3.2)
    axis = axes[0, 0]
    cells = [row["cells"] for row in rows]
    for name, label in (("first_s", "pass with compilation"), ("again_s", "pass"), ("total_s", "everything")):
        axis.plot(cells, [row[name] for row in rows], marker="o", markersize=4, label=label)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("cells of the grid (× 10 steps × 21 actions)", fontsize=9)
    axis.set_ylabel("seconds", fontsize=9)
    axis.set_title(device, fontsize=9)
    axis.legend(fontsize=8, frameon=False)
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=[0.25, 1.0, 4.0], help="millions of cells")
    parser.add_argument("--device-limit", type=float, default=None, help="memory in GB; by default what is free")
    parser.add_argument("--level", type=float, default=0.25, help="level of CVaR that is simulated")
    parser.add_argument("--episodes", type=int, default=200_000)
    parser.add_argument("--out", type=Path, default=None, help="the JSON file; the PNG lies beside it")
    options = parser.parse_args()
    device = jax.devices()[0].device_kind
    out = options.out or RESULTS / f"grid_solver-{device.lower().replace(' ', '-')}.json"
    limit = 1e9 * options.device_limit if options.device_limit else free_bytes() or np.inf
    rows = []
    print("        cells   layout    range    first    again  simulation    total   value, lower")
    for millions in sorted(options.sizes):
        problem = problem_of(millions)
        if (needed := needed_bytes(problem)) > limit:
            print(f"{problem.cells:13,} skipped: needs about {in_units(needed)}")
            continue
        rows.append(row := measure(problem, options.level, options.episodes))
        seconds = (row[f"{part}_s"] for part in ("layout", "range", "first", "again", "simulation", "total"))
        laps = "{:8.2f} {:8.2f} {:8.2f} {:8.2f} {:11.2f} {:8.2f}".format(*seconds)
        print(f"{row['cells']:13,} {laps}   {row['value']:.4f}, {row['lower']:.4f}", flush=True)
    report = {
        "command": shlex.join(["python", "benchmarks/exact/grid_solver.py", *sys.argv[1:]]),
        "device": device,
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy")},
        "rows": rows,
    }
    write_json(out, report)
    if rows:
        draw(rows, out.with_suffix(".png"), device)
    print(f"written to {out}")


if __name__ == "__main__":
    main()
