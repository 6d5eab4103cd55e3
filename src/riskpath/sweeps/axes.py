"""The axes of a sweep: fields of the agent and of the environment by their paths, and all combinations of their values.

"risk.level" is a field of the agent's measure, "training.learning_rate" one of its training; "env.p_win" is a field of
the environment. "risk" and "env" replace the whole measure or environment.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from riskpath.agents.agent import Agent
from riskpath.envs import make
from riskpath.envs.environment import Environment
from riskpath.errors import RiskpathError, did_you_mean, in_one_line, short_repr
from riskpath.hyperparameters import Hyperparameters, replace_fields
from riskpath.risk.measures import RiskMeasure

ENV = "env"


@dataclasses.dataclass(frozen=True)
class Combination:
    """One value of every axis."""

    number: int
    """Its place among all combinations; the last axis changes fastest."""
    settings: dict[str, Any]
    """The values in plain words and numbers, by axis."""
    agent: Agent
    env: Any

    @property
    def name(self) -> str:
        return ", ".join(f"{axis}={value}" for axis, value in self.settings.items()) or "the agent as given"


def as_axes(over: Any) -> dict[str, list[Any]]:
    """Return the values of every axis as lists; refuse what is not a dictionary of lists."""
    if not isinstance(over, Mapping):
        raise RiskpathError(f'over must be a dictionary such as {{"risk.level": [0.1, 0.25]}}, got {short_repr(over)}')
    axes: dict[str, list[Any]] = {}
    for axis, values in over.items():
        if not isinstance(axis, str):
            raise RiskpathError(f'an axis is a text such as "risk.level", got {short_repr(axis)}')
        if isinstance(values, str | bytes | Mapping | RiskMeasure) or not hasattr(values, "__iter__"):
            raise RiskpathError(f"{axis} needs a list of values, got {short_repr(values)}")
        axes[axis] = [value.item() if hasattr(value, "item") else value for value in values]
        if not axes[axis]:
            raise RiskpathError(f"{axis} needs at least one value")
    return axes


def combinations(agent: Agent, env: Any, axes: Mapping[str, list[Any]]) -> list[Combination]:
    """Return all combinations of the values of the axes."""
    labels = {axis: [label(value) for value in values] for axis, values in axes.items()}
    for axis, texts in labels.items():
        if double := next((text for place, text in enumerate(texts) if text in texts[:place]), None):
            raise RiskpathError(f"{axis} has the value {double} twice")
    found = []
    for number, places in enumerate(itertools.product(*(range(len(values)) for values in axes.values()))):
        values = {axis: axes[axis][place] for axis, place in zip(axes, places, strict=True)}
        settings = {axis: labels[axis][place] for axis, place in zip(axes, places, strict=True)}
        found.append(Combination(number, settings, *_apply(agent, env, values)))
    return found


def _apply(agent: Agent, env: Any, values: dict[str, Any]) -> tuple[Agent, Any]:
    """Return the agent and the environment with one value of each axis; whole parts come before their fields."""
    for axis, value in sorted(values.items(), key=lambda item: item[0].count(".")):
        first, *names = axis.split(".")
        if first != ENV:
            agent = _replace(agent, [first, *names], value, axis, (agent, env))
        elif names:
            env = _replace(_with_fields(env, axis), names, value, axis, (agent, env))
        else:
            env = value
    return agent, env


def _with_fields(env: Any, axis: str) -> Environment:
    env = make(env) if isinstance(env, str) and "-v" not in env else env
    if not isinstance(env, Environment):
        raise RiskpathError(f"{axis} needs an environment with fields, such as rp.BettingGame(); got {short_repr(env)}")
    return env


def _replace(thing: Any, names: list[str], value: Any, axis: str, whole: tuple[Agent, Any]) -> Any:
    """Return a module with one of its fields, or of the fields of a part, replaced."""

    def unknown(*_: Any) -> RiskpathError:
        known = [*axes_of(*whole)]
        return RiskpathError(f"unknown axis {axis!r}{did_you_mean(axis, known)}; there are {', '.join(known)}")

    for name in reversed(names):
        value = {name: value}
    with in_one_line(axis):
        return replace_fields(thing, value, unknown)


def axes_of(agent: Agent, env: Any) -> Iterator[str]:
    """Yield every axis that an agent and an environment have."""
    for field in dataclasses.fields(agent):
        part = getattr(agent, field.name)
        if not isinstance(part, Hyperparameters):
            yield field.name
        if isinstance(part, Hyperparameters | RiskMeasure):
            yield from (f"{field.name}.{inner.name}" for inner in dataclasses.fields(part))
    yield ENV
    env = make(env) if isinstance(env, str) and "-v" not in env else env
    if isinstance(env, Environment):
        yield from (f"{ENV}.{field.name}" for field in dataclasses.fields(env))


def label(value: Any) -> Any:
    """Return a value of an axis in plain words and numbers, for tables."""
    if isinstance(value, list | tuple):
        return "x".join(str(label(part)) for part in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, RiskMeasure):
        return str(value)
    return short_repr(getattr(value, "name", None) or value, 80)
