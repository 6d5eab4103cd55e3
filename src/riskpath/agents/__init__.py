"""Agents that learn, one file each. A new agent is a new file and a line here, which also exports and registers it."""

from riskpath.agents.adaptive import Adaptive
from riskpath.agents.adaptive_continuous import AdaptiveContinuous
from riskpath.agents.agent import ActorOutput, Agent, AgentState, Mode
from riskpath.agents.c51 import C51
from riskpath.agents.config import (
    PAPER_CONTINUOUS_NETWORK,
    PAPER_CONTINUOUS_TRAINING,
    PAPER_NETWORK,
    PAPER_TRAINING,
    ActorCriticTraining,
    Training,
)
from riskpath.agents.cvar_drl import CVaRDRL
from riskpath.agents.dsac import DSAC
from riskpath.agents.iqn import IQN
from riskpath.agents.iqtd3 import IQTD3
from riskpath.agents.ppo import PPO
from riskpath.agents.qrdqn import QRDQN
from riskpath.agents.qrsrm import QRSRM
from riskpath.agents.replay_agent import HistoryAgent, MemorylessAgent
from riskpath.agents.rollout_agent import RolloutAgent, RolloutTraining
from riskpath.agents.tql import TQL
from riskpath.agents.tql_continuous import TQLContinuous

__all__ = [
    "C51",
    "DSAC",
    "IQN",
    "IQTD3",
    "PAPER_CONTINUOUS_NETWORK",
    "PAPER_CONTINUOUS_TRAINING",
    "PAPER_NETWORK",
    "PAPER_TRAINING",
    "PPO",
    "QRDQN",
    "QRSRM",
    "TQL",
    "ActorCriticTraining",
    "ActorOutput",
    "Adaptive",
    "AdaptiveContinuous",
    "Agent",
    "AgentState",
    "CVaRDRL",
    "HistoryAgent",
    "MemorylessAgent",
    "Mode",
    "RolloutAgent",
    "RolloutTraining",
    "TQLContinuous",
    "Training",
]
