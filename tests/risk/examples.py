"""Measures, laws and helpers that several tests of `riskpath.risk` share."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from riskpath import CPW, POW, CVaR, Distortion, Law, Mean, Mixture, Wang


def smoothstep(tau: Any) -> Any:
    return tau**2 * (3 - 2 * tau)


def smoothstep_inverse(t: Any) -> Any:
    return 0.5 - np.sin(np.arcsin(1 - 2 * t) / 3)


MEAN_CVAR = Mixture([(0.7, Mean()), (0.3, CVaR(0.1))])
SMOOTH = Distortion(smoothstep, name="smoothstep")
# Measures whose text form reads back as the same measure.
READABLE = [
    Mean(),
    CVaR(0.05),
    CVaR(0.25),
    CVaR(1),
    Wang(0.75),
    Wang(-0.75),
    POW(-2),
    POW(2),
    POW(-5),
    CPW(0.71),
    CPW(0.5),
    MEAN_CVAR,
]
MEASURES = [*READABLE, SMOOTH]

THREE_STATE = Law([200.0, 90.0, -20.0], [0.81, 0.18, 0.01])
YYY = Law([-12.0, 88.0, 188.0, 288.0], [1 / 64, 9 / 64, 27 / 64, 27 / 64])
LAWS = {
    "three-state": THREE_STATE,
    "grid": YYY,
    "sure": Law.point(-3.0),
    "normal": Law.of_sample(np.random.default_rng(1).normal(size=150)),
    "skewed": Law(-(2.0 ** np.arange(8)), np.arange(8, 0, -1) / 36),
}

every_measure = pytest.mark.parametrize("measure", MEASURES, ids=str)
# Run-time type checks would take most of the time of tests that use many laws.
fast = pytest.mark.usefixtures("unchecked")
number = st.floats(-100, 100, allow_subnormal=False)


def thorough(examples: int) -> settings:
    """Settings of a property test: the same examples in every run."""
    checks = [HealthCheck.function_scoped_fixture]
    return settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=checks)


def close(actual: Any, expected: Any, within: float = 1e-9) -> bool:
    return bool(np.allclose(actual, expected, rtol=within, atol=within))
