"""Finite decision problems, and problems on a grid: model, policies, exact evaluation, operators and exact solvers."""

from riskpath.mdp import operators
from riskpath.mdp.exact.constrained_solver import RiskFrontier
from riskpath.mdp.exact.frontier import Frontier
from riskpath.mdp.grid.policy import GridPolicy
from riskpath.mdp.grid.problem import GridProblem, Quadrature, finite_noise, normal_noise
from riskpath.mdp.grid.solution import GridSolution
from riskpath.mdp.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import AdaptivePolicy, HistoryPolicy, Lottery, MarkovPolicy, RandomisedPolicy
from riskpath.mdp.solution import Solution
from riskpath.mdp.solve import frontier, solve

__all__ = [
    "AdaptivePolicy",
    "FiniteMDP",
    "Frontier",
    "GridPolicy",
    "GridProblem",
    "GridSolution",
    "HistoryPolicy",
    "Law",
    "Lottery",
    "MarkovPolicy",
    "Quadrature",
    "RandomisedPolicy",
    "RiskFrontier",
    "Solution",
    "finite_noise",
    "frontier",
    "normal_noise",
    "operators",
    "solve",
]
