"""Commands for runs: train, evaluate, resume, export and push."""

import contextlib
import dataclasses
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console

from riskpath.agents.abilities import Population, can_serve
from riskpath.cli.config_file import assignments, write_options
from riskpath.cli.environments import ENVIRONMENTS, make_environment
from riskpath.cli.interruption import last_words
from riskpath.cli.options import TrainOptions
from riskpath.cli.run_folder import CONFIG, LOG, RESULT, RUN, SavedRun, prepared_folder
from riskpath.cli.tables import lane_records, lanes_table, print_json, seeds_in_words, table_of
from riskpath.envs.workers import as_workers
from riskpath.errors import RiskpathError
from riskpath.evaluation.evaluation import Evaluation
from riskpath.experiments.records import header, write_json
from riskpath.mdp.law import Law
from riskpath.risk.compose import parse_risk
from riskpath.risk.measures import RiskMeasure
from riskpath.training import inputs
from riskpath.training.callbacks import JSONLines
from riskpath.training.checkpoint import Checkpointer
from riskpath.training.outer_loop import values
from riskpath.training.progress import working
from riskpath.training.run import Run
from riskpath.training.run_state import RunState
from riskpath.training.trackers import open_trackers, require_trackers
from riskpath.training.train import train as train_agent
from riskpath.validation import given, require_counts, require_positive

CURVE_POINT = functools.partial(values, episodes=100)
"""Returns a point of the learning curve."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Levels of the quantiles of the return that `evaluate` prints."""

Folder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")]
Fields = Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD=VALUE")]


