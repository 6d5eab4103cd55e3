"""Distortion risk measures, and finite laws of returns."""

from riskpath.risk.compose import Distortion, Mixture, as_risk, parse_risk, register_risk
from riskpath.risk.inverse import inverse
from riskpath.risk.law import Law
from riskpath.risk.measures import CPW, POW, CVaR, Mean, RiskMeasure, Wang
from riskpath.risk.tabulated import Tabulated

__all__ = [
    "CPW",
    "POW",
    "CVaR",
    "Distortion",
    "Law",
    "Mean",
    "Mixture",
    "RiskMeasure",
    "Tabulated",
    "Wang",
    "as_risk",
    "inverse",
    "parse_risk",
    "register_risk",
]
