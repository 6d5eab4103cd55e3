"""The scores of a benchmark in Markdown, as a heat map and as performance profiles.

In the table and the heat map, each problem and measure has a row, each agent a column.
"""

from typing import Any

import numpy as np

from riskpath.errors import RiskpathError
from riskpath.evaluation.bootstrap import Interval
from riskpath.experiments.bench_scores import CONFIDENCE, LEVELS, profile, shares_by_agent
from riskpath.plot.notebook import markdown_table
from riskpath.plot.style import EXACT, as_axes, figure_class, finish, pick_colours

SCORES = {"share": "Share of the optimum's advantage", "gap": "Gap to the optimum"}
"""The scores and the titles of their tables."""


WORST, BEST = -1.0, 1.0
"""Shares beyond these have the same colour."""


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return a table of each score; tasks without a share are only in the table of gaps."""
    parts = []
    for score, title in SCORES.items():
        if tasks := tasks_with(rows, score):
            parts.append(f"## {title}\n\n{_table(tasks, agents_of(rows), score)}\n")
    return "\n".join(parts)


def agents_of(rows: list[dict[str, Any]]) -> list[str]:
    """Return the agents in the order of the rows."""
    return list(dict.fromkeys(row["agent"] for row in rows))


def tasks_of(rows: list[dict[str, Any]]) -> list[dict[str, dict[str, Any]]]:
    """Return the rows of each problem and measure by agent."""
    tasks: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for problem in dict.fromkeys(row["problem"] for row in rows):
        for row in rows:
            if row["problem"] == problem:
                tasks.setdefault((problem, row["risk"]), {})[row["agent"]] = row
    return list(tasks.values())


def tasks_with(rows: list[dict[str, Any]], score: str) -> list[dict[str, dict[str, Any]]]:
    """Return the tasks for which an agent has a score."""
    return [task for task in tasks_of(rows) if any(row[score] is not None for row in task.values())]


def about_task(task: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the problem and the measure of a task."""
    first = next(iter(task.values()))
    return {"problem": first["problem"], "measure": first["risk"]}


def _table(tasks: list[dict[str, dict[str, Any]]], agents: list[str], score: str) -> str:
    rows = []
    for task in tasks:
        first = next(iter(task.values()))
        numbers = [f"{first['mean_optimal']:.5g}", f"{first['optimum']:.5g}"]
        numbers += [score_text(task[agent], score) if agent in task else "" for agent in agents]
        rows.append([*about_task(task).values(), *(number.replace("-", "−") for number in numbers)])
    return markdown_table(["problem", "measure", "mean-optimal", "optimum", *agents], rows, texts=2)


def score_text(row: dict[str, Any], score: str) -> str:
    """Return a score with its interval."""
    if row[score] is None:
        return "–"
    low, high = row[f"{score}_low"], row[f"{score}_high"]
    if score == "share":
        return f"{row[score]:z.2f} [{low:z.2f}, {high:z.2f}]"
    return "0" if row[score] == low == high == 0.0 else str(Interval(row[score], low, high, CONFIDENCE))


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
