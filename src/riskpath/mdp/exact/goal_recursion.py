"""One backward pass for every CVaR level: dynamic programming over (time, state, distance to the goal).

CVaR_η[Z] = max_b {b + E[min(Z − b, 0)]/η}. With x = (return so far) − b, the distance to the threshold b, and a small
weight λ of the mean,

    V_t(s, x) = max_a E[V_{t+1}(S′, x + γᵗR)],     V = λx + min(x, 0) where an episode ends,

depends neither on b nor on η: CVaR*_η = max_b {b + V_0(s₀, −b)/η} for all levels at once. The maximum is over one
number, so it is global; it lies at an attainable return, so b and x may be restricted to multiples of the unit of the
rewards. With a lattice, x + γᵗR is a shift of an array.

If x is so low that no return to go reaches 0, V is (1 + λ)(x + best mean); if it is so high that every return to go
does, V is λ(x + best mean). Between these ends V is stored. If rewards are rounded, the result is a bound anyway, and
the stored part is cut where V is within a small distance of these two lines. Beyond the cut a lower bound uses that
the slope of V is between 0 and 1, an upper bound uses the lines (with λ = 0).

With a *jump*, V = λx + 1 where an episode ends with x ≥ 0 and λx elsewhere: V_0(s₀, −b) is then the largest probability
to reach b, for every b (`reach_solver`).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from riskpath.errors import RiskpathError, short_repr
from riskpath.mdp.exact.layer_arrays import Lattice, LayerArrays, mean_values, return_bounds, start_nodes
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.problem import Action, Progress, State, silent

TIE_WEIGHT = 1e-10
"""λ if only CVaR counts: of equally good policies, the one with the larger mean is taken."""
TRIM = 1e-2
"""How close V must be to its asymptotes to be cut off, in units; only where rewards are rounded."""
TRIM_PROB = 1e-11
"""The same for the probability to reach a threshold."""


@dataclass(frozen=True)
class _Window:
    """V of one state, stored for x = first, first + 1, … (in units), and linear elsewhere."""

    first: int
    values: Float[np.ndarray, " n"]
    below: float
    """V(x) = slope · x + below for smaller x, with the first of the slopes."""
    above: float
    """V(x) = slope · x + above for larger x, with the second of the slopes."""
    slopes: tuple[float, float]
    """The slopes of both ends: 1 + λ and λ, with a jump λ and λ."""

    def add_to(self, total: Float[np.ndarray, " m"], start: int, prob: float) -> None:
        """Add prob × V(x) for x = start, start + 1, … to an array."""
        left = min(max(self.first - start, 0), total.size)
        right = min(max(self.first + self.values.size - start, 0), total.size)
        if left:
            total[:left] += prob * self.slopes[0] * np.arange(start, start + left) + prob * self.below
        if right > left:
            total[left:right] += prob * self.values[start + left - self.first : start + right - self.first]
        if right < total.size:
            far = np.arange(start + right, start + total.size)
            total[right:] += prob * self.slopes[1] * far + prob * self.above


@dataclass(frozen=True, eq=False)
class GoalTables:
    """The result of the pass: V_0 for every threshold, and the best action of every (time, state, x)."""

    layers: list[LayerArrays]
    lattice: Lattice
    steps: list[np.ndarray]
    first: list[np.ndarray]
    """By time and state: the x of the first entry of `chosen`."""
    chosen: list[list[np.ndarray]]
    """By time and state: the number of the best action for x = first, first + 1, …"""
    outside: list[np.ndarray]
    """By time and state: the number of the best action for smaller and for larger x."""
    thresholds: Int[np.ndarray, " B"]
    """Every threshold b, in units."""
    values: Float[np.ndarray, " B"]
    """E[V_0(s₀, −b)], in units."""
    weight: float

    @property
    def cells(self) -> int:
        """The number of stored (time, state, x)."""
        return sum(array.size for layer in self.chosen for array in layer)

    def best_threshold(self, level: float) -> tuple[int, float]:
        """Return the best threshold b in units, and b + V_0(−b)/η in the unit of rewards."""
        # Of equally good thresholds, λE[Z] decides, not λE[Z − b].
        means = self.weight if self.weight <= TIE_WEIGHT else 0.0
        objective = self.thresholds + (self.values + means * self.thresholds) / level
        at = int(objective.argmax())
        return int(self.thresholds[at]), float(objective[at]) * self.lattice.unit

    def action_numbers(
        self, time: int, state: Int[np.ndarray, " n"], x: Int[np.ndarray, " n"]
    ) -> Int[np.ndarray, " n"]:
        """Return the number of the best action of each (state, x) at one time."""
        sizes = np.array([array.size for array in self.chosen[time]])
        flat, offsets = np.concatenate(self.chosen[time]), np.cumsum(sizes) - sizes
        place = x - self.first[time][state]
        inside = (place >= 0) & (place < sizes[state])
        found = flat[offsets[state] + np.where(inside, place, 0)].astype(np.int64)
        return np.where(inside, found, self.outside[time][state, (place >= 0).astype(np.int64)])


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
        stored, place = tables.chosen[time][index], x - int(tables.first[time][index])
        number = stored[place] if 0 <= place < stored.size else tables.outside[time][index, int(place >= 0)]
        return tables.layers[time].actions[tables.layers[time].first_pair[index] + int(number)], (time, x)

    @cached_property
    def _index(self) -> list[dict[State, int]]:
        layers = self.tables.layers
        known = {id(layer): {s: number for number, s in enumerate(layer.states)} for layer in set(layers)}
        return [known[id(layer)] for layer in layers]


def goal_recursion(
    mdp: FiniteMDP,
    layers: list[LayerArrays],
    lattice: Lattice,
    weight: float = TIE_WEIGHT,
    progress: Progress = silent,
    jump: bool = False,
) -> GoalTables:
    """Run the backward pass; `weight` is λ, which must be 0 if rewards are rounded."""
    end = _Window(0, np.zeros(1) + jump, 0.0, float(jump), (weight if jump else 1 + weight, weight))
    steps = lattice.steps(layers)
    means = mean_values(layers, [step.astype(float) for step in steps])
    exact = return_bounds(layers, steps) if lattice.rounding == "exact" else None
    following: list[_Window] = []
    chosen, first, outside = [], [], []
    for done, time in enumerate(reversed(range(len(layers)))):
        layer, step = layers[time], steps[time]
        mean, mean_pair = means[time]
        if exact is None:
            starts, sizes = _reach(layer, step, [*following, end])
            starts, sizes = starts - jump, sizes + jump  # with a jump, the first entry bounds V below it
        else:
            starts, sizes = -exact[time][1], exact[time][1] - exact[time][0] + 1
        windows, picks = [], []
        for state in range(len(layer.states)):
            pairs = range(layer.first_pair[state], layer.first_pair[state + 1])
            values, pick = _best(layer, step, pairs, [*following, end], int(starts[state]), int(sizes[state]))
            m = float(mean[state])
            ends = end.slopes[0] * m, end.above + end.slopes[1] * m
            window = _Window(int(starts[state]), values, *ends, end.slopes)
            if lattice.rounding != "exact":
                window, pick = _trim(window, pick, lattice.rounding == "down", jump)
            windows.append(window)
            picks.append(pick)
        following = windows
        chosen.append(picks)
        first.append(np.array([window.first for window in windows]))
        if exact is None:
            outside.append(np.array([[pick[0], pick[-1]] for pick in picks], np.int64))
        else:
            outside.append(np.repeat((mean_pair - layer.first_pair[:-1])[:, None], 2, axis=1))
        progress(done + 1, len(layers))
    # Every threshold that can be best, and the mean of V_0 over the start states.
    started = [(prob, [*following, end][node]) for prob, node in start_nodes(mdp, layers)]
    low = min(window.first for _, window in started)
    total = np.zeros(max(window.first + window.values.size for _, window in started) - low)
    for prob, window in started:
        window.add_to(total, low, prob)
    thresholds, values = -np.arange(low, low + total.size)[::-1], total[::-1]
    return GoalTables(layers, lattice, steps, first[::-1], chosen[::-1], outside[::-1], thresholds, values, weight)


def _reach(
    layer: LayerArrays, step: Int[np.ndarray, "P O"], windows: list[_Window]
) -> tuple[Int[np.ndarray, " S"], Int[np.ndarray, " S"]]:
    """Return the first x and the number of x at which V is not linear, for every state."""
    first = np.array([window.first for window in windows])
    last = first + np.array([window.values.size for window in windows]) - 1
    starts = layer.lowest((first[layer.next] - step).min(axis=1))
    return starts, layer.best((last[layer.next] - step).max(axis=1)) - starts + 1


def _trim(window: _Window, pick: np.ndarray, lower: bool, jump: bool) -> tuple[_Window, np.ndarray]:
    """Cut both ends where V is close to its asymptotes; the rest is still a bound (λ = 0)."""
    x = np.arange(window.first, window.first + window.values.size)
    trim = TRIM_PROB if jump else TRIM
    gap = window.values if jump else x + window.below - window.values
    left = int(np.searchsorted(gap, trim, side="right"))  # both gaps are monotone in x
    right = int(np.searchsorted(window.values, window.above - trim, side="left"))
    left = max(min(left, x.size) - 1, 0)
    right = min(max(right, left), x.size - 1)
    values = window.values[left : right + 1].copy()
    below, above = (values[0] - x[left], values[-1]) if lower else (window.below, window.above)
    if jump:
        below = 0.0 if lower else values[0]
    return _Window(int(x[left]), values, float(below), float(above), window.slopes), pick[left : right + 1].copy()


def _best(
    layer: LayerArrays, step: Int[np.ndarray, "P O"], pairs: range, windows: list[_Window], x: int, size: int
) -> tuple[Float[np.ndarray, " n"], np.ndarray]:
    """Return max_a E[V(S′, x + γᵗR)] of one state and the number of the best action, for `size` values from x on."""
    best = np.full(size, -np.inf)
    pick = np.zeros(size, np.uint8 if len(pairs) <= 256 else np.uint16)
    for number, pair in enumerate(pairs):
        total = np.zeros(size)
        for prob, move, after in zip(layer.prob[pair], step[pair], layer.next[pair], strict=True):
            if prob > 0:
                windows[after].add_to(total, x + int(move), float(prob))  # the last one is the end
        better = total > best
        np.copyto(best, total, where=better)
        pick[better] = number
    return best, pick
