"""One registry of classes: agents, risk measures, environments and their configurations register when they are defined.

The command line lists them, and loading looks classes up here by name; a file never says which code to import.
"""

import inspect
from typing import Any, TypeVar

T = TypeVar("T")

CLASSES: dict[str, type[Any]] = {}
"""Every registered class by its full name, `module.qualname`."""


class Registered:
    """Registers every subclass under its full name."""

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if not cls.__module__.startswith("equinox"):  # Equinox derives helper classes of its own
            CLASSES[full_name(cls)] = cls


def full_name(cls: type[Any]) -> str:
    """Return the name under which a class is registered."""
    return f"{cls.__module__}.{cls.__qualname__}"


def concrete(base: type[T]) -> dict[str, type[T]]:
    """Return the registered, non-abstract subclasses of a class by their short names; the latest definition counts."""
    return {cls.__name__: cls for cls in CLASSES.values() if issubclass(cls, base) and not inspect.isabstract(cls)}


def simplify(name: str) -> str:
    """Return a name in lower case without dashes and underscores, so that "cvar-drl" matches "CVaRDRL"."""
    return name.lower().replace("-", "").replace("_", "")


def register(cls: type[T]) -> type[T]:
    """Register a class that cannot derive from `Registered`, such as a named tuple."""
    CLASSES[full_name(cls)] = cls
    return cls
