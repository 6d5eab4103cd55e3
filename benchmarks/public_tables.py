"""Table, figure and verdicts of `public_environments.py`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from public_tasks import NUM_ENVS, TASKS

RESULTS = Path(__file__).parent / "results"
CVAR = "cvar:0.25"
T_975 = (np.inf, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""The 97.5 % quantile of Student's t distribution by degrees of freedom, from 0."""
Rows = dict[tuple[str, str, str], dict[str, Any]]


def merge(new: list[dict[str, Any]]) -> Rows:
    """Return one row for each environment, agent and measure: committed seeds, replaced by new ones, and new seeds."""
    path = RESULTS / "public_environments.json"
    earlier = json.loads(path.read_text())["records"] if path.exists() else []
    seeds: dict[tuple[str, str, str], dict[int, dict[str, Any]]] = {}
    for record in [*earlier, *new]:
        key = (record["env"], record["agent"], record["risk"])
        lists = {name: values for name, values in record.items() if isinstance(values, list)}
        about = {name: value for name, value in record.items() if name not in lists}
        for place, seed in enumerate(record["seeds"]):
            seeds.setdefault(key, {})[seed] = about | {name: values[place] for name, values in lists.items()}
    rows = {}
    for key, found in seeds.items():
        listed = [found[seed] for seed in sorted(found)]
        several = ("seeds", "means", "cvars", "estimates", "earned", "ranges")
        rows[key] = {k: [one[k] for one in listed] if k in several else listed[0][k] for k in listed[0]}
    return {key: rows[key] for key in sorted(rows, key=_place)}


def _place(key: tuple[str, str, str]) -> tuple[int, int, bool]:
    return (list(TASKS).index(key[0]), TASKS[key[0]].agents.index(key[1]), key[2] != "mean")


def interval(values: list[float]) -> tuple[float, float]:
    """Return the mean over seeds, and half the width of its 95 % interval (Student's t)."""
    count = len(values)
    return float(np.mean(values)), float(
        T_975[count - 1] * np.std(values, ddof=1) / count**0.5
    ) if count > 1 else np.inf


def errors(row: dict[str, Any]) -> list[float]:
    """Return how far each seed's estimate is from what its policy earns, as a share of the range of its returns."""
    found = zip(row["estimates"], row["earned"], row["ranges"], strict=True)
    return [abs(estimate - earned) / spread for estimate, earned, spread in found]


def verdicts(rows: Rows) -> Iterator[str]:
    """Yield a line for every difference between measures beyond the interval, and for what falls short."""
    for env, task in TASKS.items():
        for agent in task.agents[:2]:
            if (env, agent, CVAR) in rows and (env, agent, "mean") in rows:
                (own, a), (control, b) = (interval(rows[env, agent, risk]["cvars"]) for risk in (CVAR, "mean"))
                if abs(own - control) > (width := np.hypot(a, b)):
                    way = "gains" if own > control else "loses"
                    yield f"{env}, {agent}: training for CVaR {way} {abs(own - control):.3g} ± {width:.2g} in CVaR"
        means = {agent: rows[env, agent, "mean"]["means"] for agent in task.agents if (env, agent, "mean") in rows}
        own, peers = task.agents[0], [float(np.mean(means[agent])) for agent in task.agents[1:] if agent in means]
        if own in means and peers and np.mean(means[own]) < max(peers) - 0.05 * abs(max(peers)):
            yield f"{env}, {own}: the mean {np.mean(means[own]):.4g} is more than 5 % below a peer's {max(peers):.4g}"
        for agent, values in means.items():
            if env.startswith("LunarLander") and np.median(values) < 200:
                yield f"{env}, {agent}: the median of the mean return is {np.median(values):.0f}, below 200"
    for (env, agent, measure), row in rows.items():
        if "estimates" in row and (off := float(np.median(errors(row)))) > 0.1:
            yield f"{env}, {agent}, {measure}: estimates are off by {100 * off:.0f} % of the range of returns (median)"


