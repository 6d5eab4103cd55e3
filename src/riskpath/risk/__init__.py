"""Risk measures of returns, and measures from text."""

from riskpath.risk.certainty_equivalents import OCE, MeanSemideviation, MonotoneMeanVariance
from riskpath.risk.compose import Distortion, Mixture, Spectral, WeightedSum, parse_risk, register_risk
from riskpath.risk.entropic import Entropic, EVaR
from riskpath.risk.inverse import inverse
from riskpath.risk.measures import CPW, POW, CVaR, DistortionMeasure, Mean, Wang
from riskpath.risk.quantile_measures import BestCase, VaR, WorstCase
from riskpath.risk.risk_measure import RiskMeasure, UtilityForm
from riskpath.risk.tabulated import Tabulated
from riskpath.risk.utility_families import AversionFamily, ThresholdFamily
from riskpath.risk.utility_measures import ReachProbability, Utility

__all__ = [
    "CPW",
    "OCE",
    "POW",
    "AversionFamily",
    "BestCase",
    "CVaR",
    "Distortion",
    "DistortionMeasure",
    "EVaR",
    "Entropic",
    "Mean",
    "MeanSemideviation",
    "Mixture",
    "MonotoneMeanVariance",
    "ReachProbability",
    "RiskMeasure",
    "Spectral",
    "Tabulated",
    "ThresholdFamily",
    "Utility",
    "UtilityForm",
    "VaR",
    "Wang",
    "WeightedSum",
    "WorstCase",
    "inverse",
    "parse_risk",
    "register_risk",
]
