"""Expected utilities, and the chance to reach a target."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np

from riskpath.errors import RiskpathError
from riskpath.risk.inverse import namespace
from riskpath.risk.risk_measure import ExpectedUtility, Level, as_level, check_level, level_text
from riskpath.risk.utility_families import ThresholdFamily

_SCALE = np.geomspace(1e-3, 1e3, 121)
GRID = np.concatenate([-_SCALE[::-1], [0.0], _SCALE])
"""Points at which a utility is checked, where it is finite."""


class Utility(ExpectedUtility, ThresholdFamily):
    """The expected utility E[u(Z)] for an increasing u: `Utility(np.tanh)`, or with averse=True for a concave u."""

    function: Callable[[Any], Any] = eqx.field(static=True)
    """u, increasing, on NumPy and on JAX arrays."""
    averse: bool = eqx.field(static=True, default=False)
    """Whether u is concave. Exact solvers prune more if it is. Checked on a grid."""
    name: str = eqx.field(static=True, default="utility")
    """The text of the measure."""

    def __check_init__(self):
        check_utility(self.function, self.name, self.averse)

    def of(self, atoms: Any, probs: Any) -> Any:
        """Return E[u(Z)]."""
        xp, _ = namespace(atoms, probs)
        return xp.sum(probs * utility_of(self.function, atoms, self.name))

    def influence(self, z: Any, atoms: Any, probs: Any) -> Any:
        return utility_of(self.function, z, self.name)

    def margin(self, z: Any, parameter: Any, floor: Any) -> Any:
        """Return u(z) − x."""
        return utility_of(self.function, z, self.name) - floor

    @property
    def threshold(self) -> float:
        return 0.0

    def gain(self, x: Any, unit: Any, blur: Any) -> Any:
        """Return u(x)."""
        return self.function(x)

    def value_at(self, threshold: Any, gain: Any, unit: Any) -> Any:
        """Return E[u(Z − b)]."""
        return gain

    @property
    def order(self) -> int:
        return 2 if self.averse else 1

    @property
    def monetary(self) -> bool:
        """False: a utility has its own unit."""
        return False

    def __str__(self) -> str:
        return self.name


class ReachProbability(ExpectedUtility, ThresholdFamily):
    """The probability that the return reaches a target: P(Z ≥ level)."""

    level: Level = eqx.field(converter=as_level)
    """b, the target: any number."""

    def __check_init__(self):
        check_level(self, "a finite number", np.isfinite)

    def of(self, atoms: Any, probs: Any) -> Any:
        """Return P(Z ≥ b)."""
        xp, _ = namespace(atoms, probs, self.level)
        return xp.sum(probs * self.influence(atoms, atoms, probs))

    def influence(self, z: Any, atoms: Any, probs: Any) -> Any:
        """Return 1 for z ≥ b, else 0."""
        return reaches(z, self.level)

    def margin(self, z: Any, parameter: Any, floor: Any) -> Any:
        """Return 1 − x for z ≥ b, else −x."""
        return reaches(z, self.level) - floor

    @property
    def threshold(self) -> Any:
        return self.level

    def gain(self, x: Any, unit: Any, blur: Any) -> Any:
        """Return 1 for x ≥ 0, else 0."""
        return blurred_step(x, blur * unit)

    def value_at(self, threshold: Any, gain: Any, unit: Any) -> Any:
        """Return P(Z ≥ b)."""
        return gain

    @property
    def order(self) -> int:
        return 1

    @property
    def monetary(self) -> bool:
        """False: it is a probability."""
        return False

    def __str__(self) -> str:
        return f"reach:{level_text(self.level)}"


def reaches(z: Any, target: Any) -> Any:
    """Return 1.0 where z is at least the target, up to rounding, else 0.0."""
    xp, _ = namespace(z, target)
    z = xp.asarray(z)
    slack = 1e-9 if xp is np else 1e-6
    return xp.where(z >= target - slack * xp.maximum(1.0, xp.abs(target)), 1.0, 0.0)


def blurred_step(x: Any, width: Any) -> Any:
    """Return 1 for x ≥ 0, else 0; but with a line from 0 to 1 over a width, which ends a quarter of it below 0."""
    xp, _ = namespace(x, width)
    return xp.clip(1.25 + x / width, 0.0, 1.0)


def utility_of(function: Callable[[Any], Any], z: Any, name: str) -> Any:
    """Return u(z), or say where it is not a number."""
    xp, _ = namespace(z)
    with np.errstate(all="ignore"):
        values = function(z)
    if xp is np and not np.isfinite(values).all():
        wrong = np.broadcast_to(z, np.shape(values))[~np.isfinite(values)].flat[0]
        raise RiskpathError(f"{name}: the utility of the return {wrong:g} is not a finite number")
    return values


def check_utility(function: Any, name: str, averse: bool) -> None:
    """Refuse a utility that is not a function, that decreases, or that is not concave where it should be."""
    if not callable(function):
        raise RiskpathError(f"{name}: a utility must be a function of the return, got a {type(function).__name__}")
    with np.errstate(all="ignore"):
        try:
            values = np.broadcast_to(np.asarray(function(GRID), np.float64), GRID.shape)
        except (TypeError, ValueError) as error:
            raise RiskpathError(f"{name}: the utility must accept a NumPy array ({error})") from None
    finite = np.isfinite(values)
    x, u = GRID[finite], values[finite]
    if x.size < 2:
        raise RiskpathError(f"{name}: the utility is not a finite number at any of the returns that were tried")
    rise = np.diff(u) / np.diff(x)
    slack = 1e-9 * max(1.0, float(np.abs(rise).max()))
    if (rise < -slack).any():
        at = x[:-1][rise < -slack][0]
        raise RiskpathError(f"{name}: the utility must not decrease, but it does near {at:g}")
    if averse and (np.diff(rise) > 1e-6 * np.maximum(1.0, np.abs(rise[1:]))).any():
        raise RiskpathError(f"{name}: the utility must be concave")
