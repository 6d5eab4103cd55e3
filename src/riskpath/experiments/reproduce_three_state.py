"""The paper's first and third figures: the distributions that IQN and TQL learn on the three-state problem, as tables.

The bet is lost with probability 0.1, which is the level of the CVaR: smoothing across that jump changes the result, so
the critics are tables of quantiles, without networks. IQN never bets (−10), TQL bets twice (79).
"""

import time
from pathlib import Path
from typing import Any

import numpy as np

from riskpath.agents.config import EpsilonGreedy, Training
from riskpath.agents.iqn import IQN
from riskpath.agents.tql import TQL
from riskpath.envs.three_state import ThreeState
from riskpath.experiments.records import command_of, header, write_json
from riskpath.mdp import operators
from riskpath.mdp.law import Law
from riskpath.nn.network import Network
from riskpath.plot import COLOURS, EXACT, panels, quantile_steps, save
from riskpath.risk.measures import CVaR
from riskpath.training.run import Run
from riskpath.training.train import train

PROBLEM, RISK, LEVELS, ENVS = ThreeState(), CVaR(0.1), 100, 16
NETWORK = Network(head="table")
TRAINING = Training(
    kappa=1.0,
    reward_scale=0.01,
    learning_rate=1e-2,
    final_learning_rate=1e-4,
    decay_ends=0.75,
    num_quantiles=LEVELS,
    num_target_quantiles=LEVELS,
    num_action_quantiles=1_000,
    learning_starts=1_600,
    batch_size=256,
    train_freq=ENVS,  # many samples for each update, so that the probability to lose is estimated well
    target_update_interval=50,
    buffer_size=320_000,
)
EXPLORATION = EpsilonGreedy(initial_eps=1.0, final_eps=0.5)
PANELS = (
    ("IQN", "a", ("s0",), "risky"),
    ("IQN", "b", ("s0",), "safe"),
    ("TQL", "e", ("s0",), "risky"),
    ("TQL", "f", ("s0", "risky", "s1"), "risky"),
    ("TQL", "g", ("s0", "risky", "s1"), "safe"),
    ("IQN", "c", ("s1",), "risky"),
    ("IQN", "d", ("s1",), "safe"),
    ("TQL", "h", ("s0",), "safe"),
    ("TQL", "i", ("s0", "safe", "s1"), "risky"),
    ("TQL", "j", ("s0", "safe", "s1"), "safe"),
)
"""Agent, the paper's letter, the state (IQN) or history (TQL), and the action whose distribution is shown."""


def reproduce(out: Path, *, quick: bool = False, seeds: int = 8, show: Any = print) -> dict[str, Any]:
    """Train both agents, write `three_state.json` and `three_state.png`, and return the results."""
    began, records, policies = time.monotonic(), [], []
    updates = 2_000 if quick else 20_000
    for name, agent in (
        ("IQN", IQN(RISK, discount=1.0, network=NETWORK, training=TRAINING, exploration=EXPLORATION)),
        ("TQL", TQL(RISK, discount=1.0, network=NETWORK, training=TRAINING, exploration=EXPLORATION)),
    ):
        run = train(agent, PROBLEM, steps=updates * ENVS, seeds=seeds, num_envs=ENVS, progress=True)
        records += [_panel(run, *panel) for panel in PANELS if panel[0] == name]
        for seed, value in enumerate(run.values()[0]):
            policies.append({"agent": name, "seed": seed, "actions": _actions(run, seed), "value": float(value)})
        show(f"{name}: {[' '.join(p['actions']) for p in policies if p['agent'] == name]}")
    result = {
        **header(command_of("three-state", quick), time.monotonic() - began),
        "risk": str(RISK),
        "first_figure": first_figure(),
        "policies": policies,
        "panels": records,
    }
    write_json(out / "three_state.json", result)
    show(f"figure: {save(draw(result), out / 'three_state.png')}")
    return result


