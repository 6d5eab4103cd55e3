"""The pictures of a benchmark: a heat map of shares, and performance profiles."""

from typing import Any

import numpy as np

from riskpath.errors import RiskpathError
from riskpath.experiments.bench_scores import LEVELS, profile, shares_by_agent
from riskpath.experiments.bench_tables import about_task, agents_of, tasks_of
from riskpath.plot.style import EXACT, as_axes, figure_class, finish, pick_colours

WORST, BEST = -1.0, 1.0
"""Shares beyond these have the same colour."""


def heat_map(rows: list[dict[str, Any]], ax: Any = None) -> Any:
    """Draw the share of every agent (columns), problem and measure (rows).

    Where there is no share, the cell is grey and shows the gap. A dash means that it was not trained.
    """
    if not rows:
        raise RiskpathError("a heat map needs at least one finished cell")
    agents, tasks = agents_of(rows), tasks_of(rows)
    if ax is None:  # a figure that is as large as its cells need
        size = (3.6 + 0.85 * len(agents), max(2.6, 1.2 + 0.26 * len(tasks)))
        ax = figure_class()(figsize=size, layout="constrained").subplots()
    shares = np.full((len(tasks), len(agents)), np.nan)
    for place, task in enumerate(tasks):
        for column, agent in enumerate(agents):
            if agent in task:
                _write(ax, column, place, task[agent])
                if task[agent]["share"] is not None:
                    shares[place, column] = task[agent]["share"]
            else:
                ax.text(column, place, "–", ha="center", va="center", fontsize=7, color="#999999")
    image = ax.imshow(shares, cmap="RdBu", vmin=WORST, vmax=BEST, aspect="auto")
    ax.set_xticks(range(len(agents)), agents)
    ax.set_yticks(range(len(tasks)), _labels(tasks))
    ax.tick_params(length=0, labelsize=8, top=True, labeltop=True, bottom=False, labelbottom=False)
    for place in range(1, len(tasks)):
        if about_task(tasks[place])["problem"] != about_task(tasks[place - 1])["problem"]:
            ax.axhline(place - 0.5, color="white", linewidth=3)
    ax.spines[:].set_visible(False)
    bar = ax.figure.colorbar(image, ax=ax, shrink=min(1.0, 6 / len(tasks)), pad=0.02)
    bar.set_label("share of the optimum's advantage", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return ax


def profiles(cells: list[dict[str, Any]], ax: Any = None) -> Any:
    """Draw which part of an agent's runs (problem, measure and seed) has at least a given share, with its interval."""
    shares = shares_by_agent(cells)
    if not shares:
        raise RiskpathError(
            "a performance profile needs shares; here the optimum is nowhere far above the mean-optimal"
        )
    ax = as_axes(ax)
    labels = list(shares)
    for agent, colour in zip(labels, pick_colours(ax, labels), strict=True):
        part, (low, high) = profile(shares[agent])
        ax.plot(LEVELS, part, color=colour, linewidth=1.8, label=f"{agent} ({shares[agent].size} runs)")
        ax.fill_between(LEVELS, low, high, color=colour, alpha=0.15, linewidth=0)
    ax.axvline(0.0, color=EXACT, linewidth=0.9, linestyle="--")
    ax.annotate("mean-optimal", (0.0, 1.01), xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=7)
    ax.annotate("optimum", (1.0, 1.01), xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=7)
    ax.set(xlim=(LEVELS[0], LEVELS[-1]), ylim=(0.0, 1.02))
    return finish(ax, "share of the optimum's advantage", "part of the runs with at least this share")


def _write(ax: Any, column: int, place: int, row: dict[str, Any]) -> None:
    """Write a share, or on grey the gap where there is none."""
    from matplotlib.patches import Rectangle

    if row["share"] is None:
        ax.add_patch(Rectangle((column - 0.5, place - 0.5), 1, 1, color="#eeeeee", linewidth=0))
        text, colour = f"gap {row['gap']:.3g}", "#555555"
    else:
        dark = abs(np.clip(row["share"], WORST, BEST)) > 0.65
        text, colour = f"{row['share']:z.2f}", "white" if dark else "black"
    ax.text(column, place, text.replace("-", "−"), ha="center", va="center", fontsize=7, color=colour)


def _labels(tasks: list[dict[str, dict[str, Any]]]) -> list[str]:
    """Return the measure of each row, with the problem at its first one."""
    labels, before = [], ""
    for task in tasks:
        problem, risk = about_task(task).values()
        labels.append(risk if problem == before else f"{problem}   {risk}")
        before = problem
    return labels