def train(options: TrainOptions) -> None:
    """Train an agent, several seeds side by side, and show what each of them has learned."""
    require_counts(steps=options.steps, seeds=options.seeds, num_envs=options.num_envs)
    _require_intervals(options.checkpoint_every, options.checkpoint_steps)
    agent, out = options.fields, options.out
    environment = make_environment(options.env, assignments(options.set))
    (first, *_), _ = inputs.as_environments(environment, 1)
    inputs.require_fit(agent, first.spec, options.num_envs)  # before anything is written
    require_trackers(options.log)
    workers = None if options.workers is None else as_workers(options.workers)
    saving: dict[str, Any] = {}
    with contextlib.ExitStack() as folder:
        if out is not None:
            folder.enter_context(prepared_folder(out, write_options(options), options.overwrite))
            every = options.checkpoint_every, options.checkpoint_steps
            saving = {"checkpoint": Checkpointer(out / RUN, *every, overwrite=options.overwrite)}
        trackers = folder.enter_context(open_trackers(options.log, out or Path("runs")))
        logs = [] if out is None else [JSONLines(out / LOG)]
        name, began = type(agent).__name__, time.monotonic()
        about = (
            f"training {name} on {options.env}, {agent.risk}: {options.steps:,} steps, {seeds_in_words(options.seeds)}"
        )
        Console().print(about, highlight=False)
        folder.enter_context(last_words(lambda: _stopped(saving.get("checkpoint"), out, folder.close)))
        run = train_agent(
            agent,
            environment,
            steps=options.steps,
            seeds=options.seeds,
            num_envs=options.num_envs,
            seed=options.seed,
            workers=workers,
            evaluate_every=max(1, options.steps // 10),
            evaluator=CURVE_POINT,
            progress=True,
            callbacks=[*logs, *trackers],
            **saving,
        )
    _report(run, environment, f"{name} on {options.env}", time.monotonic() - began, out)


def evaluate(
    run: Folder,
    episodes: int | None = None,
    risk: str | None = None,
    floor: float | None = None,
    env: str | None = None,
    set: Fields = (),
    seed: int = 1,
    json: bool = False,
) -> None:
    """Roll out the policies of a saved run: mean, risk and quantiles of the return with 95% intervals.

    On a small finite problem the exact figures stand beside the sampled ones.

    Args:
        run: A folder that `riskpath train --out` or `run.save` wrote.
        episodes: Number of episodes for each seed; by default 1,000, or as many as take about a quarter of the steps of
            training (from 20 to 1,000) where the host steps the environment.
        risk: The risk measure to evaluate; by default the one that the run was trained for. If the run serves this
            measure as well (Adaptive: every level of CVaR), the policy for it is rolled out, otherwise the trained one.
        floor: Another floor, for a run that was trained with --subject-to.
        env: The environment, or another one of the same sizes; MODULE:NAME imports a module that registers it.
        set: Fields of that environment to change.
        seed: Seed of the randomness of the episodes.
        json: Print JSON for other programs instead of a table.
    """
    require_counts(**given(episodes=episodes))
    measure = None if risk is None else parse_risk(risk)
    saved = SavedRun(run)
    environment = saved.named_environment(env, set)
    found = saved.load() if environment is None else saved.load_with(environment)
    served = [measure] if measure is not None and can_serve(found.agents[0], measure) else []
    if served or floor is not None:
        with working("comparing policies"):
            found = found.serve(*served, floor=floor)
    with contextlib.nullcontext() if found.sources else working("rolling out episodes"):  # a host shows a bar
        sample = found.evaluate(episodes, seed=seed, env=environment)
        exact = found.exact_laws() if environment is None else None
    episodes = sample.returns.shape[-1]
    floors = [agent.floor if isinstance(agent, Population) else None for agent in found.agents]
    floored = [None if one is None else one.measure for one in floors]
    rows = [row for number, one in enumerate(floored) for row in _figures(sample, number, measure, exact, one)]
    if json:
        figures = [{**dataclasses.asdict(row.pop("value")), **row} for row in rows]
        record = {"run": str(run), "steps": found.steps, "seeds": found.seeds, "episodes": episodes}
        print_json({**record, "figures": figures})
    else:
        policies = ", ".join(
            dict.fromkeys(
                str(agent.risk) if floor is None else f"{agent.risk} with {floor.measure} ≥ {floor.least:g}"
                for agent, floor in zip(found.agents, floors, strict=True)
            )
        )
        title = (
            f"{episodes:,} episodes of each of {seeds_in_words(found.seeds)} after {found.steps:,} steps, "
            f"policies for {policies}, 95% intervals"
        )
        for row in rows:
            if "exact" in row:
                row["exact"] = "–" if row["exact"] is None else f"{row['exact']:.4g}"
        Console().print(table_of(title, rows))


def resume(
    run: Folder,
    steps: int | None = None,
    env: str | None = None,
    set: Fields = (),
    checkpoint_every: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None,
    checkpoint_steps: Annotated[int | None, tyro.conf.arg(metavar="STEPS")] = None,
    log: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="TRACKER")] = None,
    workers: str | None = None,
) -> None:
    """Continue a saved run: finish what was planned, or train for more steps.

    Args:
        run: A folder that `riskpath train --out` or `run.save` wrote.
        steps: Additional environment steps for each seed; by default those that an interrupted run has left.
        env: The environment of the run; MODULE:NAME imports a module that registers it.
        set: Fields of that environment that training had changed.
        checkpoint_every: Save when this time has passed since the last save; by default as in training.
        checkpoint_steps: Also save after a chunk in which the run has passed a multiple of this number of steps; by
            default as in training.
        log: Also log to tensorboard, wandb or mlflow, after what training has logged there; by default as in training.
        workers: Who steps Gymnasium environments, or "none" for this process; by default as in training.
    """
    require_counts(**given(steps=steps))
    _require_intervals(checkpoint_every, checkpoint_steps)
    saved, began = SavedRun(run), time.monotonic()
    found = saved.load(saved.named_environment(env, set))
    if steps is None and found.finished:
        raise RiskpathError(f"{run} is finished, at {found.steps:,} steps; give --steps to continue it")
    names = saved.config.get("log", ()) if log is None else log
    require_trackers(names)
    workers = saved.workers if workers is None else workers
    ours = saved.from_command_line
    every = found.plan.evaluate_every if found.plan else None
    checkpointer = Checkpointer(
        saved.checkpoint,
        checkpoint_every or saved.config.get("checkpoint_every", TrainOptions.checkpoint_every),
        checkpoint_steps or saved.config.get("checkpoint_steps"),
    )
    logs = [JSONLines(run / LOG, resume_at=found.steps)] if ours else []
    with (
        last_words(lambda: _stopped(checkpointer, run)),
        open_trackers(names, run if ours else Path("runs"), found.steps if ours else None) as trackers,
    ):
        train_agent(
            found,
            **({} if steps is None else {"steps": steps, "evaluate_every": every}),
            workers=workers,
            evaluator=None if every is None else CURVE_POINT,
            progress=True,
            checkpoint=checkpointer,
            callbacks=[*logs, *trackers],
        )
    out, problem, name = None, found.environments[0], type(found.agents[0]).__name__
    if saved.config:
        out, name = run, f"{name} on {saved.config['env']}"
        if saved.config["env"] in ENVIRONMENTS:
            problem = saved.make_environment(saved.config["env"])
    _report(found, problem, name, time.monotonic() - began, out)


