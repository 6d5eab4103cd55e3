"""`riskpath sweep` and `riskpath bench`: many trainings, stored cell by cell.

A sweep trains every combination of some hyperparameters with several seeds. The benchmark trains agents on the problems
of the suite, and compares them with the exact optimum.
"""

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from riskpath.cli.config_file import agent_class, assignments
from riskpath.cli.environments import make_environment
from riskpath.cli.tables import table_of
from riskpath.errors import RiskpathError
from riskpath.experiments.bench import bench as run_bench
from riskpath.experiments.bench_tables import SCORES, about_task, agents_of, tasks_with
from riskpath.risk.compose import parse_risk
from riskpath.sweeps.result import Sweep, stored_plan
from riskpath.sweeps.store import MANIFEST, TABLE, SweepFolder
from riskpath.sweeps.sweep import run_plan
from riskpath.sweeps.sweep import sweep as run_sweep
from riskpath.validation import given

ROWS = 20
"""The most combinations that are printed; the file has all."""


SUITES = ("suite",)


def sweep(
    agent: str = "Adaptive",
    env: str | None = None,
    over: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="AXIS=VALUE,VALUE")] = (),
    risk: str | None = None,
    steps: int = 30_000,
    seeds: int = 8,
    num_envs: int = 1,
    seed: int = 0,
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD=VALUE")] = (),
    out: Path = Path("runs/sweep"),
    evaluate_every: int | None = None,
    max_lanes: int | None = None,
    retries: int = 1,
    ray: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None,
) -> None:
    """Train every combination of some hyperparameters with several seeds, and list the best ones.

    The same command continues an interrupted sweep; so does `riskpath sweep --out FOLDER` alone, with `--env` if the
    environment is one of your own.

    Args:
        agent: The algorithm; `riskpath agents` describes them.
        env: The problem, a Gymnasium id, or MODULE:NAME, as for `riskpath train`.
        over: A field and its values, for example risk.level=0.1,0.25, training.learning_rate=1e-3,3e-4,
            network.hidden=[64],[64,64], risk=mean,cvar:0.1 or env.p_win=0.8,0.9; may be given several times.
        risk: The risk measure of all combinations; by default cvar:0.1.
        steps: Environment steps for each seed.
        seeds: Number of seeds of each combination.
        num_envs: Environments for each seed.
        seed: Seed of all randomness.
        set: Fields of the problem to change, for example rounds=4.
        out: The folder for the results.
        evaluate_every: Steps between the points of learning curves; by default there are none.
        max_lanes: The most seeds and combinations that a device trains at a time; by default all that fit.
        retries: Number of further attempts for a failing cell.
        ray: Train on a Ray cluster: auto for the one of this machine, or HOST:PORT.
    """
    how: dict[str, Any] = {"out": out, "retries": retries, "ray": ray, "progress": True}
    changed = bool(over or set or risk)
    if env is None and changed:
        raise RiskpathError("--env is missing; without it, --out alone continues a stored sweep")
    if env is None or (not changed and (out / MANIFEST).is_file()):
        _import_own(env, out)
        result = run_plan(stored_plan(out), **how)
    else:
        made: Any = agent_class(agent)(parse_risk(risk or "cvar:0.1"))
        training = {"steps": steps, "seeds": seeds, "num_envs": num_envs, "seed": seed}
        training |= given(evaluate_every=evaluate_every, max_lanes=max_lanes)
        result = run_sweep(made, make_environment(env, assignments(set)), read_axes(over), **training, **how)
    _report(result, out)


def _import_own(env: str | None, out: Path) -> None:
    """Import the module of an environment of the user's own, which a stored sweep needs; only if the user names it."""
    stored = SweepFolder(out).configuration().get("env")
    if env is not None:
        make_environment(env, {})
        if isinstance(stored, str) and stored != env:
            raise RiskpathError(f"{out} holds a sweep on {stored}, not on {env}")
    elif isinstance(stored, str) and ":" in stored:
        raise RiskpathError(f"{stored} has to be imported first: add --env {stored}")


def read_axes(texts: tuple[str, ...]) -> dict[str, list[Any]]:
    """Return the axes that texts of the form AXIS=VALUE,VALUE describe."""
    axes: dict[str, list[Any]] = {}
    for text in texts:
        axis, equals, values = text.partition("=")
        if not equals or not values:
            raise RiskpathError(f"cannot read {text!r}: expected AXIS=VALUE,VALUE, for example risk.level=0.1,0.25")
        if axis in axes:
            raise RiskpathError(f"{axis} is given twice; write all of its values after one = sign")
        axes[axis] = [_value(word) for word in _words(values)]
    return axes


def _words(text: str) -> list[str]:
    """Split a text at the commas that are outside of brackets."""
    words, depth = [""], 0
    for sign in text:
        depth += (sign == "[") - (sign == "]")
        if sign == "," and depth == 0:
            words.append("")
        else:
            words[-1] += sign
    return words


