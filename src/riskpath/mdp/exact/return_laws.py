"""The distributions of returns of policies, by one pass forward over arrays.

`laws_of_goals` and, where rewards have a common unit, `timed_law` are exact. Otherwise `timed_law` keeps returns on a
fine grid: the probability of a return between two of its points is divided between them, so that the mean is kept.
"""

import math
from collections.abc import Sequence

import numpy as np

from riskpath.mdp.exact.goal_recursion import GoalTables
from riskpath.mdp.exact.layer_arrays import END, LayerArrays, find_unit, return_bounds, start_nodes
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
    low, high = return_bounds(layers, [layer.reward for layer in layers], mdp.discount, pairs)[0]
    low, high = min(float(low.min()), 0.0), max(float(high.max()), 0.0)  # 0 where an episode ends at once
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


def laws_of_goals(mdp: FiniteMDP, tables: GoalTables, thresholds: Sequence[int]) -> list[Law]:
    """Return the distribution of the return of the best policy of each threshold, all of them together."""
    count = len(thresholds)
    probs, starts = zip(*start_nodes(mdp, tables.layers), strict=True)
    goal, x = (np.tile(part, len(starts)) for part in (np.arange(count), -np.asarray(thresholds, np.int64)))
    state, mass = np.repeat(starts, count), np.repeat(probs, count)
    ended: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for time, (layer, step) in enumerate(zip(tables.layers, tables.steps, strict=True)):
        over = state == END
        ended.append((goal[over], x[over], mass[over]))
        states = len(layer.states)
        group, x, mass = _merged(goal[~over] * states + state[~over], x[~over], mass[~over], 1, 0, dense=0)
        goal, state = np.divmod(group, states)
        pair = layer.first_pair[state] + tables.action_numbers(time, state, x)
        prob = layer.prob[pair]
        real = prob > 0
        goal, state = goal[np.nonzero(real)[0]], layer.next[pair][real]
        x, mass = (x[:, None] + step[pair])[real], (mass[:, None] * prob)[real]
    goal, x, mass = (np.concatenate(part) for part in zip(*ended, (goal, x, mass), strict=True))
    goal, x, mass = _merged(goal, x, mass, 1, 0, dense=0)
    cuts = np.searchsorted(goal, np.arange(count + 1))
    unit = tables.lattice.unit
    return [
        Law((x[low:high] + int(b)) * unit, mass[low:high] / mass[low:high].sum())
        for b, low, high in zip(thresholds, cuts[:-1], cuts[1:], strict=True)
    ]


def _merged(
    state: np.ndarray, x: np.ndarray, mass: np.ndarray, unit: float | None, origin: float, dense: int = DENSE
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return every distinct (state, return) once, ascending, with the sum of its probabilities."""
    if x.size == 0:
        return state, x, mass
    scale = ATOM_TOLERANCE * max(1.0, float(np.abs(x).max())) if unit is None else unit
    whole = np.rint((x - origin) / scale).astype(np.int64)
    low = int(whole.min())
    width = int(whole.max()) - low + 1
    key = (state + 1) * width + (whole - low)
    if unit is not None and (size := int(key.max()) + 1) <= dense:  # then counting is faster than sorting
        total = np.bincount(key, weights=mass, minlength=size)
        used = np.flatnonzero(total)
        return used // width - 1, (used % width + low) * unit + origin, total[used]
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    return state[first], x[first], np.bincount(place, weights=mass, minlength=first.size)
