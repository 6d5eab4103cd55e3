"""The command line: reads arguments and calls a command. A user's error is one line, and exit status 2."""

import contextlib
import functools
import io
import os
import re
import signal
import sys
from collections.abc import Iterator
from typing import Any

import tyro

import riskpath
from riskpath.cli.commands import COMMANDS
from riskpath.cli.options import AGENTS, agent_class, option_names, parsers, spelled_out, with_config
from riskpath.cli.run_commands import train_command
from riskpath.errors import RiskpathError, did_you_mean

DESCRIPTION = """Decisions that are best for the risk of the whole return.

Risk measures: mean, cvar:0.25, wang:-0.75, pow:-2, cpw:0.71, or a mixture such as 0.7*mean+0.3*cvar:0.1.
Problems: ThreeState, RiskyGrid; RiskyMountainCar to learn."""


def main(arguments: list[str] | None = None) -> None:
    """Runs a command; exits with status 2 after one line if the user made a mistake."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(f"riskpath {riskpath.__version__}")
        return
    if arguments and arguments[0].isidentifier() and arguments[0] not in COMMANDS:
        _fail(f"unknown command {arguments[0]!r}; there are {', '.join(COMMANDS)}")
    try:
        with _ended_as_interrupted():
            _read(arguments or ["--help"])()
    except RiskpathError as error:
        _fail(str(error))
    except KeyboardInterrupt as stop:
        _fail(str(stop) or "interrupted", status=130)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _ended_as_interrupted() -> Iterator[None]:
    """SIGTERM is heard as Ctrl-C is: what was trained is kept."""
    try:
        before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    except ValueError:  # only the main thread can say so
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _read(arguments: list[str]) -> Any:
    """The command that the arguments ask for, ready to be called."""
    kind = AGENTS["tql"]
    if arguments[0] == "train":
        arguments = with_config(spelled_out(arguments))
        kind = agent_class(arguments)
    commands = {**COMMANDS, "train": train_command(kind)}
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint), parsers:
            return tyro.extras.subcommand_cli_from_dict(
                {name: _later(function) for name, function in commands.items()},
                prog="riskpath",
                description=DESCRIPTION,
                args=arguments,
            )
    except SystemExit as stop:
        if stop.code:
            message = _first_line(complaint.getvalue())
            unknown = re.match(r"Unrecognized options: --([\w.-]+)", message)
            options = option_names(kind) if arguments[0] == "train" else []
            _fail(message + (did_you_mean(unknown[1], options) if unknown else ""))
        raise


def _later(function: Any) -> Any:
    """The same function, but called only after all arguments are read, so that its errors are its own."""

    @functools.wraps(function)
    def bind(*args: Any, **kwargs: Any) -> Any:
        return lambda: function(*args, **kwargs)

    return bind


def _first_line(box: str) -> str:
    """The message inside the parser's box, on one line."""
    rows = [re.sub(r"[│╭╮╰╯|]", " ", row).strip() for row in box.splitlines()[1:]]  # the first is the title
    message: list[str] = []
    for row in rows:
        if re.fullmatch(r"[─+-]+", row) and message:
            break
        message += [row] if row.strip("─+-") else []
    words = re.sub(r"^Error parsing __\S+: ", "", " ".join(message))  # a name of the parser's own
    return re.sub(r"\s+", " ", words) or "cannot read the arguments; see riskpath --help"


def _fail(message: str, status: int = 2) -> None:
    print(f"riskpath: {message}", file=sys.stderr)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
