"""Riskpath: decisions that are best for the risk of the whole return."""

from riskpath.agents.actor_critic import PAPER_CONTINUOUS_NETWORK, PAPER_CONTINUOUS_TRAINING, ActorCriticTraining
from riskpath.agents.agent import PAPER_NETWORK, PAPER_TRAINING, Agent, Network, Training
from riskpath.agents.cvar_drl import CVaRDRL
from riskpath.agents.iqn import IQN
from riskpath.agents.iqtd3 import IQTD3
from riskpath.agents.tql import TQL
from riskpath.agents.tql_continuous import TQLContinuous
from riskpath.envs import make
from riskpath.envs.environment import Environment
from riskpath.envs.gymnax_env import from_gymnax
from riskpath.envs.mountain_car import RiskyMountainCar
from riskpath.envs.risky_grid import RiskyGrid
from riskpath.envs.three_state import ThreeState
from riskpath.errors import RiskpathError
from riskpath.evaluation.bootstrap import Interval
from riskpath.evaluation.evaluation import Evaluation, compare
from riskpath.evaluation.predictor import Predictor
from riskpath.mdp import operators
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import AdaptivePolicy, HistoryPolicy, Lottery, MarkovPolicy
from riskpath.mdp.solution import Solution
from riskpath.mdp.solve import solve
from riskpath.risk.compose import Distortion, Mixture, parse_risk, register_risk
from riskpath.risk.inverse import inverse
from riskpath.risk.law import Law
from riskpath.risk.measures import CPW, POW, CVaR, Mean, RiskMeasure, Wang
from riskpath.training.callbacks import JSONLines, TensorBoard
from riskpath.training.checkpoint import Checkpointer, load
from riskpath.training.run import Run, TrainingStopped
from riskpath.training.train import train
from riskpath.types import EnvSpec

__version__ = "0.1.0"

__all__ = [
    "CPW",
    "IQN",
    "IQTD3",
    "PAPER_CONTINUOUS_NETWORK",
    "PAPER_CONTINUOUS_TRAINING",
    "PAPER_NETWORK",
    "PAPER_TRAINING",
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
    "parse_risk",
    "register_risk",
    "solve",
    "train",
]
