"""The optima of every problem of the library, for nine measures and every class of policies.

    riskpath reproduce suite-optima

Every problem is solved exactly, or on a grid with a simulated lower bound. `results/suite_optima.json` holds the values
with their bounds and times, the frontier, and the distributions behind the figures. A problem that is finished is
stored at once, so an interrupted run continues where it stopped.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import riskpath.envs as envs
from riskpath.errors import RiskpathError
from riskpath.experiments.records import command_of, earlier, header, write_json
from riskpath.mdp.grid.problem import GridProblem
from riskpath.mdp.grid.solution import GridSolution
from riskpath.mdp.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.solve import as_grid_problem, frontier, solve
from riskpath.risk.compose import parse_risk

FILE = "suite_optima.json"
MEASURES = ("mean", "cvar:0.05", "cvar:0.1", "cvar:0.25", "cvar:0.5", "wang:-0.75", "wang:0.75", "pow:-2", "cpw:0.71")
LEVELS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0)
ATOMS = 400
"""The number of atoms of the stored distributions."""
PROBLEMS: dict[str, Callable[[], Any]] = {
    "ThreeState": envs.ThreeState,
    "RiskyGrid": envs.RiskyGrid,
    "probe grid": lambda: envs.RiskyGrid(p_yellow=0.8, blue=38.0),
    "BettingGame": envs.BettingGame,
    "WindyCliff": envs.WindyCliff,
    "Inventory": envs.Inventory,
    "Liquidation": envs.Liquidation,
    "RandomMDP": lambda: envs.RandomMDP(seed=0, depth=6),
    "MeanReversionTrading": envs.MeanReversionTrading,
    "AmericanPut": envs.AmericanPut,
    "OptionHedging": envs.OptionHedging,
}
"""The problems, in the order of the tables."""
LONG: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    f"{kind.__name__} {steps}": (partial(kind, steps=steps), risks)
    for kind, lengths, risks in (
        (envs.MeanReversionTrading, (40, 160, 640), ("mean", "cvar:0.25", "cvar:0.5")),
        (envs.OptionHedging, (10, 60, 250), ("mean", "cvar:0.1", "cvar:0.5")),
    )
    for steps in lengths
}
"""Longer versions with the measures that have a bound; they have a key of their own, `long`."""
QUICK = ("ThreeState", "Liquidation")
"""The problems of a quick run."""


def parts(quick: bool) -> list[str]:
    """Return the names of the problems."""
    return list(QUICK) if quick else [*PROBLEMS, *LONG]


def reproduce(
    out: Path, *, quick: bool = False, seeds: int = 1, show: Callable[[str], Any] = print, only: str = ""
) -> dict[str, Any]:
    """Solve every problem that is not in the file of results yet; `seeds` is not used."""
    command = command_of("suite-optima", quick)
    path = out / FILE
    result = earlier(path, command)
    done = {record["problem"] for record in (*result["records"], *result.get("long", []))}
    began, before = time.perf_counter(), result["seconds"]
    for name in parts(quick):
        if name not in done and only in name:
            record = solve_long(name) if name in LONG else solve_problem(name)
            (result.setdefault("long", []) if name in LONG else result["records"]).append(record)
            result |= header(command, before + time.perf_counter() - began)
            write_json(path, result)
            show(f"{name}: {record['seconds']:.1f} s")
    return result


def solve_problem(name: str) -> dict[str, Any]:
    """Return the values of one problem for every measure and class, its frontier and a few distributions."""
    began = time.perf_counter()
    env = PROBLEMS[name]()
    problem = as_grid_problem(env) or env.mdp()
    mean_optimal = solve(problem, "mean", "markov").law
    laws = {"mean-optimal": mean_optimal}
    cells = []
    for risk in MEASURES:
        cells.append({"risk": risk, "policies": "mean-optimal", "value": mean_optimal.risk(risk)})
        for policies, options in _classes(problem, risk).items():
            cell, law = _cell(problem, risk, policies, options)
            cells.append(cell)
            if law is not None and risk in ("cvar:0.1", "cvar:0.25") and policies in ("markov", "adaptive"):
                laws[f"{policies} {risk}"] = law
    return {
        "problem": name,
        "size": repr(problem),
        "cells": cells,
        "frontier": frontier(problem, LEVELS).to_json(),
        "laws": {label: _as_json(law) for label, law in laws.items()},
        "seconds": round(time.perf_counter() - began, 1),
    }


def solve_long(name: str) -> dict[str, Any]:
    """Return the brackets of a longer version of a problem."""
    began = time.perf_counter()
    build, risks = LONG[name]
    problem = as_grid_problem(build())
    cells = [_cell(problem, risk, "adaptive", {"policies": "adaptive"})[0] for risk in risks]
    return {"problem": name, "size": repr(problem), "cells": cells, "seconds": round(time.perf_counter() - began, 1)}


def _classes(problem: FiniteMDP | GridProblem, risk: str) -> dict[str, dict[str, Any]]:
    """Return the classes of policies that apply, with the arguments of `solve`."""
    classes: dict[str, dict[str, Any]] = {"markov": {"policies": "markov"}, "adaptive": {"policies": "adaptive"}}
    if isinstance(problem, FiniteMDP):
        if problem.successor is not None:
            classes["history"] = {"policies": "history"}
        if not parse_risk(risk).deterministic:
            classes["randomised"] = {"policies": "adaptive", "randomised": True}
    return classes


def _cell(problem: Any, risk: str, policies: str, options: dict[str, Any]) -> tuple[dict[str, Any], Law | None]:
    """Return one value with its bounds and its time, and the distribution."""
    began = time.perf_counter()
    cell: dict[str, Any] = {"risk": risk, "policies": policies}
    try:
        solution = solve(problem, risk, **options)
    except RiskpathError as error:
        return {**cell, "error": str(error)}, None
    cell |= {"value": solution.value, "report": solution.report, "optimal": solution.optimal}
    if isinstance(solution, GridSolution):
        cell |= {"value": solution.lower, "interval": list(solution.interval)}
        cell |= {"upper": solution.upper, "upper_kind": solution.upper_kind}
        cell |= {"upper_interval": solution.upper_interval, "touched": solution.touched}
    elif solution.bounds is not None:
        cell["upper"] = solution.bounds[1]
    return {**cell, "seconds": round(time.perf_counter() - began, 2)}, solution.law


def _as_json(law: Law) -> dict[str, list[float]]:
    """Return a distribution as data, with few atoms: those of equal probability at the means of their parts."""
    if len(law) > ATOMS:
        edges = np.linspace(0, 1, ATOMS + 1)
        moment = np.interp(edges, np.append(0, law.cumulative), np.append(0, np.cumsum(law.atoms * law.probs)))
        law = Law(np.diff(moment) * ATOMS, np.full(ATOMS, 1 / ATOMS))
    return {"atoms": law.atoms.round(6).tolist(), "probs": law.probs.round(9).tolist()}