def first_figure() -> list[dict[str, Any]]:
    """Return the table of the first figure, from the operators: distribution and CVaR at every state and action."""
    mdp = PROBLEM.mdp()
    reward = operators.bellman(mdp, operators.constant_table(mdp), {"s0": "risky", "s1": "risky"})
    best = operators.bellman(mdp, reward, {"s0": "risky", "s1": "risky"})
    zero = Law.point(0.0)
    guess = {at: law if at[0] == "s1" else zero for at, law in reward.items()}
    rows = {"R": reward, "Z*": best, "Z": guess, "T*Z": operators.risk_greedy_bellman(mdp, guess, RISK)}
    return [
        {"row": row, "state": state, "action": action, "law": str(law), "cvar": round(float(RISK.value(law)), 9)}
        for row, table in rows.items()
        for (state, action), law in table.items()
    ]


def exact_law(agent: str, history: tuple[str, ...], action: str) -> Law:
    """Return the exact distribution that a critic estimates, of the return to go (IQN) or the whole return (TQL)."""
    mdp = PROBLEM.mdp()
    if agent == "IQN":
        table = operators.constant_table(mdp)
        for _ in mdp.layers:
            table = operators.risk_greedy_bellman(mdp, table, RISK)
        return table[history[-1], action]
    laws = {(h, a): Law.point(0.0) for h in operators.histories(mdp) for a in mdp.actions(h[-1])}
    for _ in mdp.layers:
        laws = operators.trajectory_optimality(mdp, laws, RISK)
    return laws[history, action]


def _panel(run: Run, agent: str, letter: str, history: tuple[str, ...], action: str) -> dict[str, Any]:
    """Return the exact distribution of a panel, and the quantiles that every seed has learned."""
    law, quantiles = exact_law(agent, history, action), []
    for seed in range(run.seeds):
        policy, memory = run.policy(seed), None
        for state, taken in zip(history[:-1:2], history[1::2], strict=True):
            _, memory = policy(state, memory)
            memory = policy.override_action(memory, taken)
        quantiles.append(np.round(policy.quantiles(history[-1], memory, count=LEVELS)[action], 2).tolist())
    return {
        "agent": agent,
        "panel": letter,
        "seen": list(history),
        "action": action,
        "atoms": law.atoms.tolist(),
        "probs": law.probs.tolist(),
        "cvar": float(RISK.value(law)),
        "quantiles": quantiles,
        "cvar_predicted": [round(float(RISK.value(np.array(q))), 2) for q in quantiles],
    }


def _actions(run: Run, seed: int) -> list[str]:
    policy, memory, actions = run.policy(seed), None, []
    for state in ("s0", "s1"):
        action, memory = policy(state, memory)
        actions.append(action)
    return actions


def draw(result: dict[str, Any]) -> Any:
    """Draw all ten panels: the exact quantile function, and the one that each seed has learned."""
    figure, axes = panels(2, 5, width=2.9, height=2.5, sharex=True, sharey=True)
    recorded = {panel["panel"]: panel for panel in result["panels"]}
    for axis, (agent, letter, history, action) in zip(axes.ravel(), PANELS, strict=True):
        panel = recorded[letter]
        exact = {"color": EXACT, "linewidth": 2.6, "alpha": 0.35, "label": "exact"}
        quantile_steps(axis, np.array(panel["atoms"]), np.array(panel["probs"]), **exact)
        levels = (np.arange(LEVELS) + 0.5) / LEVELS
        for seed, quantiles in enumerate(panel["quantiles"]):
            label = f"learned, {len(panel['quantiles'])} seeds" if seed == 0 else None
            axis.plot(levels, quantiles, color=COLOURS[agent], linewidth=1.0, alpha=0.8, label=label)
        axis.axvspan(0, 0.1, color=EXACT, alpha=0.06, linewidth=0)
        place = "state s1" if history == ("s1",) else "start" if len(history) == 1 else f"after {history[1]}"
        axis.set_title(f"({letter}) {agent}, {place}: {action}", fontsize=9)
        predicted = np.median(panel["cvar_predicted"])
        words = f"CVaR {panel['cvar']:g}\nlearned {predicted:.1f}"
        axis.text(0.97, 0.3, words, transform=axis.transAxes, ha="right", fontsize=8)
    axes[0, 1].legend(fontsize=8, frameon=False, loc="upper right")
    figure.supxlabel("quantile level (shaded: the worst tenth)", fontsize=9)
    figure.supylabel("return", fontsize=9)
    return figure
