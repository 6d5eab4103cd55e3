"""The references for learned policies: the exact optimum and the value of the mean-optimal policy.

`suite_values.json` holds both for the problems and measures of the suite. It is a small copy of
`results/suite_optima.json`, which `riskpath reproduce suite-optima` makes. Other problems and measures are solved when
they are needed.
"""

import json
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from riskpath.errors import RiskpathError
from riskpath.mdp.grid.solution import GridSolution
from riskpath.mdp.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.solve import as_grid_problem, solve
from riskpath.risk.compose import parse_risk

FILE = "suite_values.json"
BEST = ("adaptive", "randomised")
"""The largest classes of policies; the best value of both is the optimum."""


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


def compact(result: dict[str, Any]) -> dict[str, Any]:
    """Return the content of `suite_values.json` from that of `suite_optima.json`."""
    problems = {}
    for record in result["records"]:
        measures: dict[str, list[float]] = {}
        for cell in record["cells"]:
            if cell["policies"] == "mean-optimal":
                measures[cell["risk"]] = [cell["value"], cell["value"]]
            elif cell["policies"] in BEST and "value" in cell:
                pair = measures[cell["risk"]]
                pair[1] = max(pair[1], cell["value"])
        law = record["laws"]["mean-optimal"]
        total = sum(law["probs"])
        spread = Law(law["atoms"], [prob / total for prob in law["probs"]]).std
        problems[record["problem"]] = {"spread": round(spread, 6), "measures": measures}
    return {"command": result["command"], "problems": problems}


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
