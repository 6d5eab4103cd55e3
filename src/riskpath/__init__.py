"""Riskpath: decisions that are best for the risk of the whole return."""

from riskpath.envs import make
from riskpath.envs.risky_grid import RiskyGrid
from riskpath.envs.three_state import ThreeState
from riskpath.errors import RiskpathError
from riskpath.law import Law
from riskpath.mdp import operators
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policy import AdaptivePolicy, HistoryPolicy, Lottery, MarkovPolicy
from riskpath.mdp.solution import Solution
from riskpath.mdp.solve import solve
from riskpath.monotone import inverse
from riskpath.risk import CPW, POW, CVaR, Mean, RiskMeasure, Wang
from riskpath.risk_compose import Distortion, Mixture, register_risk, risk

__version__ = "0.1.0"

__all__ = [
    "CPW",
    "POW",
    "AdaptivePolicy",
    "CVaR",
    "Distortion",
    "FiniteMDP",
    "HistoryPolicy",
    "Law",
    "Lottery",
    "MarkovPolicy",
    "Mean",
    "Mixture",
    "RiskMeasure",
    "RiskpathError",
    "RiskyGrid",
    "Solution",
    "ThreeState",
    "Wang",
    "inverse",
    "make",
    "operators",
    "register_risk",
    "risk",
    "solve",
]
