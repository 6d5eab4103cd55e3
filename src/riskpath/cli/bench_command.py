"""`riskpath bench suite`: train agents on the problems of the suite and compare them with the exact optimum."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from riskpath.cli.tables import table_of
from riskpath.errors import RiskpathError
from riskpath.experiments.bench import bench as run_bench
from riskpath.experiments.bench_tables import SCORES, about_task, agents_of, tasks_with
from riskpath.validation import given

SUITES = ("suite",)


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
