"""Linear programs over the distributions of all policies, randomised once at the start, by column generation.

An objective and floors under risk measures enter as utilities of the final return. A floor β[Z] ≥ x is linear in the
distribution where β compares expected utilities: E[m(Z)] ≥ 0 with the margin m of `UtilityForm`. Some of these measures
have a parameter θ, such as the threshold of CVaR, and reach the floor if one θ does. Any other measure is replaced by
its first-order change from a reference distribution F, β[F] + u(z) − E_F[u] − x, with its influence function u.

The program over the distributions found so far gives prices of the floors. The best policy for the objective plus the
priced floors is one expected-utility problem; its value is an upper bound, and its distribution joins the others. A
solution draws between at most one more policies than there are floors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
from jaxtyping import Float

from riskpath.errors import RiskpathError
from riskpath.mdp.exact.return_graph import ReturnGraph, Utilities
from riskpath.risk.certainty_equivalents import CertaintyEquivalent
from riskpath.risk.entropic import Entropic, EVaR
from riskpath.risk.measures import CVaR
from riskpath.risk.quantile_measures import VaR
from riskpath.risk.risk_measure import RiskMeasure, UtilityForm
from riskpath.risk.utility_measures import reaches

ROUNDS = 100
"""The largest number of columns that one linear program adds."""
EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
SLACK = 1e-11
"""The accepted violation of a floor whose largest margin is 1."""
GAP = 1e-9
"""Column generation ends at this gap, for utilities whose largest value is 1."""

Law1 = Float[np.ndarray, " Z"]
"""The probabilities of the final returns."""


@dataclass(frozen=True)
class Term:
    """A measure with its floor; for the objective, the floor is a value that is known to be attained."""

    measure: RiskMeasure
    floor: float
    finals: Law1
    """All returns that can occur."""

    @property
    def parameters(self) -> np.ndarray:
        """The parameters θ, ascending; one if the measure has none; empty where a distribution takes its place."""
        if isinstance(self.measure, VaR):
            return np.zeros(1)
        if isinstance(self.measure, UtilityForm):
            return np.asarray(self.measure.parameters(self.finals), np.float64)
        return np.zeros(0)

    @property
    def rise(self) -> float | None:
        """The largest slope of the margin in θ; None if it is not known."""
        if isinstance(self.measure, CVaR):
            return float(self.measure.level)
        return 1.0 if isinstance(self.measure, CertaintyEquivalent) else None

    @property
    def value_of_margin(self) -> float:
        """The slope of β in the mean of its margin."""
        return 1.0 / float(self.measure.level) if isinstance(self.measure, CVaR | Entropic) else 1.0

    def margin(self, parameter: Any, floor: float | None = None) -> Law1:
        """Return the utility whose mean is at least 0 where the floor is reached; θ is a number, or a distribution."""
        x, z = self.floor if floor is None else floor, self.finals
        if isinstance(self.measure, VaR):
            return reaches(z, x) - (1.0 - float(self.measure.level))
        if isinstance(self.measure, UtilityForm):
            return np.asarray(self.measure.margin(z, float(parameter), x), np.float64)
        u = np.asarray(self.measure.influence(z, z, parameter), np.float64)
        return self.value(parameter) + u - parameter @ u - x

    def value(self, probs: Law1) -> float:
        """Return β of a distribution."""
        used = probs > 0
        return float(self.measure.value(self.finals[used], probs[used]))

    def best_parameter(self, probs: Law1) -> Any:
        """Return the parameter with which a distribution comes closest to the floor, or the distribution itself."""
        listed = self.parameters
        if listed.size == 0:
            return probs
        if isinstance(self.measure, CVaR):
            cdf = np.cumsum(probs)
            return float(self.finals[min(int(np.searchsorted(cdf, float(self.measure.level) - 1e-12)), cdf.size - 1)])
        if isinstance(self.measure, CertaintyEquivalent):
            used = probs > 0
            return float(self.measure.now(self.finals[used], probs[used]))
        if isinstance(self.measure, EVaR) and (probs > 1e-12).sum() > 1:
            return float(np.clip(self.measure.aversion(self.finals, probs), listed[0], listed[-1]))
        margins = [self.margin(theta) for theta in listed]
        return float(listed[int(np.argmax([probs @ m / max(float(np.abs(m).max()), 1e-300) for m in margins]))])


@dataclass(frozen=True)
class Mixed:
    """A mixture of policies that solves a program."""

    feasible: bool
    """Whether it reaches all floors."""
    value: float
    """The mean of the objective's utility; if the floors are out of reach, the least of the scaled margins."""
    bound: float
    """No mixture has more."""
    prices: np.ndarray
    weights: np.ndarray
    """The probability of every column."""


