"""Which of many laws can still be part of a best return: those that no other one dominates.

Adding an independent return, shifting, scaling and mixing all keep stochastic dominance. So whatever comes
before or after, a dominated law can be exchanged for the one that dominates it without loss: to first order for
every distortion measure, to second order for those with concave h.
"""

from collections.abc import Sequence

import numpy as np

from riskpath.risk.law import Law
from riskpath.risk.measures import RiskMeasure

_LEVELS = np.linspace(0, 1, 18)[1:]


def dominance_order(risk: RiskMeasure) -> int:
    """The weakest order of dominance that this measure respects; the weaker, the more it prunes."""
    return 2 if risk.concave else 1


def undominated(laws: Sequence[Law], order: int) -> list[int]:
    """Indices of laws that no other one dominates, one of each set of equal ones, best mean first."""
    if len(laws) <= 1:
        return list(range(len(laws)))
    # A law can only dominate if it is ahead at every one of a few points, which is quick to compare.
    points = np.stack([_signature(law, order) for law in laws])
    slack = 1e-8 * max(1.0, float(np.abs(points).max()))
    kept: list[int] = []
    kept_points = np.empty_like(points)
    for index in np.argsort(-points[:, -1], kind="stable"):
        ahead = (kept_points[: len(kept)] >= points[index] - slack).all(axis=1)
        if not any(laws[kept[rival]].dominates(laws[index], order) for rival in np.flatnonzero(ahead)):
            kept_points[len(kept)] = points[index]
            kept.append(int(index))
    return kept


def _signature(law: Law, order: int) -> np.ndarray:
    """Quantiles (order 1) or integrated quantiles (order 2) at a few levels, then the least return and the mean."""
    if order == 1:
        inner = law.quantile(_LEVELS - 1 / 36)
    else:
        # ∫₀^τ F⁻¹ is piecewise linear in τ with its kinks at the cumulative probabilities.
        inner = np.interp(_LEVELS, np.append(0, law.cumulative), np.append(0, np.cumsum(law.atoms * law.probs)))
    return np.concatenate([inner, [law.atoms[0], law.mean]])
