"""Measure how large a problem the exact history solver solves, beside enumeration of all action sequences.

    python benchmarks/exact/history_solver.py  # 12 forks against enumeration, then as many forks as 60 s allow
    python benchmarks/exact/history_solver.py --forks 8  # a quick look

Enumeration walks the tree of all distinct action sequences and carries the law of the return along, so a prefix is
convolved once, not once for each sequence. It is also run without the moves onto orange cells, which are never useful.
The result goes to benchmarks/results/exact.json.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import riskpath as rp
from riskpath.envs.risky_grid import Cell
from riskpath.mdp.law import Law

RESULTS = Path(__file__).parents[1] / "results" / "exact.json"
DISCOUNT = 0.99


def enumerate_all(grid: rp.RiskyGrid, risk: rp.RiskMeasure, avoid_orange: bool) -> tuple[float, int]:
    """Return the best value over all action sequences, and their number."""
    mdp = grid.mdp(DISCOUNT)
    value, goal = risk.value, grid.cell(grid.forks, grid.forks)
    moves: dict[Cell, dict[Cell, Law]] = {goal: {}}
    for cell in (grid.cell(row, col) for row in range(grid.forks + 1) for col in range(grid.forks + 1)):
        for action in mdp.actions(cell):
            following = grid.move(cell, str(action))
            if not (avoid_orange and following.colour == "orange"):
                reward = mdp.reward_laws[cell, action].scale(DISCOUNT ** (cell.row + cell.col))
                moves.setdefault(cell, {})[following] = reward
    best, count = -float("inf"), 0

    def walk(cell: Cell, law: Law) -> None:
        nonlocal best, count
        if cell == goal:
            best, count = max(best, float(value(law))), count + 1
        for following, reward in moves[cell].items():
            walk(following, law.convolve(reward))

    walk(grid.cell(0, 0), Law.point(0.0))
    return best, count


def timed(function, *args):
    began = time.perf_counter()
    result = function(*args)
    return result, time.perf_counter() - began


def compare(forks: int, text: str) -> dict:
    grid, risk = rp.RiskyGrid(forks=forks), rp.parse_risk(text)
    solution, search_s = timed(rp.solve, grid.mdp(DISCOUNT), risk, "history")
    (few_best, few), few_s = timed(enumerate_all, grid, risk, True)
    (all_best, every), all_s = timed(enumerate_all, grid, risk, False)
    assert abs(solution.value - all_best) < 1e-6, (solution.value, all_best)
    assert abs(solution.value - few_best) < 1e-6, (solution.value, few_best)
    row = {
        "forks": forks,
        "risk": text,
        "value": solution.value,
        "labels": solution.details["labels"],
        "search_s": search_s,
        "sequences": every,
        "enumeration_s": all_s,
        "ratio": all_s / search_s,
        "sequences_without_orange": few,
        "enumeration_without_orange_s": few_s,
        "ratio_without_orange": few_s / search_s,
    }
    print(
        f"{forks} forks, {text}: {solution.value:.4f} both ways; search {search_s:.2f} s, enumeration of {every:,} "
        f"sequences {all_s:.1f} s ({row['ratio']:.0f} times), of the {few:,} without orange {few_s:.1f} s "
        f"({row['ratio_without_orange']:.1f} times)",
        flush=True,
    )
    return row


def largest(text: str, budget_s: float, first: int) -> dict:
    """Add forks until a size takes longer than the budget, or exceeds the limits of the solver."""
    solved, forks, stopped = {}, first, ""
    while not stopped:
        try:
            solution, seconds = timed(rp.solve, rp.RiskyGrid(forks=forks).mdp(DISCOUNT), text, "history")
        except rp.RiskpathError as error:
            stopped = f"{forks} forks: {error}"
            break
        print(f"{forks} forks, {text}: {solution.value:.4f} in {seconds:.1f} s", flush=True)
        if seconds > budget_s:
            stopped = f"{forks} forks took {seconds:.1f} s"
        else:
            solved = {"risk": text, "forks": forks, "value": solution.value, "seconds": seconds}
            forks += 1
    print(f"largest within {budget_s:.0f} s for {text}: {solved.get('forks')} forks; then {stopped}", flush=True)
    return {**solved, "stopped": stopped}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forks", type=int, default=12, help="size of the grid that is also enumerated")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for the largest grid")
    options = parser.parse_args()
    measures = ("cvar:0.1", "wang:-0.75")
    record = {
        "command": f"python benchmarks/exact/history_solver.py --forks {options.forks} --budget {options.budget:g}",
        "machine": f"{platform.machine()}, Python {platform.python_version()}, one process",
        "discount": DISCOUNT,
        "comparison": [compare(options.forks, text) for text in measures],
        "largest": [largest(text, options.budget, options.forks) for text in measures],
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(record, indent=2) + "\n")
    print(f"wrote {RESULTS.relative_to(Path.cwd()) if RESULTS.is_relative_to(Path.cwd()) else RESULTS.name}")
