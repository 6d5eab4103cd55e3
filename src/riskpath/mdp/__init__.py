"""Finite decision problems: model, policies, exact evaluation, operators and exact solvers."""

from riskpath.mdp import operators
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import AdaptivePolicy, HistoryPolicy, Lottery, MarkovPolicy
from riskpath.mdp.solution import Solution
from riskpath.mdp.solve import solve

__all__ = [
    "AdaptivePolicy",
    "FiniteMDP",
    "HistoryPolicy",
    "Lottery",
    "MarkovPolicy",
    "Solution",
    "operators",
    "solve",
]
