"""The command line: thin functions over the library. A user's error is one line, and exit status 2."""

import contextlib
import functools
import io
import json as json_module
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

import riskpath
from riskpath.envs import make
from riskpath.errors import RiskpathError
from riskpath.mdp.solution import Solution
from riskpath.risk_compose import risk as read_risk
from riskpath.tables import CLASSES, overview_table, solution_table, solve_all

DESCRIPTION = """Decisions that are best for the risk of the whole return.

Risk measures: mean, cvar:0.25, wang:-0.75, pow:-2, cpw:0.71, or a mixture such as 0.7*mean+0.3*cvar:0.1.
Problems: ThreeState, RiskyGrid."""


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
    mdp = make(problem, **dict(_assignment(text) for text in set)).mdp(discount)
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


def demo() -> None:
    """Exact optima of the two problems of the paper, for every kind of policy."""
    console = Console()
    for name, title, measures in (
        ("ThreeState", "Bet or not, twice (ThreeState): risk of the whole return", ["mean", "cvar:0.1", "cvar:0.25"]),
        (
            "RiskyGrid",
            "Three forks, blue +20 or yellow +100 w.p. 0.75 (RiskyGrid): risk of the whole return, and the path",
            ["mean", "cvar:0.05", "cvar:0.1", "cvar:0.25", "cvar:0.5", "wang:-0.75", "pow:-2", "pow:-5", "cpw:0.71"],
        ),
    ):
        env, rows = make(name), []
        for text in measures:
            with _working(f"{name}, {text}"):
                rows.append((text, solve_all(env.mdp(), read_risk(text))))
        console.print(overview_table(title, rows, env))
    for policies, meaning in CLASSES.items():
        console.print(f"  {policies:9} {meaning}", highlight=False)


def reproduce(
    experiment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="EXPERIMENT")],
    quick: bool = False,
    seeds: int | None = None,
    out: Path = Path("results"),
) -> None:
    """Trains the agents of one of the paper's experiments and writes every seed's result.

    Args:
        experiment: grid (the risky grid; the paper's other experiments follow).
        quick: Few steps and two seeds: shows that everything runs, not where it ends.
        seeds: Seeds for each agent and measure; 8 unless told otherwise.
        out: The folder that the results go to.
    """
    from riskpath.experiments import grid  # training is slow to import, solving is not

    if experiment != "grid":
        raise RiskpathError(f"unknown experiment {experiment!r}; there is grid")
    if seeds is not None and seeds < 1:
        raise RiskpathError(f"seeds must be at least 1, got {seeds}")
    console = Console()
    result = grid.reproduce(out, quick=quick, seeds=seeds or (2 if quick else 8), show=console.print)
    table = Table(title=f"{result['device']}, {result['seconds']:.0f} s; written to {out / 'grid.json'}")
    columns = {"agent": "agent", "risk": "risk", "grid": "grid", "paths": "paths", "median": "median value"}
    for heading in (*columns.values(), "history optimum", "estimate off by"):
        table.add_column(heading)
    for row in grid.summary(result):
        figures = (f"{row['history_optimum']:.3f}", f"{row['estimate_error']:.1f}")
        table.add_row(*(str(row[key]) for key in columns if key != "median"), f"{row['median']:.3f}", *figures)
    console.print(table)


COMMANDS = {"solve": solve, "demo": demo, "reproduce": reproduce}


def main(arguments: list[str] | None = None) -> None:
    """Runs a command; exits with status 2 after one line if the user made a mistake."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(f"riskpath {riskpath.__version__}")
        return
    if arguments and arguments[0].isidentifier() and arguments[0] not in COMMANDS:
        _fail(f"unknown command {arguments[0]!r}; there are {', '.join(COMMANDS)}")
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            command = tyro.extras.subcommand_cli_from_dict(
                {name: _later(function) for name, function in COMMANDS.items()},
                prog="riskpath",
                description=DESCRIPTION,
                args=arguments or ["--help"],
            )
    except SystemExit as stop:
        if stop.code:
            _fail(_first_line(complaint.getvalue()))
        raise
    try:
        command()
    except RiskpathError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _fail("interrupted", status=130)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _later(function: Any) -> Any:
    """The same function, but called only after all arguments are read, so that its errors are its own."""

    @functools.wraps(function)
    def bind(*args: Any, **kwargs: Any) -> Any:
        return lambda: function(*args, **kwargs)

    return bind


def _assignment(text: str) -> tuple[str, Any]:
    field, equals, value = text.partition("=")
    try:
        return field, json_module.loads(value)
    except json_module.JSONDecodeError:
        kind = "a number after the = sign" if equals else "FIELD=VALUE"
        raise RiskpathError(f"cannot read {text!r}: expected {kind}, for example forks=5") from None


def _working(what: str) -> Any:
    """A spinner on a terminal, nothing elsewhere."""
    console = Console(stderr=True)
    return console.status(what) if console.is_terminal else contextlib.nullcontext()


def _first_line(box: str) -> str:
    """The message inside the parser's box, on one line."""
    rows = [re.sub(r"[│╭╮╰╯|]", " ", row).strip() for row in box.splitlines()[1:]]  # the first is the title
    message: list[str] = []
    for row in rows:
        if re.fullmatch(r"[─+-]+", row) and message:
            break
        message += [row] if row.strip("─+-") else []
    return re.sub(r"\s+", " ", " ".join(message)) or "cannot read the arguments; see riskpath --help"


def _fail(message: str, status: int = 2) -> None:
    print(f"riskpath: {message}", file=sys.stderr)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
