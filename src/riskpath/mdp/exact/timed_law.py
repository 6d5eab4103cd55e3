"""The distribution of the return of a policy of time and state, by one pass forward over arrays.

If the rewards have a common unit, the distribution is exact. Otherwise returns are kept on a fine grid: the probability
of a return between two of its points is divided between them, so that the mean is kept.
"""

import math
from collections.abc import Sequence

import numpy as np

from riskpath.mdp.exact.lattice import find_unit
from riskpath.mdp.exact.layer_arrays import END, LayerArrays
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
    low, high = _ends(mdp, layers, pairs)
    step = max(high - low, 1e-12) / POINTS
    law = _forward(mdp, layers, pairs, step, low)
    assert law is not None
    return law, step * math.sqrt(len(layers)) / 2  # that of one step is at most half a unit


def _forward(
    mdp: FiniteMDP, layers: Sequence[LayerArrays], pairs: Sequence[np.ndarray], unit: float | None, grid: float | None
) -> Law | None:
    """Return the distribution, or None if there is no unit and there are too many different returns.

    With a number in `grid`, a point of the grid whose distances are `unit`, returns are divided between its points.
    """
    index = {state: number for number, state in enumerate(layers[0].states)} if layers else {}
    started = [(index.get(state, END), prob) for state, prob in mdp.start.items()]
    state = np.array([number for number, _ in started if number != END], np.int64)
    mass = np.array([prob for number, prob in started if number != END], float)
    x = np.zeros(state.size)
    ended = [(np.zeros(1), np.array([prob])) for number, prob in started if number == END]
    for time, (layer, chosen) in enumerate(zip(layers, pairs, strict=True)):
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
        over = arrived == END
        ended.append((reached[over], moved[over]))
        state, x, mass = arrived[~over], reached[~over], moved[~over]
        if unit is None and state.size > FEW_ATOMS:
            return None
    atoms, probs = (np.concatenate([part[i] for part in ended]) for i in range(2))
    return Law(atoms, probs / probs.sum())


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


def _ends(mdp: FiniteMDP, layers: Sequence[LayerArrays], pairs: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the smallest and the largest return of the policy."""
    low, high = np.zeros(1), np.zeros(1)
    for layer, chosen in zip(reversed(layers), reversed(pairs), strict=True):
        real = layer.prob[chosen] > 0
        reward, after = layer.reward[chosen], layer.next[chosen]
        lowest = np.where(real, reward + mdp.discount * low[after], np.inf).min(axis=1)
        highest = np.where(real, reward + mdp.discount * high[after], -np.inf).max(axis=1)
        low, high = np.append(lowest, 0.0), np.append(highest, 0.0)
    return float(low.min()), float(high.max())
