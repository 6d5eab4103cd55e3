"""The policies of the goal recursion, and the exact distributions of their returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from riskpath.errors import RiskpathError, short_repr
from riskpath.mdp.exact.goal_recursion import GoalTables
from riskpath.mdp.exact.layer_arrays import END, start_nodes
from riskpath.mdp.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.problem import Action, State


@dataclass(frozen=True, eq=False)
class GoalPolicy:
    """π(t, s, x): the action depends on the time, the state and the distance x of the return so far to the goal."""

    tables: GoalTables
    goal: int
    """The threshold b of the whole return, in units."""

    def __call__(self, state: State, memory: Any = None, reward: float = 0.0) -> tuple[Action, Any]:
        """Return the best action; the memory is the time and x in units, a whole number."""
        tables = self.tables
        if memory is None:
            time, x = 0, -self.goal
        else:
            time, x = memory[0] + 1, memory[1] + int(tables.lattice.in_units(np.float64(reward), memory[0]))
        index = self._index[time].get(state) if time < len(tables.layers) else None
        if index is None:
            raise RiskpathError(f"the policy has no action for (time, state) {short_repr((time, state))}")
        layer = tables.layers[time]
        return layer.actions[layer.first_pair[index] + tables.action_number(time, index, x)], (time, x)

    @cached_property
    def _index(self) -> list[dict[State, int]]:
        layers = self.tables.layers
        known = {id(layer): {s: number for number, s in enumerate(layer.states)} for layer in set(layers)}
        return [known[id(layer)] for layer in layers]


def laws_of_goals(mdp: FiniteMDP, tables: GoalTables, thresholds: Sequence[int]) -> list[Law]:
    """Return the distribution of the return of the best policy of each threshold, all of them in one pass forward."""
    count = len(thresholds)
    probs, starts = zip(*start_nodes(mdp, tables.layers), strict=True)
    goal, x = (np.tile(part, len(starts)) for part in (np.arange(count), -np.asarray(thresholds, np.int64)))
    state, mass = np.repeat(starts, count), np.repeat(probs, count)
    ended: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for time, (layer, step) in enumerate(zip(tables.layers, tables.steps, strict=True)):
        over = state == END
        ended.append((goal[over], x[over], mass[over]))
        goal, state, x, mass = _merge(goal[~over], state[~over], x[~over], mass[~over])
        pair = layer.first_pair[state] + tables.action_numbers(time, state, x)
        prob = layer.prob[pair]
        real = prob > 0
        goal, state = goal[np.nonzero(real)[0]], layer.next[pair][real]
        x, mass = (x[:, None] + step[pair])[real], (mass[:, None] * prob)[real]
    goal, x, mass = (np.concatenate(part) for part in zip(*ended, (goal, x, mass), strict=True))
    goal, _, x, mass = _merge(goal, np.zeros_like(goal), x, mass)
    cuts = np.searchsorted(goal, np.arange(count + 1))
    unit = tables.lattice.unit
    return [
        Law((x[low:high] + int(b)) * unit, mass[low:high] / mass[low:high].sum())
        for b, low, high in zip(thresholds, cuts[:-1], cuts[1:], strict=True)
    ]


def _merge(
    goal: np.ndarray, state: np.ndarray, x: np.ndarray, mass: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return every distinct (goal, state, x) once, ascending, with the sum of its probabilities."""
    if goal.size == 0:
        return goal, state, x, mass
    low = x.min()
    width, states = int(x.max() - low) + 1, int(state.max()) + 1
    key, place = np.unique((goal * states + state) * width + (x - low), return_inverse=True)
    rest, distance = np.divmod(key, width)
    number, at = np.divmod(rest, states)
    return number, at, distance + low, np.bincount(place, weights=mass, minlength=key.size)
