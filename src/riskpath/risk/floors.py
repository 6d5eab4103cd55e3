"""Floors under risk measures: {"cvar:0.1": 50.0}, and their text "cvar:0.1=50"."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from riskpath.errors import RiskpathError, short_repr
from riskpath.risk.compose import parse_risk
from riskpath.risk.risk_measure import RiskMeasure, level_text


def read_floors(given: Any) -> list[tuple[RiskMeasure, float]]:
    """Return (measure, floor) pairs from {"cvar:0.1": 50.0}, or refuse them."""
    if not isinstance(given, Mapping) or not given:
        example = 'a dict such as {"cvar:0.1": 50.0}'
        raise RiskpathError(f"subject_to must be {example}, got {short_repr(given)}")
    pairs = []
    for measure, floor in given.items():
        if isinstance(floor, bool) or not isinstance(floor, int | float | np.number) or not np.isfinite(floor):
            raise RiskpathError(f"the floor of {measure} must be a finite number, got {short_repr(floor)}")
        pairs.append((parse_risk(measure), float(floor)))
    return pairs


def read_floor(text: str, option: str = "subject_to") -> tuple[RiskMeasure, float]:
    """Return the measure and the floor of a text such as "cvar:0.1=50"."""
    name, equals, number = text.rpartition("=")
    try:
        floor = float(number)
    except ValueError:
        floor = None
    if not equals or floor is None:
        raise RiskpathError(f"{option} needs RISK=FLOOR, for example cvar:0.1=50, got {text!r}")
    return read_floors({name: floor})[0]


def floor_text(given: Any) -> str | None:
    """Return the text of one floor, given as a text or as a dict."""
    if given is None:
        return None
    pairs = [read_floor(given)] if isinstance(given, str) else read_floors(given)
    if len(pairs) > 1:
        raise RiskpathError(f"a learning agent has one floor, got {len(pairs)}: rp.solve serves several")
    measure, floor = pairs[0]
    return f"{measure}={level_text(floor)}"
