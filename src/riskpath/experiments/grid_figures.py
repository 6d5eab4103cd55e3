"""Figures and the table of paths of the grid experiment, from its recorded results."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from riskpath.experiments.reproduce_grid import counted
from riskpath.files import write_file
from riskpath.plot import COLOURS, panels, reference_line, save, seeds_curve
from riskpath.risk.compose import parse_risk

AGENTS = ("IQN", "CVaR-DRL", "TQL joint")
LEVELS = ("cvar:0.25", "cvar:0.1")


def write(result: dict[str, Any], out: Path) -> list[Path]:
    """Draw what the results allow, and return the names of the files."""
    written = []
    if any(_lanes(result, agent, risk) for agent in AGENTS for risk in LEVELS):
        written.append(save(learning_curves(result), out / "grid_curves.png"))
        written.append(save(return_distributions(result), out / "grid_returns.png"))
        table = out / "grid_paths.md"
        write_file(table, paths_table(result))
        written.append(table)
    return written


def _lanes(result: dict[str, Any], agent: str, risk: str) -> list[dict[str, Any]]:
    wanted = (agent, risk, "paper")
    return [r for r in result["records"] if (r["agent"], r["risk"], r["grid"]) == wanted]


def _by_agent(result: dict[str, Any], risk: str) -> dict[str, list[dict[str, Any]]]:
    return {agent: lanes for agent in AGENTS if (lanes := _lanes(result, agent, risk))}


def learning_curves(result: dict[str, Any]) -> Any:
    """Draw the exact CVaR of the greedy policy against steps: median, middle half and range over seeds."""
    optima = {(o["grid"], o["risk"]): o for o in result["optima"]}

    def draw(axis: Axes, risk: str) -> None:
        curves_panel(axis, _by_agent(result, risk), optima.get(("paper", risk)))
        axis.set_title(f"CVaR {risk.partition(':')[2]}", fontsize=10)
        axis.set_xscale("log")  # policies change most at the beginning
        axis.set_ylim(bottom=0)  # untrained policies are far below
        axis.xaxis.set_major_formatter("{x:g}")

    return _panels(draw, "exact CVaR of the greedy policy")


def return_distributions(result: dict[str, Any]) -> Any:
    """Draw the exact return distribution of the final policies (seeds pooled), and the median CVaR of the seeds."""

    def draw(axis: Axes, risk: str) -> None:
        returns_panel(axis, _by_agent(result, risk), risk)
        axis.set_title(f"CVaR {risk.partition(':')[2]} (dashed: median over seeds)", fontsize=10)

    return _panels(draw, "probability", sharey=True)


def _panels(draw: Callable[[Axes, str], None], ylabel: str, **options: Any) -> Any:
    """Draw a panel for each level, with a legend above: the panels show the same agents or none."""
    figure, axes = panels(1, 2, width=4.6, height=3.2, **options)
    for axis, risk in zip(axes[0], LEVELS, strict=True):
        draw(axis, risk)
    axes[0, 0].set_ylabel(ylabel, fontsize=8)
    handles, labels = max((axis.get_legend_handles_labels() for axis in axes[0]), key=lambda labelled: len(labelled[0]))
    figure.legend(handles, labels, fontsize=8, frameon=False, loc="outside upper center", ncols=3)
    return figure


def curves_panel(axis: Axes, agents: dict[str, list[dict[str, Any]]], best: dict[str, Any] | None) -> None:
    """Draw learning curves of agents, from records of their seeds, and the optima of three classes of policies."""
    for agent, lanes in agents.items():
        steps = [point[0] / 1000 for point in lanes[0]["curve"]]
        values = np.array([[point[1] for point in lane["curve"]] for lane in lanes])
        seeds_curve(axis, steps, values, agent, COLOURS[agent])
    for policies, style in (("history", "--"), ("adaptive", ":"), ("markov", "-.")):
        if best and (policies != "adaptive" or best["adaptive"] > best["history"] + 1e-9):
            reference_line(axis, best[policies], f"best {policies} {best[policies]:g}", style)
    axis.set_xlabel("environment steps (thousands)", fontsize=8)


def returns_panel(axis: Axes, agents: dict[str, list[dict[str, Any]]], risk: str) -> None:
    """Draw bars for the distribution of the return of agents, from records of their seeds."""
    for place, (agent, lanes) in enumerate(agents.items()):
        mass: dict[float, float] = {}
        for lane in lanes:
            for atom, prob in zip(lane["atoms"], lane["probs"], strict=True):
                mass[atom] = mass.get(atom, 0.0) + prob / len(lanes)
        at = [atom + 7 * (place - 1) for atom in mass]
        axis.bar(at, list(mass.values()), 7, color=COLOURS[agent], alpha=0.85, label=agent)
        line = float(np.median([parse_risk(risk).value(np.array(x["atoms"]), np.array(x["probs"])) for x in lanes]))
        axis.axvline(line, color=COLOURS[agent], linestyle="--", linewidth=1.4)
        axis.annotate(f"{line:g}", (line, 1.02 - 0.06 * place), fontsize=7, color=COLOURS[agent], ha="left")
    axis.set_xlabel("total return", fontsize=8)
    axis.set_ylim(0, 1.1)


def paths_table(result: dict[str, Any]) -> str:
    """Return the paths of the greedy policies at several times of training, counted over seeds, in Markdown."""
    lines = [
        "# Paths over training",
        "",
        "Colours at the three forks; (Y|B) where the colour depends on earlier rewards. Counts over seeds.",
    ]
    for risk in LEVELS:
        lanes = _by_agent(result, risk)
        if not lanes:
            continue
        lines += ["", f"## {risk}", "", "| steps | " + " | ".join(lanes) + " |", "|---:|" + "---|" * len(lanes)]
        longest = max((listed[0]["curve"] for listed in lanes.values()), key=len)
        for share in (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0):
            steps = longest[max(0, round(share * len(longest)) - 1)][0]
            row = [counted([_path(lane["curve"], steps) for lane in listed]) for listed in lanes.values()]
            lines.append(f"| {steps:,} | " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def _path(curve: list[Any], steps: int) -> str:
    """Return the path of a seed at the last evaluation up to a step."""
    paths = [path for step, _, path in curve if step <= steps]
    return paths[-1].replace("|", "\\|") if paths else "–"
