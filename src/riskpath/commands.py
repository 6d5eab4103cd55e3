"""The commands, one function each: thin ones over the library, whose arguments and docstrings are the command line."""

import contextlib
import dataclasses
import functools
import json as json_module
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium
import tyro
from rich.console import Console

import riskpath
from riskpath.checks import require_counts
from riskpath.envs import BY_NAME as ENVIRONMENTS
from riskpath.envs import make
from riskpath.errors import RiskpathError
from riskpath.evaluate import Evaluation
from riskpath.experiments.record import header, write_json
from riskpath.folders import HEADER
from riskpath.gym_worlds import is_foreign
from riskpath.mdp.solution import Solution
from riskpath.options import AGENTS, assignments, plain
from riskpath.risk import Mean, RiskMeasure
from riskpath.risk_compose import BY_NAME as MEASURES
from riskpath.risk_compose import risk as read_risk
from riskpath.tables import lane_records, lanes_table, solution_table, solve_all, table_of

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""What `evaluate` says of the law of the return."""


def solve(
    problem: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PROBLEM")],
    risk: str = "cvar:0.1",
    discount: float = 1.0,
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD=VALUE")] = (),  # the word a user types
    json: bool = False,
) -> None:
    """The exact optimum in every class of policies, side by side.

    Args:
        problem: ThreeState or RiskyGrid.
        risk: The risk measure, for example cvar:0.25, wang:-0.75 or 0.7*mean+0.3*cvar:0.1.
        discount: The discount factor, in (0, 1].
        set: Fields of the problem to change, for example forks=5 p_yellow=0.8.
        json: Print JSON for machines instead of a table.
    """
    measure = read_risk(risk)
    mdp = make(problem, **assignments(set)).mdp(discount)
    with _working(f"solving {mdp.name}"):
        answers = solve_all(mdp, measure)
    if json:
        record: dict[str, Any] = {"problem": problem, "risk": str(measure), "discount": discount}
        for policies, answer in answers.items():
            solved = isinstance(answer, Solution)
            record[policies] = answer.to_json() if solved else {"error": str(answer)}
        print(json_module.dumps(record, indent=2), flush=True)
    else:
        Console().print(solution_table(mdp, measure, answers))


def demo(seed: int = 0, out: Path = Path("riskpath-demo.png")) -> None:
    """Exact optima of the two problems of the paper, then agents that learn one of them: about two minutes.

    Args:
        seed: The number all randomness of training starts from.
        out: Where the figure goes.
    """
    from riskpath import demo as tour  # figures are slow to import, solving is not

    console = Console()
    tour.exact(console, _working)
    tour.learned(console, out, seed)


def train_command(kind: Any) -> Any:
    """The command `train`, with the fields of one class of agents as its options."""
    defaults, names = kind(), Literal[tuple(AGENTS)]

    def train(
        env: str = "RiskyGrid",
        agent: names = "tql",  # pyright: ignore[reportInvalidTypeForm]
        fields: Annotated[kind, tyro.conf.arg(name="agent")] = defaults,  # pyright: ignore[reportInvalidTypeForm]
        steps: int = 30_000,
        seeds: int = 8,
        envs: int = 1,
        seed: int = 0,
        set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD=VALUE")] = (),
        out: Path | None = None,
    ) -> None:
        """Trains an agent, several seeds side by side, and shows what each of them has learned.

        Args:
            env: The problem: ThreeState, RiskyGrid, RiskyMountainCar, or any Gymnasium id such as CartPole-v1.
            agent: The algorithm; its fields, below, are those of the class.
            fields: --risk and --discount are short for --agent.risk and --agent.discount, --agent.window for
                --agent.network.window, --agent.lr for --agent.training.lr, and so on.
            steps: Environment steps for each seed.
            seeds: How many, trained side by side.
            envs: Environments for each seed.
            seed: The number all randomness starts from.
            set: Fields of the problem to change, for example forks=5 p_yellow=0.8.
            out: A folder for the run itself (`riskpath evaluate` and `resume` read it), config.json, which
                --config takes, log.jsonl, and result.json with every seed's values and learning curves.
        """
        require_counts(steps=steps, seeds=seeds, envs=envs)
        world = _world(env, assignments(set))
        console, began = Console(), time.monotonic()
        console.print(f"training {agent} on {env}, {fields.risk}: {steps:,} steps, {seeds} seeds", highlight=False)
        sizes: dict[str, Any] = {"steps": steps, "seeds": seeds, "envs": envs, "seed": seed}
        # Without an exact law a point of the curve costs episodes: a few will do.
        watch = None if hasattr(world, "mdp") else _episodes
        every = max(1, steps // 10)
        keep: dict[str, Any] = {}
        config = {"env": env, "set": list(set), "agent": agent, "fields": plain(fields), **sizes}
        if out is not None:
            write_json(out / "config.json", config)
            keep = {"checkpoint": out / "run", "callbacks": [riskpath.JSONLines(out / "log.jsonl")]}
        run = riskpath.train(fields, world, **sizes, evaluate_every=every, watch=watch, progress=True, **keep)
        lanes, seconds = lane_records(run, world), time.monotonic() - began
        console.print(lanes_table(f"{agent} on {env} after {run.steps:,} steps, {seconds:.0f} s", fields.risk, lanes))
        if out is not None:
            record = {**header("riskpath train", seconds), "config": config, "steps": run.steps}
            write_json(out / "result.json", {**record, "lanes": lanes, "curve": run.curve})
            console.print(f"written: {out / 'result.json'}", highlight=False)

    return train


def evaluate(
    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")],
    episodes: int = 1_000,
    risk: str | None = None,
    seed: int = 1,
    json: bool = False,
) -> None:
    """Episodes of a saved run's policies: mean, risk and quantiles with 95% intervals.

    Args:
        run: A folder that `riskpath train --out` wrote.
        episodes: How many, for each seed.
        risk: A measure to judge by; the one it was trained for unless told.
        seed: The number their randomness starts from.
        json: Print JSON for machines instead of a table.
    """
    require_counts(episodes=episodes)
    measure = None if risk is None else read_risk(risk)
    found, _ = _saved(run)
    with _working("playing episodes"):
        sample = found.evaluate(episodes, seed=seed)
    rows = [row for setting in range(len(found.agents)) for row in _figures(sample, setting, measure)]
    if json:
        told = [{**dataclasses.asdict(row.pop("value")), **row} for row in rows]
        record = {"run": str(run), "steps": found.steps, "seeds": found.seeds, "episodes": episodes, "figures": told}
        print(json_module.dumps(record, indent=2))
    else:
        title = f"{episodes:,} episodes of each of {found.seeds} seeds after {found.steps:,} steps, 95% intervals"
        Console().print(table_of(title, rows))


def _figures(sample: Evaluation, setting: int, measure: RiskMeasure | None) -> list[dict[str, Any]]:
    """What is said of one setting, each figure with its interval."""
    own = str(measure or sample.risks[setting])
    which = {"setting": setting} if len(sample.risks) > 1 else {}
    rows: list[dict[str, Any]] = []
    for name, discounted in (("undiscounted", False), ("discounted", True)):
        figures = {"mean": sample.mean(discounted)[setting], own: sample.risk(measure, discounted)[setting]}
        if not discounted:
            values = sample.quantiles(QUANTILES)[setting]
            figures |= {f"{level:.0%} quantile": value for level, value in zip(QUANTILES, values, strict=True)}
        rows += [{**which, "return": name, "figure": figure, "value": value} for figure, value in figures.items()]
    return rows


def resume(
    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")],
    steps: int | None = None,
) -> None:
    """Trains a saved run further: to where it was to go, or for more steps.

    Args:
        run: A folder that `riskpath train --out` wrote.
        steps: Environment steps for each seed, beyond what it has.
    """
    require_counts(steps=steps)
    (found, place), before = _saved(run), time.monotonic()
    if steps is None and (found.plan is None or found.steps >= found.plan.start + found.plan.steps):
        raise RiskpathError(f"{run} is finished, at {found.steps:,} steps; give --steps to go on")
    watch = None if hasattr(found.worlds[0], "mdp") else _episodes
    logs = [] if place == run else [riskpath.JSONLines(run / "log.jsonl")]
    riskpath.train(found, steps=steps, watch=watch, progress=True, checkpoint=place, callbacks=logs)
    said = f"{found.steps:,} steps after {time.monotonic() - before:.0f} s; estimates "
    said += ", ".join(f"{x:.4g}" for x in found.estimates()[0])
    Console().print(said, highlight=False)


def agents() -> None:
    """The agents, one line each."""
    _print_list(AGENTS)


def envs() -> None:
    """The library's own environments, one line each; any Gymnasium id will do as well."""
    _print_list(ENVIRONMENTS)
    print("any Gymnasium id, for example CartPole-v1")


