"""`bench`: every agent on every problem for every measure, compared with the exact optimum.

    result = rp.bench(agents=["IQN", "Adaptive"], problems=["probe grid"], risks=["cvar:0.1"], out="runs/bench")
    print(result.markdown())

The command line does the same: `riskpath bench suite`. A cell is an agent on a problem for the measures of one kind
(`bench_cells.py`). Each one is stored as soon as it is finished, so an interrupted benchmark continues where it
stopped.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from riskpath.errors import RiskpathError
from riskpath.experiments import bench_tables
from riskpath.experiments.bench_cells import Cell, plan
from riskpath.experiments.bench_scores import rows
from riskpath.experiments.bench_suite import QUICK_RISKS, RISKS, SIZES, as_entrants, as_problems
from riskpath.files import as_path, write_file, write_json
from riskpath.risk.compose import parse_risk
from riskpath.sweeps.jobs import Progress, run_jobs
from riskpath.sweeps.ray_engine import engine
from riskpath.validation import given, require_counts

CELLS, RESULT, TABLE = "cells", "bench.json", "bench.md"
HEAT_MAP, PROFILES = "bench_heat_map.png", "bench_profiles.png"
SEEDS, QUICK_SEEDS = 8, 2


@dataclass(frozen=True)
class Bench:
    """The result of a benchmark: the values of every agent, problem, measure and seed, and the two scores."""

    cells: list[dict[str, Any]] = field(repr=False)
    """The finished cells."""
    missing: list[str] = field(default_factory=list)
    """The names of cells that are not finished."""
    failed: dict[str, str] = field(default_factory=dict)
    """Cells whose training met an error, and the error; they are missing, too."""
    command: str = ""
    """The command that made it."""

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each agent, problem and measure.

        "share" is the share of the optimum's advantage over the mean-optimal policy, "gap" the distance to the optimum,
        both with the ends of their 95 % intervals. "share" is None where the advantage is below 5 % of the spread of
        returns.
        """
        return rows(self.cells)

    def markdown(self) -> str:
        """Return both scores as tables: a row for each problem and measure, a column for each agent."""
        return bench_tables.markdown(self.table())

    def plot_heat_map(self, ax: Any = None) -> Any:
        """Draw the share of every agent (columns), problem and measure (rows); return the axes."""
        return bench_tables.heat_map(self.table(), ax)

    def plot_profiles(self, ax: Any = None) -> Any:
        """Draw, for each agent, which part of its runs has at least a given share; return the axes.

        Only problems and measures count for which all agents were trained; if there are none, those of each agent.
        """
        return bench_tables.profiles(self.cells, ax)

    def save(self, folder: str | Path) -> list[Path]:
        """Write all results, the tables and both figures to a folder; return the files."""
        from riskpath.plot import save  # matplotlib is slow to import

        folder = as_path(folder)
        content = {"command": self.command, "missing": self.missing, "failed": self.failed}
        content |= {"rows": self.table(), "cells": self.cells}
        write_json(folder / RESULT, content)
        write_file(folder / TABLE, self.markdown())
        drawn = [save(self.plot_heat_map().figure, folder / HEAT_MAP)]
        if any(row["share"] is not None for row in self.table()):
            drawn.append(save(self.plot_profiles().figure, folder / PROFILES))
        return [folder / RESULT, folder / TABLE, *drawn]

    @staticmethod
    def load(path: str | Path) -> "Bench":
        """Return the benchmark that `save` wrote to a folder."""
        file = as_path(path) / RESULT
        try:
            content = json.loads(file.read_text())
            return Bench(content["cells"], content["missing"], content["failed"], content["command"])
        except (OSError, ValueError, LookupError, TypeError):
            raise RiskpathError(f"{file} is not the result of a benchmark") from None


def bench(
    agents: Any = None,
    problems: Any = None,
    risks: Any = None,
    *,
    seeds: int | None = None,
    steps: int | None = None,
    quantiles: int | None = None,
    out: str | Path | None = None,
    quick: bool = False,
    only: str = "",
    command: str = "",
    retries: int = 1,
    ray: str | None = None,
    progress: Progress = False,
) -> Bench:
    """Train every agent on every problem for every measure, and compare the policies with the exact optimum.

    Ctrl-C ends the benchmark early and returns what is finished; with `out` the same call continues from there. A cell
    whose training fails, for example because a loss is not finite, is left out, and the others are trained.

    Args:
        agents: Names, agents or classes of agents, or a dictionary of them by name; by default all of the benchmark. A
            name or a class gets the network and training of the benchmark, an agent keeps its own. An agent for the
            mean is trained once for all measures. Measures that an agent does not optimise are left out.
        problems: Names, environments, `FiniteMDP`s or `BenchProblem`s, or a dictionary of them by name; by default all
            of the benchmark. "RandomMDP:3" is the random problem with seed 3. Problems that are not finite need a
            `BenchProblem` with their values.
        risks: Measures, by default eight: CVaR at four levels, Wang at two, POW and CPW.
        seeds: Seeds of each agent, problem and measure; by default 8, and 2 with `quick`.
        steps: Environment steps of each seed; by default those of the size of the problem (`bench_suite.SIZES`).
        quantiles: Quantiles or atoms of each critic; by default 32. An agent that is given as an object keeps its own.
        out: A folder for finished cells, from which an interrupted benchmark continues.
        quick: Short training on two small problems, two minutes on two cores: a first look, not what agents reach.
        only: Train only the cells with this text in their name, for example "Adaptive on".
        command: The command to be recorded with the results.
        retries: Number of further attempts for a failing cell.
        ray: The address of a Ray cluster on which cells are trained, as for `sweep`; by default in this process.
        progress: True for one progress bar over all cells, or a function of a line that is called after each cell.
    """
    require_counts(**given(seeds=seeds, steps=steps, quantiles=quantiles))
    require_counts(0, retries=retries)
    if risks is None:
        risks = QUICK_RISKS if quick else RISKS
    listed = [risks] if isinstance(risks, str) or not hasattr(risks, "__iter__") else risks
    measures = list(dict.fromkeys(str(parse_risk(risk)) for risk in listed))
    seeds = seeds or (QUICK_SEEDS if quick else SEEDS)
    more = given(steps=steps, num_quantiles=quantiles)
    cells = plan(
        as_entrants(agents),
        as_problems(problems, quick),
        measures,
        seeds,
        lambda problem: {**SIZES["quick" if quick else problem.size], **more},
    )
    wanted = [cell for cell in cells if only in cell.name]
    if not wanted:
        raise RiskpathError(f"no cell has {only!r} in its name; there are {'; '.join(cell.name for cell in cells)}")
    folder = None if out is None else as_path(out) / CELLS
    done = {} if folder is None else {cell.name: found for cell in cells if (found := cell.stored(folder))}

    def finish(cell: Cell, content: dict[str, Any]) -> str:
        if folder is not None:
            cell.store(folder, content)
        done[cell.name] = content
        return f"{content['seconds']:.0f} s"

    left = [cell for cell in wanted if cell.name not in done]
    before = len(wanted) - len(left)
    failed = run_jobs(left, finish, engine(ray), retries=retries, progress=progress, done=before) if left else {}
    finished = [done[cell.name] for cell in cells if cell.name in done]
    return Bench(finished, [cell.name for cell in cells if cell.name not in done], failed, command)
