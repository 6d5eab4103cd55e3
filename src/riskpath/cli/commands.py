"""The commands, one function each: thin ones over the library, whose arguments and docstrings are the command line."""

import json as json_module
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from riskpath.cli.options import AGENTS, assignments
from riskpath.cli.run_commands import evaluate, resume, train_command
from riskpath.cli.tables import solution_table, solve_all
from riskpath.envs import BY_NAME as ENVIRONMENTS
from riskpath.envs import make
from riskpath.envs.gymnasium_vector import is_gymnasium
from riskpath.errors import RiskpathError
from riskpath.mdp.solution import Solution
from riskpath.risk.compose import BY_NAME as MEASURES
from riskpath.risk.compose import parse_risk
from riskpath.risk.measures import Mean
from riskpath.training.progress import working
from riskpath.validation import given, require_counts


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
    measure = parse_risk(risk)
    finite = [name for name, kind in ENVIRONMENTS.items() if hasattr(kind, "mdp")]
    if problem not in finite and (problem in ENVIRONMENTS or is_gymnasium(problem)):
        raise RiskpathError(
            f"{problem} is no table of outcomes; {' and '.join(finite)} are, and rp.solve takes your own"
        )
    mdp = make(problem, **assignments(set)).mdp(discount)
    with working(f"solving {mdp.name}"):
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
    from riskpath.cli import demo as tour  # figures are slow to import, solving is not

    console = Console()
    tour.exact(console, working)
    tour.learned(console, out, seed)


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
    require_counts(**given(seeds=seeds))
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
