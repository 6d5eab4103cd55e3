"""Configuration files of `riskpath train`: the options as JSON, those of the agent under "fields"."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import equinox as eqx

from riskpath.agents.agent import Agent
from riskpath.cli.options import TrainOptions
from riskpath.errors import RiskpathError, did_you_mean
from riskpath.registry import concrete, simplify
from riskpath.risk.measures import RiskMeasure

TYPES: dict[str, tuple[type, ...]] = {
    "env": (str,),
    "agent": (str,),
    "fields": (dict,),
    "steps": (int,),
    "seeds": (int,),
    "num_envs": (int,),
    "seed": (int,),
    "set": (list,),
    "checkpoint_every": (int, float),
    "checkpoint_steps": (int, type(None)),
}
"""The options in a configuration file, and the JSON types of their values."""
WORDS = {str: "text", dict: "an object", int: "a whole number", list: "a list", float: "a number", type(None): "null"}


def agents() -> dict[str, type[Agent]]:
    """Return the agents that are registered in this process, by the names of their classes."""
    return concrete(Agent)


def agent_class(name: str) -> type[Agent]:
    """Return the agent of this name; case, dashes and underscores do not matter."""
    for known, kind in agents().items():
        if simplify(known) == simplify(name):
            return kind
    raise RiskpathError(f"unknown agent {name!r}{did_you_mean(name, agents())}; there are {', '.join(agents())}")


def write_options(options: TrainOptions) -> dict[str, Any]:
    """Return the content of a configuration file."""
    values = {name: to_json(getattr(options, name)) for name in TYPES}
    return values | {"agent": type(options.fields).__name__}


def read_config(file: str | Path, agent: str | None = None) -> TrainOptions:
    """Return the options that a configuration file describes; `agent` takes precedence over the agent in it."""
    try:
        config = json.loads(Path(file).read_text())
    except OSError as error:
        raise RiskpathError(f"cannot read {file}: {error.strerror}") from None
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise RiskpathError(f"{file} is not a configuration: see config.json in the folder of a run")
    _require_known(config, list(TYPES), str(file))
    options = {name: _checked(name, value, file) for name, value in config.items()}
    name = agent or options.get("agent", TrainOptions.agent)
    fields = _updated(agent_class(name)(), options.get("fields", {}), str(file))
    return TrainOptions(**options | {"agent": name, "fields": fields})


def _checked(name: str, value: Any, file: str | Path) -> Any:
    """Return a value as the option takes it; refuse a value of another type."""
    if isinstance(value, bool) or not isinstance(value, TYPES[name]):
        words = " or ".join(WORDS[kind] for kind in TYPES[name])
        raise RiskpathError(f"{file}: {name} must be {words}, got {value!r}")
    return tuple(map(str, value)) if isinstance(value, list) else value


def _updated(module: Any, fields: dict[str, Any], where: str) -> Any:
    """Return a module with some of its fields replaced by values of a configuration."""
    _require_known(fields, [field.name for field in dataclasses.fields(module)], where)
    values = {field.name: getattr(module, field.name) for field in dataclasses.fields(module)}
    floats = {field.name for field in dataclasses.fields(module) if float in (field.type, *get_args(field.type))}
    for name, value in fields.items():
        old = values[name]
        if isinstance(old, eqx.Module) and isinstance(value, dict):
            value = _updated(old, value, where)
        elif isinstance(value, list):
            value = tuple(value)
        elif name in floats and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        values[name] = value
    return type(module)(**values)


def _require_known(values: dict[str, Any], known: list[str], where: str) -> None:
    """Refuse names that do not exist."""
    for name in values:
        if name not in known:
            raise RiskpathError(f"{where}: unknown name {name!r}{did_you_mean(name, known)}")


def assignments(texts: Iterable[str]) -> dict[str, Any]:
    """Return the fields that texts of the form FIELD=VALUE set."""
    fields: dict[str, Any] = {}
    for text in texts:
        field, equals, value = text.partition("=")
        try:
            fields[field] = json.loads(value)
        except json.JSONDecodeError:
            kind = "a number after the = sign" if equals else "FIELD=VALUE"
            raise RiskpathError(f"cannot read {text!r}: expected {kind}, for example forks=5") from None
    return fields


def to_json(value: Any) -> Any:
    """Return fields of a module, and of those inside it, as JSON; a risk measure as its name."""
    if isinstance(value, RiskMeasure):
        return str(value)
    if isinstance(value, eqx.Module):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [to_json(part) for part in value]
    return value.tolist() if hasattr(value, "tolist") else value
