"""The returns of a run's policies: exact distributions where that takes seconds at most, else sampled episodes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from riskpath.evaluation.bootstrap import Interval, exact_interval
from riskpath.evaluation.evaluation import Evaluation
from riskpath.mdp.law import Law
from riskpath.risk.measures import Mean, RiskMeasure

SITUATIONS = 1_000
"""The most situations that a policy may distinguish at one time to be evaluated exactly."""


@dataclass(frozen=True, eq=False)
class Measured:
    """The result of `Run.measure`; either `exact` or `sample` is given."""

    risks: Sequence[RiskMeasure]
    """The measure of each setting."""
    exact: list[list[Law]] | None = None
    """For each setting the exact return distributions of its seeds."""
    sample: Evaluation | None = None
    """Sampled episodes."""

    @property
    def episodes(self) -> int | None:
        """Return the number of sampled episodes of each lane; None where distributions are exact."""
        return None if self.sample is None else self.sample.returns.shape[-1]

    @property
    def laws(self) -> list[list[Law]]:
        """Return for each setting the return distributions of its seeds, exact or of the sample."""
        if self.exact is not None:
            return self.exact
        assert self.sample is not None
        return [[Law.of_sample(np.asarray(seed, np.float64)) for seed in seeds] for seeds in self.sample.returns]

    def values(self, risk: RiskMeasure | None = None) -> Float[np.ndarray, "settings seeds"]:
        """Return the measure of every lane's return: that of its agent, or another one."""
        if self.sample is not None:
            return np.asarray(self.sample.values(risk=risk))
        pairs = zip(self.risks, self.laws, strict=True)
        return np.array([[float((risk or own).value(law)) for law in laws] for own, laws in pairs])

    def interval(self, risk: RiskMeasure, setting: int, resamples: int, confidence: float = 0.95) -> Interval:
        """Return the mean over seeds of a measure of one setting's return; exact values resample seeds only."""
        if self.sample is None:
            return exact_interval(self.values(risk)[setting], resamples, confidence)
        return self.sample[setting].risk(risk, confidence=confidence, resamples=resamples)[0]

    def means(self) -> Float[np.ndarray, "settings seeds"]:
        """Return the mean return of every lane."""
        return self.values(Mean())
