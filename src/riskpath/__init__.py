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
from riskpath.evaluate import Evaluation, compare
from riskpath.intervals import Interval
from riskpath.law import Law
from riskpath.logs import JSONLines, TensorBoard
from riskpath.mdp import operators
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policy import AdaptivePolicy, HistoryPolicy, Lottery, MarkovPolicy
from riskpath.mdp.solution import Solution
from riskpath.mdp.solve import solve
from riskpath.monotone import inverse
from riskpath.predictor import Predictor
from riskpath.risk import CPW, POW, CVaR, Mean, RiskMeasure, Wang
from riskpath.risk_compose import Distortion, Mixture, register_risk, risk
from riskpath.run import Run, TrainingStopped
from riskpath.saving import Checkpointer, load
from riskpath.training import train
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
    "Checkpointer",
    "Distortion",
    "EnvSpec",
    "Environment",
    "Evaluation",
    "FiniteMDP",
    "HistoryPolicy",
    "Interval",
    "JSONLines",
    "Law",
    "Lottery",
    "MarkovPolicy",
    "Mean",
    "Mixture",
    "Network",
    "Predictor",
    "RiskMeasure",
    "RiskpathError",
    "RiskyGrid",
    "RiskyMountainCar",
    "Run",
    "Solution",
    "TQLContinuous",
    "TensorBoard",
    "ThreeState",
    "Training",
    "TrainingStopped",
    "Wang",
    "compare",
    "from_gymnax",
    "inverse",
    "load",
    "make",
    "operators",
    "register_risk",
    "risk",
    "solve",
    "train",
]
