"""How much of the tails a distributional critic loses by its loss and its atoms alone.

    python benchmarks/learning/tails.py  a minute on one core

A return is the sum of T independent rewards. Its law is computed backwards as `rp.Adaptive` does it, step by step, with
64 atoms; but every minimum of the loss is found exactly, so that neither data nor networks play a part. What is left is
the bias of the method: the error of CVaR in standard deviations of the return.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from riskpath.agents.adaptive.return_critic import cells

RESULTS = Path(__file__).parents[1] / "results" / "tails.json"
LENGTHS, ATOMS, KAPPA, PARTS, SAMPLES = (32, 64, 128, 256), 64, 0.01, 4, 400_000
REWARDS, CHANCES = np.array([-3.3, -1.3, 0.2, 1.7, 4.7]), np.array([0.1, 0.25, 0.3, 0.25, 0.1])
LEVELS, PROBS = (np.asarray(x, np.float64) for x in cells(ATOMS))
Slope = Callable[[np.ndarray, float], np.ndarray]


def huber(error: np.ndarray, kappa: float) -> np.ndarray:
    """Return the derivative of the quantile Huber loss."""
    return np.abs(LEVELS[:, None] - (error < 0)) * np.clip(error / kappa, -1, 1)


def smooth(error: np.ndarray, kappa: float) -> np.ndarray:
    """Return the derivative of the quantile loss that is smoothed on both sides alike."""
    return LEVELS[:, None] - 0.5 + 0.5 * np.clip(error / kappa, -1, 1)


def minimum(slope: Slope, target: np.ndarray, probs: np.ndarray, kappa: float) -> np.ndarray:
    """Return the atoms at which the loss has its minimum, by bisection."""
    low, high = np.full(ATOMS, target.min() - kappa), np.full(ATOMS, target.max() + kappa)
    for _ in range(40):
        middle = (low + high) / 2
        rises = slope(target[None] - middle[:, None], kappa) @ probs > 0
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    return (low + high) / 2


def inside_cells(atoms: np.ndarray, parts: int) -> np.ndarray:
    """Return several returns in each cell of the law whose quantile function is linear around every atom."""
    rise = np.diff(atoms) / np.diff(LEVELS)
    around = (atoms[2:] - atoms[:-2]) / (LEVELS[2:] - LEVELS[:-2])
    slope = np.maximum(np.concatenate([rise[:1], around, rise[-1:]]), 0.0)
    return (atoms + slope * PROBS * ((np.arange(parts) + 0.5) / parts - 0.5)[:, None]).ravel()


def cvar(atoms: np.ndarray, probs: np.ndarray, level: float) -> float:
    """Return CVaR of weighted atoms."""
    order = np.argsort(atoms)
    below = np.minimum(np.cumsum(probs[order]), level)
    return float(np.diff(below, prepend=0.0) @ atoms[order] / level)


def errors(length: int, slope: Slope, parts: int) -> dict[str, float]:
    """Return the errors of CVaR after all backups, in standard deviations of the return."""
    deviation = float(np.sqrt(length * (CHANCES @ REWARDS**2 - (CHANCES @ REWARDS) ** 2)))
    atoms = np.zeros(ATOMS)
    for _ in range(length):
        target = (REWARDS[:, None] + inside_cells(atoms, parts)[None]).ravel()
        probs = (CHANCES[:, None] * np.tile(PROBS, parts)[None] / parts).ravel()
        atoms = minimum(slope, target, probs, KAPPA * deviation)
    returns = np.random.default_rng(0).multinomial(length, CHANCES, SAMPLES) @ REWARDS
    even = np.full(SAMPLES, 1.0 / SAMPLES)
    found = {level: cvar(atoms, PROBS, level) - cvar(returns, even, level) for level in (0.1, 0.5)}
    return {f"cvar:{level}": round(error / deviation, 3) for level, error in found.items()}


def main() -> None:
    """Print and store all errors."""
    methods: dict[str, tuple[Slope, int]] = {
        "quantile Huber": (huber, 1),
        "smooth": (smooth, 1),
        "quantile Huber, draws inside of cells": (huber, PARTS),
        "smooth, draws inside of cells": (smooth, PARTS),
    }
    rows: list[dict[str, Any]] = []
    for name, (slope, parts) in methods.items():
        for length in LENGTHS:
            rows.append({"loss": name, "length": length, **errors(length, slope, parts)})
            print(rows[-1], flush=True)
    RESULTS.write_text(json.dumps({"command": "python benchmarks/learning/tails.py", "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
