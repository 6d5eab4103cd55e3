"""Typed fields as options of the command line: how tyro reads measures and hyperparameters, and their short names."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro
from jaxtyping import Array

from riskpath.agents.adaptive import Adaptive
from riskpath.agents.agent import Agent
from riskpath.agents.config import BaseTraining
from riskpath.agents.optimiser import Transformation
from riskpath.hyperparameters import Hyperparameters
from riskpath.nn.network import Network
from riskpath.risk.compose import parse_risk
from riskpath.risk.measures import RiskMeasure

DEFAULT_AGENT = Adaptive()
PARSERS = tyro.constructors.ConstructorRegistry()
"""How tyro reads the types that it does not know."""

SHORT = ("risk", "discount", "subject_to")
"""Fields of an agent that are also options without "agent."."""


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """The options of `riskpath train`."""

    env: str = "RiskyGrid"
    """The problem: one that `riskpath envs` lists, any Gymnasium id such as CartPole-v1, or MODULE:NAME for an
    environment that the import of a module registers."""
    agent: str = type(DEFAULT_AGENT).__name__
    """The algorithm: adaptive, tql, iqn, qrdqn, c51, cvar-drl or qrsrm; for continuous actions adaptive-continuous,
    tql-continuous, iqtd3 or dsac; for both ppo; `riskpath agents` describes them."""
    fields: Annotated[Agent, tyro.conf.arg(name="agent")] = DEFAULT_AGENT
    """Hyperparameters of the agent. Choose the agent first: `riskpath train --agent iqn --help`."""
    steps: int = 30_000
    """Environment steps for each seed."""
    seeds: int = 8
    """Number of seeds, trained side by side."""
    num_envs: int = 1
    """Environments for each seed."""
    seed: int = 0
    """Seed of all randomness."""
    workers: str | None = None
    """Who steps Gymnasium environments: "processes" (one for each), "ray" (the Ray cluster of this machine) or the
    address of a Ray cluster, HOST:PORT; by default this process."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD=VALUE")] = ()
    """Fields of the problem to change, for example forks=5 p_yellow=0.8."""
    out: Path | None = None
    """A new folder for the run itself (`riskpath evaluate` and `resume` read it), config.json, log.jsonl, and
    result.json with the values and learning curves of every seed."""
    overwrite: bool = False
    """Replace a run that is in the folder already."""
    checkpoint_every: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 300.0
    """With --out: save the run when this time has passed since the last save."""
    checkpoint_steps: Annotated[int | None, tyro.conf.arg(metavar="STEPS")] = None
    """With --out: also save the run after a chunk of training (a tenth of the run, or less) in which it has passed a
    multiple of this number of steps."""
    log: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TRACKER")] = ()
    """Also log to tensorboard, wandb (offline) or mlflow (a local store), in a folder of this name inside of --out, or
    of "runs" without it."""
    config: Path | None = None
    """A file like the config.json that --out writes: these options by name, those of the agent under "fields". An
    option on the command line takes precedence."""


@PARSERS.primitive_rule
def _one_word(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """Read a risk measure, an optimiser of Optax or a float hyperparameter from one word.

    A float hyperparameter is an array only inside of a compiled program; some may be "None".
    """
    kind, optional = info.type, info.type == float | Array | None
    read: Callable[[str], Any]
    if isinstance(kind, type) and issubclass(kind, RiskMeasure):
        metavar, read, fits = "RISK", parse_risk, lambda value: isinstance(value, RiskMeasure)
    elif kind == Transformation:
        metavar, read, fits = "OPTIMISER", str, lambda value: isinstance(value, str) or callable(value)
    elif optional or kind == float | Array:
        metavar = "{None}|FLOAT" if optional else "FLOAT"
        read = lambda word: None if optional and word == "None" else float(word)
        fits = lambda value: isinstance(value, int | float) or (optional and value is None)
    else:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0]),
        is_instance=fits,
        str_from_instance=lambda value: [str(value)],
    )


_own_rule = True
"""False while tyro's own rule is asked."""


@PARSERS.struct_rule
def _hyperparameters(info: tyro.constructors.StructTypeInfo) -> tyro.constructors.StructConstructorSpec | None:
    """Add short names to the fields of agents, networks and training: --agent.window is --agent.network.window.

    Other parts have none: the actor has a learning rate as the critics have.
    """
    if not (_own_rule and isinstance(info.type, type) and issubclass(info.type, (Agent, Network, BaseTraining))):
        return None
    if (spec := _tyro_spec(info)) is None:
        return None
    return dataclasses.replace(spec, fields=tuple(_with_alias(info, field) for field in spec.fields))


def _tyro_spec(info: tyro.constructors.StructTypeInfo) -> tyro.constructors.StructConstructorSpec | None:
    """Return what tyro's own rule for dataclasses makes of a class."""
    global _own_rule
    _own_rule = False
    try:
        spec = tyro.constructors.ConstructorRegistry.get_struct_spec(info)
    finally:
        _own_rule = True
    return spec if isinstance(spec, tyro.constructors.StructConstructorSpec) else None


def _with_alias(
    info: tyro.constructors.StructTypeInfo, field: tyro.constructors.StructFieldSpec
) -> tyro.constructors.StructFieldSpec:
    if not issubclass(info.type, Agent):
        aliases = (f"--agent.{field.name.replace('_', '-')}",)
    elif field.name in SHORT:
        aliases = (f"--{field.name.replace('_', '-')}",)
    else:
        return field
    annotated: Any = Annotated[field.type, tyro.conf.arg(aliases=aliases)]
    return dataclasses.replace(field, type=annotated, helptext=lambda: _help(info, field.name))


def _help(info: tyro.constructors.StructTypeInfo, name: str) -> str | None:
    """Return the docstring of a field, from the base class if a class only changes its default."""
    for kind in info.type.__mro__:
        if name not in getattr(kind, "__dataclass_fields__", {}):
            continue
        for field in getattr(_tyro_spec(dataclasses.replace(info, type=kind)), "fields", ()):
            text: Any = field.helptext() if callable(field.helptext) else field.helptext
            if field.name == name and text:
                return text
    return None


def agent_options(agent: Agent) -> list[str]:
    """Return the options of an agent in their short form."""
    names = []
    for field in dataclasses.fields(agent):
        part, prefix = getattr(agent, field.name), "" if field.name in ("network", "training") else f"{field.name}."
        inner = dataclasses.fields(part) if isinstance(part, Hyperparameters) else ()
        names += [f"{prefix}{one.name}" for one in inner] or [field.name]
    options = [f"--agent.{name.replace('_', '-')}" for name in names if name not in SHORT]
    return [f"--{name.replace('_', '-')}" for name in SHORT if hasattr(agent, name)] + options
