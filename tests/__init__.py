"""Tests, which mirror the package; its annotations are checked while they run."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from beartype import BeartypeConf, beartype

_COMPILED: dict[Any, tuple[Callable[..., Any], list[Any]]] = {}
"""Functions with checks, and their annotations, which are known by where they are in memory and so are kept."""


def beartyped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose arguments and result beartype checks.

    Its checks are compiled when it is called for the first time, and once for all functions that one definition inside
    of another function makes: to compile those of the whole package takes seconds in every process of a test run.
    """
    compiled: Callable[..., Any] | None = None

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        nonlocal compiled
        if compiled is None:
            compiled = _compile(function)
        return compiled(*args, **kwargs)

    return checked


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what beartype makes of a function of jaxtyping's, which does nothing, so that its signature is all."""
    hints = function.__annotations__
    optional = len(function.__defaults__ or ()), *(function.__kwdefaults__ or ())
    key = function.__module__, function.__qualname__, optional, *hints, *map(id, hints.values())
    if key not in _COMPILED:
        kept = list(hints.values())
        _COMPILED[key] = beartype(conf=BeartypeConf(is_pep484_tower=True))(function), kept
    return _COMPILED[key][0]
