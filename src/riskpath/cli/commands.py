"""The commands, one function each: their arguments and docstrings are the command line and its help."""

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from riskpath.cli.config_file import agents as registered_agents
from riskpath.cli.config_file import assignments
from riskpath.cli.environments import ENVIRONMENTS, is_gymnasium
from riskpath.cli.report_command import report
from riskpath.cli.run_commands import evaluate, export, push, resume, train
from riskpath.cli.run_folder import SavedRun
from riskpath.cli.serve_command import serve
from riskpath.cli.sweep_commands import bench, sweep
from riskpath.cli.tables import print_json, seeds_in_words, solution_table, solve_all, table_of
from riskpath.envs import make
from riskpath.errors import RiskpathError
from riskpath.mdp.exact.constrained_solver import POINTS
from riskpath.mdp.exact.frontier import LEVELS
from riskpath.mdp.solve import frontier as exact_frontier
from riskpath.mdp.solve import solve as exact_solve
from riskpath.risk.compose import BY_NAME as MEASURES
from riskpath.risk.compose import parse_risk, text_of
from riskpath.risk.floors import read_floor
from riskpath.training.progress import counting, working
from riskpath.validation import given, require_counts


def solve(
    problem: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PROBLEM")],
    risk: str = "cvar:0.1",
    discount: float = 1.0,
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD=VALUE")] = (),
    randomised: bool = False,
    subject_to: Annotated[tuple[str, ...], tyro.conf.arg(metavar="RISK=FLOOR")] = (),
    json: bool = False,
) -> None:
    """Compute the exact optimum in every class of policies, side by side; with floors, the best policy that keeps them.

    Args:
        problem: A problem with an exact solution, for example RiskyGrid or Inventory; `riskpath envs` lists all.
        risk: The risk measure, for example cvar:0.25, evar:0.1 or 0.7*mean+0.3*cvar:0.1; `riskpath risks` lists all.
        discount: The discount factor, in (0, 1].
        set: Fields of the problem to change, for example forks=5 p_yellow=0.8.
        subject_to: Floors under other measures, for example cvar:0.1=50 var:0.05=10; only the best adaptive policy that
            keeps them is computed, which may draw between policies at the start.
        randomised: Also find the best adaptive policy that may draw one of several policies at the start.
        json: Print JSON for other programs instead of a table.
    """
    measure = parse_risk(risk)
    target = _exact_problem(problem, set, discount)
    if subject_to:
        pairs = (read_floor(text, "--subject-to") for text in subject_to)
        floors = {str(floored): least for floored, least in pairs}
        with counting(f"solving {target.name}") as progress:
            found = exact_solve(target, measure, subject_to=floors, progress=progress)
        if json:
            print_json({"problem": problem, "discount": discount, "subject_to": floors, **found.to_json()})
        else:
            print(found.describe(), flush=True)
        return
    with counting(f"solving {target.name}") as progress:
        answers = solve_all(target, measure, randomised, progress)
    if json:
        record: dict[str, Any] = {"problem": problem, "risk": str(measure), "discount": discount}
        for policies, answer in answers.items():
            record[policies] = {"error": str(answer)} if isinstance(answer, RiskpathError) else answer.to_json()
        print_json(record)
    else:
        Console().print(solution_table(target, measure, answers))


