"""Tables and figure of `public_environments.py`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from public_tasks import NUM_ENVS, TASKS, Task

RESULTS = Path(__file__).parents[1] / "results"
CVAR = "cvar:0.25"
NAMES = {"mean": "mean", CVAR: "CVaR"}
T_975 = (np.inf, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""The 97.5 % quantile of Student's t distribution by degrees of freedom, from 0."""
HOLDS, SHORT, NOT_RUN = ANSWERS = ("holds", "falls short", "not run")
NOT_WORSE = "Trained for CVaR, the CVaR is not below that of training for the mean, beyond the interval"
PEER = "The mean of the adaptive agent is within 5 % of the best other agent's"
LANDS = "LunarLander: the median of the mean return is at least 200"
GAINS = "With wind, training for CVaR gains in CVaR, beyond the interval"
ESTIMATES = "Estimates are within 10 % of the range of returns (median)"
Rows = dict[tuple[str, str, str], dict[str, Any]]


def merge(new: list[dict[str, Any]]) -> Rows:
    """Return one row for each environment, agent and measure: committed seeds, replaced by new ones, and new seeds."""
    seeds: dict[tuple[str, str, str], dict[int, dict[str, Any]]] = {}
    for record in [*_committed()["records"], *new]:
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


def _committed() -> dict[str, Any]:
    path = RESULTS / "public_environments.json"
    return json.loads(path.read_text()) if path.exists() else {"records": []}


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


def begun(rows: Rows) -> dict[str, Task]:
    """Return the environments with at least one result."""
    return {env: task for env, task in TASKS.items() if any(key[0] == env for key in rows)}


def checks(rows: Rows) -> Iterator[tuple[str, str, str]]:
    """Yield what was asked, whether it holds, and the figures, for every environment with a result."""
    for env, task in begun(rows).items():
        for agent in task.agents[:2]:
            pair, name = [rows.get((env, agent, risk)) for risk in (CVAR, "mean")], f"{env}, {agent}"
            yield from _both_measures(env, name, *pair)
            for measure, row in zip(("CVaR", "the mean"), pair, strict=True):
                off = float(np.median(errors(row))) if row else np.nan
                text = f"{name} for {measure}" + (f" ({100 * off:.0f} %)" if row else "")
                yield ESTIMATES, NOT_RUN if row is None else HOLDS if off <= 0.1 else SHORT, text
        yield _beside_peers(env, task, rows)
        for agent in task.agents if env.startswith("LunarLander") else ():
            row = rows.get((env, agent, "mean"))
            middle = float(np.median(row["means"])) if row else np.nan
            text = f"{env}, {agent}" + (f" ({_plain(middle)})" if row else "")
            yield LANDS, NOT_RUN if row is None else HOLDS if middle >= 200 else SHORT, text


def _both_measures(
    env: str, name: str, own: dict[str, Any] | None, control: dict[str, Any] | None
) -> Iterator[tuple[str, str, str]]:
    """Compare the CVaR of what was trained for CVaR with that of what was trained for the mean."""
    answers, text = (NOT_RUN, NOT_RUN), name
    if own and control:
        (middle, a), (other, b) = interval(own["cvars"]), interval(control["cvars"])
        gain, width = middle - other, float(np.hypot(a, b))
        answers = (HOLDS if gain >= -width else SHORT, HOLDS if gain > width else SHORT)
        text += f" ({_plain(middle)} beside {_plain(other)}, ± {_plain(width)})"
    yield NOT_WORSE, answers[0], text
    if "windy" in env:
        yield GAINS, answers[1], text


def _beside_peers(env: str, task: Task, rows: Rows) -> tuple[str, str, str]:
    """Compare the first agent's mean with the best mean of the others."""
    own, *others = task.agents
    means = {
        agent: float(np.mean(rows[env, agent, "mean"]["means"]))
        for agent in task.agents
        if (env, agent, "mean") in rows
    }
    peers = {agent: means[agent] for agent in others if agent in means}
    if own not in means or not peers:
        return PEER, NOT_RUN, f"{env}, {own}"
    best = max(peers, key=lambda agent: peers[agent])
    enough = means[own] >= peers[best] - 0.05 * abs(peers[best])
    missing = "".join(f"; {agent} not run" for agent in others if agent not in peers)
    text = f"{env}, {own} ({_plain(means[own])} beside {_plain(peers[best])} of {best}{missing})"
    return PEER, HOLDS if enough else SHORT, text


