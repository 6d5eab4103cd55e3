"""Hyperparameters that make no sense are refused when they are given, in one line.

Only plain numbers are looked at: while agents are trained, float fields are arrays.
"""

from typing import Any

from riskpath.errors import RiskpathError


def require_whole(thing: Any, least: int, *names: str) -> None:
    """Counts and sizes."""
    for name in names:
        value = getattr(thing, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise RiskpathError(f"{name} must be a whole number, at least {least}; got {value!r}")


def require_positive(thing: Any, *names: str) -> None:
    """Rates and scales."""
    for name in names:
        if (value := _number(thing, name)) is not None and not value > 0:
            raise RiskpathError(f"{name} must be more than 0; got {value:g}")


def require_no_less_than_zero(thing: Any, *names: str) -> None:
    """Step sizes: at 0 nothing is learned, which may be wanted."""
    for name in names:
        if (value := _number(thing, name)) is not None and not value >= 0:
            raise RiskpathError(f"{name} must be at least 0; got {value:g}")


def require_share(thing: Any, *names: str) -> None:
    """Probabilities and the like."""
    for name in names:
        if (value := _number(thing, name)) is not None and not 0 <= value <= 1:
            raise RiskpathError(f"{name} must be from 0 to 1; got {value:g}")


def _number(thing: Any, name: str) -> int | float | None:
    """A plain number, or nothing to look at."""
    value = getattr(thing, name)
    if isinstance(value, str | bool | None | list | tuple):
        raise RiskpathError(f"{name} must be a number, got {value!r}")
    return value if isinstance(value, int | float) else None


def require_widths(name: str, widths: Any) -> None:
    """A tuple of sizes."""
    if not isinstance(widths, tuple) or any(not isinstance(width, int) or width < 1 for width in widths):
        raise RiskpathError(f"{name} must be a tuple of whole numbers, for example (64,); got {widths!r}")
