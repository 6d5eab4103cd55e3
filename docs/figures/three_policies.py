"""Draw three policies' exact return distributions for twelve years of shares or bonds.

Run `python docs/figures/three_policies.py` to write `three_policies.png` next to this file.
"""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import riskpath as rp

INK, MUTED, TAIL = "#1f2933", "#6b7785", "#d1495b"
BIN = 35.0 / 3.0
RISK = rp.CVaR(0.1)


def savings(years: int = 12) -> rp.FiniteMDP:
    """Return the problem: every year shares (+20 with probability 0.7, else −15) or bonds (+1)."""
    assets = {"shares": [(0.7, 20.0), (0.3, -15.0)], "bonds": [(1.0, 1.0)]}
    return rp.FiniteMDP.from_outcomes(
        {
            (year, name): [(prob, gain, year + 1) for prob, gain in outcomes]
            for year in range(1, years + 1)
            for name, outcomes in assets.items()
        },
        start=1,
    )


def worst_share(probs: np.ndarray, share: float) -> np.ndarray:
    """Return how much of each outcome's probability lies in the worst `share`; outcomes are sorted upwards."""
    before = np.concatenate([[0.0], np.cumsum(probs)[:-1]])
    return np.clip(share - before, 0.0, probs)


def binned(atoms: np.ndarray, probs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean outcome of each bin and the bin's probability."""
    _, bins = np.unique(np.round((atoms - 30.0) / BIN), return_inverse=True)
    height = np.bincount(bins, probs)
    return np.bincount(bins, probs * atoms) / height, height


def draw_law(axes: Axes, law: rp.Law, colour: str, title: str, subtitle: str) -> None:
    """Draw one return distribution: the worst tenth in red, CVaR as a line."""
    atoms, probs = np.asarray(law.atoms), np.asarray(law.probs)
    centres, height = binned(atoms, probs)
    tail = worst_share(height, 0.1)
    gap = max(BIN, min(np.diff(centres), default=BIN))
    axes.bar(centres, tail, 0.86 * gap, color=TAIL, linewidth=0)
    axes.bar(centres, height - tail, 0.86 * gap, bottom=tail, color=colour, linewidth=0)
    top, cvar = height.max(), RISK.value(law)
    axes.set_ylim(0, 1.34 * top)
    axes.plot([cvar, cvar], [0, 1.08 * top], color=TAIL, linewidth=1.3, linestyle=(0, (4, 2)))
    axes.text(
        cvar,
        1.1 * top,
        f"CVaR {cvar:.1f}",
        ha="center",
        color=TAIL,
        fontsize=14,
        fontweight="bold",
    )
    axes.text(
        0.0,
        0.92,
        title,
        transform=axes.transAxes,
        va="top",
        color=INK,
        fontsize=13.5,
        fontweight="bold",
    )
    axes.text(
        0.0,
        0.70,
        subtitle,
        transform=axes.transAxes,
        va="top",
        color=MUTED,
        fontsize=11.5,
        linespacing=1.4,
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#c5cdd6")
    axes.tick_params(axis="x", colors=MUTED, labelsize=11, length=0, pad=5)
    axes.set_yticks([])


def draw() -> Figure:
    """Draw the three policies below each other on one axis."""
    mdp = savings()
    best_mean = rp.solve(mdp, rp.Mean(), "markov").law
    per_step = rp.solve(mdp, RISK, "markov").law
    adaptive = rp.solve(mdp, RISK, "adaptive").law
    figure = Figure(figsize=(7.2, 5.2), facecolor="white", layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.06)
    rows = figure.subplots(3, 1, sharex=True)
    draw_law(
        rows[0], best_mean, "#a9b4c0", "Best mean", f"always shares\nmean {best_mean.mean:.0f}"
    )
    draw_law(
        rows[1],
        per_step,
        "#7ea3c9",
        "Risk of each step",
        f"always bonds\nmean {per_step.mean:.0f}",
    )
    draw_law(
        rows[2],
        adaptive,
        "#57a773",
        "Risk of the total",
        f"shares until about 50 is certain,\nthen bonds; mean {adaptive.mean:.0f}",
    )
    rows[2].set_xlim(-180, 260)
    rows[2].set_xticks([-50, 0, 50, 100, 150, 200])
    rows[2].set_xlabel(
        "total after twelve years; the worst tenth of all outcomes is red",
        color=MUTED,
        fontsize=11.5,
    )
    return figure


if __name__ == "__main__":
    draw().savefig(Path(__file__).with_suffix(".png"), dpi=170)
