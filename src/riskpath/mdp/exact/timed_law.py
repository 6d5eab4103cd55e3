"""The distribution of the return of a policy of time and state, by one pass forward over arrays.

If the rewards have a common unit, the distribution is exact. Otherwise returns are kept on a fine grid: the probability
of a return between two of its points is divided between them, so that the mean is kept.
"""

import math
from collections.abc import Sequence

import numpy as np

from riskpath.mdp.exact.lattice import find_unit
from riskpath.mdp.exact.layer_arrays import END, LayerArrays, start_nodes
from riskpath.mdp.law import ATOM_TOLERANCE, Law
from riskpath.mdp.model import FiniteMDP

POINTS = 4_000
"""The number of points of the grid of returns."""
DENSE = 20_000_000
"""Up to this many (state, point of the grid), probabilities are added in an array."""
FEW_ATOMS = 20_000
"""Up to this many (state, return) combinations at one time, returns are kept as they are."""


def timed_law(mdp: FiniteMDP, layers: Sequence[LayerArrays], pairs: Sequence[np.ndarray]) -> tuple[Law, float]:
    """Return the distribution of the policy `pairs[time][state]`, and the largest standard deviation of rounding."""
    exact = _forward(mdp, layers, pairs, find_unit(layers, mdp.discount), None)
    if exact is not None:
        return exact, 0.0
    low, high = extreme_returns(mdp, layers, pairs)
    step = max(float(high.max()) - float(low.min()), 1e-12) / POINTS
    law = _forward(mdp, layers, pairs, step, float(low.min()))
    assert law is not None
    return law, step * math.sqrt(len(layers)) / 2  # that of one step is at most half a unit


def _forward(
    mdp: FiniteMDP, layers: Sequence[LayerArrays], pairs: Sequence[np.ndarray], unit: float | None, grid: float | None
) -> Law | None:
    """Return the distribution, or None if there is no unit and there are too many different returns.

    With a number in `grid`, a point of the grid whose distances are `unit`, returns are divided between its points.
    """
    probs, starts = zip(*start_nodes(mdp, layers), strict=True)
    arrived, moved, reached = np.array(starts), np.array(probs), np.zeros(len(starts))
    ended: list[tuple[np.ndarray, np.ndarray]] = []
    for time, (layer, chosen) in enumerate(zip(layers, pairs, strict=True)):
        over = arrived == END
        ended.append((reached[over], moved[over]))
        state, x, mass = arrived[~over], reached[~over], moved[~over]
        if unit is None and state.size > FEW_ATOMS:
            return None
        pair = chosen[state]
        reached = (x[:, None] + mdp.discount**time * layer.reward[pair]).ravel()
        moved, arrived = (mass[:, None] * layer.prob[pair]).ravel(), layer.next[pair].ravel()
        if unit is not None and grid is not None:
            place = (reached - grid) / unit
            below = np.floor(place + 1e-9)
            part = np.clip(place - below, 0.0, 1.0)
            reached = grid + unit * np.concatenate([below, below + 1.0])
            moved, arrived = np.concatenate([moved * (1 - part), moved * part]), np.concatenate([arrived, arrived])
        real = moved > 0
        arrived, reached, moved = _merged(arrived[real], reached[real], moved[real], unit, grid or 0.0)
    atoms, mass = (np.concatenate(part) for part in zip(*ended, (reached, moved), strict=True))
    return Law(atoms, mass / mass.sum())


def _merged(
    state: np.ndarray, x: np.ndarray, mass: np.ndarray, unit: float | None, origin: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return every distinct (state, return) once, with the sum of its probabilities."""
    if x.size == 0:
        return state, x, mass
    scale = ATOM_TOLERANCE * max(1.0, float(np.abs(x).max())) if unit is None else unit
    whole = np.rint((x - origin) / scale).astype(np.int64)
    low = int(whole.min())
    width = int(whole.max()) - low + 1
    key = (state + 1) * width + (whole - low)
    if unit is not None and (size := int(key.max()) + 1) <= DENSE:  # then counting is faster than sorting
        total = np.bincount(key, weights=mass, minlength=size)
        used = np.flatnonzero(total)
        return used // width - 1, (used % width + low) * unit + origin, total[used]
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    return state[first], x[first], np.bincount(place, weights=mass, minlength=first.size)


def extreme_returns(
    mdp: FiniteMDP, layers: Sequence[LayerArrays], pairs: Sequence[np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest return from every first state and from the end, of a policy or of all."""
    low, high = np.zeros(1), np.zeros(1)
    for time in reversed(range(len(layers))):
        layer = layers[time]
        real = layer.prob > 0
        lowest = np.where(real, layer.reward + mdp.discount * low[layer.next], np.inf).min(axis=1)
        highest = np.where(real, layer.reward + mdp.discount * high[layer.next], -np.inf).max(axis=1)
        lowest = layer.lowest(lowest) if pairs is None else lowest[pairs[time]]
        highest = layer.best(highest) if pairs is None else highest[pairs[time]]
        low, high = np.append(lowest, 0.0), np.append(highest, 0.0)
    return low, high