def table(rows: Rows) -> str:
    """Return the table of results, and the one of what was asked."""
    lines = [
        "# Public environments",
        "",
        "`python benchmarks/peers/public_environments.py`: final policies, greedy episodes, undiscounted returns, mean",
        f"over seeds ± half of its 95 % interval. Our agents have their defaults and {NUM_ENVS} environments a seed.",
        "Error: how far `run.estimates()` is from what the policy earns, per cent of the range of training returns,",
        "median.",
        "",
        "| environment | steps | agent | seeds | mean | CVaR | error | for CVaR: mean | CVaR | error |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for env, task in begun(rows).items():
        for agent in task.agents:
            of = [rows.get((env, agent, measure)) for measure in ("mean", CVAR)]
            peer = agent == task.agents[2]
            counts = " / ".join(dict.fromkeys(str(len(row["seeds"])) for row in of if row)) or "–"
            cells = [*_cells(of[0], peer), *(["–"] * 3 if peer else _cells(of[1], peer))]
            name = f"{agent} ({task.source})" if peer else agent
            lines.append(f"| {env} | {task.steps:,} | {name} | {counts} | " + " | ".join(cells) + " |")
    lines += ["", "| asked | holds | falls short | not run |", "|---|---|---|---|"]
    found = list(checks(rows))
    for question in (NOT_WORSE, PEER, LANDS, GAINS, ESTIMATES):
        cells = ["; ".join(text for q, a, text in found if (q, a) == (question, answer)) for answer in ANSWERS]
        lines.append(f"| {question} | " + " | ".join(cell or "–" for cell in cells) + " |")
    rest = [env for env in TASKS if env not in begun(rows)]
    return "\n".join([*lines, *(["", f"Not run at all: {', '.join(rest)}."] if rest else []), ""])


def _cells(row: dict[str, Any] | None, peer: bool) -> list[str]:
    """Return mean, CVaR and error. A peer has no estimates."""
    if row is None:
        return [NOT_RUN, NOT_RUN, "–" if peer else NOT_RUN]
    found = f"{100 * np.median(errors(row)):.0f} %" if "estimates" in row else "–"
    return [_number(row["means"]), _number(row["cvars"]), found]


def _number(values: list[float]) -> str:
    middle, half = interval(values)
    return _plain(middle) + (f" ± {_plain(half, _digits(middle))}" if np.isfinite(half) else "")


def _plain(value: float, digits: int | None = None) -> str:
    return f"{value:.{_digits(value) if digits is None else digits}f}".replace("-", "−")


def _digits(value: float) -> int:
    return 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0


def draw(rows: Rows) -> Path:
    """Draw a panel for each environment: CVaR 0.25 of every seed, by agent and by what it was trained for."""
    from riskpath import plot

    tasks = begun(rows)
    figure, axes = plot.panels(-(-len(tasks) // 4), min(4, len(tasks)), width=2.9, height=2.4)
    for axis in axes.ravel()[len(tasks) :]:
        axis.set_axis_off()
    for axis, (env, task) in zip(axes.ravel(), tasks.items(), strict=False):
        places = [(agent, measure) for agent in task.agents for measure in ("mean", CVAR)][:-1]  # a peer: the mean only
        for x, (agent, measure) in enumerate(places):
            row, colour = rows.get((env, agent, measure)), plot.COLOURS.get(agent.removesuffix("Continuous"), "#777777")
            if row is None:
                options = {"rotation": 90, "ha": "center", "va": "center", "fontsize": 7, "color": "#999999"}
                axis.text(x, 0.5, NOT_RUN, transform=axis.get_xaxis_transform(), **options)
                continue
            values, middle = sorted(row["cvars"]), interval(row["cvars"])[0]
            spots = x + 0.2 * (np.linspace(-1, 1, len(values)) if len(values) > 1 else np.zeros(1))
            axis.plot(spots, values, "o", ms=3, color=colour, mfc=colour if measure == CVAR else "white")
            axis.plot([x - 0.3, x + 0.3], [middle, middle], color=colour)
        labels = [f"{agent.replace('Continuous', ' cont.')}\n{NAMES[measure]}" for agent, measure in places]
        axis.set_xticks(range(len(places)), [label.replace(" ", "\n") for label in labels], fontsize=6)
        axis.set_xlim(-0.5, len(places) - 0.5)
        axis.set_title(f"{env}, {task.steps:,} steps", fontsize=8)
    figure.supylabel("CVaR 0.25 of the return", fontsize=8)
    return plot.save(figure, RESULTS / "public_environments.png")


def write_results(rows: Rows) -> str:
    """Write the result file, the table and the figure; return the table."""
    kept = {"command": "python benchmarks/peers/public_environments.py", **_committed(), "records": list(rows.values())}
    (RESULTS / "public_environments.json").write_text(json.dumps(kept) + "\n")
    text = table(rows)
    (RESULTS / "public_environments.md").write_text(text)
    draw(rows)
    return text
