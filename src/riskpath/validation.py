"""Checks of numbers in a user's input. A wrong number is refused at once, in one line that names it."""

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np

from riskpath.errors import RiskpathError, short_repr

LARGEST = float(np.finfo(np.float32).max)
"""The largest number that a network can represent."""
MOST = 2**62
"""Counts beyond this one are refused: arrays and compiled programs have no larger whole numbers."""


def fields(thing: Any, *names: str) -> dict[str, Any]:
    """Return the named fields of an object, ready for one of the checks below."""
    return {name: getattr(thing, name) for name in names}


def given(**values: Any) -> dict[str, Any]:
    """Return the values that are not None, for fields where None means "not set"."""
    return {name: value for name, value in values.items() if value is not None}


def require_whole(**values: Any) -> None:
    """Require whole numbers. A float such as 1e5 and a bool are refused."""
    for name, value in values.items():
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise RiskpathError(f"{name} must be a whole number, got {short_repr(value)}")


def require_counts(least: int = 1, /, **counts: Any) -> None:
    """Require whole numbers that are at least `least`."""
    require_whole(**counts)
    for name, value in counts.items():
        if value < least:
            raise RiskpathError(f"{name} must be at least {least}, got {short_repr(value)}")
        if value > MOST:
            raise RiskpathError(f"{name} must be at most {MOST:,}, got {short_repr(value, 30)}")


def require_positive(**values: Any) -> None:
    """Require numbers above 0, for rates and scales."""
    _require(values, "more than 0", lambda value: value > 0)


def require_no_less_than_zero(**values: Any) -> None:
    """Require numbers from 0 on, for learning rates: 0 switches learning off."""
    _require(values, "at least 0", lambda value: value >= 0)


def require_share(**values: Any) -> None:
    """Require numbers from 0 to 1, for probabilities and shares."""
    _require(values, "from 0 to 1", lambda value: 0 <= value <= 1)


def require_finite(**values: Any) -> None:
    """Require finite numbers, for rewards and costs."""
    _require(values, "a finite number", math.isfinite)


def as_numbers(values: Any, what: str) -> np.ndarray:
    """Return an array of finite numbers."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise RiskpathError(f"{what} must consist of numbers, got {short_repr(values, 60)}")
    if array.dtype.kind == "f" and not (np.abs(array) <= LARGEST).all():
        wrong = array[~(np.abs(array) <= LARGEST)].ravel()[0]
        raise RiskpathError(f"{what} must consist of finite numbers, got {wrong}")
    return array


def as_parameter(value: Any) -> Any:
    """Return a number as a float, because only floats may differ between lanes; leave arrays as they are."""
    return as_float(value) if isinstance(value, Real) and not isinstance(value, bool) else value


def as_float(value: Any) -> float:
    """Return a float; a whole number that is too large for one is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def require_widths(**tuples: Any) -> None:
    """Require tuples of positive whole numbers, for the sizes of layers."""
    for name, widths in tuples.items():
        if not isinstance(widths, tuple) or any(not isinstance(width, int) or width < 1 for width in widths):
            raise RiskpathError(f"{name} must be a tuple of whole numbers, for example (64,); got {short_repr(widths)}")


def _require(values: dict[str, Any], accepted: str, good: Callable[[float], bool]) -> None:
    """Require numbers of a kind.

    Arrays pass as they are: during training the float fields of an agent are arrays, whose values may be unknown.
    """
    for name, value in values.items():
        if not (isinstance(value, Real) and not isinstance(value, bool)) and not hasattr(value, "dtype"):
            raise RiskpathError(f"{name} must be a number, got {short_repr(value)}")
        if isinstance(value, Real) and not good(number := as_float(value)):
            raise RiskpathError(f"{name} must be {accepted}, got {number:g}")
