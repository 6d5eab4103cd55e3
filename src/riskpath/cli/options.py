"""Typed fields as options of the command line, and as plain values for a result's record."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import equinox as eqx
import tyro
from jaxtyping import Array

from riskpath.agents.agent import Agent
from riskpath.agents.cvar_drl import CVaRDRL
from riskpath.agents.iqn import IQN
from riskpath.agents.iqtd3 import IQTD3
from riskpath.agents.tql import TQL
from riskpath.agents.tql_continuous import TQLContinuous
from riskpath.errors import RiskpathError
from riskpath.risk.compose import parse_risk
from riskpath.risk.measures import RiskMeasure

AGENTS: dict[str, type[Agent]] = {
    "iqn": IQN,
    "cvar-drl": CVaRDRL,
    "tql": TQL,
    "iqtd3": IQTD3,
    "tql-continuous": TQLContinuous,
}

parsers = tyro.constructors.ConstructorRegistry()
"""How the parser reads the types it does not know by itself."""


@parsers.primitive_rule
def _measure(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    if info.type is not RiskMeasure:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="RISK",
        instance_from_str=lambda words: parse_risk(words[0]),
        is_instance=lambda value: isinstance(value, RiskMeasure),
        str_from_instance=lambda value: [str(value)],
    )


@parsers.primitive_rule
def _swept(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """A float hyperparameter may be an array while it is trained; a user writes a number."""
    if info.type != float | Array:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="FLOAT",
        instance_from_str=lambda words: float(words[0]),
        is_instance=lambda value: isinstance(value, int | float),
        str_from_instance=lambda value: [str(value)],
    )


def option_names(kind: type[Agent]) -> list[str]:
    """What can be said of an agent of this class, in short."""
    full = _in_full([kind])
    own = {f"agent.{field.name}" for field in dataclasses.fields(kind)} - {"agent.network", "agent.training"}
    return ["--" + name.replace("_", "-") for name in [*full, *own] if ".no_" not in name]


def _in_full(kinds: Iterable[type[Agent]] = AGENTS.values()) -> dict[str, str]:
    """Short names of fields: those of a network or of training do not say where they are."""
    full = {"risk": "agent.risk", "discount": "agent.discount"}
    for kind in kinds:
        for part in ("network", "training"):
            for field in dataclasses.fields(kind.__dataclass_fields__[part].default):
                full[f"agent.{field.name}"] = f"agent.{part}.{field.name}"
                full[f"agent.no_{field.name}"] = f"agent.{part}.no_{field.name}"
    return full


def spelled_out(arguments: list[str]) -> list[str]:
    """Short options in full: --risk is --agent.risk, and --agent.window is --agent.network.window."""
    full, words = _in_full(), []
    for argument in arguments:
        name, equals, value = argument[2:].partition("=") if argument.startswith("--") else ("", "", "")
        found = full.get(name.replace("-", "_"))
        words.append(f"--{found.replace('_', '-')}{equals}{value}" if found else argument)
    return words


def agent_class(arguments: list[str]) -> type[Agent]:
    """The agent named after `--agent`; its fields become options, so it must be known before the rest is read."""
    words = [word for argument in arguments for word in argument.split("=", 1)]
    name = words[words.index("--agent") + 1] if "--agent" in words[:-1] else "tql"
    if name not in AGENTS:
        raise RiskpathError(f"unknown agent {name!r}; there are {', '.join(AGENTS)}")
    return AGENTS[name]


def with_config(arguments: list[str]) -> list[str]:
    """`--config FILE` replaced by what the file says, before all that is said beside it."""
    arguments = [
        word
        for argument in arguments
        for word in (argument.split("=", 1) if argument.startswith("--config=") else [argument])
    ]
    if "--config" not in arguments:
        return arguments
    at = arguments.index("--config")
    if at + 1 == len(arguments):
        raise RiskpathError("--config needs a file")
    file, rest = arguments[at + 1], arguments[:at] + arguments[at + 2 :]
    try:
        config = json.loads(Path(file).read_text())
        fields = {f"agent.{name}": value for name, value in _flat(config.pop("fields", {}))}
        told = [word for name, value in {**config, **fields}.items() for word in _words(name, value)]
    except OSError as error:
        raise RiskpathError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, AttributeError, TypeError):
        raise RiskpathError(f"{file} is no configuration: see config.json in the folder of a run") from None
    said = {word.split("=", 1)[0] for word in rest if word.startswith("--")}
    kept: list[str] = []
    skipping = False
    for word in told:  # what is said on the command line counts
        skipping = word in said if word.startswith("--") else skipping
        kept += [] if skipping else [word]
    return [rest[0], *kept, *rest[1:]]


def _flat(fields: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for name, value in fields.items():
        pairs += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return pairs


def _words(name: str, value: Any) -> list[str]:
    """One option as it is written on the command line."""
    option = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        head, _, last = option.rpartition(".") if "." in option else ("", "", option[2:])
        negative = f"{head}.no-{last}" if head else f"--no-{last}"
        return [option if value else negative]
    if isinstance(value, list):
        return [option, *map(str, value)] if value else []
    return [option, str(value)]


def assignments(texts: Iterable[str]) -> dict[str, Any]:
    """FIELD=VALUE, as often as wanted."""
    fields: dict[str, Any] = {}
    for text in texts:
        field, equals, value = text.partition("=")
        try:
            fields[field] = json.loads(value)
        except json.JSONDecodeError:
            kind = "a number after the = sign" if equals else "FIELD=VALUE"
            raise RiskpathError(f"cannot read {text!r}: expected {kind}, for example forks=5") from None
    return fields


def plain(value: Any) -> Any:
    """Fields of a module and of those inside it, as JSON knows them; a risk measure as its name."""
    if isinstance(value, RiskMeasure):
        return str(value)
    if isinstance(value, eqx.Module):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    return value.tolist() if hasattr(value, "tolist") else value
