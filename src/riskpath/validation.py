"""Numbers that make no sense are refused when they are given, in one line that names them."""

from numbers import Integral
from typing import Any

from riskpath.errors import RiskpathError


def fields(thing: Any, *names: str) -> dict[str, Any]:
    """Some fields by their names, to be checked."""
    return {name: getattr(thing, name) for name in names}


def require_whole(**values: Any) -> None:
    """Whole numbers; 1e5 is none."""
    for name, value in values.items():
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise RiskpathError(f"{name} must be a whole number, got {value!r}")


def given(**values: Any) -> dict[str, Any]:
    """Those that were said, where None is allowed for what was not."""
    return {name: value for name, value in values.items() if value is not None}


def require_counts(least: int = 1, /, **counts: Any) -> None:
    """Whole numbers and at least so many."""
    require_whole(**counts)
    for name, value in counts.items():
        if value < least:
            raise RiskpathError(f"{name} must be at least {least}, got {value}")


def require_positive(**values: Any) -> None:
    """Rates and scales."""
    for name, value in _plain(values).items():
        if not value > 0:
            raise RiskpathError(f"{name} must be more than 0, got {value:g}")


def require_no_less_than_zero(**values: Any) -> None:
    """Step sizes: at 0 nothing is learned, which may be wanted."""
    for name, value in _plain(values).items():
        if not value >= 0:
            raise RiskpathError(f"{name} must be at least 0, got {value:g}")


def require_share(**values: Any) -> None:
    """Probabilities and the like."""
    for name, value in _plain(values).items():
        if not 0 <= value <= 1:
            raise RiskpathError(f"{name} must be from 0 to 1, got {value:g}")


def require_widths(**tuples: Any) -> None:
    """Sizes of layers."""
    for name, widths in tuples.items():
        if not isinstance(widths, tuple) or any(not isinstance(width, int) or width < 1 for width in widths):
            raise RiskpathError(f"{name} must be a tuple of whole numbers, for example (64,); got {widths!r}")


def _plain(values: dict[str, Any]) -> dict[str, float]:
    """Those that are plain numbers: while agents are trained, float fields are arrays, and nothing to look at."""
    for name, value in values.items():
        if isinstance(value, str | bool | None | list | tuple):
            raise RiskpathError(f"{name} must be a number, got {value!r}")
    return {name: value for name, value in values.items() if isinstance(value, int | float)}
