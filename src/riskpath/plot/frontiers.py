"""The trade-off between the mean and a risk measure."""

from typing import Any

import numpy as np

from riskpath.errors import RiskpathError
from riskpath.plot.style import Axes, as_axes, finish, pick_colours

LABELLED = 6
"""Number of points of a frontier that are labelled with their level."""


def plot_frontier(
    levels: Any,
    values: Any,
    means: Any,
    ax: Axes | None = None,
    *,
    ends: tuple[Any, Any] | None = None,
    label: str | None = None,
    **style: Any,
) -> Axes:
    """Draw the best CVaR of every level against the mean of its policy.

    Args:
        levels: The CVaR levels, ascending.
        values: The CVaR of the policy of each level, at that level.
        means: The mean return of each of these policies.
        ax: Matplotlib axes; by default those of a new figure.
        ends: The lower and the upper ends of intervals of the values.
        label: Text for the legend.
        style: Passed to matplotlib, for example `color="black"`.
    """
    eta, y, x = (np.asarray(numbers, float) for numbers in (levels, values, means))
    if not eta.shape == y.shape == x.shape or eta.ndim != 1 or not eta.size:
        raise RiskpathError(
            f"levels, values and means must be lists of one length, got shapes {eta.shape}, {y.shape}, {x.shape}"
        )
    ax, colour = _line(ax, x, y, label, style)
    if ends is not None:
        ax.vlines(x, *ends, color=colour, alpha=0.5, linewidth=2.0)
    for index in np.unique(np.linspace(0, eta.size - 1, min(LABELLED, eta.size)).astype(int)):
        ax.annotate(f"{eta[index]:g}", (x[index], y[index]), xytext=(5, -9), textcoords="offset points", fontsize=7)
    return finish(ax, "mean return", "CVaR at the level beside the point")


def plot_floors(
    values: Any,
    means: Any,
    risk: str,
    ax: Axes | None = None,
    *,
    floor: float | None = None,
    label: str | None = None,
    **style: Any,
) -> Axes:
    """Draw the best mean against the value of a measure, and mark the point of a chosen floor.

    Args:
        values: The value of the measure at every point, ascending.
        means: The best mean at every point.
        risk: The text of the measure.
        ax: Matplotlib axes; by default those of a new figure.
        floor: A floor under the measure to mark.
        label: Text for the legend.
        style: Passed to matplotlib, for example `color="black"`.
    """
    x, y = (np.asarray(numbers, float) for numbers in (values, means))
    if x.shape != y.shape or x.ndim != 1 or not x.size:
        raise RiskpathError(f"values and means must be lists of one length, got shapes {x.shape}, {y.shape}")
    ax, colour = _line(ax, x, y, label, style)
    if floor is not None:
        ax.axvline(floor, color=colour, linestyle="--", linewidth=1.0)
        if x.min() <= floor <= x.max():
            mean = float(np.interp(floor, x, y))
            ax.plot([floor], [mean], marker="o", markersize=8, markerfacecolor="none", color=colour)
            ax.annotate(f"{mean:.4g}", (floor, mean), xytext=(7, 5), textcoords="offset points", fontsize=8)
    return finish(ax, f"{risk} of the whole return", "mean return")


def _line(ax: Axes | None, x: np.ndarray, y: np.ndarray, label: str | None, style: dict[str, Any]) -> tuple[Axes, Any]:
    """Draw points that a line joins; return the axes and the colour."""
    ax = as_axes(ax)
    colour = style.pop("color", None) or pick_colours(ax, [label])[0]
    ax.plot(x, y, color=colour, label=label, **{"marker": "o", "markersize": 3.5, "linewidth": 1.2, **style})
    return ax, colour
