"""The demo: the exact frontier of a betting game, then three agents that learn to play it."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from riskpath.agents.adaptive import Adaptive
from riskpath.agents.agent import Agent
from riskpath.agents.config import EpsilonGreedy, Training
from riskpath.agents.iqn import IQN
from riskpath.cli.tables import table_of
from riskpath.envs.betting_game import BettingGame
from riskpath.mdp.exact.frontier import Frontier
from riskpath.mdp.law import Law
from riskpath.mdp.solution import Solution
from riskpath.mdp.solve import frontier, solve
from riskpath.nn.network import Network
from riskpath.plot import panels, plot_law, save
from riskpath.risk.measures import CVaR
from riskpath.training.run import Run
from riskpath.training.train import train

GAME, RISK = BettingGame(), CVaR(0.25)
LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
# Few steps and small networks, so that the demo takes about four minutes on two cores.
STEPS, SEEDS, EPISODES = 12_000, 2, 5_000
NETWORK = Network(hidden=(64, 64))
TRAINING = Training(final_learning_rate=2e-5, buffer_size=20_000)
EXPLORATION = EpsilonGreedy(final_eps=0.05, fraction=0.25)
AGENTS: dict[str, Callable[..., Agent]] = {
    # CVaR at level 1 is the mean; so both agents share a compiled program.
    "mean-trained": lambda **options: IQN(CVaR(1.0), discount=1.0, **options),
    "IQN": lambda **options: IQN(RISK, discount=1.0, **options),
    "Adaptive": lambda **options: Adaptive(RISK, **options),
}
STORY = (
    "The betting game: 16 coins, six rounds; each round bet any eighth of your coins and win with probability 0.88.",
    f"{RISK} is the mean of the worst quarter of outcomes. Playing for the mean bets everything and risks ruin;",
    "weighing the risk of what is to come, anew in each round, hardly bets at all; the best policy bets its winnings.",
)


def exact(console: Console, working: Callable[[str], AbstractContextManager[Any]]) -> dict[str, Any]:
    """Print the best CVaR of every level beside two other policies; return the solutions."""
    for line in STORY:
        console.print(line, highlight=False)
    mdp = GAME.mdp()
    with working("solving the betting game"):
        best = frontier(mdp, LEVELS)
        steps = {level: solve(mdp, CVaR(level), "markov") for level in LEVELS}
        mean, rows = steps[1.0], []
        for level, value, average in zip(LEVELS, best.values, best.means, strict=True):
            row = {"level": f"{level:g}", "playing for the mean": f"{mean.law.risk(CVaR(level)):.2f}"}
            row |= {
                "per step": f"{steps[level].value:.2f}",
                "best": f"{value:.2f}",
                "mean of the best": f"{average:.1f}",
            }
            rows.append(row)
        solutions = {"mean": mean, "best": solve(mdp, RISK, "adaptive")}
    console.print(table_of("Exact: CVaR of the whole profit for every level, from one backward pass", rows))
    return solutions | {"frontier": best}


def learned(console: Console, out: Path, solutions: dict[str, Any], seed: int = 0) -> dict[str, Run]:
    """Train every agent, print and draw the results; return the runs."""
    console.print(f"\nNow three agents learn it by playing: {STEPS:,} steps, {SEEDS} seeds each.", highlight=False)
    runs, rows = {}, []
    for name, make_agent in AGENTS.items():
        began = time.monotonic()
        agent = make_agent(network=NETWORK, training=TRAINING, exploration=EXPLORATION)
        runs[name] = train(agent, GAME, steps=STEPS, seeds=SEEDS, seed=seed, progress=True)
        rows.append(_row(name, runs[name], solutions, time.monotonic() - began))
        console.print(f"{name}: {rows[-1][str(RISK)]} after {rows[-1]['time']}", highlight=False)
    console.print(table_of(f"What they learned: exact {RISK} of the whole profit, median of the seeds", rows))
    console.print("Adaptive was trained once. Its policies for other levels, chosen afterwards:", highlight=False)
    found = runs["Adaptive"].frontier(LEVELS, EPISODES)
    columns = ("level", "cvar", "best cvar", "mean")
    console.print(table_of("", [{key: f"{row[key]:.4g}" for key in columns} for row in found.rows()]))
    console.print(f"figure: {save(_draw(runs, solutions, found), out)}", highlight=False)
    return runs


def _row(name: str, run: Run, solutions: dict[str, Any], seconds: float) -> dict[str, str]:
    """Return what an agent learned, by the exact distributions of its policies."""
    best, mean = solutions["best"].value, solutions["mean"].law.risk(RISK)
    laws = [run.law(seed) for seed in range(SEEDS)]
    value = float(np.median([law.risk(RISK) for law in laws]))
    return {
        "agent": name,
        str(RISK): f"{value:.2f}",
        "mean": f"{np.median([law.mean for law in laws]):.1f}",
        "of the best policy's advantage": f"{(value - mean) / (best - mean):.0%}",
        "time": f"{seconds:.0f} s",
    }


def _draw(runs: dict[str, Run], solutions: dict[str, Any], found: Any) -> Any:
    """Draw the frontier, exact and learned, beside the distributions of the policies' profits."""
    figure, axes = panels(1, 2, width=5.0, height=3.6)
    left, right = axes[0, 0], axes[0, 1]
    best: Frontier = solutions["frontier"]
    best.plot(left, label="best possible, at every level", color="0.6")
    left.plot(
        np.median(found.means, axis=1), np.median(found.values, axis=1), "o", color="C2", label="Adaptive, one training"
    )
    left.legend(fontsize=8, frameon=False)
    laws: dict[str, Law] = {name: _pooled(run) for name, run in runs.items()}
    optimum: Solution = solutions["best"]
    for (name, law), colour in zip(laws.items(), ("C0", "C1", "C2"), strict=False):
        plot_law(law, right, label=f"{name}: {law.risk(RISK):.1f}", color=colour)
    plot_law(optimum.law, right, label=f"best possible: {optimum.value:.1f}", color="0.6", linestyle="--")
    right.set_xlabel("profit after six rounds")
    right.legend(fontsize=8, frameon=False, title=str(RISK), title_fontsize=8)
    return figure


def _pooled(run: Run) -> Law:
    return Law.mix([run.law(seed) for seed in range(run.seeds)], [1 / run.seeds] * run.seeds)
