"""Hyperparameters: modules that refuse unknown names in one line, and whose parts keep an agent's own defaults.

Below them: their settings as text, those that differ from the defaults or all of them, and as JSON.

`rp.Adaptive(training=rp.Training(decay_ends=1.0))` changes one field. The others stay those of `Adaptive`, which are
not those of `rp.Training()`. So a module remembers which of its fields were given.
"""

import dataclasses
import inspect
import weakref
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar, get_args

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from riskpath.errors import RiskpathError, did_you_mean
from riskpath.registry import Registered

T = TypeVar("T")
_GIVEN: dict[int, tuple[str, ...]] = {}
"""The fields that were given to each module that exists, by its id. An attribute would make equal modules differ."""


class Hyperparameters(eqx.Module, Registered):
    """A module of hyperparameters that refuses a misspelt or misplaced field in one line."""

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

    def __getstate__(self) -> tuple[dict[str, Any], tuple[str, ...] | None]:
        return vars(self), _GIVEN.get(id(self))

    def __setstate__(self, state: tuple[dict[str, Any], tuple[str, ...] | None]) -> None:
        """Make a copy, for example on another machine, that knows which fields were given."""
        values, given = state
        vars(self).update(values)
        _GIVEN.pop(id(self), None)
        if given is not None:
            _GIVEN[id(self)] = given

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


def replace_fields(module: T, changes: Mapping[str, Any], unknown: Callable[[str, list[str]], Exception]) -> T:
    """Return a module with fields replaced; a mapping replaces fields of a part.

    Lists become tuples, and whole numbers floats where the field is one. `unknown` makes the error for a name that the
    module does not have, from the name and those that it has.
    """
    of: Any = module
    fields = {f.name: f for f in dataclasses.fields(of) if f.init} if hasattr(of, "__dataclass_fields__") else {}
    values: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in fields:
            raise unknown(name, list(fields))
        old, kinds = getattr(module, name), (fields[name].type, *get_args(fields[name].type))
        if isinstance(value, Mapping) and (is_dataclass(old) or not isinstance(old, Mapping)):
            value = replace_fields(old, value, unknown)
        elif isinstance(value, list):
            value = tuple(value)
        elif isinstance(value, int) and not isinstance(value, bool) and float in kinds:
            value = float(value)
        values[name] = value
    return replace(of, **values)


def _part_of(cls: Any, name: str) -> str:
    """Return where a field belongs, if it is one of a part such as `training`."""
    for part, field in cls.__dataclass_fields__.items():
        kind = type(field.default)
        if issubclass(kind, Hyperparameters) and name in kind.__dataclass_fields__:
            return f"; give {part}=rp.{kind.__name__}({name}=…)"
    return ""


def flat_settings(value: Any, name: str = "") -> dict[str, str]:
    """Return all settings by name, those of the network and of training with their own names."""
    if not _has_parts(value):
        return {name: setting_text(value)}
    settings: dict[str, str] = {}
    for part in dataclasses.fields(value):
        settings |= flat_settings(getattr(value, part.name), f"{name}.{part.name}" if name else part.name)
    return settings


def changed_settings(value: Any, default: Any = dataclasses.MISSING) -> str:
    """Return a thing and those of its settings that differ from a default, by default from that of its class."""
    parts = []
    for part in dataclasses.fields(value):
        own, usual = getattr(value, part.name), _default(part, default)
        if _same(own, usual):
            continue
        deeper = _has_parts(own) and type(own) is type(usual)
        parts.append(f"{part.name}={changed_settings(own, usual) if deeper else _as_argument(own)}")
    return f"{type(value).__name__}({', '.join(parts)})"


def describe_settings(value: Any) -> str:
    """Return a table of all settings; those that differ from the default of the class name it."""
    usual = {part.name: _default(part, dataclasses.MISSING) for part in dataclasses.fields(value)}
    defaults: dict[str, str] = {}
    for name, default in usual.items():
        defaults |= {} if default is dataclasses.MISSING else flat_settings(default, name)
    settings = flat_settings(value)
    widths = max(map(len, settings)), max(map(len, settings.values()))
    lines = []
    for name, text in settings.items():
        changed = f"  (default {defaults[name]})" if defaults.get(name, text) != text else ""
        lines.append(f"  {name:{widths[0]}}  {text:{widths[1]}}{changed}".rstrip())
    return "\n".join([type(value).__name__, *lines])


def plain(value: Any) -> Any:
    """Return settings and numbers as JSON has them: modules as objects, measures by their texts, arrays as lists."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if _has_parts(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if dataclasses.is_dataclass(value):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else setting_text(value) if callable(value) else value


def setting_text(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, float | jax.Array | np.ndarray) and not isinstance(value, Tracer) and np.ndim(value) == 0:
        return f"{float(value):g}"
    return " ".join(str(getattr(value, "__qualname__", value)).split())  # the name of a function


def _as_argument(value: Any) -> str:
    """Return a value as it is given to a class: texts, and measures by their texts, in quotation marks."""
    by_text = isinstance(value, str) or (dataclasses.is_dataclass(value) and not _has_parts(value))
    return repr(str(value)) if by_text else changed_settings(value) if _has_parts(value) else setting_text(value)


def _has_parts(value: Any) -> bool:
    """Tell whether a value consists of settings; one with a text of its own, such as a risk measure, does not."""
    return dataclasses.is_dataclass(value) and type(value).__str__ is object.__str__


def _default(part: Any, default: Any) -> Any:
    """Return the default of a field: that of the thing given, or of the class."""
    if default is not dataclasses.MISSING:
        return getattr(default, part.name)
    return part.default if part.default_factory is dataclasses.MISSING else part.default_factory()


def _same(value: Any, other: Any) -> bool:
    """Tell whether two settings are the same; arrays are compared by their numbers."""
    if other is dataclasses.MISSING or isinstance(value, Tracer):
        return False
    if _has_parts(value):
        return type(value) is type(other) and all(
            _same(getattr(value, part.name), getattr(other, part.name)) for part in dataclasses.fields(value)
        )
    return setting_text(value) == setting_text(other)
