"""The paper's discrete experiment: IQN, CVaR-DRL and the three forms of TQL on the risky grid.

The measures are the paper's CVaR at level 0.25, where the quantile function jumps exactly at the level, since yellow
pays with probability 0.75; CVaR at 0.1; and other measures. A second grid, the *probe*, has a best history policy that
takes blue three times; this policy neither has the best mean nor is found by the paper's form of TQL. There the critics
are also trained with more quantile levels, and as tables, which cannot smooth the jump just above the level.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from riskpath.agents.agent import Agent
from riskpath.agents.config import EpsilonGreedy, Training
from riskpath.agents.cvar_drl import CVaRDRL
from riskpath.agents.iqn import IQN
from riskpath.agents.tql import TQL
from riskpath.envs.risky_grid import RiskyGrid
from riskpath.experiments.records import command_of, earlier, header, write_json
from riskpath.mdp.solve import solve
from riskpath.nn.network import Network
from riskpath.risk.compose import parse_risk
from riskpath.risk.measures import CVaR
from riskpath.training.run import Run
from riskpath.training.train import train

GRID, PROBE = RiskyGrid(), RiskyGrid(p_yellow=0.8, blue=38.0)
EARLY = 20_000
"""Steps at the beginning of training that are evaluated more often."""
FORMS = ("joint", "trajectory", "convolved")
OTHER_MEASURES = (("wang:-0.75", "wang:0.75"), ("pow:-2",), ("cpw:0.71",))
WIDE = Network(history_size=64)
FINE = Network(hidden=(256,), history_size=64)
FINE_TRAINING = Training(
    kappa=1.0,
    reward_scale=0.01,
    final_learning_rate=1e-5,
    decay_ends=1.0,
    batch_size=128,
    num_quantiles=128,
    num_target_quantiles=128,
    num_action_quantiles=256,
    buffer_size=100_000,
)
FINE_EXPLORATION = EpsilonGreedy(initial_eps=1.0, final_eps=0.1, fraction=0.25)
TABLE = Network(head="table")
TABLE_TRAINING = Training(
    kappa=1.0,
    reward_scale=0.01,
    learning_rate=1e-2,
    final_learning_rate=1e-4,
    decay_ends=1.0,
    batch_size=64,
    num_quantiles=50,
    num_target_quantiles=50,
    num_action_quantiles=1_000,
    target_update_interval=50,
)
TABLE_EXPLORATION = EpsilonGreedy(initial_eps=1.0, final_eps=0.05)


class Program(NamedTuple):
    """Settings that differ in numbers only and are trained together in one program."""

    name: str
    settings: Sequence[tuple[Agent, RiskyGrid]]
    steps: int


def programs(quick: bool) -> list[Program]:
    """Return everything that is trained."""
    long, middle, short = (4_000, 3_000, 3_000) if quick else (200_000, 80_000, 40_000)
    levels = (CVaR(0.1), CVaR(0.25))
    listed = [
        Program("IQN", [(IQN(level), GRID) for level in levels], long),
        Program("CVaR-DRL", [(CVaRDRL(level), GRID) for level in levels], long),
    ]
    for form in FORMS:
        settings = [(TQL(level, critic=form, network=WIDE), GRID) for level in levels]
        both = [*settings, (TQL(levels[0], critic=form, network=WIDE), PROBE)]
        listed.append(Program(f"TQL {form}", both, long if form == "joint" else short))
    for names in OTHER_MEASURES:
        listed.append(Program("TQL joint", [(TQL(parse_risk(name), network=WIDE), GRID) for name in names], short))
    for form in FORMS:
        agent = TQL(levels[0], critic=form, network=FINE, training=FINE_TRAINING, exploration=FINE_EXPLORATION)
        listed.append(Program(f"TQL {form}, fine", [(agent, PROBE)], middle))
    for form in FORMS:
        agent = TQL(levels[0], critic=form, network=TABLE, training=TABLE_TRAINING, exploration=TABLE_EXPLORATION)
        listed.append(Program(f"TQL {form}, table", [(agent, PROBE)], short))
    return listed


def reproduce(out: Path, *, quick: bool = False, seeds: int = 8, only: str = "", show: Any = print) -> dict[str, Any]:
    """Train everything, write `grid.json` to the folder `out` after every program, and return its content.

    Programs that are in that file already, from the same command, are not trained again, so an interruption loses one
    program at most.
    """
    command = command_of("grid", quick, seeds if seeds != 8 else None)
    result = earlier(out / "grid.json", command)
    records, spent = result["records"], result["seconds"]
    done = {(r["agent"], r["risk"], r["grid"]) for r in records}
    for name, settings, steps in programs(quick):
        if only not in name or all((name, str(agent.risk), _grid(grid)) in done for agent, grid in settings):
            continue
        clock = time.monotonic()
        agents, grids = [agent for agent, _ in settings], [grid for _, grid in settings]
        evaluator = lambda run: {"paths": _paths(run), "values": run.values().tolist()}
        # Policies change most at the beginning, which is therefore evaluated more often.
        early = min(EARLY, steps // 2)
        run = train(
            agents, grids, steps=early, seeds=seeds, evaluate_every=early // 20, progress=True, evaluator=evaluator
        )
        rest = steps - run.steps
        run = train(run, steps=rest, evaluate_every=rest // 20, progress=True, evaluator=evaluator)
        for setting, (agent, grid) in enumerate(settings):
            records += [_record(name, run, setting, seed, agent, grid) for seed in range(seeds)]
        spent += time.monotonic() - clock
        paths = [record["path"] for record in records[-seeds * len(settings) :]]
        show(f"{name}, {', '.join(str(agent.risk) for agent in agents)}: {time.monotonic() - clock:.0f} s, {paths}")
        result = {**header(command, spent), "optima": _optima(records), "records": records}
        write_json(out / "grid.json", result)
    return result


def _grid(grid: RiskyGrid) -> str:
    return "probe" if grid is PROBE else "paper"


def _paths(run: Run) -> list[list[str]]:
    """Return the colours on the path of every lane's policy."""
    return [[GRID.path(run.policy(seed, setting)) for seed in range(run.seeds)] for setting in range(len(run.agents))]