def frontier(
    problem: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PROBLEM|FOLDER")],
    levels: tuple[float, ...] = LEVELS,
    floors: tuple[float, ...] = (),
    risk: str | None = None,
    discount: float = 1.0,
    env: str | None = None,
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD=VALUE")] = (),
    episodes: int | None = None,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Compute the best policy of every CVaR level from one pass; print CVaR, mean and goal, and draw them.

    With the folder of a run of Adaptive: mean and CVaR of its policies for every level, from its one training. With
    --risk or --floors: the best mean for every floor under this measure.

    Args:
        problem: A problem with an exact solution, for example Inventory (`riskpath envs` lists all), or the folder of
            a run that `riskpath train --out` or `run.save` wrote.
        levels: CVaR levels in (0, 1]; level 1 is the mean.
        floors: Floors under a measure; for a problem nine by default. A run needs them, and --subject-to in training.
        risk: The measure that has the floors, for a problem; that of a run is the one it was trained with.
        discount: The discount factor, in (0, 1].
        env: The environment of the run, if it has to be imported: MODULE:NAME imports a module that registers it.
        set: Fields of the problem to change, for example price=20.
        episodes: Episodes of each seed and level of a run; by default 10,000, in Gymnasium as many as `evaluate` plays.
        out: The file for the figure; by default frontier-PROBLEM.png.
        json: Print JSON for other programs instead of a table; draw only if --out is given.
    """
    require_counts(**given(episodes=episodes))
    if problem not in ENVIRONMENTS and (folder := Path(problem)).is_dir():
        saved = SavedRun(folder)
        run = saved.load(saved.named_environment(env, set))
        with working("rolling out the policies of all levels"):
            found = run.floors(floors, episodes) if floors else run.frontier(levels, episodes)
        draw, rows, name = found.plot, found.rows(), folder.resolve().name
        of, medians = "floors" if floors else "levels", f"medians of {seeds_in_words(run.seeds)}"
        title = f"{folder} after {run.steps:,} steps, {medians}, one training for all {of}"
        record: Any = {"run": str(folder), "steps": run.steps, "rows": rows}
    elif env is not None:
        raise RiskpathError(f"--env is the environment of a saved run, and there is no folder {problem}")
    elif os.sep in problem:
        raise RiskpathError(f"there is no folder {problem}; give a saved run or the name of a problem")
    else:
        target = _exact_problem(problem, set, discount)
        if floors and risk is None:
            raise RiskpathError("--floors needs --risk, the measure that has the floors")
        with counting(f"solving {target.name}") as progress:
            best: Any = (
                exact_frontier(target, levels, progress=progress)
                if risk is None
                else exact_frontier(target, risk=risk, floors=floors or POINTS, progress=progress)
            )
            draw, rows, name = functools.partial(best.plot, label=target.name), best.rows(), problem
        what = "the best CVaR of the whole return at every level" if risk is None else f"the best mean, floors: {risk}"
        title = f"{target.name}, discount {target.discount:g}: {what}"
        record = best.to_json() if json else {}
    if json:
        print_json(record)
    else:
        Console().print(table_of(title, [{key: f"{value:.6g}" for key, value in row.items()} for row in rows]))
    if out is not None or not json:
        from riskpath.plot import save  # matplotlib is slow to import

        written = save(draw().figure, out or Path(f"frontier-{name}.png"))
        if not json:
            print(f"the figure is in {written}")


def _exact_problem(name: str, fields: tuple[str, ...], discount: float) -> Any:
    """Return the finite problem of an environment, or its problem on a grid."""
    solvable = [known for known, kind in ENVIRONMENTS.items() if hasattr(kind, "mdp") or hasattr(kind, "grid_problem")]
    if name not in solvable and (name in ENVIRONMENTS or is_gymnasium(name)):
        raise RiskpathError(
            f"{name} has no exact solution; {', '.join(solvable)} have one, and rp.solve accepts your own problems"
        )
    env = make(name, **assignments(fields))
    return env.mdp(discount) if hasattr(env, "mdp") else env.grid_problem(discount=discount)


def demo(seed: int = 0, out: Path = Path("riskpath-demo.png")) -> None:
    """Compute the exact frontier of a betting game, then let three agents learn to play it: four minutes.

    Args:
        seed: Seed of the randomness of training.
        out: The file for the figure.
    """
    from riskpath.cli import demo as tour  # matplotlib is slow to import

    console = Console()
    tour.learned(console, out, tour.exact(console, working), seed)


def agents() -> None:
    """List the agents, one line each."""
    _print_list(registered_agents())


def envs() -> None:
    """List the environments of the library, one line each; any Gymnasium id is accepted as well."""
    _print_list(ENVIRONMENTS)
    print("any Gymnasium id, for example CartPole-v1")


def risks() -> None:
    """List the risk measures, one line each."""
    _print_list({text_of(name): kind for name, kind in MEASURES.items()})
    print("0.7*mean+0.3*cvar:0.1   any mixture of them")


def _print_list(kinds: Mapping[str, Any]) -> None:
    width = max(map(len, kinds)) + 2
    for name, kind in kinds.items():
        print(f"{name:{width}}{next(iter((kind.__doc__ or '').splitlines()), '')}")


def reproduce(
    experiment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="EXPERIMENT")],
    quick: bool = False,
    seeds: int | None = None,
    only: str = "",
    out: Path | None = None,
    ray: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None,
) -> None:
    """Train the agents of one of the paper's experiments; write the results of every seed and the figures.

    Args:
        experiment: three-state (the first and third figures), grid (the risky grid), mountain-car (the fourth) or
            suite-optima (the exact optima of all problems).
        quick: Few steps and two seeds, to check that everything runs; not the final results.
        seeds: Seeds for each agent and measure; by default 8, and 6 for mountain-car.
        only: Train only the parts with this text in their name, for example IQN.
        out: The folder for the results, in which an interrupted experiment is also continued; by default "results", or
            "runs" with --quick or --seeds.
        ray: For mountain-car: train on a Ray cluster, auto for the one of this machine, or HOST:PORT.
    """
    from riskpath.experiments.report import EXPERIMENTS, Rows  # matplotlib is slow to import

    if experiment not in EXPERIMENTS:
        raise RiskpathError(f"unknown experiment {experiment!r}; there are {', '.join(EXPERIMENTS)}")
    require_counts(**given(seeds=seeds))
    chosen = EXPERIMENTS[experiment]
    parts = list(dict.fromkeys(chosen.parts(quick)))
    if only and not any(only in part for part in parts):
        raise RiskpathError(f"{experiment} has no part {only!r}; there are {'; '.join(parts) or 'none to choose from'}")
    if ray and not chosen.on_ray:
        raise RiskpathError(f"{experiment} does not run on Ray; mountain-car does")
    out = out or Path("runs" if quick or seeds else "results")
    console = Console()
    result = chosen.reproduce(
        out,
        quick=quick,
        seeds=seeds or (2 if quick else chosen.seeds),
        show=console.print,
        **({"only": only} if only else {}),
        **given(ray=ray),
    )
    for part in chosen.report(result, out):
        console.print(table_of(*part) if isinstance(part, Rows) else part, highlight=False)
    console.print(f"{result['device']}, {result['seconds']:.0f} s; results are in {out}", highlight=False)


COMMANDS: dict[str, Callable[..., None]] = {
    command.__name__: command
    for command in (
        *(solve, frontier, demo, train, evaluate, resume, export, push, serve, report, reproduce, sweep, bench),
        *(agents, envs, risks),
    )
}
"""The commands by name; `parser.py` gives `train` the options of the chosen agent."""