def export(
    run: Folder,
    out: Path = Path("policy.zip"),
    seed: int = 0,
    setting: int = 0,
    risk: str | None = None,
    floor: float | None = None,
    env: str | None = None,
    set: Fields = (),
) -> None:
    """Write the greedy policy of a saved run to one file for production.

    Args:
        run: A folder that `riskpath train --out` or `run.save` wrote.
        out: The file, as an ONNX model if its name ends with .onnx; only an older export is replaced.
        seed: Which seed.
        setting: Which setting.
        risk: Another measure than the trained one, if the run serves it (Adaptive: every level of CVaR).
        floor: Another floor, for a run that was trained with --subject-to.
        env: The environment of the run; MODULE:NAME imports a module that registers it.
        set: Fields of that environment that training had changed.
    """
    measure, saved = None if risk is None else parse_risk(risk), SavedRun(run)
    policy = saved.load(saved.named_environment(env, set)).policy(seed, setting, measure, floor)
    with working("exporting"):
        path = policy.export(out)
    Console().print(f"written: {path}, {path.stat().st_size / 1024:,.0f} KiB", highlight=False)


def push(
    run: Folder,
    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TO")],
    title: str | None = None,
    env: str | None = None,
    set: Fields = (),
) -> None:
    """Write a saved run to a folder that others can use: with its policy, its report and a model card.

    Args:
        run: A folder that `riskpath train --out` or `run.save` wrote.
        folder: The folder for a file host, for example a clone of a repository; other files in it stay.
        title: The heading of the model card.
        env: The environment of the run; MODULE:NAME imports a module that registers it.
        set: Fields of that environment that training had changed.
    """
    saved = SavedRun(run)
    found = saved.load(saved.named_environment(env, set))
    with working("evaluating and writing"):
        path = found.push(folder, title=title)
    Console().print(f"written: {path}", highlight=False)


def _require_intervals(seconds: float | None, steps: int | None) -> None:
    require_positive(**given(checkpoint_every=seconds))
    require_counts(**given(checkpoint_steps=steps))


def _report(run: Run, problem: Any, what: str, seconds: float, out: Path | None) -> None:
    """Print what every seed has learned and write it to a folder; exit with status 130 if training was interrupted."""
    if not run.finished:
        raise KeyboardInterrupt(_where(run, out))
    console, title = Console(), f"{what} after {run.steps:,} steps, {seconds:.0f} s"
    settings = [lane_records(run, problem, setting) for setting in range(len(run.agents))]
    for agent, lanes in zip(run.agents, settings, strict=True):
        console.print(lanes_table(title, agent.risk, lanes))
    if out is not None:
        config = json.loads((out / CONFIG).read_text())
        record = {**header("riskpath train", seconds), "config": config, "steps": run.steps}
        write_json(out / RESULT, {**record, "lanes": settings[0], "curve": run.curve})
        console.print(f"written: {out / RESULT}", highlight=False)


def _stopped(checkpointer: Checkpointer | None, folder: Path | None, undo: Callable[[], None] = lambda: None) -> str:
    """Save a run whose training is being ended, and say where it was."""
    if checkpointer is None or (run := checkpointer.save_last()) is None:
        undo()
        return "interrupted"
    return _where(run, folder)


def _where(run: RunState, folder: Path | None) -> str:
    assert run.plan is not None
    hint = "; without --out nothing is kept" if folder is None else f"; riskpath resume {folder} continues it"
    return f"stopped after {run.steps:,} of {run.plan.goal:,} steps{hint}"


def _figures(
    sample: Evaluation,
    setting: int,
    measure: RiskMeasure | None,
    exact: list[list[Law]] | None,
    floored: RiskMeasure | None = None,
) -> list[dict[str, Any]]:
    """Return the rows about one setting: each figure with its interval, or exact where the distribution is known.

    `floored` is the measure that has a floor.
    """
    risk = measure or sample.risks[setting]
    which = {"setting": setting} if len(sample.risks) > 1 else {}
    undiscounted = (sample.discounts or [1.0] * len(sample.risks))[setting] == 1
    rows: list[dict[str, Any]] = []
    for name, discounted in (("undiscounted", False), ("discounted", True)):
        figures: dict[str, tuple[Any, Callable[[Law], float]]] = {
            "mean": (sample.mean(discounted)[setting], lambda law: law.mean),
            str(risk): (sample.risk(measure, discounted)[setting], risk.value),
        }
        if floored is not None:
            figures[str(floored)] = sample.risk(floored, discounted)[setting], floored.value
        if not discounted:
            for level, value in zip(QUANTILES, sample.quantiles(QUANTILES)[setting], strict=True):
                figures[f"{level:.0%} quantile"] = value, functools.partial(Law.quantile, tau=level)
        for figure, (value, of_law) in figures.items():
            rows.append({**which, "return": name, "figure": figure, "value": value})
            if exact is not None:
                values = [of_law(law) for law in exact[setting]]
                rows[-1]["exact"] = float(np.mean(values)) if undiscounted or not discounted else None
    return rows
