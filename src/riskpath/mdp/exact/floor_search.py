"""The best policy under floors: max β₀[Z] subject to βᵢ[Z] ≥ xᵢ, over draws between adaptive policies.

For fixed parameters θ of the measures this is one linear program (`floor_programme`). If only one measure
has a parameter, it is searched with a bound: between θ₁ and θ₂ the margin is at most that of θ₁, or of θ₂, plus a known
number, and so the objective is at most that of this end plus the price of the floor times this number. Several
parameters, and measures without a utility form, are improved in turn from several starts; then the result is the best
known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from riskpath.mdp.exact.floor_programme import Law1, Mixed, Programme, Term
from riskpath.mdp.exact.goal_solver import solve_levels
from riskpath.mdp.exact.utility_iteration import utility_iteration
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.problem import Progress
from riskpath.risk.entropic import Entropic, EVaR
from riskpath.risk.measures import CVaR, Mean

CLOSE = 1e-7
"""The search over a parameter ends at this gap, as a fraction of the range of returns."""
FIRST, BATCH = 17, 16
"""The number of parameters that are tried first, and of those tried together afterwards."""
SEARCHED, FEWEST = 600, 40
"""The largest number of programs, and that of the largest problems."""
WORK = 200_000_000
"""The largest number of programs times the outcomes of all nodes."""
TURNS = 30
"""The number of times that parameters are improved in turn."""
STARTS = 3
"""The number of best distributions for each measure from which the search starts."""
REACHED = 1e-6
"""The accepted violation of a floor, relative to its size (at least 1)."""
HALVINGS = 24
"""The number of times that `mean_bound` halves the interval of w."""


@dataclass(frozen=True)
class Found:
    """The best known mixture."""

    feasible: bool
    law: Law1
    """Its distribution over the final returns."""
    weights: np.ndarray
    """The probability of every column of the programme."""
    values: tuple[float, ...]
    """The value of the objective, and of every floor's measure."""
    upper: float | None = None
    """No mixture has a larger value; None if that is not known."""


