"""Agents, environments and problems as JSON and back: the same types and the same bits, and nothing is ever executed.

A class is looked up among those of this library, never imported by its name; what is not among them cannot be made.
"""

import dataclasses
import inspect
import math
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from riskpath.envs.environment import FiniteEnvironment, finite
from riskpath.mdp.model import FiniteMDP, Outcome

_MODULES = ("agents.agent", "agents.actor_critic", "agents.cvar_drl", "agents.iqn", "agents.iqtd3", "agents.tql")
_MODULES += ("agents.tql_continuous", "envs.mountain_car", "envs.risky_grid", "envs.three_state", "risk.measures")
_MODULES += ("risk.compose", "risk.tabulated", "training.run", "types")
_CLASSES: dict[str, Any] = {
    f"{kind.__module__}.{kind.__qualname__}": kind
    for module in _MODULES
    for kind in vars(import_module(f"riskpath.{module}")).values()
    if isinstance(kind, type) and kind.__module__ == f"riskpath.{module}" and not inspect.isabstract(kind)
    if dataclasses.is_dataclass(kind) or issubclass(kind, tuple)
}
"""All that a header may name."""
_NUMBERS = {"bool", "float16", "float32", "float64", *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64))}
"""Types of the numbers that a header may hold."""


class Unknown(Exception):
    """A header names something that this library does not know how to make."""


def encode(value: Any) -> Any:
    """A value as JSON: `decode` makes the same types and bits of it, or says which class it cannot make."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if value is None or kind in (bool, int, str) or (kind is float and math.isfinite(value)):
        return value
    if kind is float:
        return {"$float": repr(value)}
    if kind is list:
        return [encode(part) for part in value]
    if kind is tuple:
        return {"$tuple": [encode(part) for part in value]}
    if kind is dict:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: encode(part) for key, part in value.items()}
        return {"$dict": [[encode(key), encode(part)] for key, part in value.items()]}
    if isinstance(value, jax.Array | np.ndarray | np.generic) and str(value.dtype) in _NUMBERS:
        of = "jax" if isinstance(value, jax.Array) else "array" if isinstance(value, np.ndarray) else "number"
        numbers = encode(np.asarray(value).tolist())
        return {"$numbers": numbers, "of": of, "dtype": str(value.dtype), "shape": list(value.shape)}
    if isinstance(value, FiniteEnvironment) and value.problem is not None:
        return {"$finite": value.problem.name, **_encode_problem(value.problem)}  # its arrays follow from it
    if dataclasses.is_dataclass(value) or name in _CLASSES:
        return {"$class": name, **{field: encode(getattr(value, field)) for field in _fields(kind)}}
    return {"$object": name}


def decode(value: Any) -> Any:
    """The inverse of `encode`."""
    match value:
        case list():
            return [decode(part) for part in value]
        case {"$float": text}:
            return float(text)
        case {"$tuple": parts}:
            return tuple(decode(part) for part in parts)
        case {"$dict": pairs}:
            return {decode(key): decode(part) for key, part in pairs}
        case {"$numbers": numbers, "of": of, "dtype": dtype, "shape": shape} if dtype in _NUMBERS:
            array = np.array(decode(numbers), dtype).reshape(shape)
            return jnp.asarray(array, dtype) if of == "jax" else array if of == "array" else array[()]
        case {"$finite": name, **table}:
            return finite(_decode_problem(name, table))
        case {"$class": name, **fields} if name in _CLASSES:
            return _remake(_CLASSES[name], {field: decode(part) for field, part in fields.items()})
        case {"$class": name} | {"$object": name}:
            raise Unknown(name)
        case dict():
            return {key: decode(part) for key, part in value.items()}
        case _:
            return value


def _fields(kind: Any) -> list[str]:
    """Of a dataclass or a named tuple."""
    return list(getattr(kind, "_fields", None) or kind.__dataclass_fields__)


def _remake(kind: Any, values: dict[str, Any]) -> Any:
    """An instance with these fields, checked as a new one is; a class may take other things than its fields."""
    if issubclass(kind, tuple):
        return kind(**values)
    made = object.__new__(kind)
    for field in dataclasses.fields(kind):  # a field that is younger than the file has its default
        object.__setattr__(made, field.name, values.pop(field.name, field.default))
        if getattr(made, field.name) is dataclasses.MISSING:
            raise ValueError(f"{kind.__name__} needs {field.name}")
    if values:
        raise ValueError(f"{kind.__name__} has no {', '.join(values)}")
    for part in kind.__mro__:
        if "__check_init__" in vars(part):
            part.__check_init__(made)
    return made


def _encode_problem(problem: FiniteMDP) -> dict[str, Any]:
    """States and actions once, in order of appearance, and outcomes by their numbers."""
    states: dict[Any, int] = {}
    number = lambda state: states.setdefault(state, len(states))  # noqa: E731
    outcomes = [
        [number(state), encode(action), [[o.prob, o.reward, number(o.next)] for o in listed]]
        for state, actions in problem.outcomes.items()
        for action, listed in actions.items()
    ]
    start = [[number(state), prob] for state, prob in problem.start.items()]
    rest = {"discount": problem.discount, "horizon": problem.horizon}
    return {**rest, "start": start, "outcomes": outcomes, "states": [encode(state) for state in states]}


def _decode_problem(name: str, table: dict[str, Any]) -> FiniteMDP:
    states: list[Any] = [decode(state) for state in table["states"]]
    start = {states[number]: prob for number, prob in table["start"]}
    rest = {"discount": table["discount"], "horizon": table["horizon"], "name": name}
    outcomes: dict[Any, dict[Any, tuple[Outcome, ...]]] = {}
    for number, action, listed in table["outcomes"]:
        made = tuple(Outcome(prob, reward, states[following]) for prob, reward, following in listed)
        outcomes.setdefault(states[number], {})[decode(action)] = made
    flat = {(state, action): listed for state, actions in outcomes.items() for action, listed in actions.items()}
    FiniteMDP.from_outcomes(flat, start, **rest)  # checks, but divides by the sums again, which may change a bit
    return FiniteMDP(outcomes, start, **rest)
