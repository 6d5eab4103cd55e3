"""Linear programs over the distributions of all policies, randomised once at the start, by column generation.

The program over the distributions found so far gives prices of the floors. The best policy for the objective plus the
priced floors is one expected-utility problem; its value is an upper bound, and its distribution joins the others. A
solution draws between at most one more policies than there are floors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize

from riskpath.errors import RiskpathError
from riskpath.mdp.exact.floors import Law1
from riskpath.mdp.exact.return_graph import ReturnGraph, Utilities

ROUNDS = 100
"""The largest number of columns that one linear program adds."""
EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
SLACK = 1e-11
"""The accepted violation of a floor whose largest margin is 1."""
GAP = 1e-9
"""Column generation ends at this gap, for utilities whose largest value is 1."""


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
