"""Configuration files of `riskpath train`: the options as JSON, those of the agent under "fields"."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from riskpath.agents.agent import Agent
from riskpath.cli.options import TrainOptions
from riskpath.errors import RiskpathError, did_you_mean
from riskpath.files import read_json
from riskpath.hyperparameters import plain, replace_fields
from riskpath.registry import concrete, simplify

TYPES: dict[str, tuple[type, ...]] = {
    "env": (str,),
    "agent": (str,),
    "fields": (dict,),
    "steps": (int,),
    "seeds": (int,),
    "num_envs": (int,),
    "seed": (int,),
    "workers": (str, type(None)),
    "set": (list,),
    "checkpoint_every": (int, float),
    "checkpoint_steps": (int, type(None)),
    "log": (list,),
}
"""The options in a configuration file, and the JSON types of their values."""
WORDS = {str: "text", dict: "an object", int: "a whole number", list: "a list", float: "a number", type(None): "null"}


def agents() -> dict[str, type[Agent]]:
    """Return the agents that are registered in this process, by the names of their classes."""
    return dict(sorted(concrete(Agent).items()))


def agent_class(name: str) -> type[Agent]:
    """Return the agent of this name; case, dashes and underscores do not matter."""
    for known, kind in agents().items():
        if simplify(known) == simplify(name):
            return kind
    raise RiskpathError(f"unknown agent {name!r}{did_you_mean(name, agents())}; there are {', '.join(agents())}")


def write_options(options: TrainOptions) -> dict[str, Any]:
    """Return the content of a configuration file."""
    values = {name: plain(getattr(options, name)) for name in TYPES}
    return values | {"agent": type(options.fields).__name__}


def read_config(file: str | Path, agent: str | None = None) -> TrainOptions:
    """Return the options that a configuration file describes; `agent` takes precedence over the agent in it."""
    config = read_json(file, "is not a configuration: see config.json in the folder of a run")
    for name in config.keys() - TYPES.keys():
        raise _unknown(str(file), name, TYPES)
    options = {name: _checked(name, value, file) for name, value in config.items()}
    name = agent or options.get("agent", TrainOptions.agent)
    fields = replace_fields(agent_class(name)(), options.get("fields", {}), lambda *found: _unknown(str(file), *found))
    return TrainOptions(**options | {"agent": name, "fields": fields})


def _checked(name: str, value: Any, file: str | Path) -> Any:
    """Return a value as the option takes it; refuse a value of another type."""
    if isinstance(value, bool) or not isinstance(value, TYPES[name]):
        words = " or ".join(WORDS[kind] for kind in TYPES[name])
        raise RiskpathError(f"{file}: {name} must be {words}, got {value!r}")
    return tuple(map(str, value)) if isinstance(value, list) else value


def _unknown(where: str, name: str, known: Iterable[str]) -> RiskpathError:
    return RiskpathError(f"{where}: unknown name {name!r}{did_you_mean(name, known)}")


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
