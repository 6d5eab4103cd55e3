"""Rollouts of learned policies, statistics of their returns, and policies as functions."""

from riskpath.evaluation.bootstrap import Interval
from riskpath.evaluation.evaluation import Evaluation, compare
from riskpath.evaluation.exported_policy import ExportedPolicy
from riskpath.evaluation.learned_policy import LearnedPolicy
from riskpath.evaluation.policy_file import load_policy
from riskpath.evaluation.predictor import Predictor
from riskpath.evaluation.table_policy import export_policy

__all__ = [
    "Evaluation",
    "ExportedPolicy",
    "Interval",
    "LearnedPolicy",
    "Predictor",
    "compare",
    "export_policy",
    "load_policy",
]
