"""Agents that learn, one file each. A new agent is a new file and a line here, which also exports and registers it."""

from riskpath.agents.adaptive import Adaptive, AdaptiveContinuous, AdaptivePPO
from riskpath.agents.agent import ActorOutput, Agent, AgentState, Mode
from riskpath.agents.c51 import C51
from riskpath.agents.clock import Clock
from riskpath.agents.config import (
    PAPER_ACTOR,
    PAPER_CONTINUOUS_NETWORK,
    PAPER_CONTINUOUS_TRAINING,
    PAPER_EXPLORATION,
    PAPER_NETWORK,
    PAPER_TRAINING,
    ActionNoise,
    ActorTraining,
    EpsilonGreedy,
    Training,
)
from riskpath.agents.cvar_drl import CVaRDRL
from riskpath.agents.cvar_policy_gradient import CVaRPolicyGradient
from riskpath.agents.dsac import DSAC
from riskpath.agents.iqn import IQN
from riskpath.agents.iqtd3 import IQTD3
from riskpath.agents.ppo import PPO
from riskpath.agents.qrdqn import QRDQN
from riskpath.agents.qrsrm import QRSRM
from riskpath.agents.replay_agent import HistoryAgent, MemorylessAgent
from riskpath.agents.return_capping import ReturnCapping
from riskpath.agents.rollout_agent import RolloutAgent, RolloutTraining
from riskpath.agents.tql import TQL
from riskpath.agents.tql_continuous import TQLContinuous
from riskpath.agents.wcpg import WCPG

__all__ = [
    "C51",
    "DSAC",
    "IQN",
    "IQTD3",
    "PAPER_ACTOR",
    "PAPER_CONTINUOUS_NETWORK",
    "PAPER_CONTINUOUS_TRAINING",
    "PAPER_EXPLORATION",
    "PAPER_NETWORK",
    "PAPER_TRAINING",
    "PPO",
    "QRDQN",
    "QRSRM",
    "TQL",
    "WCPG",
    "ActionNoise",
    "ActorOutput",
    "ActorTraining",
    "Adaptive",
    "AdaptiveContinuous",
    "AdaptivePPO",
    "Agent",
    "AgentState",
    "CVaRDRL",
    "CVaRPolicyGradient",
    "Clock",
    "EpsilonGreedy",
    "HistoryAgent",
    "MemorylessAgent",
    "Mode",
    "ReturnCapping",
    "RolloutAgent",
    "RolloutTraining",
    "TQLContinuous",
    "Training",
]
