"""Optimised certainty equivalents, and the mean less a deviation.

An optimised certainty equivalent (OCE) is sup_b {b + E[v(Z − b)]} for a concave utility v with v(0) = 0 and slope 1
at 0: how much of the return is taken now, for sure. CVaR, entropic risk and monotone mean–variance are of this kind.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from riskpath.errors import RiskpathError
from riskpath.risk.inverse import namespace
from riskpath.risk.risk_measure import Level, RiskMeasure, UtilityForm, as_level, check_level, level_text
from riskpath.risk.utility_measures import check_utility, utility_of

GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0


class CertaintyEquivalent(UtilityForm):
    """The optimised certainty equivalent of a utility v that a subclass defines."""

    def of(self, atoms: Any, probs: Any) -> Any:
        """Return sup_b {b + E[v(Z − b)]}."""
        xp, _ = namespace(atoms, probs)
        b = self.now(atoms, probs)
        return b + xp.sum(probs * self.utility(atoms - b))

    @abc.abstractmethod
    def utility(self, x: Any) -> Any:
        """Return v(x)."""

    def now(self, atoms: Any, probs: Any) -> Any:
        """Return the best b: golden sections between the smallest and the largest return."""
        xp, _ = namespace(atoms, probs, self)
        utility = self.utility  # Equinox binds slowly

        def objective(b: Any) -> Any:
            return b + xp.sum(probs * utility(atoms - b))

        low = xp.min(xp.where(probs > 0, atoms, xp.inf))
        width = xp.max(xp.where(probs > 0, atoms, -xp.inf)) - low
        left, right = low + (1 - GOLDEN) * width, low + GOLDEN * width
        state = (low, width, left, right, objective(left), objective(right))

        def narrow(_: Any, state: Any) -> Any:
            low, width, left, right, at_left, at_right = state
            better = at_left >= at_right
            low, width = xp.where(better, low, left), GOLDEN * width
            new = xp.where(better, low + (1 - GOLDEN) * width, low + GOLDEN * width)
            value = objective(new)
            points = xp.where(better, new, right), xp.where(better, left, new)
            return low, width, *points, xp.where(better, value, at_right), xp.where(better, at_left, value)

        if xp is np:
            for _ in range(70):
                state = narrow(None, state)
        else:
            state = jax.lax.stop_gradient(jax.lax.fori_loop(0, 36, narrow, state))
        return xp.where(state[4] >= state[5], state[2], state[3])

    def influence(self, z: Any, atoms: Any, probs: Any) -> Any:
        """Return v(z − b) at the best b."""
        return self.utility(z - self.now(atoms, probs))

    def margin(self, z: Any, parameter: Any, floor: Any) -> Any:
        """Return b − x + v(z − b), in which b is the parameter."""
        return parameter - floor + self.utility(z - parameter)

    def parameters(self, finals: Any) -> Any:
        """Return candidates for b, equally spaced."""
        return np.linspace(finals[0], finals[-1], 2049)

    @property
    def order(self) -> int:
        """2: v is concave."""
        return 2


class OCE(CertaintyEquivalent):
    """The optimised certainty equivalent sup_b {b + E[v(Z − b)]} of a concave utility v of your own."""

    function: Callable[[Any], Any] = eqx.field(static=True)
    """v, increasing and concave, with v(0) = 0 and slope 1 at 0, on NumPy and on JAX arrays."""
    name: str = eqx.field(static=True, default="oce")
    """The text of the measure."""

    def __check_init__(self):
        check_utility(self.function, self.name, averse=True)
        _check_normalised(self.function, self.name)

    def utility(self, x: Any) -> Any:
        return utility_of(self.function, x, self.name)

    def __str__(self) -> str:
        return self.name


class MonotoneMeanVariance(CertaintyEquivalent):
    """Mean − level × variance in its monotone form, which never prefers less money.

    It is the OCE of x − κx² up to its top at 1/(2κ) and constant beyond. Where no return exceeds the mean by more than
    that, it is E[Z] − κ Var[Z].
    """

    level: Level = eqx.field(converter=as_level)
    """κ > 0, the price of variance. Its unit is 1/return."""

    def __check_init__(self):
        check_level(self, "more than 0", lambda kappa: kappa > 0)

    def utility(self, x: Any) -> Any:
        """Return x − κx² for x ≤ 1/(2κ), else 1/(4κ)."""
        xp, _ = namespace(x, self.level)
        cut = xp.minimum(x, 0.5 / self.level)
        return cut - self.level * cut**2

    def __str__(self) -> str:
        return f"mmv:{level_text(self.level)}"


class MeanSemideviation(RiskMeasure):
    """The mean less `level` times the mean shortfall below the mean: E[Z] − c E[(E[Z] − Z)⁺]."""

    level: Level = eqx.field(converter=as_level)
    """c in [0, 1]; beyond 1 it would prefer less money."""

    def __check_init__(self):
        check_level(self, "in [0, 1]", lambda c: (c >= 0) & (c <= 1))

    def of(self, atoms: Any, probs: Any) -> Any:
        """Return E[Z] − c E[(E[Z] − Z)⁺]."""
        xp, _ = namespace(atoms, probs, self.level)
        mean = xp.sum(probs * atoms)
        return mean - self.level * xp.sum(probs * xp.maximum(mean - atoms, 0.0))

    def influence(self, z: Any, atoms: Any, probs: Any) -> Any:
        """Return z (1 − c P(Z < E[Z])) − c (E[Z] − z)⁺."""
        xp, _ = namespace(z, atoms, probs, self.level)
        mean = xp.sum(probs * atoms)
        below = xp.sum(xp.where(atoms < mean, probs, 0.0))
        return z * (1.0 - self.level * below) - self.level * xp.maximum(mean - z, 0.0)

    @property
    def order(self) -> int:
        """2, because c ≤ 1."""
        return 2

    def __str__(self) -> str:
        return f"semidev:{level_text(self.level)}"


def _check_normalised(function: Callable[[Any], Any], name: str) -> None:
    """Refuse a utility of an OCE that is not 0 at 0, or whose slope there is not 1."""
    h = 1e-6
    below, at, above = (float(np.asarray(function(np.asarray(x, np.float64)))) for x in (-h, 0.0, h))
    if abs(at) > 1e-9:
        raise RiskpathError(f"{name}: the utility of an OCE must be 0 at 0, got {at:g}")
    if not (at - below) / h >= 1 - 1e-4 or not (above - at) / h <= 1 + 1e-4:
        raise RiskpathError(f"{name}: the utility of an OCE must have slope 1 at 0, got {(above - below) / (2 * h):g}")
