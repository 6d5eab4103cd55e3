"""The paper's discrete experiment: IQN, CVaR-DRL and the three forms of TQL on the risky grid.

Beside the paper's CVaR at 0.25 (where the quantile function jumps exactly at the level, since yellow pays with
probability 0.75) stands 0.1; then other measures; and a *probe*: a grid whose best history policy takes blue three
times, although it is neither the best on average nor where the paper's form of TQL settles.
"""

import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from riskpath.agents.base import Agent
from riskpath.agents.cvar_drl import CVaRDRL
from riskpath.agents.iqn import IQN
from riskpath.agents.tql import TQL
from riskpath.envs.risky_grid import RiskyGrid
from riskpath.mdp.solve import solve
from riskpath.risk import CVaR
from riskpath.risk_compose import risk as read_risk
from riskpath.run import train

GRID, PROBE = RiskyGrid(), RiskyGrid(p_yellow=0.8, blue=38.0)
FORMS = ("joint", "trajectory", "convolved")
OTHER_MEASURES = (("wang:-0.75", "wang:0.75"), ("pow:-2",), ("cpw:0.71",))


def programs(quick: bool) -> list[tuple[str, list[tuple[Agent, RiskyGrid]], int]]:
    """(name, settings, steps): settings of one program differ in numbers only and are trained together."""
    long, short = (4_000, 3_000) if quick else (200_000, 40_000)
    levels = (CVaR(0.1), CVaR(0.25))
    listed: list[tuple[str, list[tuple[Agent, RiskyGrid]], int]] = [
        ("IQN", [(IQN(level), GRID) for level in levels], long),
        ("CVaR-DRL", [(CVaRDRL(level), GRID) for level in levels], long),
    ]
    for form in FORMS:
        settings = [(TQL(level, critic=form), GRID) for level in levels]
        listed.append((f"TQL {form}", [*settings, (TQL(levels[0], critic=form), PROBE)], short))
    for names in OTHER_MEASURES:
        listed.append(("TQL joint", [(TQL(read_risk(name)), GRID) for name in names], short))
    return listed


def reproduce(out: Path, *, quick: bool = False, seeds: int = 8, show: Any = print) -> dict[str, Any]:
    """Trains everything, writes `grid.json` into `out`, and returns what it wrote."""
    records: list[dict[str, Any]] = []
    result: dict[str, Any] = {}
    began = time.monotonic()
    for name, settings, steps in programs(quick):
        agents, grids = [agent for agent, _ in settings], [grid for _, grid in settings]
        clock = time.monotonic()
        run = train(agents, grids, steps=steps, seeds=seeds, evaluate_every=steps // 20, progress=True)
        for setting, (agent, grid) in enumerate(settings):
            records += [_record(name, run, setting, seed, agent, grid) for seed in range(seeds)]
        paths = [record["path"] for record in records[-seeds * len(settings) :]]
        show(f"{name}, {', '.join(str(agent.risk) for agent in agents)}: {time.monotonic() - clock:.0f} s, {paths}")
        result = {
            "command": "riskpath reproduce grid" + (" --quick" if quick else ""),
            "device": jax.devices()[0].device_kind,
            "seconds": round(time.monotonic() - began, 1),
            "optima": _optima(records),
            "records": records,
        }
        out.mkdir(parents=True, exist_ok=True)  # after every program: an interruption loses one at most
        (out / "grid.json").write_text(json.dumps(result, indent=None) + "\n")
    return result


def _record(name: str, run: Any, setting: int, seed: int, agent: Agent, grid: RiskyGrid) -> dict[str, Any]:
    """What one lane ended at, and how it got there."""
    policy, law = run.policy(seed, setting), run.law(seed, setting)
    discounted = run.law(seed, setting, float(agent.discount))
    return {
        "agent": name,
        "risk": str(agent.risk),
        "grid": "probe" if grid is PROBE else "paper",
        "seed": seed,
        "path": grid.path(policy),
        "value": float(agent.risk.value(law)),
        "value_discounted": float(agent.risk.value(discounted)),
        "estimate": max(policy.estimate(grid.cell(0, 0)).values()),
        "atoms": law.atoms.tolist(),
        "probs": law.probs.tolist(),
        "curve": [[point["step"], round(point["values"][setting][seed], 3)] for point in run.curve],
    }


def _optima(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The exact optima of every problem and measure that was trained on."""
    optima = []
    for grid, risk in dict.fromkeys((record["grid"], record["risk"]) for record in records):
        mdp = (PROBE if grid == "probe" else GRID).mdp()
        values = {c: solve(mdp, risk, c).value for c in ("markov", "history", "adaptive")}
        optima.append({"grid": grid, "risk": risk, **values})
    return optima


def summary(result: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each agent, measure and grid: paths with counts, exact value, share of the history optimum."""
    rows = []
    optimum = {(o["grid"], o["risk"]): o for o in result["optima"]}
    for key in dict.fromkeys((r["agent"], r["risk"], r["grid"]) for r in result["records"]):
        lanes = [r for r in result["records"] if (r["agent"], r["risk"], r["grid"]) == key]
        paths: dict[str, int] = {}
        for lane in lanes:
            paths[lane["path"]] = paths.get(lane["path"], 0) + 1
        values = [lane["value"] for lane in lanes]
        best = optimum[key[2], key[1]]
        rows.append(
            {
                "agent": key[0],
                "risk": key[1],
                "grid": key[2],
                "paths": ", ".join(f"{p} {n}/{len(lanes)}" for p, n in sorted(paths.items(), key=lambda x: -x[1])),
                "median": float(np.median(values)),
                "at_history_optimum": sum(value >= best["history"] - 1e-6 for value in values),
                "seeds": len(lanes),
                "history_optimum": best["history"],
                "estimate_error": float(np.max([abs(x["estimate"] - x["value_discounted"]) for x in lanes])),
            }
        )
    return rows
