"""The parts of a constrained problem, an objective and floors under risk measures, as utilities of the final return.

A floor β[Z] ≥ x is linear in the distribution where β compares expected utilities: E[m(Z)] ≥ 0 with the margin m of
`UtilityForm`. Some of these measures have a parameter θ, such as the threshold of CVaR, and reach the floor if one θ
does. Any other measure is replaced by its first-order change from a reference distribution F,
β[F] + u(z) − E_F[u] − x, with its influence function u.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from riskpath.risk.certainty_equivalents import CertaintyEquivalent
from riskpath.risk.entropic import Entropic, EVaR
from riskpath.risk.measures import CVaR
from riskpath.risk.quantile_measures import VaR
from riskpath.risk.risk_measure import RiskMeasure, UtilityForm
from riskpath.risk.utility_measures import reaches

Law1 = Float[np.ndarray, " Z"]
"""The probabilities of the final returns."""


@dataclass(frozen=True)
class Term:
    """A measure with its floor; for the objective, the floor is a value that is known to be attained."""

    measure: RiskMeasure
    floor: float
    finals: Law1
    """All returns that can occur."""

    @property
    def parameters(self) -> np.ndarray:
        """The parameters θ, ascending; one if the measure has none; empty where a distribution takes its place."""
        if isinstance(self.measure, VaR):
            return np.zeros(1)
        if isinstance(self.measure, UtilityForm):
            return np.asarray(self.measure.parameters(self.finals), np.float64)
        return np.zeros(0)

    @property
    def rise(self) -> float | None:
        """The largest slope of the margin in θ; None if it is not known."""
        if isinstance(self.measure, CVaR):
            return float(self.measure.level)
        return 1.0 if isinstance(self.measure, CertaintyEquivalent) else None

    @property
    def discrete(self) -> bool:
        """Whether the listed parameters contain a best one."""
        return isinstance(self.measure, CVaR)

    @property
    def linear(self) -> bool:
        """Whether the best policy for the margin does not depend on the floor."""
        return not isinstance(self.measure, Entropic | EVaR)

    @property
    def value_of_margin(self) -> float:
        """The slope of β in the mean of its margin."""
        return 1.0 / float(self.measure.level) if isinstance(self.measure, CVaR | Entropic) else 1.0

    def margin(self, parameter: Any, floor: float | None = None) -> Law1:
        """Return the utility whose mean is at least 0 where the floor is reached; θ is a number, or a distribution."""
        x, z = self.floor if floor is None else floor, self.finals
        if isinstance(self.measure, VaR):
            return reaches(z, x) - (1.0 - float(self.measure.level))
        if isinstance(self.measure, UtilityForm):
            return np.asarray(self.measure.margin(z, float(parameter), x), np.float64)
        u = np.asarray(self.measure.influence(z, z, parameter), np.float64)
        return self.value(parameter) + u - parameter @ u - x

    def value(self, probs: Law1) -> float:
        """Return β of a distribution."""
        used = probs > 0
        return float(self.measure.value(self.finals[used], probs[used]))

    def best_parameter(self, probs: Law1) -> Any:
        """Return the parameter with which a distribution comes closest to the floor, or the distribution itself."""
        listed = self.parameters
        if listed.size == 0:
            return probs
        if isinstance(self.measure, CVaR):
            cdf = np.cumsum(probs)
            return float(self.finals[min(int(np.searchsorted(cdf, float(self.measure.level) - 1e-12)), cdf.size - 1)])
        if isinstance(self.measure, CertaintyEquivalent):
            used = probs > 0
            return float(self.measure.now(self.finals[used], probs[used]))
        if isinstance(self.measure, EVaR) and (probs > 1e-12).sum() > 1:
            return float(np.clip(self.measure.aversion(self.finals, probs), listed[0], listed[-1]))
        margins = [self.margin(theta) for theta in listed]
        return float(listed[int(np.argmax([probs @ m / max(float(np.abs(m).max()), 1e-300) for m in margins]))])
