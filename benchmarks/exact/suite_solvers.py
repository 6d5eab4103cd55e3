"""Measure the exact solvers on the suite: beside an older version of the library, and how their time grows.

    python benchmarks/exact/suite_solvers.py --against ../old/src  # a checkout of an older version
    python benchmarks/exact/suite_solvers.py                       # only this version, and the growth

Every job runs in a process of its own on one core, with a limit of time. The old version gets the same problems as
outcomes. The result goes to benchmarks/results/suite_solvers.json and .png.
"""

import argparse
import json
import os
import pickle
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
LEVELS = [round(0.01 * i, 2) for i in range(1, 101)]
PROBLEMS: dict[str, tuple[str, dict[str, Any], float]] = {
    "BettingGame": ("BettingGame", {}, 1.0),
    "WindyCliff": ("WindyCliff", {}, 1.0),
    "Inventory": ("Inventory", {}, 1.0),
    "Liquidation 10 × 5": ("Liquidation", {}, 1.0),
    "Liquidation 20 × 20": ("Liquidation", {"lots": 20, "steps": 20}, 1.0),
    "Liquidation 30 × 30": ("Liquidation", {"lots": 30, "steps": 30}, 1.0),
    "Liquidation 10 × 10, discount .99": ("Liquidation", {"lots": 10, "steps": 10}, 0.99),
    "Liquidation 30 × 30, discount .99": ("Liquidation", {"lots": 30, "steps": 30}, 0.99),
}
JOBS: dict[str, list[tuple[str, str]]] = {
    "BettingGame": [("mean", "markov"), ("cvar:0.1", "markov"), ("cvar:0.25", "adaptive"), ("all levels", "adaptive")],
    "WindyCliff": [("cvar:0.1", "markov"), ("cvar:0.1", "adaptive")],
    "Inventory": [("cvar:0.1", "markov"), ("cvar:0.1", "adaptive"), ("all levels", "adaptive")],
    **{name: [("cvar:0.25", "adaptive")] for name in PROBLEMS if name.startswith("Liquidation")},
}
GROWTH: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "horizon (Liquidation, 20 lots)": [("Liquidation", {"lots": 20, "steps": n}) for n in (5, 10, 20, 40)],
    "states (Liquidation, 10 steps)": [("Liquidation", {"lots": n, "steps": 10}) for n in (5, 10, 20, 40)],
    "atoms (BettingGame, rounds)": [("BettingGame", {"rounds": n}) for n in (3, 4, 5, 6)],
}


def outcomes_of(name: str, fields: dict[str, Any], discount: float) -> dict[str, Any]:
    """Return a problem as plain data: states are numbers, so that any version can read it."""
    import riskpath as rp

    mdp = rp.make(name, **fields).mdp(discount)
    number = {state: index for index, state in enumerate(mdp.states)}
    table = {
        (number[state], str(action)): [(o.prob, o.reward, number[o.next]) for o in listed]
        for state, actions in mdp.outcomes.items()
        for action, listed in actions.items()
    }
    start = {number[state]: prob for state, prob in mdp.start.items()}
    return {"outcomes": table, "start": start, "discount": discount, "horizon": mdp.horizon}


def work(file: str, risk: str, policies: str) -> None:
    """Solve one job in this process and print the time and the value as JSON."""
    import riskpath as rp

    mdp = rp.FiniteMDP.from_outcomes(**pickle.loads(Path(file).read_bytes()))
    began = time.perf_counter()
    extra: dict[str, Any] = {}
    if risk == "all levels":
        found = rp.frontier(mdp, LEVELS)
        value = float(found.values[24])
    else:
        solution = rp.solve(mdp, risk, policies)  # pyright: ignore[reportArgumentType, reportCallIssue]
        value = solution.value
        if getattr(solution, "bounds", None):
            extra["bracket"] = solution.bounds[1] - solution.bounds[0]
    print(json.dumps({"seconds": round(time.perf_counter() - began, 3), "value": value, **extra}))


