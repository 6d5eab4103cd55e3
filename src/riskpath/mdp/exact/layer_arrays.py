"""A finite problem as arrays, one set for every time: the form in which the fast solvers go through it.

The pairs (state, action) of a layer are numbered state by state. All pairs have the same number of outcomes: missing
ones are repetitions with probability 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Real

from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.problem import Action, State

END = -1
"""The index of the next state where an episode ends."""


@dataclass(frozen=True, eq=False)
class LayerArrays:
    """The states that an episode can be in after a number of steps; S states, P pairs, O outcomes."""

    states: tuple[State, ...]
    first_pair: Int[np.ndarray, " S1"]
    """The number of the first pair of every state, and the number of pairs at the end."""
    actions: tuple[Action, ...]
    """The action of every pair."""
    prob: Float[np.ndarray, "P O"]
    reward: Float[np.ndarray, "P O"]
    next: Int[np.ndarray, "P O"]
    """The index of the next state in the next layer, or `END`."""

    @property
    def state_of_pair(self) -> Int[np.ndarray, " P"]:
        """The index of the state of every pair."""
        return np.repeat(np.arange(len(self.states)), np.diff(self.first_pair))

    def number_of_choices(self) -> Int[np.ndarray, " S"]:
        """Return how many actions every state has."""
        return np.diff(self.first_pair)

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
