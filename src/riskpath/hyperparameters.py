"""Hyperparameters: modules that refuse unknown names in one line, and whose parts keep an agent's own defaults.

`rp.Adaptive(training=rp.Training(decay_steps=1e4))` changes one field. The others stay those of `Adaptive`, which are
not those of `rp.Training()`. So a module remembers which of its fields were given.
"""

import inspect
import weakref
from dataclasses import replace
from typing import Any, TypeVar

import equinox as eqx

from riskpath.errors import RiskpathError, did_you_mean
from riskpath.registry import Registered
from riskpath.settings import changed_settings, describe_settings

T = TypeVar("T")
_GIVEN: dict[int, tuple[str, ...]] = {}
"""The fields that were given to each module that exists, by its id. An attribute would make equal modules differ."""


class Hyperparameters(eqx.Module, Registered):
    """A module of hyperparameters that answers a misspelt or misplaced field in one line."""

    def __new__(cls, *args: Any, **kwargs: Any):
        """Refuse unknown fields, and remember the given ones."""
        fields, accepted = cls.__dataclass_fields__, list(inspect.signature(cls.__init__).parameters)[1:]
        for name in kwargs:
            if name not in fields and name not in accepted:
                hint = _part_of(cls, name) or did_you_mean(name, fields)
                raise RiskpathError(f"{cls.__name__} has no field {name!r}{hint}")
        module = super().__new__(cls)
        _GIVEN[id(module)] = (*accepted[: len(args)], *kwargs)
        weakref.finalize(module, _GIVEN.pop, id(module), None)
        return module

    def __repr__(self) -> str:
        return changed_settings(self)

    def describe(self) -> str:
        """Return all settings as a table; those that differ from the default name it."""
        return describe_settings(self)


def completed(module: T, default: T) -> T:
    """Return a default with those fields replaced that were given to a module of the same class."""
    given = _GIVEN.get(id(module))
    if given is None or type(module) is not type(default):  # a copy that JAX made is complete
        return module
    return replace(default, **{name: getattr(module, name) for name in given})  # pyright: ignore[reportArgumentType]


def _part_of(cls: Any, name: str) -> str:
    """Return where a field belongs, if it is one of a part such as `training`."""
    for part, field in cls.__dataclass_fields__.items():
        kind = type(field.default)
        if issubclass(kind, Hyperparameters) and name in kind.__dataclass_fields__:
            return f"; give {part}=rp.{kind.__name__}({name}=…)"
    return ""
