"""Commands for runs: training them, looking at them, going on with them."""

import dataclasses
import functools
import json as json_module
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium
import tyro
from rich.console import Console

import riskpath
from riskpath.cli.options import AGENTS, assignments, plain
from riskpath.cli.tables import lane_records, lanes_table, table_of
from riskpath.envs import make
from riskpath.envs.gymnasium_vector import is_gymnasium
from riskpath.errors import RiskpathError
from riskpath.evaluation.evaluation import Evaluation
from riskpath.records import header, write_json
from riskpath.risk.compose import parse_risk
from riskpath.risk.measures import RiskMeasure
from riskpath.training import inputs as prepare
from riskpath.training.atomic_dir import HEADER
from riskpath.training.progress import working
from riskpath.validation import given, require_counts

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""What `evaluate` says of the law of the return."""


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
        overwrite: bool = False,
        config: Path | None = None,
    ) -> None:
        """Trains an agent, several seeds side by side, and shows what each of them has learned.

        Args:
            env: The problem: ThreeState, RiskyGrid, RiskyMountainCar, or any Gymnasium id such as CartPole-v1.
            agent: The algorithm; its fields, below, are those of the class.
            fields: --risk and --discount are short for --agent.risk and --agent.discount, --agent.window for
                --agent.network.window, --agent.lr for --agent.training.learning_rate, and so on.
            steps: Environment steps for each seed.
            seeds: How many, trained side by side.
            envs: Environments for each seed.
            seed: The number all randomness starts from.
            set: Fields of the problem to change, for example forks=5 p_yellow=0.8.
            out: A new folder for the run itself (`riskpath evaluate` and `resume` read it), config.json, log.jsonl,
                and result.json with every seed's values and learning curves.
            overwrite: Replace the run that is there already.
            config: A file like the config.json that --out writes: all of these options by name, those of the agent
                under "fields". What is said here counts more.
        """
        del config  # read before all others, by `options.with_config`
        require_counts(steps=steps, seeds=seeds, num_envs=envs)
        world = _world(env, assignments(set))
        (found, *_), _ = prepare.as_environments(world, 1)
        prepare.require_fit(fields, found.spec, envs)  # before anything is written
        said = {"env": env, "set": list(set), "agent": agent, "fields": plain(fields)}
        sizes: dict[str, Any] = {"steps": steps, "seeds": seeds, "envs": envs, "seed": seed}
        keep = {} if out is None else _folder(out, said | sizes, overwrite)
        began = time.monotonic()
        Console().print(f"training {agent} on {env}, {fields.risk}: {steps:,} steps, {_seeds(seeds)}", highlight=False)
        # Without an exact law a point of the curve costs episodes: a few will do.
        watch = None if hasattr(world, "mdp") else _episodes
        every = max(1, steps // 10)
        run = riskpath.train(fields, world, **sizes, evaluate_every=every, evaluator=watch, progress=True, **keep)
        _report(run, world, f"{agent} on {env}", time.monotonic() - began, out)

    return train


def _folder(out: Path, config: dict[str, Any], overwrite: bool) -> dict[str, Any]:
    """A folder of its own for a run, with its configuration in it, and what `train` keeps there."""
    ours = (out / "run" / HEADER).is_file()
    if ours and not overwrite:
        raise RiskpathError(f"there is a run in {out}: riskpath resume {out} goes on with it, --overwrite replaces it")
    if not ours and out.is_dir() and any(out.iterdir()):
        raise RiskpathError(f"{out} holds other things than a run; give a new folder")
    try:
        for old in ("log.jsonl", "result.json"):
            (out / old).unlink(missing_ok=True)
        write_json(out / "config.json", config)
    except OSError as error:
        raise RiskpathError(f"cannot write to {out}: {error.strerror}") from None
    return {"checkpoint": out / "run", "callbacks": [riskpath.JSONLines(out / "log.jsonl")]}


def _report(run: riskpath.Run, world: Any, what: str, seconds: float, out: Path | None) -> None:
    """What every seed has learned, on the screen and in a folder; then whether it was all that was asked for."""
    console, title = Console(), f"{what} after {run.steps:,} steps, {seconds:.0f} s"
    settings = [lane_records(run, world, setting) for setting in range(len(run.agents))]
    for agent, lanes in zip(run.agents, settings, strict=True):
        console.print(lanes_table(title, agent.risk, lanes))
    if out is not None:
        config = json_module.loads((out / "config.json").read_text())
        record = {**header("riskpath train", seconds), "config": config, "steps": run.steps}
        write_json(out / "result.json", {**record, "lanes": settings[0], "curve": run.curve})
        console.print(f"written: {out / 'result.json'}", highlight=False)
    if not run.finished:
        assert run.plan is not None
        hint = "" if out is None else f"; riskpath resume {out} goes on"
        raise KeyboardInterrupt(f"stopped after {run.steps:,} of {run.plan.goal:,} steps{hint}")


def _seeds(count: int) -> str:
    return f"{count} seeds" if count > 1 else "1 seed"


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
    measure = None if risk is None else parse_risk(risk)
    found, _ = _saved(run)
    with working("playing episodes"):
        sample = found.evaluate(episodes, seed=seed)
    rows = [row for setting in range(len(found.agents)) for row in _figures(sample, setting, measure)]
    if json:
        told = [{**dataclasses.asdict(row.pop("value")), **row} for row in rows]
        record = {"run": str(run), "steps": found.steps, "seeds": found.seeds, "episodes": episodes, "figures": told}
        print(json_module.dumps(record, indent=2))
    else:
        title = f"{episodes:,} episodes of each of {_seeds(found.seeds)} after {found.steps:,} steps, 95% intervals"
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
    require_counts(**given(steps=steps))
    (found, place), before = _saved(run), time.monotonic()
    if steps is None and found.finished:
        raise RiskpathError(f"{run} is finished, at {found.steps:,} steps; give --steps to go on")
    every = found.plan.evaluate_every if found.plan else None
    watch = None if every is None or hasattr(found.environments[0], "mdp") else _episodes
    logs = [] if place == run else [riskpath.JSONLines(run / "log.jsonl")]
    more = {} if steps is None else {"steps": steps, "evaluate_every": every}
    riskpath.train(found, **more, evaluator=watch, progress=True, checkpoint=place, callbacks=logs)
    out, problem, what = None, found.environments[0], type(found.agents[0]).__name__
    if place != run and (config := _config(run)):
        out, problem, what = run, _world(config["env"], assignments(config["set"])), f"{what} on {config['env']}"
    _report(found, problem, what, time.monotonic() - before, out)


def _episodes(run: Any) -> dict[str, Any]:
    """A point of the learning curve where there is no exact law; the host's episodes are slow."""
    return {"values": run.evaluate(20 if run.sources else 100).values().tolist()}


def _saved(folder: Path) -> tuple[riskpath.Run, Path]:
    """The run in a folder of `train --out`, or in a folder of `run.save`, and where exactly it is."""
    inside = (folder / "run").is_dir() and not (folder / HEADER).is_file()
    place = folder / "run" if inside else folder
    return riskpath.load(place, env=_remembered(folder) if inside else None), place


def _config(folder: Path) -> dict[str, Any] | None:
    """What `train --out` wrote down, if it can be read and names an environment that is known without an import."""
    try:
        config = json_module.loads((folder / "config.json").read_text())
        known = ":" not in config["env"] and all(isinstance(text, str) for text in config["set"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return config if known else None


def _remembered(folder: Path) -> Any:
    """The Gymnasium environment that `train --set` changed, which a run alone does not know."""
    config = _config(folder)
    if config is None or not config["set"] or not is_gymnasium(config["env"]):
        return None
    return _world(config["env"], assignments(config["set"]))


def _world(env: str, fields: dict[str, Any]) -> Any:
    """One of ours, or a Gymnasium id with keyword arguments."""
    if not is_gymnasium(env):
        return make(env, **fields)
    return functools.partial(gymnasium.make, env, **fields) if fields else env
