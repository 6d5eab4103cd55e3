"""The demo: exact optima of the paper's two problems, then three agents that learn one of them."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from riskpath.agents.agent import Agent
from riskpath.agents.config import Training
from riskpath.agents.cvar_drl import CVaRDRL
from riskpath.agents.iqn import IQN
from riskpath.agents.tql import TQL
from riskpath.cli.tables import CLASSES, lane_records, overview_table, solve_all, table_of
from riskpath.envs import make
from riskpath.envs.risky_grid import RiskyGrid
from riskpath.experiments.grid_figures import curves_panel, returns_panel
from riskpath.experiments.reproduce_grid import counted
from riskpath.mdp.solve import solve
from riskpath.nn.network import Network
from riskpath.plot import panels, save
from riskpath.risk.compose import parse_risk
from riskpath.risk.measures import CVaR
from riskpath.training.run import Run
from riskpath.training.train import train

PROBLEMS = (
    ("ThreeState", "Bet or not, twice (ThreeState): risk of the whole return", ["mean", "cvar:0.1", "cvar:0.25"]),
    (
        "RiskyGrid",
        "Three forks, blue +20 or yellow +100 w.p. 0.75 (RiskyGrid): risk of the whole return, and the path",
        ["mean", "cvar:0.05", "cvar:0.1", "cvar:0.25", "cvar:0.5", "wang:-0.75", "pow:-2", "pow:-5", "cpw:0.71"],
    ),
)
GRID, RISK, SEEDS = RiskyGrid(), CVaR(0.1), 4
# Few steps and small networks, so that the demo takes two minutes; `riskpath reproduce grid` is the full experiment.
STEPS, EVERY = 6_500, 600
NETWORK = Network(hidden=(64,), history_size=16)
TRAINING = Training(
    learning_rate=5e-3,
    learning_rate_decay=0.06,
    decay_steps=6_000.0,
    act_taus=32,
    buffer_size=20_000,
    learning_starts=500,
    target_update_interval=50,
    epsilon_start=1.0,
    epsilon_end=0.1,
    epsilon_steps=3_000.0,
)
AGENTS: dict[str, Callable[..., Agent]] = {"IQN": IQN, "CVaR-DRL": CVaRDRL, "TQL": TQL}

NOTES = (
    "The best is the optimum over policies that see the history. IQN is greedy at each",
    "step: BBB. TQL finds YYY. CVaR-DRL sees the return so far and can beat the best;",
    "its result depends on the seed (try --seed 2).",
)


def exact(console: Console, working: Callable[[str], AbstractContextManager[Any]]) -> None:
    """Print the optima of every class of policies."""
    for name, title, measures in PROBLEMS:
        env, rows = make(name), []
        for text in measures:
            with working(f"{name}, {text}"):
                rows.append((text, solve_all(env.mdp(), parse_risk(text))))
        console.print(overview_table(title, rows, env))
    for policies, meaning in CLASSES.items():
        console.print(f"  {policies:9} {meaning}", highlight=False)


def learned(console: Console, out: Path, seed: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Train every agent, print and draw the results; return the records of all seeds by agent."""
    console.print(f"\nNow {', '.join(AGENTS)} learn the grid for {RISK}: {STEPS:,} steps, {SEEDS} seeds each.")
    records = {}
    for name, make_agent in AGENTS.items():
        console.print(f"{name}: compiling and training …", highlight=False)
        began = time.monotonic()
        agent = make_agent(RISK, network=NETWORK, training=TRAINING)
        run = train(agent, GRID, steps=STEPS, seeds=SEEDS, seed=seed, evaluate_every=EVERY, progress=True)
        records[name] = _records(run)
        paths = counted([lane["does"] for lane in records[name]])
        console.print(f"{name}: {paths} ({time.monotonic() - began:.0f} s)", highlight=False)
    best = {policies: solve(GRID.mdp(), RISK, policies).value for policies in ("markov", "history", "adaptive")}
    rows = [_row(*item, best["history"]) for item in records.items()]
    console.print(table_of(f"What they learned: exact {RISK} of the whole return", rows))
    for line in NOTES:
        console.print(f"  {line}", highlight=False)
    console.print(f"figure: {save(_draw(records, best), out)}", highlight=False)
    return records


def _records(run: Run) -> list[dict[str, Any]]:
    """Return the result, law and learning curve of every seed."""
    lanes = lane_records(run, GRID)
    for seed, lane in enumerate(lanes):
        law = run.law(seed)
        lane |= {"atoms": law.atoms.tolist(), "probs": law.probs.tolist()}
        lane["curve"] = [[point["step"], point["values"][0][seed]] for point in run.curve]
    return lanes


def _row(name: str, lanes: list[dict[str, Any]], best: float) -> dict[str, str]:
    value, estimate = (float(np.median([lane[key] for lane in lanes])) for key in ("value", "estimate"))
    return {
        "agent": name,
        "path (seeds)": counted([lane["does"] for lane in lanes]),
        "median": f"{value:.3f}",
        "of the best": f"{value / best:.0%}",
        "own estimate": f"{estimate:.1f}",
    }


def _draw(records: dict[str, list[dict[str, Any]]], best: dict[str, float]) -> Any:
    """Draw learning curves beside the laws of the final policies' returns."""
    figure, axes = panels(1, 2, width=4.6, height=3.4)
    curves_panel(axes[0, 0], records, best)
    returns_panel(axes[0, 1], records, str(RISK))
    axes[0, 0].set_ylabel(f"exact {RISK} of the greedy policy", fontsize=8)
    axes[0, 1].set_ylabel("probability (seeds pooled)", fontsize=8)
    axes[0, 1].legend(fontsize=8, frameon=False, loc="center right")
    return figure
