"""The version, and names that change after 1.0: the old one goes on working for a while, and says what to use instead.

A module with former names ends with `__getattr__ = former_names(__name__, FORMER)`; a function whose argument has a new
name is decorated with `@former_arguments(old=Former("new", since="1.1", until="1.3"))`.
"""

import functools
import platform
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from riskpath.errors import RiskpathError

P = ParamSpec("P")
T = TypeVar("T")

__version__ = "1.0.0rc1"


def versions() -> dict[str, str]:
    """Return the versions that are recorded with a result."""
    import jax  # it takes a second, which `riskpath --version` does not need

    return {"riskpath": __version__, "jax": jax.__version__, "python": platform.python_version()}


@dataclass(frozen=True)
class Former:
    """A name that has changed."""

    new: str
    """The name to use, in the same module or function."""
    since: str
    """The version that changed it."""
    until: str
    """The version that removes the old name, at least two minor versions later."""

    def warn(self, old: str) -> None:
        """Warn where the name is used."""
        changed = f"{old} is called {self.new} since riskpath {self.since}"
        warnings.warn(f"{changed}; the old name ends with {self.until}", DeprecationWarning, stacklevel=3)


def former_names(module: str, names: Mapping[str, Former]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module whose names have changed."""

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        names[name].warn(f"{module}.{name}")
        return getattr(sys.modules[module], names[name].new)

    return find


def former_arguments(**names: Former) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator of a function whose keyword arguments have changed."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            for old in names.keys() & kwargs.keys():
                names[old].warn(f"the argument {old} of {function.__name__}")
                if names[old].new in kwargs:
                    raise RiskpathError(f"{function.__name__} got {old} and {names[old].new}, which are the same")
                kwargs[names[old].new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate
