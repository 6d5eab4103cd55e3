"""`solve` with floors, and the frontier between the mean and a risk measure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from riskpath.errors import RiskpathError, short_repr
from riskpath.mdp.exact.adaptive_solver import solve_adaptive
from riskpath.mdp.exact.floor_programme import Programme, Term
from riskpath.mdp.exact.floor_search import FloorSearch, Found
from riskpath.mdp.exact.goal_solver import TOLERANCE
from riskpath.mdp.exact.randomised_solver import mixture_of
from riskpath.mdp.exact.return_graph import ReturnGraph
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.problem import Progress, silent
from riskpath.mdp.solution import Solution, solution_of
from riskpath.plot.notebook import html_table
from riskpath.risk.measures import Mean
from riskpath.risk.quantile_measures import VaR
from riskpath.risk.risk_measure import RiskMeasure

NEGLIGIBLE = 1e-9
"""Policies with a smaller probability are dropped."""
PROVEN = 1e-6
"""A gap below this fraction of the range of returns counts as a proof."""
POINTS = 9
"""The default number of floors of a frontier."""

Floors = Sequence[tuple[RiskMeasure, float]]


def solve_constrained(
    mdp: FiniteMDP, risk: RiskMeasure, floors: Floors, progress: Progress = silent, programme: Programme | None = None
) -> Solution:
    """Return the policy with the best value among those that reach all floors; it may draw between several policies.

    If the floors are out of reach, the answer is the policy that comes closest, and the report says so.
    """
    programme = programme or Programme(ReturnGraph(mdp))
    if isinstance(risk, VaR):
        return _solution(mdp, risk, floors, programme, _best_var(programme, risk, floors, progress))
    terms = [Term(risk, float(programme.finals[0]) if risk.monetary else 0.0, programme.finals)]
    terms += [Term(measure, floor, programme.finals) for measure, floor in floors]
    found = FloorSearch(programme, terms, progress).run()
    if not found.feasible and len(floors) == 1:
        return _out_of_reach(mdp, risk, *floors[0], progress)
    return _solution(mdp, risk, floors, programme, found)


def _best_var(programme: Programme, risk: VaR, floors: Floors, progress: Progress) -> Found:
    """Return the mixture with the best VaR: the largest return b for which VaR ≥ b can be a floor with the others."""
    z = programme.finals
    others = [Term(measure, floor, z) for measure, floor in floors]
    best: Found | None = None
    low, high = 0, z.size - 1
    while low <= high:
        middle = (low + high) // 2 if best is not None else 0
        found = FloorSearch(programme, [Term(Mean(), 0.0, z), Term(risk, float(z[middle]), z), *others], progress).run()
        if found.feasible or best is None:
            best, low = found, middle + 1
        else:
            high = middle - 1
        if not best.feasible:
            break
    assert best is not None
    exact = all(term.parameters.size == 1 for term in others)
    return replace(best, values=best.values[1:], upper=best.values[1] if exact else None)


def _out_of_reach(
    mdp: FiniteMDP, risk: RiskMeasure, measure: RiskMeasure, floor: float, progress: Progress
) -> Solution:
    """Return the policy with the largest value of a measure whose floor is out of reach."""
    most = solve_adaptive(mdp, measure, TOLERANCE, progress)
    report = f"no policy reaches {measure} ≥ {floor:g}; this one has the largest, {most.value:.6g}"
    if not most.optimal:
        report += f" ({most.report})"
    reached = most.value >= floor - 1e-9 * max(1.0, abs(floor))
    if reached:  # the search over parameters missed it
        report = f"deterministic; {measure} {most.value:.6g}; best known, not proven optimal"
    details = {"feasible": reached, str(measure): most.value}
    return solution_of(mdp, risk, most.law, most.policy, False, report, details)


def _solution(mdp: FiniteMDP, risk: RiskMeasure, floors: Floors, programme: Programme, found: Found) -> Solution:
    """Return a mixture as a solution; its distribution is exact."""
    law, policy, components, draws = mixture_of(
        programme.graph, found.weights, programme.probs, programme.utilities, NEGLIGIBLE
    )
    reached = {str(measure): float(measure.value(law)) for measure, _ in floors}
    listed = ", ".join(f"{name} {number:.6g}" for name, number in reached.items())
    report, bounds, proven = f"{draws}; {listed}; best known, not proven optimal", None, False
    if not found.feasible:
        report = f"no policy is known that reaches all floors; {draws}, closest to them: {listed}"
    elif found.upper is not None and np.isfinite(found.upper):
        value = float(risk.value(law))
        bounds = (value, max(found.upper, value))
        gap = bounds[1] - value
        proven = gap <= PROVEN * max(float(np.ptp(programme.finals)), 1e-12)
        report = f"{draws}; {listed}; " + ("optimal" if proven else f"at most {gap:.3g} below the best")
    details = {"feasible": found.feasible, **reached}
    return solution_of(mdp, risk, law, policy, proven, report, details, bounds, components)


@dataclass(frozen=True, eq=False)
class RiskFrontier:
    """The best mean for every floor under a risk measure, and the policies that have it."""

    name: str
    """The name of the problem."""
    risk: RiskMeasure
    """The measure of the floors."""
    floors: Float[np.ndarray, " E"]
    """The floors, ascending."""
    solutions: tuple[Solution, ...] = field(repr=False)
    """The solution of every floor."""

    @cached_property
    def means(self) -> Float[np.ndarray, " E"]:
        """The best mean of every floor."""
        return np.array([solution.law.mean for solution in self.solutions])

    @cached_property
    def values(self) -> Float[np.ndarray, " E"]:
        """The value of the measure of every floor's policy; at least the floor, if that can be had."""
        return np.array([solution.law.risk(self.risk) for solution in self.solutions])

    def rows(self) -> list[dict[str, Any]]:
        """Return floor, mean, value of the measure, number of policies and report of every floor."""
        columns = zip(self.floors, self.means, self.values, self.solutions, strict=True)
        return [
            {"floor": float(x), "mean": float(m), str(self.risk): float(v), "policies": max(len(s.components), 1)}
            for x, m, v, s in columns
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the frontier as data for JSON."""
        return {"problem": self.name, "risk": str(self.risk), "rows": self.rows()}

    def plot(self, ax: Any = None, *, floor: float | None = None, label: str | None = None, **style: Any) -> Any:
        """Draw the best mean against the measure, with a chosen floor as a line; needs `riskpath[plot]`."""
        from riskpath.plot import plot_floors  # here, because matplotlib is optional

        return plot_floors(self.values, self.means, str(self.risk), ax, floor=floor, label=label, **style)

    def _repr_html_(self) -> str:
        return html_table(repr(self)[1:-1], self.rows())

    def __repr__(self) -> str:
        return f"<RiskFrontier of {self.name}: {len(self.floors)} floors under {self.risk}>"


def risk_frontier(mdp: FiniteMDP, risk: RiskMeasure, floors: Any, progress: Progress = silent) -> RiskFrontier:
    """Return the best mean for every floor; if only their number is given, floors are equally spaced."""
    if isinstance(floors, int) and not isinstance(floors, bool):
        if floors < 2:
            raise RiskpathError(f"a frontier needs at least two floors, got {floors}")
        mean_best, risk_best = solve_adaptive(mdp, Mean()), solve_adaptive(mdp, risk)
        low, high = mean_best.law.risk(risk), risk_best.law.risk(risk)
        chosen = np.linspace(low, max(high - 1e-9 * max(1.0, abs(high)), low), floors)
    else:
        try:
            chosen = np.sort(np.asarray(floors, np.float64).ravel())
        except (TypeError, ValueError):
            raise RiskpathError(f"floors must be numbers, or how many; got {short_repr(floors)}") from None
        if not chosen.size or not np.isfinite(chosen).all():
            raise RiskpathError(f"floors must be finite numbers, got {short_repr(floors)}")
    programme = Programme(ReturnGraph(mdp))
    solutions = []
    for number, floor in enumerate(chosen):
        solutions.append(solve_constrained(mdp, Mean(), [(risk, float(floor))], programme=programme))
        progress(number + 1, chosen.size)
    return RiskFrontier(mdp.name, risk, chosen, tuple(solutions))
