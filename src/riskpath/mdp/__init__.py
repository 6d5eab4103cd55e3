"""Finite decision problems, and problems on a grid: model, policies, exact evaluation, operators and exact solvers."""

from riskpath.mdp import operators
from riskpath.mdp.constrained_solver import RiskFrontier
from riskpath.mdp.frontier import Frontier
from riskpath.mdp.grid_policy import GridPolicy
from riskpath.mdp.grid_problem import GridProblem, Quadrature, finite_noise, normal_noise
from riskpath.mdp.grid_solution import GridSolution
from riskpath.mdp.grid_solver import solve_grid
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
    "solve_grid",
]
