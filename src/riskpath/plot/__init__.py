"""Figures of return distributions and learning curves, and the style that all figures share.

    ax = riskpath.plot.compare({"IQN": run.evaluate(), "optimum": solution}, risk="cvar:0.1")
    ax.figure.savefig("returns.png")

Every function draws on the given matplotlib axes, or on those of a new figure, and returns the axes. matplotlib is
imported when the first figure is drawn: pip install 'riskpath[plot]'.
"""

from riskpath.plot.curves import plot_curve, reference_line, seeds_curve
from riskpath.plot.distributions import compare, plot_law, plot_returns, quantile_steps
from riskpath.plot.frontiers import plot_floors, plot_frontier
from riskpath.plot.style import COLOURS, EXACT, PALETTE, panels, save

__all__ = [
    "COLOURS",
    "EXACT",
    "PALETTE",
    "compare",
    "panels",
    "plot_curve",
    "plot_floors",
    "plot_frontier",
    "plot_law",
    "plot_returns",
    "quantile_steps",
    "reference_line",
    "save",
    "seeds_curve",
]
