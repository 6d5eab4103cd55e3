"""Gymnasium spaces as plain data, so that exported policies read and write their elements without Gymnasium.

    {"space": "Dict", "parts": {"place": {"space": "Box", "shape": [2], "dtype": "float32"}, …}}
    {"space": "Tuple", "parts": [{"space": "MultiDiscrete", "sizes": [3, 2], "start": [0, 0], "shape": [2], …}, …]}

`Discrete`, `MultiDiscrete` and `MultiBinary` are choices: each has a size and a smallest number.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from riskpath.errors import RiskpathError, short_repr
from riskpath.extras import needs_extra
from riskpath.validation import as_numbers

PlainSpace = dict[str, Any]


def describe_space(space: Any) -> PlainSpace:
    """Return a space as plain data; needs Gymnasium."""
    with needs_extra("gymnasium", "a Gymnasium environment"):
        from gymnasium import spaces
    if isinstance(space, spaces.Dict):
        return {"space": "Dict", "parts": {key: describe_space(part) for key, part in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"space": "Tuple", "parts": [describe_space(part) for part in space.spaces]}
    about = {"shape": list(space.shape or ()), "dtype": np.dtype(space.dtype).name}
    if isinstance(space, spaces.Discrete):
        return {"space": "Discrete", "sizes": [int(space.n)], "start": [int(space.start)], **about}
    if isinstance(space, spaces.MultiDiscrete):
        sizes, start = (np.ravel(numbers).tolist() for numbers in (space.nvec, space.start))
        return {"space": "MultiDiscrete", "sizes": sizes, "start": start, **about}
    if isinstance(space, spaces.MultiBinary):
        count = math.prod(space.shape)
        return {"space": "MultiBinary", "sizes": [2] * count, "start": [0] * count, **about}
    return {"space": "Box", **about}


def parts_of(space: PlainSpace) -> list[tuple[Any, PlainSpace]]:
    """Return the names, or the numbers, and the spaces that a `Dict` or a `Tuple` consists of."""
    return list(space["parts"].items() if space["space"] == "Dict" else enumerate(space["parts"]))


def choice_sizes(space: PlainSpace) -> list[int]:
    """Return the number of options of each choice in a space of choices."""
    return space["sizes"] if "sizes" in space else [n for _, part in parts_of(space) for n in choice_sizes(part)]


def choice_numbers(space: PlainSpace, element: Any, what: str = "an action") -> list[int]:
    """Return the number of every choice in an element, from 0 on: the inverse of `build_element`."""
    if "parts" in space:
        return [n for part, own in _split(space, element, what) for n in choice_numbers(part, own, what)]
    numbers = _leaf(space, element, what).ravel() - np.array(space["start"])
    if not ((numbers >= 0) & (numbers < space["sizes"]) & (np.mod(numbers, 1) == 0)).all():
        raise RiskpathError(f"{what} has {_range(space)}, got {short_repr(element, 60)}")
    return [int(number) for number in numbers]


def build_element(space: PlainSpace, numbers: np.ndarray) -> Any:
    """Return the element that some numbers stand for, or a batch of elements.

    Args:
        space: The space.
        numbers: The number of every choice from 0 on, [..., choices]; of a `Box` its entries, [..., *shape].
    """
    if "parts" in space:
        ends = np.cumsum([len(choice_sizes(part)) for _, part in parts_of(space)])[:-1]
        parts = [
            (name, build_element(part, own))
            for (name, part), own in zip(parts_of(space), np.split(numbers, ends, axis=-1), strict=True)
        ]
        return dict(parts) if space["space"] == "Dict" else tuple(part for _, part in parts)
    if "sizes" in space:
        numbers = (numbers + np.array(space["start"])).reshape((*numbers.shape[:-1], *space["shape"]))
    return numbers.astype(space["dtype"])[()]


def flatten_element(space: PlainSpace, element: Any, what: str = "an observation") -> np.ndarray:
    """Return an element as a vector, as `gymnasium.spaces.flatten` does: choices of several options are one-hot."""
    if "parts" in space:
        return np.concatenate([flatten_element(part, own, what) for part, own in _split(space, element, what)])
    if space["space"] == "Box":
        return _leaf(space, element, what).ravel().astype(np.float32)
    numbers = choice_numbers(space, element, what)
    if space["space"] == "MultiBinary":
        return np.array(numbers, np.float32)
    return np.concatenate([np.eye(size, dtype=np.float32)[n] for n, size in zip(numbers, space["sizes"], strict=True)])


def unstack(space: PlainSpace, batch: Any) -> list[Any]:
    """Return the elements of a batch, as vector environments return it: a `Dict` or `Tuple` of arrays."""
    if "parts" not in space:
        return list(batch)
    columns = [unstack(part, own) for part, own in _split(space, batch, "an observation")]
    rows = zip(*columns, strict=True)
    return [dict(zip(space["parts"], row, strict=True)) if space["space"] == "Dict" else row for row in rows]


def _split(space: PlainSpace, element: Any, what: str) -> list[tuple[PlainSpace, Any]]:
    """Return the parts of a `Dict` or a `Tuple` with what an element has of them."""
    parts = parts_of(space)
    if space["space"] == "Dict":
        if not isinstance(element, Mapping) or set(element) != {name for name, _ in parts}:
            names = ", ".join(str(name) for name, _ in parts)
            raise RiskpathError(f"{what} must have the parts {names}, got {short_repr(element, 60)}")
    elif not isinstance(element, list | tuple) or len(element) != len(parts):
        raise RiskpathError(f"{what} must have {len(parts)} parts, got {short_repr(element, 60)}")
    return [(part, element[name]) for name, part in parts]


def _leaf(space: PlainSpace, element: Any, what: str) -> np.ndarray:
    """Return the numbers of an element that has no parts."""
    array = as_numbers(element, what)
    if array.shape != tuple(space["shape"]):
        raise RiskpathError(f"{what} has a {space['space']} of shape {tuple(space['shape'])}, got {array.shape}")
    return array


def _range(space: PlainSpace) -> str:
    firsts, sizes = space["start"], space["sizes"]
    if len(sizes) == 1:
        return f"a number from {firsts[0]} to {firsts[0] + sizes[0] - 1}"
    return f"numbers from {firsts} to {[first + size - 1 for first, size in zip(firsts, sizes, strict=True)]}"
