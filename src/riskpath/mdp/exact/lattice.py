"""Rewards as whole multiples of a unit, so that returns are whole numbers and equal sums are equal exactly.

Many problems have such a unit: cents, or the 0.05 of a price. Where there is none (discounted rewards), rewards are
rounded: all of them down for a lower bound of every return, all of them up for an upper bound.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from riskpath.mdp.exact.layer_arrays import LayerArrays

LARGEST_DENOMINATOR = 10**5
"""Rewards with a larger denominator count as irrational."""
LARGEST_RETURN = 2**53
"""Beyond this number of units, sums of doubles are not exact."""
TOLERANCE = 1e-9
"""The accepted distance of a reward from a multiple of the unit, in units."""

Rounding = Literal["exact", "down", "up"]


@dataclass(frozen=True)
class Lattice:
    """A unit, and how discounted rewards become multiples of it."""

    unit: float
    """The distance of neighbouring returns."""
    discount: float
    """γ."""
    rounding: Rounding
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


def return_bounds(layers: Sequence[LayerArrays], steps: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the smallest and the largest return to go, in units, of every state at every time."""
    lowest, highest = np.zeros(1, np.int64), np.zeros(1, np.int64)  # of the end
    bounds = []
    for layer, step in zip(reversed(layers), reversed(steps), strict=True):
        low, high = step + lowest[layer.next], step + highest[layer.next]
        smallest, largest = layer.lowest(low.min(axis=1)), layer.best(high.max(axis=1))
        bounds.append((smallest, largest))
        lowest, highest = np.append(smallest, 0), np.append(largest, 0)
    return bounds[::-1]


def mean_values(layers: Sequence[LayerArrays], rewards: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the best mean of the return to go of every state at every time, and the number of the first best pair."""
    following = np.zeros(1)
    answers = []
    for layer, reward in zip(reversed(layers), reversed(rewards), strict=True):
        q = (layer.prob * (reward + following[layer.next])).sum(axis=1)
        best = layer.best(q)
        at = np.flatnonzero(q >= np.repeat(best, layer.number_of_choices()) - 1e-12 * max(1.0, float(np.abs(q).max())))
        pair = at[np.searchsorted(at, layer.first_pair[:-1])]
        answers.append((best, pair))
        following = np.append(best, 0.0)
    return answers[::-1]