def _value(word: str) -> Any:
    """Return a number, a list, true, false or null; anything else is a text, such as the name of a measure."""
    try:
        return json.loads(word)
    except json.JSONDecodeError:
        return word.strip()


def _report(result: Sweep, out: Path) -> None:
    """Print the best combinations; exit with an error if something is missing."""
    console = Console()
    within = f" for each {' and '.join(result.incomparable)}" if result.incomparable else ""
    summary = result.summary()
    groups = [[str(row[axis]) for axis in result.incomparable] for row in summary]
    order = sorted(range(len(summary)), key=lambda i: (groups.index(groups[i]), -summary[i]["value"]))
    rows = [summary[i] for i in order]
    shown = [{key: f"{x:.6g}" if isinstance(x, float) else x for key, x in row.items()} for row in rows[:ROWS]]
    if shown:
        title = f"{len(result.lanes)} lanes; value is the mean over seeds, best first" + within
        console.print(table_of(title, shown), highlight=False)
    console.print(f"all lanes are in {out / TABLE}", highlight=False)
    if result.failed:
        name, line = next(iter(result.failed.items()))
        raise RiskpathError(f"{result.missing} lanes failed; {name}: {line}")
    if result.missing:
        raise KeyboardInterrupt(f"interrupted: {result.missing} lanes are left; the same command continues with them")


def bench(
    suite: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="suite")],
    agents: tuple[str, ...] | None = None,
    problems: tuple[str, ...] | None = None,
    risks: tuple[str, ...] | None = None,
    seeds: int | None = None,
    steps: int | None = None,
    quantiles: int | None = None,
    out: Path | None = None,
    quick: bool = False,
    only: str = "",
    retries: int = 1,
    ray: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None,
) -> None:
    """Train every agent on every problem for every measure; compare the policies with the exact optimum.

    Args:
        suite: Always "suite", the problems of the library with known optima.
        agents: Agents, by default mean-control iqn cvar-drl tql qr-srm adaptive.
        problems: Problems, by default all of the benchmark; RandomMDP:3 is the random problem with seed 3.
        risks: Measures, by default cvar at 0.05, 0.1, 0.25 and 0.5, wang:-0.75, wang:0.75, pow:-2 and cpw:0.71.
        seeds: Seeds for each agent, problem and measure; by default 8, and 2 with --quick.
        steps: Environment steps for each seed; by default 640,000 on small problems and 8,000,000 on large ones.
        quantiles: Quantiles or atoms of each critic; by default 32.
        out: The folder for the results, from which an interrupted benchmark also continues; by default results/bench,
            or runs/bench if any other option is given.
        quick: Short training on two small problems with two seeds, two minutes on two cores.
        only: Train only the cells with this text in their name, for example "Adaptive on".
        retries: Number of further attempts for a failing cell.
        ray: Train on a Ray cluster: auto for the one of this machine, or HOST:PORT.
    """
    if suite not in SUITES:
        raise RiskpathError(f"unknown benchmark {suite!r}; there is {', '.join(SUITES)}")
    chosen: dict[str, Any] = {"agents": agents, "problems": problems, "risks": risks}
    options = given(**chosen, seeds=seeds, steps=steps, quantiles=quantiles)
    folder = out or Path("runs/bench-quick" if quick else "runs/bench" if options else "results/bench")
    how: dict[str, Any] = {"quick": quick, "only": only, "retries": retries, "ray": ray, "progress": True}
    result = run_bench(**options, out=folder, command=_command(options, quick), **how)
    failed = [f"{name}: {line}" for name, line in result.failed.items()]
    if left := [name for name in result.missing if only in name and name not in result.failed]:
        raise KeyboardInterrupt(f"interrupted: {len(left)} cells are left; the same command continues with them")
    if not result.cells:
        raise RiskpathError(f"all cells failed; {failed[0]}")
    console = Console()
    rows = result.table()
    for score, title in SCORES.items():
        lines = [
            {**about_task(task), **{name: _score(task.get(name), score) for name in agents_of(rows)}}
            for task in tasks_with(rows, score)
        ]
        if lines:
            console.print(table_of(f"{title}: means over seeds", lines), highlight=False)
    written = result.save(folder)
    console.print(f"intervals and figures are in {', '.join(map(str, written))}", highlight=False)
    if failed:
        raise RiskpathError(f"{len(failed)} cells failed; {failed[0]}")


def _command(options: dict[str, Any], quick: bool) -> str:
    words = ["riskpath", "bench", "suite"]
    for name, value in options.items():
        words += [f"--{name}", *map(str, value if isinstance(value, tuple) else [value])]
    return shlex.join([*words, *(["--quick"] if quick else [])])


def _score(row: dict[str, Any] | None, score: str) -> str:
    """Return a score without its interval, for which the terminal is too narrow."""
    if row is None or row[score] is None:
        return "–"
    return f"{row[score]:z.2f}" if score == "share" else f"{row[score]:.3g}"