def _record(name: str, run: Run, setting: int, seed: int, agent: Agent, grid: RiskyGrid) -> dict[str, Any]:
    """Return the final policy of one lane, its distribution and its learning curve."""
    policy, law = run.policy(seed, setting), run.law(seed, setting)
    discounted = run.law(seed, setting, float(agent.discount))
    return {
        "agent": name,
        "risk": str(agent.risk),
        "grid": _grid(grid),
        "seed": seed,
        "steps": run.steps,
        "path": grid.path(policy),
        "value": float(agent.risk.value(law)),
        "value_discounted": float(agent.risk.value(discounted)),
        "estimate": round(float(run.estimates()[setting, seed]), 3),
        "atoms": np.round(law.atoms, 6).tolist(),
        "probs": np.round(law.probs, 9).tolist(),
        "curve": [
            [point["step"], round(point["values"][setting][seed], 3), point["paths"][setting][seed]]
            for point in run.curve
        ],
    }


def _optima(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the exact optima for every grid and measure in the records."""
    optima = []
    for grid, risk in dict.fromkeys((record["grid"], record["risk"]) for record in records):
        mdp = (PROBE if grid == "probe" else GRID).mdp()
        values = {c: solve(mdp, risk, c).value for c in ("markov", "history", "adaptive")}
        optima.append({"grid": grid, "risk": risk, **values})
    return optima


def summary(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each agent, measure and grid: paths with counts, exact value, seeds at the history optimum."""
    rows = []
    optimum = {(o["grid"], o["risk"]): o for o in result["optima"]}
    for key in dict.fromkeys((r["agent"], r["risk"], r["grid"]) for r in result["records"]):
        lanes = [r for r in result["records"] if (r["agent"], r["risk"], r["grid"]) == key]
        values, best = [lane["value"] for lane in lanes], optimum[key[2], key[1]]
        rows.append(
            {
                "agent": key[0],
                "risk": key[1],
                "grid": key[2],
                "steps": lanes[0]["steps"],
                "paths": counted([lane["path"] for lane in lanes]),
                "median": float(np.median(values)),
                "at_history_optimum": sum(value >= best["history"] - 1e-6 for value in values),
                "seeds": len(lanes),
                "history_optimum": best["history"],
                "estimate_error": float(np.max([abs(x["estimate"] - x["value_discounted"]) for x in lanes])),
            }
        )
    return rows


def counted(paths: list[str]) -> str:
    """Return paths with the number of seeds that take them, the most frequent first: "YYY 7/8, YYB 1/8"."""
    tally = {path: paths.count(path) for path in paths}
    return ", ".join(f"{path} {n}/{len(paths)}" for path, n in sorted(tally.items(), key=lambda item: -item[1]))