def risks() -> None:
    """The risk measures, one line each."""
    _print_list({name if kind is Mean else f"{name}:LEVEL": kind for name, kind in MEASURES.items()})
    print("0.7*mean+0.3*cvar:0.1   any mixture of them")


def _print_list(kinds: Mapping[str, Any]) -> None:
    """Names, and the first line of what each says of itself."""
    width = max(map(len, kinds)) + 2
    for name, kind in kinds.items():
        print(f"{name:{width}}{next(iter((kind.__doc__ or '').splitlines()), '')}")


def _episodes(run: Any) -> dict[str, Any]:
    """A point of the learning curve where there is no exact law; the host's episodes are slow."""
    return {"values": run.evaluate(20 if run.outside else 100).values().tolist()}


def _saved(folder: Path) -> tuple[riskpath.Run, Path]:
    """The run in a folder of `train --out`, or in a folder of `run.save`, and where exactly it is."""
    inside = folder.is_dir() and not (folder / HEADER).is_file()
    place = folder / "run" if inside else folder
    return riskpath.load(place, env=_remembered(folder) if inside else None), place


def _remembered(folder: Path) -> Any:
    """The Gymnasium environment that `train --set` changed, which a run alone does not know; no module is imported."""
    try:
        config = json_module.loads((folder / "config.json").read_text())
        env, fields = config["env"], assignments(tuple(config["set"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return _world(env, fields) if fields and is_foreign(env) and ":" not in env else None


def _world(env: str, fields: dict[str, Any]) -> Any:
    """One of ours, or a Gymnasium id with keyword arguments."""
    if not is_foreign(env):
        return make(env, **fields)
    return functools.partial(gymnasium.make, env, **fields) if fields else env


def reproduce(
    experiment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="EXPERIMENT")],
    quick: bool = False,
    seeds: int | None = None,
    only: str = "",
    out: Path | None = None,
) -> None:
    """Trains the agents of one of the paper's experiments; writes every seed's result and the figures.

    Args:
        experiment: three-state (the first and third figures), grid (the risky grid) or mountain-car (the fourth).
        quick: Few steps and two seeds: shows that everything runs, not where it ends.
        seeds: Seeds for each agent and measure; 8 unless told otherwise, 6 for mountain-car.
        only: Train only what has this text in its name, for example IQN.
        out: The folder for results, where an interrupted run is also taken up again; "results" unless told otherwise,
            or "runs" with --quick or --seeds, which are no results to keep.
    """
    from riskpath.experiments.report import EXPERIMENTS  # figures are slow to import, solving is not

    if experiment not in EXPERIMENTS:
        raise RiskpathError(f"unknown experiment {experiment!r}; there are {', '.join(EXPERIMENTS)}")
    require_counts(seeds=seeds)
    chosen = EXPERIMENTS[experiment]
    parts = list(dict.fromkeys(chosen.parts(quick)))
    if only and not any(only in part for part in parts):
        raise RiskpathError(f"{experiment} has no part {only!r}; there are {'; '.join(parts) or 'none to choose from'}")
    out = out or Path("runs" if quick or seeds else "results")
    console = Console()
    result = chosen.reproduce(
        out,
        quick=quick,
        seeds=seeds or (2 if quick else chosen.seeds),
        show=console.print,
        **({"only": only} if only else {}),
    )
    for said in chosen.report(result, out):
        console.print(said, highlight=False)
    console.print(f"{result['device']}, {result['seconds']:.0f} s; results are in {out}", highlight=False)


def _working(what: str) -> Any:
    """A spinner on a terminal, nothing elsewhere."""
    console = Console(stderr=True)
    return console.status(what) if console.is_terminal else contextlib.nullcontext()


COMMANDS = {
    "solve": solve,
    "demo": demo,
    "train": train_command,
    "evaluate": evaluate,
    "resume": resume,
    "reproduce": reproduce,
    "agents": agents,
    "envs": envs,
    "risks": risks,
}