def run(source: Path, problem: dict[str, Any], risk: str, policies: str, limit: float) -> dict[str, Any]:
    """Run one job with the library in `source`."""
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        file.write(pickle.dumps(problem))
        file.flush()
        one_core = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, __file__, "--job", file.name, risk, policies]
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **one_core, "PYTHONPATH": str(source)},
                capture_output=True,
                text=True,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"seconds": None, "note": f"not within {limit:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"seconds": None, "note": (done.stderr.strip().splitlines() or ["failed"])[-1][:200]}
    return json.loads(lines[-1])


def compare(against: Path | None, limit: float) -> list[dict[str, Any]]:
    """Return a row for each job, with the new and the old version."""
    import riskpath

    here = Path(riskpath.__file__).parents[1]
    rows = []
    for name, jobs in JOBS.items():
        problem = outcomes_of(*PROBLEMS[name])
        for risk, policies in jobs:
            row: dict[str, Any] = {"problem": name, "risk": risk, "policies": policies}
            row["new"] = run(here, problem, risk, policies, limit)
            if against is not None and risk != "all levels":
                row["old"] = run(against, problem, risk, policies, limit)
            rows.append(row)
            print(name, risk, policies, row["new"], row.get("old", ""), flush=True)
    return rows


def growth(limit: float) -> dict[str, list[dict[str, Any]]]:
    """Return the time of all CVaR levels against the size of a problem."""
    import riskpath

    here = Path(riskpath.__file__).parents[1]
    series = {}
    for label, problems in GROWTH.items():
        rows = []
        for name, fields in problems:
            problem = outcomes_of(name, fields, 1.0)
            pairs = len(problem["outcomes"])
            rows.append({**fields, "pairs": pairs, **run(here, problem, "all levels", "adaptive", limit)})
            print(label, rows[-1], flush=True)
        series[label] = rows
    return series


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw old and new times, and the growth."""
    from riskpath.plot import PALETTE, panels, save

    figure, axes = panels(1, 2, 5.2, 3.8)
    rows = result["comparison"]
    places = range(len(rows))
    for offset, version, colour in ((0.2, "old", PALETTE[1]), (-0.2, "new", PALETTE[0])):
        times = [row.get(version, {}).get("seconds") for row in rows]
        axes[0, 0].barh([p + offset for p, t in zip(places, times, strict=True) if t], [t for t in times if t], 0.36)
        for bar in axes[0, 0].containers[-1]:
            bar.set_color(colour)
        axes[0, 0].containers[-1].set_label(version)
    axes[0, 0].set_yticks(list(places), [f"{r['problem']}, {r['policies']} {r['risk']}" for r in rows], fontsize=6)
    axes[0, 0].set_xscale("log")
    axes[0, 0].set_xlabel("seconds on one core (no bar: refused or not within the limit)")
    axes[0, 0].legend(frameon=False, fontsize=8)
    for label, series in result["growth"].items():
        solved = [row for row in series if row["seconds"]]
        axes[0, 1].loglog([row["pairs"] for row in solved], [row["seconds"] for row in solved], "o-", label=label)
    axes[0, 1].set_xlabel("pairs of state and action")
    axes[0, 1].set_ylabel("seconds for 100 CVaR levels")
    axes[0, 1].legend(frameon=False, fontsize=7)
    save(figure, path)


def main() -> None:
    """Read the options, measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="the src folder of an older version")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each job")
    parser.add_argument("--job", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        work(*options.job)
        return
    result = {
        "command": f"python benchmarks/exact/suite_solvers.py{' --against OLD/src' if options.against else ''}",
        "machine": f"{platform.machine()}, Python {platform.python_version()}, one core for each job",
        "limit_s": options.limit,
        "comparison": compare(options.against, options.limit),
        "growth": growth(options.limit),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "suite_solvers.json").write_text(json.dumps(result, indent=1) + "\n")
    draw(result, RESULTS / "suite_solvers.png")


if __name__ == "__main__":
    main()
