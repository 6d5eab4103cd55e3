"""The style of figures: colours, plain axes, legends outside of the data.

The colours are those of Okabe and Ito, which colour-blind readers can tell apart.
"""

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riskpath.errors import RiskpathError, one_line
from riskpath.extras import require_extra
from riskpath.files import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = Any  # matplotlib is imported only when a figure is drawn

BLUE, VERMILION, GREEN, PINK = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
ORANGE, SKY, GREY = "#e69f00", "#56b4e9", "#7f7f7f"
PALETTE = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, GREY)
"""Colours in the order of their use."""
COLOURS = {
    "IQN": BLUE,
    "CVaR-DRL": VERMILION,
    "TQL": GREEN,
    "TQL joint": GREEN,
    "TQL trajectory": PINK,
    "TQL convolved": ORANGE,
    "QR-SRM": ORANGE,
    "Adaptive": PINK,
    "IQTD3": BLUE,
    "mean control": GREY,
}
"""The colour of each agent, the same in every figure."""
EXACT = "#222222"
"""The colour of exact values."""
OWN = "riskpath"
"""Marks figures that were made here; their legend lies outside of the axes."""


def figure_class() -> type[Figure]:
    """Import matplotlib, or say how to install it."""
    return require_extra("matplotlib.figure", "plot", "plotting").Figure


def panels(rows: int, columns: int, width: float = 3.4, height: float = 2.6, **options: Any) -> tuple[Figure, Any]:
    """Return a figure with rows × columns axes in the plain style."""
    figure = figure_class()(figsize=(columns * width, rows * height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for axis in axes.ravel():
        _plain(axis)
    return figure, axes


def save(figure: Figure, path: Path) -> Path:
    """Write a figure to a file and return its path."""
    content = io.BytesIO()
    try:
        figure.savefig(content, dpi=130, format=path.suffix[1:] or "png")
    except ValueError as error:
        raise RiskpathError(f"cannot draw {path}: {one_line(error)}") from None
    return write_file(path, content.getvalue())


def as_axes(ax: Axes | None) -> Axes:
    """Return the given axes, or those of a new figure.

    The new figure belongs to pyplot only where pyplot shows it: if pyplot is imported already, or in a notebook.
    """
    if ax is not None:
        if not hasattr(ax, "get_legend_handles_labels"):
            raise RiskpathError(f"ax must be matplotlib axes, got a {type(ax).__name__}")
        return ax
    size: dict[str, Any] = {"figsize": (5.6, 3.6), "layout": "constrained"}
    if figure_class() and ("matplotlib.pyplot" in sys.modules or "ipykernel" in sys.modules):
        import matplotlib.pyplot as plt

        figure = plt.figure(**size)
    else:
        figure = figure_class()(**size)
    figure.set_gid(OWN)
    ax = figure.subplots()
    _plain(ax)
    return ax


def pick_colours(ax: Axes, labels: Sequence[str | None]) -> list[str]:
    """Return the colours of agents, and for other labels the first colours that the axes do not show yet."""
    from matplotlib.colors import to_hex

    shown = {to_hex(line.get_color()) for line in ax.lines}
    shown |= {to_hex(colour) for patch in ax.patches for colour in (patch.get_edgecolor(), patch.get_facecolor())}
    agents = {COLOURS[label] for label in labels if label in COLOURS}
    free, chosen = [colour for colour in PALETTE if colour not in shown | agents], []
    for place, label in enumerate(labels):
        own = COLOURS.get(label or "")
        if own is None or own in shown | set(chosen):
            own = free.pop(0) if free else PALETTE[(len(shown) + place) % len(PALETTE)]
        chosen.append(own)
    return chosen


def finish(ax: Axes, xlabel: str, ylabel: str) -> Axes:
    """Add labels where the axes have none, and a legend: outside of the axes of our own figures."""
    if not ax.get_xlabel():
        ax.set_xlabel(xlabel, fontsize=9)
    if not ax.get_ylabel():
        ax.set_ylabel(ylabel, fontsize=9)
    handles, labels = ax.get_legend_handles_labels()
    figure: Any = ax.figure
    if not labels:
        return ax
    if figure.get_gid() != OWN:
        ax.legend(fontsize=7, framealpha=0.85, edgecolor="none")
        return ax
    for old in list(figure.legends):
        old.remove()
    width = 0.5 + 0.065 * max(map(len, labels))  # inches of one entry, about
    columns = max(1, min(len(labels), int(figure.get_figwidth() / width)))
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, fontsize=8, frameon=False)
    return ax


def _plain(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)
