"""Figures and tables of the suite's optima: the distributions and frontier of every problem, and a Markdown table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from riskpath.files import write_file
from riskpath.mdp.law import Law
from riskpath.plot import panels, plot_frontier, plot_law, save
from riskpath.plot.notebook import markdown_table
from riskpath.plot.style import BLUE, GREEN, GREY, PINK, VERMILION

CLASSES = ("mean-optimal", "markov", "history", "adaptive", "randomised")
LAWS = {
    "mean-optimal": ("mean-optimal", GREY),
    "markov cvar:0.1": ("per-step, CVaR 0.1", VERMILION),
    "adaptive cvar:0.1": ("best at CVaR 0.1", BLUE),
    "adaptive cvar:0.25": ("best at CVaR 0.25", GREEN),
}
"""The distributions of a figure: label and colour."""


def write(result: dict[str, Any], out: Path) -> list[Path]:
    """Draw the distributions and the frontier of every problem in one figure each, and write the table."""
    table = out / "suite_optima.md"
    write_file(table, "\n\n".join(f"## {r['problem']}\n\n{markdown(r)}" for r in result["records"]) + "\n")
    return [draw_laws(result, out / "suite_laws.png"), draw_frontiers(result, out / "suite_frontiers.png"), table]


def draw_laws(result: dict[str, Any], path: Path) -> Path:
    """Draw the distribution functions of the returns of four policies, one panel for each problem."""
    figure, axes = _panels(result["records"], draw_record)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8)
    return save(figure, path)


def draw_record(axis: Any, record: dict[str, Any]) -> None:
    """Draw the distributions of one problem."""
    for name, (label, colour) in LAWS.items():
        if name in record["laws"]:
            law = record["laws"][name]
            style = "--" if name == "mean-optimal" else "-"
            probs = np.array(law["probs"])
            plot_law(Law(law["atoms"], probs / probs.sum()), axis, label=label, color=colour, linestyle=style)
    if axis.get_legend() is not None:
        axis.get_legend().remove()


def draw_frontiers(result: dict[str, Any], path: Path) -> Path:
    """Draw mean against CVaR of every level, one panel for each problem."""

    def draw(axis: Any, record: dict[str, Any]) -> None:
        rows = record["frontier"]["rows"]
        levels, values, means = ([row[key] for row in rows] for key in ("level", "cvar", "mean"))
        plot_frontier(levels, values, means, axis, color=PINK)
        axis.set_ylabel("CVaR")

    return save(_panels(result["records"], draw)[0], path)


def markdown(record: dict[str, Any]) -> str:
    """Return the table of one problem: a row for each measure, a column for each class of policies."""
    cells = {(cell["risk"], cell["policies"]): cell for cell in record["cells"]}
    columns = [name for name in CLASSES if any(policies == name for _, policies in cells)]
    risks = dict.fromkeys(cell["risk"] for cell in record["cells"])
    rows = ([risk, *(_text(cells.get((risk, name))) for name in columns)] for risk in risks)
    return markdown_table(["measure", *columns], rows, texts=1)


def _text(cell: dict[str, Any] | None) -> str:
    if cell is None or "value" not in cell:
        return "–"
    return f"{cell['value']:.5g}".replace("-", "−")


def _panels(records: list[dict[str, Any]], draw: Callable[[Any, dict[str, Any]], None]) -> tuple[Any, list[Any]]:
    """Draw a panel for each problem, four in a row; return the figure and its axes."""
    columns = min(4, len(records))
    figure, axes = panels(-(-len(records) // columns), columns, 3.0, 2.5)
    for axis, record in zip(axes.flat, records, strict=False):
        draw(axis, record)
        axis.set_title(record["problem"], fontsize=9)
    for axis in axes.flat[len(records) :]:
        axis.set_visible(False)
    return figure, list(axes.flat)
