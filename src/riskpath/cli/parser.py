"""Reads a command line with tyro, and says in one line what is wrong with it.

tyro reads everything: commands are a union of subcommands, short options are aliases (`options.py`), a configuration
file becomes default values, and options that tyro does not know come back as a list.
"""

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable
from operator import or_
from typing import Annotated, Any

import tyro

from riskpath.cli.commands import COMMANDS
from riskpath.cli.config_file import agent_class, read_config
from riskpath.cli.options import PARSERS, TrainOptions, agent_options
from riskpath.cli.run_commands import train
from riskpath.errors import RiskpathError, did_you_mean

try:  # not public yet: without it, tyro prints its own message, which has several lines
    from tyro import _errors as tyro_errors
except ImportError:
    tyro_errors = None

DESCRIPTION = """Find policies that are best under a risk measure of the whole return.

Risk measures: mean, cvar:0.25, evar:0.1, var:0.1, entropic:0.5 and others (`riskpath risks`), or a mixture such as
0.7*mean+0.3*cvar:0.1.

`riskpath envs` lists the problems, `riskpath agents` the agents."""


def parse(arguments: list[str]) -> Callable[[], None]:
    """Return the command that the arguments ask for, to be called without arguments."""
    name = arguments[0]
    if not name.startswith("-") and name not in COMMANDS:
        raise RiskpathError(f"unknown command {name!r}{did_you_mean(name, COMMANDS)}; there are {', '.join(COMMANDS)}")
    with tyro_errors.on_parse_error(functools.partial(_refuse, arguments)) if tyro_errors else contextlib.nullcontext():
        defaults = _train_defaults(arguments[1:]) if name == "train" else TrainOptions()
        command, unknown = tyro.cli(
            _subcommands(defaults),
            prog="riskpath",
            description=DESCRIPTION,
            args=arguments,
            return_unknown_args=True,
            registry=PARSERS,
        )
    if unknown:
        raise RiskpathError(unknown_line(unknown, _option_names(name, defaults)))
    return command


def _subcommands(defaults: TrainOptions) -> Any:
    """Return the union of all commands for tyro; each one returns a function, which is called after parsing."""

    def bind_train(options: Annotated[TrainOptions, tyro.conf.arg(name="")] = defaults) -> Callable[[], None]:
        return functools.partial(train, options)

    bind_train.__doc__ = train.__doc__
    functions = {name: _deferred(function) for name, function in COMMANDS.items()} | {"train": bind_train}
    commands: Any = (Annotated[Any, tyro.conf.subcommand(name, constructor=one)] for name, one in functions.items())
    return functools.reduce(or_, commands)


def _deferred(function: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    """Return a function with the same signature that only binds its arguments: errors of a command are its own."""

    @functools.wraps(function)
    def bind(*args: Any, **kwargs: Any) -> Callable[[], None]:
        return functools.partial(function, *args, **kwargs)

    return bind


class _Choices:
    """The options of `train` that decide which other options there are."""

    def __init__(self, agent: str | None = None, config: str | None = None):
        self.agent, self.config = agent, config


def _train_defaults(arguments: list[str]) -> TrainOptions:
    """Return the default options of `train`: those of the chosen agent, and those of a configuration file."""
    first, _ = tyro.cli(_Choices, args=arguments, return_unknown_args=True, add_help=False)
    if first.config is not None:
        return read_config(first.config, first.agent)
    return TrainOptions(fields=agent_class(first.agent or TrainOptions.agent)())


def _option_names(command: str, defaults: TrainOptions) -> list[str]:
    if command not in COMMANDS:
        return []
    names: list[str] = []
    for name, parameter in inspect.signature(COMMANDS[command]).parameters.items():
        parts = defaults if command == "train" else parameter.default
        names += parts.__dataclass_fields__ if dataclasses.is_dataclass(parts) else [name]
    options = ["--" + name.replace("_", "-") for name in names if name != "fields"]
    return options + (agent_options(defaults.fields) if command == "train" else [])


def unknown_line(unknown: list[str], known: list[str]) -> str:
    """Return the line that answers unknown arguments, with the most similar option."""
    options = [word.partition("=")[0].replace("_", "-") for word in unknown if word.startswith("--")]
    if not options:
        by_name = f": give it by name, for example --env {unknown[0]}" if "--env" in known else ""
        return f"unexpected argument {unknown[0]!r}{by_name}"
    return f"unknown option {options[0]}{did_you_mean(options[0][2:], known)}"


def _refuse(arguments: list[str], event: Any) -> None:
    """Raise an error with one line; tyro calls this function when it refuses arguments, before it prints anything."""
    if line := refusal_line(event):
        known = _option_names(arguments[0], TrainOptions())
        unknown = [word for word in arguments[1:] if word.startswith("--") and word.partition("=")[0] not in known]
        if line.endswith(" missing") and unknown:  # tyro takes an unknown option for the end of the arguments
            line = unknown_line(unknown, known)
        raise RiskpathError(" ".join(line.split()))


def refusal_line(event: Any) -> str | None:
    """Return what is wrong in one line, or None for an event of an unknown kind, which tyro explains itself."""
    assert tyro_errors is not None
    option = _name(event.argument) if getattr(event, "argument", None) is not None else ""
    match event:
        case tyro_errors.InstantiationFailure():
            return f"{option}: {event.message}" if option else event.message
        case tyro_errors.InvalidChoice():
            *first, last = event.choices
            accepted = f"{', '.join(first)} or {last}" if first else last
            return f"{option} must be {accepted}, got {event.value!r}"
        case tyro_errors.BadValue():
            return f"{option} is missing" if event.argument.is_positional() else f"{option} needs a value"
        case tyro_errors.MissingArgs():
            names = [_name(missing.arg) for missing in event.missing_arguments]
            return f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} missing"
        case tyro_errors.MissingSubcommand():
            return f"give a command; there are {', '.join(COMMANDS)}"
    return None


def _name(argument: Any) -> str:
    """Return an argument as the help shows it: its shortest option, or the placeholder of a positional one."""
    lowered = argument.lowered
    return str(lowered.metavar) if argument.is_positional() else lowered.name_or_flags[0]
