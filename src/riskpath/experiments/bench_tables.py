"""The table of both scores in Markdown: a row for each problem and measure, a column for each agent."""

from typing import Any

from riskpath.evaluation.bootstrap import Interval
from riskpath.experiments.bench_scores import CONFIDENCE
from riskpath.plot.notebook import markdown_table

SCORES = {"share": "Share of the optimum's advantage", "gap": "Gap to the optimum"}
"""The scores and the titles of their tables."""


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
