"""Sweeps: combinations of hyperparameters as lanes of few programs, stored cell by cell, here or on Ray."""

from riskpath.sweeps.result import Sweep, load_sweep
from riskpath.sweeps.sweep import sweep

__all__ = ["Sweep", "load_sweep", "sweep"]
