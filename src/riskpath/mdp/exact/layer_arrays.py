"""A finite problem as arrays, one set for every time: the form in which the fast solvers go through it.

The pairs (state, action) of a layer are numbered state by state. All pairs have the same number of outcomes: missing
ones are repetitions with probability 0.

On a `Lattice` rewards are whole multiples of a unit, so that returns are whole numbers and equal sums are equal
exactly. Many problems have such a unit: cents, or the 0.05 of a price. Where there is none (discounted rewards),
rewards are rounded: all of them down for a lower bound of every return, all of them up for an upper bound.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int, Real

from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.problem import Action, State

END = -1
"""The index of the next state where an episode ends."""
LARGEST_DENOMINATOR = 10**5
"""Rewards with a larger denominator count as irrational."""
LARGEST_RETURN = 2**53
"""Beyond this number of units, sums of doubles are not exact."""
TOLERANCE = 1e-9
"""The accepted distance of a reward from a multiple of the unit, in units."""


@dataclass(frozen=True, eq=False)
class LayerArrays:
    """The states that an episode can be in after a number of steps; S states, P pairs, O outcomes."""

    states: tuple[State, ...]
    first_pair: Int[np.ndarray, " S1"]
    """The number of the first pair of every state, and the number of pairs at the end."""
    actions: tuple[Action, ...]
    prob: Float[np.ndarray, "P O"]
    reward: Float[np.ndarray, "P O"]
    next: Int[np.ndarray, "P O"]
    """The index of the next state in the next layer, or `END`."""

    @property
    def state_of_pair(self) -> Int[np.ndarray, " P"]:
        """The index of the state of every pair."""
        return np.repeat(np.arange(len(self.states)), np.diff(self.first_pair))

    def best(self, values: Real[np.ndarray, " P"]) -> Real[np.ndarray, " S"]:
        """Return the largest value of the actions of every state."""
        return np.maximum.reduceat(values, self.first_pair[:-1])

    def lowest(self, values: Real[np.ndarray, " P"]) -> Real[np.ndarray, " S"]:
        """Return the smallest value of the actions of every state."""
        return np.minimum.reduceat(values, self.first_pair[:-1])


def layer_arrays(mdp: FiniteMDP) -> list[LayerArrays]:
    """Return the arrays of every time; times with the same states and the same next states share them."""
    layers, known = mdp.layers, {}
    result = []
    for time, layer in enumerate(layers):
        following = layers[time + 1] if time + 1 < len(layers) else ()
        key = (id(layer), id(following))
        if key not in known:
            known[key] = _arrays(mdp, layer, following)
        result.append(known[key])
    return result


def start_nodes(mdp: FiniteMDP, layers: Sequence[LayerArrays]) -> list[tuple[float, int]]:
    """Return the probability of every start state and its index in the first layer, or `END`."""
    index = {state: number for number, state in enumerate(layers[0].states)} if layers else {}
    return [(prob, index.get(state, END)) for state, prob in mdp.start.items()]


def _arrays(mdp: FiniteMDP, layer: tuple[State, ...], following: tuple[State, ...]) -> LayerArrays:
    index = {state: number for number, state in enumerate(following)}
    listed = [outcomes for state in layer for outcomes in mdp.outcomes[state].values()]
    width = max(len(outcomes) for outcomes in listed)
    prob = np.zeros((len(listed), width))
    reward, after = np.empty_like(prob), np.empty(prob.shape, dtype=np.int64)
    for pair, outcomes in enumerate(listed):
        count = len(outcomes)
        prob[pair, :count] = [outcome.prob for outcome in outcomes]
        reward[pair, :count] = [outcome.reward for outcome in outcomes]
        after[pair, :count] = [index.get(outcome.next, END) for outcome in outcomes]
        reward[pair, count:], after[pair, count:] = reward[pair, 0], after[pair, 0]
    first = np.cumsum([0, *(len(mdp.outcomes[state]) for state in layer)])
    actions = tuple(action for state in layer for action in mdp.outcomes[state])
    return LayerArrays(layer, first, actions, prob, reward, after)


@dataclass(frozen=True)
class Lattice:
    """A unit, and how discounted rewards become multiples of it."""

    unit: float
    """The distance of neighbouring returns."""
    discount: float
    rounding: Literal["exact", "down", "up"]
    """"exact" if every discounted reward is a multiple of the unit, otherwise the direction of rounding."""

    def in_units(self, reward: Any, time: int) -> Any:
        """Return γᵗ × reward as a whole number of units; works on arrays."""
        scaled = self.discount**time * reward / self.unit
        nearest = np.rint(scaled)
        if self.rounding == "exact":
            return nearest.astype(np.int64)
        rounded = np.floor(scaled) if self.rounding == "down" else np.ceil(scaled)
        close = np.abs(scaled - nearest) <= TOLERANCE * np.maximum(1.0, np.abs(scaled))
        return np.where(close, nearest, rounded).astype(np.int64)

    def steps(self, layers: Sequence[LayerArrays]) -> list[Int[np.ndarray, "P O"]]:
        """Return the rewards of every time in units."""
        return [self.in_units(layer.reward, time) for time, layer in enumerate(layers)]

    def bounds(self, layers: Sequence[LayerArrays]) -> tuple[int, int]:
        """Return the smallest and the largest return from the start, in units."""
        low, high = return_bounds(layers, self.steps(layers))[0]
        return int(low.min()), int(high.max())


def find_unit(layers: Sequence[LayerArrays], discount: float) -> float | None:
    """Return the largest number of which every reward is a multiple; None if there is none or rewards are discounted.

    There is none either where returns of so many units would not be exact. All rewards 0 give the unit 1.
    """
    distinct = {id(layer): layer for layer in layers}.values()
    rewards = np.unique(np.concatenate([layer.reward[layer.prob > 0] for layer in distinct])) if layers else np.zeros(0)
    if discount != 1.0 and len(layers) > 1:
        return None
    fractions, denominator = [], 1
    for reward in rewards:
        fraction = Fraction(float(reward)).limit_denominator(LARGEST_DENOMINATOR)
        if abs(float(fraction) - reward) > 1e-12 * max(1.0, abs(reward)):
            return None
        denominator = math.lcm(denominator, fraction.denominator)
        if denominator > LARGEST_DENOMINATOR:
            return None
        fractions.append(fraction)
    unit = math.gcd(*(int(fraction * denominator) for fraction in fractions)) / denominator or 1.0
    return unit if _largest(layers) / unit * len(layers) <= LARGEST_RETURN else None


def coarse_lattice(layers: Sequence[LayerArrays], discount: float, unit: float) -> Lattice:
    """Return a lattice of rewards rounded down to a unit, or to a larger one if the rewards are very large."""
    return Lattice(max(unit, _largest(layers) * 2.0**-40), discount, "down")


def _largest(layers: Sequence[LayerArrays]) -> float:
    return max((float(np.abs(layer.reward).max()) for layer in layers), default=0.0)


def return_bounds(
    layers: Sequence[LayerArrays],
    rewards: Sequence[np.ndarray],
    discount: float = 1,
    pairs: Sequence[np.ndarray] | None = None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the smallest and the largest return to go of every state at every time, of all policies or of `pairs`."""
    lowest, highest = np.zeros((2, 1), rewards[0].dtype if rewards else np.int64)  # of the end
    bounds = []
    for time in reversed(range(len(layers))):
        layer, reward = layers[time], rewards[time]
        low = (reward + discount * lowest[layer.next]).min(axis=1)
        high = (reward + discount * highest[layer.next]).max(axis=1)
        bounds.append((layer.lowest(low), layer.best(high)) if pairs is None else (low[pairs[time]], high[pairs[time]]))
        lowest, highest = (np.append(end, 0) for end in bounds[-1])
    return bounds[::-1]


def mean_values(layers: Sequence[LayerArrays], rewards: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the best mean of the return to go of every state at every time, and the number of the first best pair."""
    following = np.zeros(1)
    answers = []
    for layer, reward in zip(reversed(layers), reversed(rewards), strict=True):
        q = (layer.prob * (reward + following[layer.next])).sum(axis=1)
        best = layer.best(q)
        at = np.flatnonzero(q >= best[layer.state_of_pair] - 1e-12 * max(1.0, float(np.abs(q).max())))
        pair = at[np.searchsorted(at, layer.first_pair[:-1])]
        answers.append((best, pair))
        following = np.append(best, 0.0)
    return answers[::-1]
