"""Pruning of distributions by stochastic dominance.

Adding an independent return, shifting, scaling and mixing preserve stochastic dominance. So a dominated distribution
can be replaced by the distribution that dominates it, at any point of an episode, without loss, to the order that the
measure respects: `RiskMeasure.order`. Measures of order 0 respect none, and only equal distributions are dropped.
"""

from collections.abc import Sequence

import numpy as np

from riskpath.mdp.law import Law

_LEVELS = np.linspace(0, 1, 18)[1:]
"""The levels at which distributions are compared before the full test."""


def undominated(laws: Sequence[Law], order: int) -> list[int]:
    """Return the indices of the undominated distributions, by descending mean; keep equal distributions once."""
    if len(laws) <= 1:
        return list(range(len(laws)))
    if order == 0:
        distinct = {(law.atoms.tobytes(), law.probs.tobytes()): index for index, law in enumerate(laws)}
        return sorted(distinct.values(), key=lambda index: -laws[index].mean)
    # A distribution can only dominate another one if it is ahead at each of a few points, which is a quick test.
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
    """Return quantiles (order 1) or integrated quantiles (order 2) at a few levels, the least return and the mean."""
    if order == 1:
        inner = law.quantile(_LEVELS - 1 / 36)
    else:
        # ∫₀^τ F⁻¹ is piecewise linear in τ, with kinks at the cumulative probabilities.
        inner = np.interp(_LEVELS, np.append(0, law.cumulative), np.append(0, np.cumsum(law.atoms * law.probs)))
    return np.concatenate([inner, [law.atoms[0], law.mean]])
