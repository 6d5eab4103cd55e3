"""What learned policies are measured against, their two scores, and performance profiles.

    share = (value − value of the mean-optimal policy) / (optimum − value of the mean-optimal policy)
    gap   = optimum − value

A share of 1 is the optimum, 0 is the policy with the best mean, and a negative share is worse than that. Where the
optimum is hardly above the mean-optimal policy, a share divides by next to nothing: only the gap is given.

`suite_values.json` holds the references of the suite. It is a small copy of
`results/suite_optima.json`, which `riskpath reproduce suite-optima` makes; `compact` in tests/experiments/test_bench.py
makes it. Other problems and measures are solved when they are needed.
"""

import json
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from riskpath.errors import RiskpathError
from riskpath.mdp.grid.solution import GridSolution
from riskpath.mdp.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.solve import as_grid_problem, solve
from riskpath.risk.compose import parse_risk

FILE = "suite_values.json"


ADVANTAGE = 0.05
"""The least advantage of the optimum for which the share is shown, as a fraction of the scale of the returns."""
CONFIDENCE, RESAMPLES = 0.95, 400
LEVELS = np.linspace(-1.0, 1.0, 201)
"""The scores at which performance profiles are computed."""
ROUNDING = 1e-9
"""Smaller gaps, relative to the optimum, are rounding errors."""
AT_LEAST = 1e-6
"""A run reaches a score if it is short of it by no more than this."""


class Reference(NamedTuple):
    """The reference values for one problem and measure."""

    mean_optimal: float
    """β of the return of the policy with the best mean."""
    optimum: float
    """The largest β of any policy, or the best that is known."""
    spread: float | None = None
    """The standard deviation of the return of the policy with the best mean; None if it is not known."""


@cache
def suite_values() -> dict[str, dict[str, Reference]]:
    """Return the references of the suite by problem and measure."""
    text = resources.files("riskpath.experiments").joinpath(FILE).read_text()
    return {
        problem: {risk: Reference(value, best, record["spread"]) for risk, (value, best) in record["measures"].items()}
        for problem, record in json.loads(text)["problems"].items()
    }


def solve_reference(problem: Any, risk: str) -> Reference:
    """Solve a problem exactly, or on its grid."""
    target = as_grid_problem(problem) or problem
    law = _mean_optimal(target)
    value, measure = law.risk(risk), parse_risk(risk)
    solution = solve(target, measure, "adaptive")
    best = solution.lower if isinstance(solution, GridSolution) else solution.value
    if isinstance(target, FiniteMDP) and not measure.deterministic:
        best = max(best, solve(target, measure, "adaptive", randomised=True).value)
    return Reference(value, max(value, best), law.std)


@cache
def _mean_optimal(problem: Any) -> Law:
    return solve(problem, "mean", "markov").law


def given_reference(name: str, risk: str, optima: dict[str, Any], spread: float | None) -> Reference:
    """Return the reference that a user gave for a measure."""
    if risk not in optima:
        listed = ", ".join(optima) or "none"
        raise RiskpathError(f"{name} needs the mean-optimal value and the optimum of {risk}; it has those of {listed}")
    try:
        mean_optimal, optimum = (float(value) for value in optima[risk])
    except (TypeError, ValueError):
        raise RiskpathError(
            f"{name}: give (value of the mean-optimal policy, optimum) for {risk}, got {optima[risk]!r}"
        ) from None
    return Reference(mean_optimal, optimum, spread)


def has_share(reference: Reference) -> bool:
    """Tell whether the advantage of the optimum is large enough to divide by it."""
    advantage = reference.optimum - reference.mean_optimal
    return advantage > 0 and (reference.spread is None or advantage >= ADVANTAGE * reference.spread)


def share_of(value: Any, reference: Reference) -> Any:
    """Return the share of the optimum's advantage."""
    return (value - reference.mean_optimal) / (reference.optimum - reference.mean_optimal)


def _gap(value: float, reference: Reference) -> float:
    """Return the gap to the optimum; 0 where it is a rounding error."""
    gap = reference.optimum - value
    return gap if abs(gap) > ROUNDING * max(1.0, abs(reference.optimum)) else 0.0


def rows(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each agent, problem and measure, with both scores and how they were made."""
    return [_row(cell, result) for cell in cells for result in cell["results"]]


def _row(cell: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    reference = reference_of(result)
    ends = {"": float(np.mean(result["values"])), "_low": result["low"], "_high": result["high"]}
    shown = has_share(reference)
    gaps = {"": _gap(ends[""], reference), "_low": _gap(ends["_high"], reference)}
    gaps["_high"] = _gap(ends["_low"], reference)
    return {
        "agent": cell["agent"],
        "problem": cell["problem"],
        "risk": result["risk"],
        **{f"share{end}": share_of(value, reference) if shown else None for end, value in ends.items()},
        **{f"gap{end}": value for end, value in gaps.items()},
        **{f"value{end}": value for end, value in ends.items()},
        "mean_optimal": reference.mean_optimal,
        "optimum": reference.optimum,
        "spread": reference.spread,
        "exact": result["episodes"] is None,
        **{key: cell[key] for key in ("seeds", "steps", "seconds", "device", "versions")},
    }


def reference_of(result: dict[str, Any]) -> Reference:
    """Return the reference of a stored result."""
    return Reference(result["mean_optimal"], result["optimum"], result["spread"])


def shares_by_agent(cells: list[dict[str, Any]]) -> dict[str, Float[np.ndarray, "T S"]]:
    """Return the share of every problem, measure and seed, [problems × measures, seeds] for each agent.

    Only those problems and measures count for which all agents were trained, so that their profiles can be compared; if
    there are none, those of each agent.
    """
    shares: dict[str, dict[tuple[str, str], np.ndarray]] = {}
    for cell in cells:
        for result in cell["results"]:
            if has_share(reference := reference_of(result)):
                values = np.asarray(result["values"], np.float64)
                task = (cell["problem"], result["risk"])
                shares.setdefault(cell["agent"], {})[task] = share_of(values, reference)
    common = set.intersection(*(set(tasks) for tasks in shares.values())) if shares else set()
    return {
        agent: np.stack([share for task, share in tasks.items() if task in common or not common])
        for agent, tasks in shares.items()
    }


def profile(
    shares: Float[np.ndarray, "T S"], levels: Float[np.ndarray, " X"] = LEVELS
) -> tuple[Float[np.ndarray, " X"], Float[np.ndarray, "2 X"]]:
    """Return which part of all runs has a share of at least each level, and its interval.

    The interval is a bootstrap over the seeds of each problem and measure.
    """
    tasks, seeds = shares.shape
    reached = (shares[:, :, None] >= levels - AT_LEAST).reshape(tasks * seeds, len(levels))
    drawn = np.random.default_rng(0).multinomial(seeds, np.full(seeds, 1 / seeds), size=(RESAMPLES, tasks))
    resampled = drawn.reshape(RESAMPLES, -1) @ reached / (tasks * seeds)
    tail = (1 - CONFIDENCE) / 2
    return reached.mean(axis=0), np.quantile(resampled, [tail, 1 - tail], axis=0)