class FloorSearch:
    """Searches the parameters of the objective, which is the first term, and of the floors."""

    def __init__(self, programme: Programme, terms: Sequence[Term], progress: Progress):
        self.programme, self.terms, self.progress = programme, list(terms), progress
        self.span = max(float(np.ptp(programme.finals)), 1e-12)
        self.best: Found | None = None
        self.solved = 0
        self.most = int(np.clip(WORK // max(programme.graph.size, 1), FEWEST, SEARCHED))

    def run(self) -> Found:
        """Return the best mixture."""
        listed = [term.parameters for term in self.terms]
        free = [number for number, parameters in enumerate(listed) if parameters.size != 1]
        if not free:
            upper = self._try([parameters[0] for parameters in listed])[1]
        elif len(free) == 1 and self.terms[free[0]].rise is not None:
            upper = self._search(free[0], listed)
        else:
            upper = None
            if len(free) == 1 and listed[free[0]].size:
                self._scan(free[0], listed)
            self._in_turn()
        assert self.best is not None
        if upper is None or not self.best.feasible:
            return self.best
        return replace(self.best, upper=max(upper, self.best.values[0]))

    def _try(self, parameters: Sequence[Any]) -> tuple[Mixed, float]:
        """Solve the program for some parameters; return its answer and an upper bound of the objective's measure."""
        objective, *floors = self.terms
        margins = [floor.margin(theta) for floor, theta in zip(floors, parameters[1:], strict=True)]
        reference = objective.floor
        while True:  # the utility of the objective may depend on the value that it is compared with
            mixed = self.programme.solve(objective.margin(parameters[0], reference), margins)
            self.solved += 1
            self.progress(min(self.solved, self.most), self.most)
            value = self._keep(mixed).values[0]
            if not mixed.feasible:
                return mixed, -np.inf
            linear = not isinstance(objective.measure, Entropic | EVaR)  # the best policy depends on no reference
            if linear or value <= reference + 1e-9 * self.span:
                gap = max(mixed.bound - mixed.value, 0.0)
                return mixed, value + gap * objective.value_of_margin
            reference = value

    def _keep(self, mixed: Mixed) -> Found:
        """Evaluate a mixture, and remember it if it is the best."""
        law = np.maximum(self.programme.probs @ mixed.weights, 0.0)
        law = law / law.sum()
        values = tuple(term.value(law) for term in self.terms)
        floors = zip(values[1:], self.terms[1:], strict=True)
        missed = any(value < term.floor - REACHED * max(1.0, abs(term.floor)) for value, term in floors)
        found = Found(not missed, law, mixed.weights, values)
        if self.best is None or self._score(found) > self._score(self.best):
            self.best = found
        return found

    def _score(self, found: Found) -> tuple[bool, float]:
        least = min(value - term.floor for value, term in zip(found.values[1:], self.terms[1:], strict=True))
        return found.feasible, found.values[0] if found.feasible else least

    def _search(self, free: int, listed: Sequence[np.ndarray]) -> float:
        """Search the parameter of one term, and return an upper bound of the objective's measure."""
        parameters, term = listed[free], self.terms[free]
        discrete = isinstance(term.measure, CVaR)  # the listed parameters contain a best one
        fixed = [numbers[0] for numbers in listed]
        known: dict[int, tuple[Mixed, float]] = {}
        batch = np.unique(np.linspace(0, parameters.size - 1, FIRST).astype(int)).tolist()
        dual = np.inf
        if free == 1 and isinstance(self.terms[0].measure, Mean) and isinstance(self.terms[1].measure, CVaR):
            dual, goals = mean_bound(self.programme.graph.mdp, self.terms[1].measure, self.terms[1].floor)
            for at in {int(np.abs(parameters - goal).argmin()) for goal in goals}:
                known[at] = self._try([*fixed[:free], parameters[at], *fixed[free + 1 :]])
            if self.best is not None and self.best.feasible and dual <= self.best.values[0] + CLOSE * self.span:
                return dual
        while True:
            for at in batch:
                known[at] = self._try([*fixed[:free], parameters[at], *fixed[free + 1 :]])
            assert self.best is not None
            best = self.best.values[0] if self.best.feasible else -np.inf
            order = sorted(known)
            bounds = {}
            for low, high in pairwise(order):
                if high - low > 1 or not discrete:
                    # How much larger margins between two parameters can be than at the first, and than at the second.
                    rise = (term.rise or 0.0) * (parameters[high] - parameters[low])
                    fall = rise + float((term.margin(parameters[low]) - term.margin(parameters[high])).max())
                    bounds[low, high] = min(self._bound(known[low], free, rise), self._bound(known[high], free, fall))
            alive = [pair for pair, b in bounds.items() if b > best + CLOSE * self.span and pair[1] - pair[0] > 1]
            alive.sort(key=lambda pair: -bounds[pair])
            batch = [(low + high) // 2 for low, high in alive[:BATCH]]
            if not batch or best >= dual - CLOSE * self.span or self.solved > self.most:
                return min(dual, max([upper for _, upper in known.values()] + list(bounds.values())))

    def _bound(self, answer: tuple[Mixed, float], free: int, more: float) -> float:
        """Return an upper bound of the objective's measure where the margin of a term is larger by at most `more`."""
        mixed, upper = answer
        if free == 0:
            return upper + more * self.terms[0].value_of_margin if mixed.feasible else -np.inf
        priced = float(mixed.prices[free - 1]) * more
        if not mixed.feasible:
            return -np.inf if mixed.bound + priced < 0 else np.inf
        return upper + priced * self.terms[0].value_of_margin

    def _scan(self, free: int, listed: Sequence[np.ndarray]) -> None:
        """Try parameters of one term whose margins have no bound, more closely around the best."""
        parameters, fixed = listed[free], [numbers[0] for numbers in listed]
        scores: dict[int, tuple[bool, float]] = {}
        step = max(1, parameters.size // 32)
        batch = list(range(0, parameters.size, step))
        while batch:
            for at in batch:
                mixed, _ = self._try([*fixed[:free], parameters[at], *fixed[free + 1 :]])
                scores[at] = self._score(self._keep(mixed))
            centre, step = max(scores, key=lambda at: scores[at]), step // 2
            near = range(centre - 2 * step, centre + 2 * step + 1, max(step, 1)) if step else ()
            batch = [at for at in near if 0 <= at < parameters.size and at not in scores]

    def _in_turn(self) -> None:
        """Improve all parameters in turn, from the best distributions of every measure."""
        laws = [self.programme.probs[:, 0] if self.best is None else self.best.law]
        for term in self.terms:
            visited = utility_iteration(self.programme.graph, term.measure, keep=STARTS)
            self.programme.add(visited.utilities)
            laws += list(visited.probs.T)
        for law in laws:
            score: tuple[bool, float] = (False, -np.inf)
            for _ in range(TURNS):
                parameters = [term.best_parameter(law / law.sum()) for term in self.terms]
                found = self._keep(self._try(parameters)[0])
                law = found.law
                if self._score(found) <= (score[0], score[1] + 1e-10 * self.span):
                    break
                score = self._score(found)
            if self.solved > self.most:
                break


def mean_bound(mdp: FiniteMDP, risk: CVaR, floor: float) -> tuple[float, list[float]]:
    """Return an upper bound of the mean of policies whose CVaR is at least the floor, and thresholds near the best.

    For every w in [0, 1) no policy that keeps CVaR ≥ x has a larger mean than (L(w) − w x)/(1 − w), where L(w) is the
    best (1 − w)·mean + w·CVaR, which the goal recursion finds for all thresholds at once. The bound is smallest where
    the CVaR of the best policy passes x. The thresholds of the policies on both sides are those to try first.
    """
    level = float(risk.level)
    low, high, bound = 0.0, 1.0, float("inf")
    goals: dict[bool, float] = {}
    for _ in range(HALVINGS):
        share = (low + high) / 2
        answer = solve_levels(mdp, [level / share], (1 - share) * level / share)
        law = answer.optima.laws(answer.goals)[0]
        tail = law.risk(risk)
        best = (1 - share) * law.mean + share * tail
        if not answer.exact:
            return float("inf"), [float(answer.goals[0])]
        bound = min(bound, (best - share * floor) / (1 - share))
        goals[tail >= floor] = float(answer.goals[0])
        low, high = (low, share) if tail >= floor else (share, high)
    return bound, list(goals.values())
