"""How figures look: one colour for each agent, the same everywhere; seeds as a band; exact values as lines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from riskpath.errors import RiskpathError

COLOURS = {
    "IQN": "#4878a8",
    "CVaR-DRL": "#b8524e",
    "TQL": "#3d8f5f",
    "TQL joint": "#3d8f5f",
    "TQL trajectory": "#8a6bb0",
    "TQL convolved": "#c98a2b",
    "IQTD3": "#4878a8",
    "mean control": "#7f7f7f",
}
EXACT = "#222222"


def panels(rows: int, columns: int, width: float = 3.4, height: float = 2.6, **options: Any) -> tuple[Figure, Any]:
    """A figure with rows × columns axes in one plain style."""
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for axis in axes.ravel():
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    return figure, axes


def save(figure: Figure, path: Path) -> Path:
    """Writes the picture and says where it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path


def seeds_curve(axis: Axes, steps: Sequence[float], values: np.ndarray, label: str, colour: str) -> None:
    """Median over seeds as a line, the middle half and all seeds as bands; `values` is [seeds, steps]."""
    axis.plot(steps, np.median(values, axis=0), color=colour, label=label, linewidth=1.8)
    axis.fill_between(steps, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    axis.fill_between(
        steps,
        np.quantile(values, 0.25, axis=0),
        np.quantile(values, 0.75, axis=0),
        color=colour,
        alpha=0.2,
        linewidth=0,
    )


def reference_line(axis: Axes, value: float, label: str, style: str = "--") -> None:
    """An exact value across the panel."""
    axis.axhline(value, color=EXACT, linewidth=0.9, linestyle=style)
    axis.annotate(label, (1.0, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7)


def quantile_steps(axis: Axes, atoms: np.ndarray, probs: np.ndarray, **style: Any) -> None:
    """The quantile function of a finite law."""
    ends = np.concatenate([[0.0], np.cumsum(probs)])
    axis.stairs(atoms, ends, baseline=None, **style)


def plot_law(law: Any, ax: Axes | None = None, *, kind: str = "cdf", label: str | None = None, **style: Any) -> Axes:
    """Draw a finite law into `ax`, or into new axes, and return the axes.

    `kind` is "cdf" (distribution function), "quantile" (quantile function) or "probs" (one bar per atom).
    """
    if kind not in ("cdf", "quantile", "probs"):
        raise RiskpathError(f"kind must be 'cdf', 'quantile' or 'probs', got {kind!r}")
    if ax is None:
        ax = pyplot.subplots()[1]
    levels = np.concatenate([[0.0], law.cumulative])
    if kind == "cdf":
        margin = 0.05 * max(float(np.ptp(law.atoms)), 1.0)
        x = np.concatenate([[law.atoms[0] - margin], law.atoms, [law.atoms[-1] + margin]])
        ax.step(x, np.append(levels, 1.0), where="post", label=label, **style)
        ax.set(xlabel="return", ylabel="cumulative probability")
    elif kind == "quantile":
        ax.stairs(law.atoms, levels, baseline=None, label=label, **style)
        ax.set(xlabel="cumulative probability", ylabel="return")
    else:
        ax.vlines(law.atoms, 0.0, law.probs, label=label or "", **style)
        ax.set(xlabel="return", ylabel="probability")
    return ax