def table(rows: Rows) -> str:
    """Return the table, and what fell short."""
    lines = [
        "# Public environments",
        "",
        "`python benchmarks/public_environments.py`: final policies, greedy episodes, undiscounted returns, mean over",
        f"seeds ± half of its 95 % interval. Our agents have their defaults and {NUM_ENVS} environments a seed. Error:",
        "how far `run.estimates()` is from what the policy earns, per cent of the range of training returns, median.",
        "",
        "| environment | steps | agent | seeds | mean | CVaR | error | for CVaR: mean | CVaR | error |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for env, task in TASKS.items():
        for agent in task.agents:
            of = [rows.get((env, agent, measure)) for measure in ("mean", CVAR)]
            if any(of):
                peer = f" ({task.source})" if agent == task.agents[2] else ""
                counts = " / ".join(dict.fromkeys(str(len(row["seeds"])) for row in of if row))
                cells = [cell for row in of for cell in _cells(row)]
                lines.append(f"| {env} | {task.steps:,} | {agent}{peer} | {counts} | " + " | ".join(cells) + " |")
    return "\n".join(
        [
            *lines,
            "",
            "Differences beyond the interval, and what fell short:",
            "",
            *(f"- {line}" for line in verdicts(rows)),
            "",
        ]
    )


def _cells(row: dict[str, Any] | None) -> list[str]:
    if row is None:
        return ["", "", ""]
    found = f"{100 * np.median(errors(row)):.0f} %" if "estimates" in row else ""
    return [_number(row["means"]), _number(row["cvars"]), found]


def _number(values: list[float]) -> str:
    middle, half = interval(values)
    digits = 2 if abs(middle) < 10 else 1 if abs(middle) < 100 else 0
    text = f"{middle:.{digits}f}" + (f" ± {half:.{digits}f}" if np.isfinite(half) else "")
    return text.replace("-", "−")


def draw(rows: Rows) -> Path:
    """Draw a panel for each environment: CVaR 0.25 of every seed, by agent and by what it was trained for."""
    from riskpath import plot

    figure, axes = plot.panels(3, 4, width=2.9, height=2.4)
    for axis in axes.ravel()[len(TASKS) :]:
        axis.set_axis_off()
    for axis, (env, task) in zip(axes.ravel(), TASKS.items(), strict=False):
        labels = []
        for agent, measure in [(agent, measure) for agent in task.agents for measure in ("mean", CVAR)]:
            row = rows.get((env, agent, measure))
            if row is None:
                continue
            colour = plot.COLOURS.get(agent.removesuffix("Continuous"), "#777777")
            x, (middle, _) = len(labels), interval(row["cvars"])
            spots = x + np.linspace(-0.2, 0.2, len(row["cvars"]))
            axis.plot(spots, sorted(row["cvars"]), "o", ms=3, color=colour, mfc=colour if measure == CVAR else "white")
            axis.plot([x - 0.3, x + 0.3], [middle, middle], color=colour)
            what = "mean" if measure == "mean" else "CVaR"
            labels.append("\n".join([*agent.replace("Continuous", " cont.").split(" "), what]))
        axis.set_xticks(range(len(labels)), labels, fontsize=6)
        axis.set_title(f"{env}, {task.steps // 1000},000 steps", fontsize=8)
    figure.supylabel("CVaR 0.25 of the return of the final policy", fontsize=9)
    return plot.save(figure, RESULTS / "public_environments.png")


def write_results(rows: Rows) -> str:
    """Write the result file, the table and the figure; return the table."""
    kept = {"command": "python benchmarks/public_environments.py", "records": list(rows.values())}
    (RESULTS / "public_environments.json").write_text(json.dumps(kept) + "\n")
    text = table(rows)
    (RESULTS / "public_environments.md").write_text(text)
    draw(rows)
    return text
