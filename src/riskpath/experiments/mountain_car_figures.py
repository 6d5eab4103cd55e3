"""The paper's fourth figure from recorded results: 30 panels with the published curves and the best known values."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from riskpath.experiments.reproduce_mountain_car import (
    AGENTS,
    MEASURES,
    WEIGHTS,
    best_known,
    published,
    summary,
    verdict,
)
from riskpath.files import write_file
from riskpath.plot import COLOURS, EXACT, panels, save, seeds_curve
from riskpath.plot.notebook import markdown_table

PUBLISHED = {"iqtd3": "IQTD3", "tql": "TQL joint"}


def write(result: dict[str, Any], out: Path) -> list[Path]:
    """Draw the figure and write the tables; return the names of the files."""
    if not result["records"]:
        return []
    write_file(out / "mountain_car.md", tables(result))
    return [save(draw(result), out / "mountain_car.png"), out / "mountain_car.md"]


def tables(result: dict[str, Any]) -> str:
    """Return all cells in Markdown: discounted, then undiscounted beside the published results, and the control."""
    seconds, device = round(result["seconds"]), result.get("device", "?")
    text = f"# Risky mountain-car\n\n`{result['command']}`, {seconds} s on one {device}. "
    text += "Final policies, median over seeds (lowest to highest).\n"
    if comparison := verdict(result):
        text += f"\n**The control.** {comparison}\n"
    for title, figure in (("Discounted, γ = 0.99", "beta"), ("Undiscounted", "beta_undiscounted")):
        rows = summary(result, figure)
        table = markdown_table([*rows[0]], ([_cell(value) for value in row.values()] for row in rows))
        text += f"\n## {title}\n\n{table}\n"
    return text


def _cell(value: Any) -> str:
    if isinstance(value, tuple):
        return "{:.1f} ({:.1f} to {:.1f})".format(*value)
    return value if isinstance(value, str) else f"{value:.4g}"


def draw(result: dict[str, Any]) -> Any:
    """Draw the undiscounted risk of the greedy policy against steps: a row for each c, a column for each measure."""
    figure, axes = panels(len(WEIGHTS), len(MEASURES), width=2.7, height=1.9, sharex=True)
    curves, best = published(), best_known()
    for row, c in enumerate(WEIGHTS):
        for column, measure in enumerate(MEASURES):
            axis = axes[row, column]
            for agent, points in curves[measure][f"{c:g}"].items():
                steps, values = np.array(points).T
                axis.plot(steps / 1000, values, color=COLOURS[PUBLISHED[agent]], linewidth=0.8, linestyle=":")
            for agent in AGENTS:
                wanted = (c, measure, agent)
                lanes = [r for r in result["records"] if (r["c"], r["risk"], r["agent"]) == wanted]
                if lanes:
                    steps = [point[0] / 1000 for point in lanes[0]["curve"]]
                    values = np.array([[point[1] for point in lane["curve"]] for lane in lanes])
                    seeds_curve(axis, steps, values, agent, COLOURS[agent])
            axis.axhline(best[c, measure]["best_undiscounted"], color=EXACT, linewidth=0.8, linestyle="--")
            axis.set_xlim(0, 200)
            if row == 0:
                axis.set_title(measure, fontsize=9)
        axes[row, 0].set_ylabel(f"c = {c:g}", fontsize=9)
    lines = [Line2D([], [], color=COLOURS[agent], label=agent) for agent in AGENTS]
    lines += [
        Line2D([], [], color="#888888", linestyle=":", label="published (blue IQTD3, green TQL)"),
        Line2D([], [], color=EXACT, linestyle="--", label="best known, by dynamic programming"),
    ]
    figure.legend(handles=lines, loc="outside upper center", ncols=6, fontsize=8, frameon=False)
    figure.supxlabel("environment steps (thousands)", fontsize=9)
    figure.supylabel("risk of the undiscounted return", fontsize=9)
    return figure
