"""The adaptive agents: policies that react to what an episode has earned so far.

The files in the order in which they are best read:

    objective.py            what is maximised, as an expected utility of the return to go in a context
    goals.py                the objective of the mean and CVaR: the context is what is still needed
    thresholds.py           the objective of measures that are a search over a threshold, such as VaR
    aversions.py            the objective of entropic risk and EVaR: the context is the degree of aversion
    utilities.py            the objective of any other measure: the context is what was earned so far
    return_critic.py        the critic, which predicts the return distribution in a context
    context_agent.py        how contexts start and move along an episode; what all adaptive agents share
    adaptive_agent.py       what the two agents with a return critic share
    discrete_actions.py     Adaptive
    continuous_actions.py   AdaptiveContinuous
    played_returns.py       the returns of each candidate, where no critic predicts them
    adaptive_ppo.py         AdaptivePPO: policy gradients
    elimination.py          after training: the best of several policies, by held-out episodes
    mixing.py               after training: the best mixture of several policies
"""

from riskpath.agents.adaptive.adaptive_ppo import AdaptivePPO
from riskpath.agents.adaptive.continuous_actions import AdaptiveContinuous
from riskpath.agents.adaptive.discrete_actions import Adaptive

__all__ = ["Adaptive", "AdaptiveContinuous", "AdaptivePPO"]
