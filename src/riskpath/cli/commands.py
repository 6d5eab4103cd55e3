"""The commands, one function each: their arguments and docstrings are the command line and its help."""

import json as json_module
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from riskpath.cli.config_file import agents as registered_agents
from riskpath.cli.config_file import assignments
from riskpath.cli.environments import ENVIRONMENTS, is_gymnasium
from riskpath.cli.run_commands import evaluate, resume, train
from riskpath.cli.tables import solution_table, solve_all, table_of
from riskpath.envs import make
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
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD=VALUE")] = (),
    json: bool = False,
) -> None:
    """Compute the exact optimum in every class of policies, side by side.

    Args:
        problem: A finite problem such as ThreeState, RiskyGrid or Inventory; `riskpath envs` lists all environments.
        risk: The risk measure, for example cvar:0.25, wang:-0.75 or 0.7*mean+0.3*cvar:0.1.
        discount: The discount factor, in (0, 1].
        set: Fields of the problem to change, for example forks=5 p_yellow=0.8.
        json: Print JSON for other programs instead of a table.
    """
    measure = parse_risk(risk)
    finite = [name for name, kind in ENVIRONMENTS.items() if hasattr(kind, "mdp")]
    if problem not in finite and (problem in ENVIRONMENTS or is_gymnasium(problem)):
        raise RiskpathError(
            f"{problem} is not a finite problem; {', '.join(finite[:-1])} and {finite[-1]} are, "
            "and rp.solve accepts your own"
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
    """Solve the two problems of the paper exactly, then train three agents on one of them: about two minutes.

    Args:
        seed: Seed of the randomness of training.
        out: The file for the figure.
    """
    from riskpath.cli import demo as tour  # matplotlib is slow to import

    console = Console()
    tour.exact(console, working)
    tour.learned(console, out, seed)


def agents() -> None:
    """List the agents, one line each."""
    _print_list(registered_agents())


def envs() -> None:
    """List the environments of the library, one line each; any Gymnasium id is accepted as well."""
    _print_list(ENVIRONMENTS)
    print("any Gymnasium id, for example CartPole-v1")


def risks() -> None:
    """List the risk measures, one line each."""
    _print_list({name if kind is Mean else f"{name}:LEVEL": kind for name, kind in MEASURES.items()})
    print("0.7*mean+0.3*cvar:0.1   any mixture of them")


def _print_list(kinds: Mapping[str, Any]) -> None:
    """Print names, and the first line of each docstring."""
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
    """Train the agents of one of the paper's experiments; write the results of every seed and the figures.

    Args:
        experiment: three-state (the first and third figures), grid (the risky grid) or mountain-car (the fourth).
        quick: Few steps and two seeds: shows that everything runs, not the final results.
        seeds: Seeds for each agent and measure; by default 8, and 6 for mountain-car.
        only: Train only the parts with this text in their name, for example IQN.
        out: The folder for the results, in which an interrupted experiment is also continued; by default "results", or
            "runs" with --quick or --seeds.
    """
    from riskpath.experiments.report import EXPERIMENTS, Rows  # matplotlib is slow to import

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
    for part in chosen.report(result, out):
        console.print(table_of(*part) if isinstance(part, Rows) else part, highlight=False)
    console.print(f"{result['device']}, {result['seconds']:.0f} s; results are in {out}", highlight=False)


COMMANDS: dict[str, Callable[..., None]] = {
    "solve": solve,
    "demo": demo,
    "train": train,
    "evaluate": evaluate,
    "resume": resume,
    "reproduce": reproduce,
    "agents": agents,
    "envs": envs,
    "risks": risks,
}
"""The commands by name; `parser.py` gives `train` the options of the chosen agent."""