class Programme:
    """Linear programs over the policies of one problem; they share the columns that were found."""

    def __init__(self, graph: ReturnGraph):
        self.graph, self.finals = graph, graph.finals
        self.probs, self.utilities = np.zeros((len(graph.finals), 0)), np.zeros((len(graph.finals), 0))
        self.add(graph.finals[:, None])

    def add(self, utilities: Utilities) -> float:
        """Add the distributions of the best policies for some utilities, and return the value of the first."""
        response = self.graph.best_response(utilities)
        self.probs = np.concatenate([self.probs, response.final_probs()], axis=1)
        self.utilities = np.concatenate([self.utilities, utilities], axis=1)
        return float(response.value[0])

    def solve(self, objective: Law1, margins: Sequence[Law1]) -> Mixed:
        """Return the mixture with the largest mean objective among those whose mean margins are at least 0."""
        # Margins are scaled by their largest value: far below it, returns may count millions of times as much.
        scales = np.array([max(float(m.max()), 1e-8 * float(np.abs(m).max()), 1e-300) for m in margins])
        unit = max(float(np.abs(objective).max()), 1e-300)
        floors = np.stack([margin / scale for margin, scale in zip(margins, scales, strict=True)], axis=1)
        value, bound, prices, weights = 0.0, np.inf, np.zeros(len(margins)), np.zeros(0)
        for feasible in (False, True):
            goal = objective / unit if feasible else np.zeros_like(objective)
            for _ in range(ROUNDS):
                value, prices, weights = self._master(goal, floors, feasible)
                if not feasible and value >= -SLACK:
                    break
                bound = self.add((goal + floors @ prices)[:, None])
                if bound - value <= GAP:
                    break
            if not feasible and value < -SLACK:
                return Mixed(False, value, bound, prices / scales, self._padded(weights))
        return Mixed(True, value * unit, bound * unit, prices * unit / scales, self._padded(weights))

    def _master(self, goal: Law1, floors: np.ndarray, feasible: bool) -> tuple[float, np.ndarray, np.ndarray]:
        """Return value, prices and weights of the program over the known columns.

        Before a mixture is feasible, the least margin is maximised instead of the objective.
        """
        count, number = self.probs.shape[1], floors.shape[1]
        reached = floors.T @ self.probs
        if feasible:
            cost = -(goal @ self.probs)
            rows, bounds = -reached, [(0.0, None)] * count
        else:
            cost = np.append(np.zeros(count), -1.0)
            rows = np.concatenate([-reached, np.ones((number, 1))], axis=1)
            bounds = [(0.0, None)] * count + [(None, 0.0)]
        total = np.ones((1, count)) if feasible else np.append(np.ones(count), 0.0)[None]
        slack = np.full(number, SLACK if feasible else 0.0)
        linprog: Any = scipy.optimize.linprog  # the type checker would read all of its solvers
        answer = linprog(cost, rows, slack, total, [1.0], bounds=bounds, method="highs", options=EXACT)
        if answer.status != 0:
            raise RiskpathError(f"the linear program of the floors failed: {answer.message}")
        return -float(answer.fun), -np.asarray(answer.ineqlin.marginals), np.asarray(answer.x)[:count]

    def _padded(self, weights: np.ndarray) -> np.ndarray:
        return np.append(weights, np.zeros(self.probs.shape[1] - weights.size))
