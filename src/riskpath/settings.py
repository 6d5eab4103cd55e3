"""Settings of agents and environments as text: those that differ from the defaults, or all of them."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.core import Tracer


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


def setting_text(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, float | jax.Array | np.ndarray) and not isinstance(value, Tracer) and np.ndim(value) == 0:
        return f"{float(value):g}"
    return " ".join(str(value).split())


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
