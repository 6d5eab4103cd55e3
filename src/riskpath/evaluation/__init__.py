"""Rollouts of learned policies, statistics of their returns, and policies as functions."""

from riskpath.evaluation.bootstrap import Interval
from riskpath.evaluation.evaluation import Evaluation, compare
from riskpath.evaluation.learned_policy import LearnedPolicy
from riskpath.evaluation.predictor import Predictor

__all__ = ["Evaluation", "Interval", "LearnedPolicy", "Predictor", "compare"]
