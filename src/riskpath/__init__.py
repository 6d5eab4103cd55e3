"""Riskpath: decisions that are best for the risk of the whole return."""

from riskpath.agents.base import PAPER_NETWORK, PAPER_TRAINING, Agent, Network, Training
from riskpath.agents.continuous import PAPER_VECTOR_NETWORK, PAPER_VECTOR_TRAINING, ActorCriticTraining
from riskpath.agents.cvar_drl import CVaRDRL
from riskpath.agents.iqn import IQN
from riskpath.agents.iqtd3 import IQTD3
from riskpath.agents.tql import TQL
from riskpath.agents.tql_continuous import TQLContinuous
from riskpath.envs import make
from riskpath.envs.base import Environment
from riskpath.envs.gymnax import from_gymnax
from riskpath.envs.mountain_car import RiskyMountainCar
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
from riskpath.run import Run, TrainingStopped, train
from riskpath.types import EnvSpec

__version__ = "0.1.0"

__all__ = [
    "CPW",
    "IQN",
    "IQTD3",
    "PAPER_NETWORK",
    "PAPER_TRAINING",
    "PAPER_VECTOR_NETWORK",
    "PAPER_VECTOR_TRAINING",
    "POW",
    "TQL",
    "ActorCriticTraining",
    "AdaptivePolicy",
    "Agent",
    "CVaR",
    "CVaRDRL",
    "Distortion",
    "EnvSpec",
    "Environment",
    "FiniteMDP",
    "HistoryPolicy",
    "Law",
    "Lottery",
    "MarkovPolicy",
    "Mean",
    "Mixture",
    "Network",
    "RiskMeasure",
    "RiskpathError",
    "RiskyGrid",
    "RiskyMountainCar",
    "Run",
    "Solution",
    "TQLContinuous",
    "ThreeState",
    "Training",
    "TrainingStopped",
    "Wang",
    "from_gymnax",
    "inverse",
    "make",
    "operators",
    "register_risk",
    "risk",
    "solve",
    "train",
]
