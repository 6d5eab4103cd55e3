"""Finite decision problems: model, policies, exact evaluation, operators and exact solvers."""

from riskpath.mdp import operators
from riskpath.mdp.frontier import Frontier
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import AdaptivePolicy, HistoryPolicy, Lottery, MarkovPolicy, RandomisedPolicy
from riskpath.mdp.solution import Solution
from riskpath.mdp.solve import frontier, solve

__all__ = [
    "AdaptivePolicy",
    "FiniteMDP",
    "Frontier",
    "HistoryPolicy",
    "Lottery",
    "MarkovPolicy",
    "RandomisedPolicy",
    "Solution",
    "frontier",
    "operators",
    "solve",
]
