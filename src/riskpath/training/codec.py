"""Encodes agents, environments and problems as JSON, and decodes them to the same types and the same bits.

Nothing is executed: a class is looked up in the registry, never imported by its name.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from riskpath.envs.finite import FiniteEnvironment, finite
from riskpath.errors import RiskpathError
from riskpath.mdp.model import FiniteMDP, Outcome
from riskpath.registry import CLASSES, full_name

_NUMBERS = {"bool", "float16", "float32", "float64", *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64))}
"""Number types that a header may contain."""


class UnknownClass(Exception):
    """A header names a class that is not registered."""


def encode(value: Any) -> Any:
    """Return a value as JSON; `decode` returns the same types and bits, or names the class it does not know."""
    kind = type(value)
    name = full_name(kind)
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
    if dataclasses.is_dataclass(value) or name in CLASSES:
        return {"$class": name, **{field: encode(getattr(value, field)) for field in _fields(kind)}}
    function = getattr(value, "__qualname__", None)
    return {"$object": f"function {function}" if function else name}


def encode_known(what: str, value: Any) -> Any:
    """Return a value as JSON; refuse in one line what cannot be decoded."""
    encoded = encode(value)
    try:
        decode(encoded)
    except UnknownClass as unknown:
        line = f"cannot save the run: {what} holds a {unknown}; use numbers, text, lists or arrays"
        raise RiskpathError(line) from None
    return encoded


def decode(value: Any) -> Any:
    """Return the value that `encode` encoded."""
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
        case {"$class": name, **fields} if name in CLASSES:
            return _remake(CLASSES[name], {field: decode(part) for field, part in fields.items()})
        case {"$class": name} | {"$object": name}:
            raise UnknownClass(name)
        case dict():
            return {key: decode(part) for key, part in value.items()}
        case _:
            return value


def _fields(kind: Any) -> list[str]:
    return list(getattr(kind, "_fields", None) or (field.name for field in dataclasses.fields(kind)))


def _remake(kind: Any, values: dict[str, Any]) -> Any:
    """Return an instance with these fields, with the checks of a new one; `__init__` may take other arguments."""
    if issubclass(kind, tuple):
        return kind(**values)
    made = object.__new__(kind)
    for field in dataclasses.fields(kind):  # a field that is newer than the file has its default
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
    """Encode states once, in order of appearance, and outcomes by their numbers."""
    states: dict[Any, int] = {}
    number = lambda state: states.setdefault(state, len(states))
    outcomes = [
        [number(state), encode(action), [[o.prob, o.reward, number(o.next)] for o in listed]]
        for state, actions in problem.outcomes.items()
        for action, listed in actions.items()
    ]
    start = [[number(state), prob] for state, prob in problem.start.items()]
    features = None if problem.features is None else [list(problem.features[state]) for state in states]
    rest = {"discount": problem.discount, "horizon": problem.horizon, "features": features}
    return {**rest, "start": start, "outcomes": outcomes, "states": [encode(state) for state in states]}


def _decode_problem(name: str, table: dict[str, Any]) -> FiniteMDP:
    states: list[Any] = [decode(state) for state in table["states"]]
    start = {states[number]: prob for number, prob in table["start"]}
    rest: dict[str, Any] = {"discount": table["discount"], "horizon": table["horizon"], "name": name}
    if table.get("features") is not None:  # files of earlier versions have none
        rest["features"] = {state: tuple(row) for state, row in zip(states, table["features"], strict=True)}
    outcomes: dict[Any, dict[Any, tuple[Outcome, ...]]] = {}
    for number, action, listed in table["outcomes"]:
        made = tuple(Outcome(prob, reward, states[following]) for prob, reward, following in listed)
        outcomes.setdefault(states[number], {})[decode(action)] = made
    flat = {(state, action): listed for state, actions in outcomes.items() for action, listed in actions.items()}
    FiniteMDP.from_outcomes(flat, start, **rest)  # checks, but divides by the sums again, which may change a bit
    return FiniteMDP(outcomes, start, **rest)
