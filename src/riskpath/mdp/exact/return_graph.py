"""Dynamic programming over (time, state, return so far).

For a utility u of the final return, backward induction gives the best policy that sees the return so far:

    V_t(s, ρ) = max_a E[V_{t+1}(S′, ρ + γᵗR)],     V = u(ρ) where an episode ends.

The returns that can occur are collected once, time by time. Then any number of utilities is solved together, as the
last axis of every array (B below).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from riskpath.errors import RiskpathError
from riskpath.mdp.exact.layer_arrays import END, LayerArrays, find_unit, layer_arrays, start_nodes
from riskpath.mdp.law import ATOM_TOLERANCE, Law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import AdaptivePolicy
from riskpath.mdp.problem import Action, State

MAX_NODES = 4_000_000
"""The largest number of (time, state, return so far) triples."""
MAX_CELLS = 64_000_000
"""The largest size of a temporary array; more utilities than that are solved in pieces."""

Utilities = Float[np.ndarray, "Z B"]
"""u(z) for every final return z and each of B utilities."""


@dataclass(frozen=True)
class _Nodes:
    """The (state, return so far) of one time, N of them; a row is one action of one node."""

    layer: LayerArrays
    state: Int[np.ndarray, " N"]
    """The index of the state of every node, ascending."""
    returns: Float[np.ndarray, " N"]
    """The return so far of every node, ascending within a state."""
    first_row: Int[np.ndarray, " N1"]
    """The first row of every node, and the number of rows at the end."""
    pair: Int[np.ndarray, " R"]
    """The (state, action) pair of every row."""
    index: Int[np.ndarray, "R O"]
    """By outcome: the number of the next node, or the number of nodes of the next time + the index of a final."""


class ReturnGraph:
    """All (time, state, return so far) that can occur under any policy."""

    finals: Float[np.ndarray, " Z"]
    """Every attainable final return, ascending."""

    def __init__(self, mdp: FiniteMDP, layers: Sequence[LayerArrays] | None = None, max_nodes: int | None = None):
        self.mdp = mdp
        arrays = layer_arrays(mdp) if layers is None else layers
        limit = MAX_NODES if max_nodes is None else max_nodes
        self.starts = start_nodes(mdp, arrays)
        """The probability of every start state, and its node; `END` if the episode ends there."""
        count = len(arrays[0].states) if arrays else 0
        unit = find_unit(arrays, mdp.discount)
        state, returns = np.arange(count), np.zeros(count)
        self.times: list[_Nodes] = []
        ended: list[np.ndarray] = []
        total = 0
        for time, layer in enumerate(arrays):
            total += state.size
            if total > limit:
                raise RiskpathError(
                    f"the problem has more than {limit:,} combinations of time, state and return so far; "
                    "round the rewards, use discount 1 or shorten the problem"
                )
            nodes, state, returns, finals = _expand(layer, state, returns, mdp.discount**time, unit)
            self.times.append(nodes)
            ended.append(finals)
        ended.append(np.zeros(sum(node == END for _, node in self.starts)))
        finals = np.concatenate(ended)
        _, self.finals, places = _unique_nodes(np.zeros(finals.size, np.int64), finals, unit)
        self.zero_index = places[-1] if ended[-1].size else 0
        """The index of the final return 0 of episodes that end where they start."""
        offset = 0
        for time, nodes in enumerate(self.times):
            after = self.times[time + 1].state.size if time + 1 < len(self.times) else 0
            over = nodes.index < 0
            nodes.index[over] = after + places[offset - 1 - nodes.index[over]]
            offset += ended[time].size

    @property
    def size(self) -> int:
        """The number of outcomes of all actions of all nodes."""
        return sum(nodes.index.size for nodes in self.times)

    def values(self, utilities: Utilities) -> Float[np.ndarray, " B"]:
        """Return the best E[u(Z)] for each utility."""
        return np.concatenate([self._respond(part, False).value for part in self._pieces(utilities)])

    def best_response(self, utilities: Utilities) -> "Response":
        """Return the best policy for each utility; of equally good actions the first."""
        parts = [self._respond(part, True) for part in self._pieces(utilities)]
        chosen = [np.concatenate(picks, axis=1) for picks in zip(*(part.chosen for part in parts), strict=True)]
        return Response(self, chosen, np.concatenate([part.value for part in parts]))

    def _pieces(self, utilities: Utilities) -> list[np.ndarray]:
        rows = max((nodes.pair.size for nodes in self.times), default=1) + len(self.finals)
        width = max(1, MAX_CELLS // max(rows, 1))
        return [utilities[:, at : at + width] for at in range(0, utilities.shape[1], width)]

    def _respond(self, utilities: Utilities, remember: bool) -> "Response":
        chosen: list[np.ndarray] = []
        value = np.zeros((0, utilities.shape[1]))
        for nodes in reversed(self.times):
            ends = nodes.index.size > 0 and int(nodes.index.max()) >= len(value)
            future = np.concatenate([value, utilities]) if ends else value
            q = np.zeros((nodes.pair.size, utilities.shape[1]))
            for outcome in range(nodes.index.shape[1]):
                q += nodes.layer.prob[nodes.pair, outcome][:, None] * future[nodes.index[:, outcome]]
            value = np.maximum.reduceat(q, nodes.first_row[:-1])
            if remember:
                chosen.append(_first_best(q, value, nodes.first_row))
        start = np.zeros(utilities.shape[1])
        for prob, node in self.starts:
            start += prob * (utilities[self.zero_index] if node == END else value[node])
        return Response(self, chosen[::-1], start)


@dataclass(frozen=True)
class Response:
    """Best policies for B utilities."""

    graph: ReturnGraph
    chosen: list[np.ndarray]
    """By time: the number of the chosen action of every node."""
    value: Float[np.ndarray, " B"]
    """E[u(Z)] from the start."""

    def final_probs(self) -> Float[np.ndarray, "Z B"]:
        """Return the probabilities of the final returns of the graph under each policy."""
        graph, width = self.graph, self.value.shape[0]
        finals = np.zeros((len(graph.finals), width))
        mass = np.zeros((graph.times[0].state.size if graph.times else 0, width))
        for prob, node in graph.starts:
            if node == END:
                finals[graph.zero_index] += prob
            else:
                mass[node] += prob
        for time, (nodes, chosen) in enumerate(zip(graph.times, self.chosen, strict=True)):
            after = graph.times[time + 1].state.size if time + 1 < len(graph.times) else 0
            node, column = np.nonzero(mass)
            row = nodes.first_row[node] + chosen[node, column]
            moved = mass[node, column][:, None] * nodes.layer.prob[nodes.pair[row]]
            target = nodes.index[row] * width + column[:, None]
            size = (after + len(finals)) * width
            arrived = np.bincount(target.ravel(), weights=moved.ravel(), minlength=size).reshape(-1, width)
            mass = arrived[:after]
            finals += arrived[after:]
        return finals

    def policy(self, column: int = 0) -> AdaptivePolicy:
        """Return the policy of one utility as a table."""
        table: dict[tuple[int, State], tuple[np.ndarray, list[Action]]] = {}
        for time, (nodes, chosen) in enumerate(zip(self.graph.times, self.chosen, strict=True)):
            names = [nodes.layer.actions[pair] for pair in nodes.pair[nodes.first_row[:-1] + chosen[:, column]]]
            cuts = np.searchsorted(nodes.state, np.arange(len(nodes.layer.states) + 1))
            for state, low, high in zip(nodes.layer.states, cuts[:-1], cuts[1:], strict=True):
                table[time, state] = (nodes.returns[low:high], names[low:high])
        return AdaptivePolicy(table, self.graph.mdp.discount)

    def law(self, column: int = 0) -> Law:
        """Return the distribution of the return of one policy."""
        return Law(self.graph.finals, self.final_probs()[:, column])


def _expand(
    layer: LayerArrays, state: np.ndarray, returns: np.ndarray, scale: float, unit: float | None
) -> tuple[_Nodes, np.ndarray, np.ndarray, np.ndarray]:
    """Return the nodes of one time, the states and returns of the nodes one step later, and the final returns.

    In the index, the final return number i is −1 − i.
    """
    counts = np.diff(layer.first_pair)[state]
    first_row = np.concatenate([[0], np.cumsum(counts)])
    node = np.repeat(np.arange(state.size), counts)
    pair = layer.first_pair[state[node]] + np.arange(first_row[-1]) - first_row[node]
    reached = returns[node][:, None] + scale * layer.reward[pair]
    after = layer.next[pair]
    index = np.empty(after.shape, np.int64)
    over = after < 0
    finals = reached[over]
    index[over] = -1 - np.arange(finals.size)
    new_state, new_returns, place = _unique_nodes(after[~over], reached[~over], unit)
    index[~over] = place
    return _Nodes(layer, state, returns, first_row, pair, index), new_state, new_returns, finals


def _first_best(
    q: Float[np.ndarray, "R B"], best: Float[np.ndarray, "N B"], first_row: Int[np.ndarray, " N1"]
) -> Int[np.ndarray, "N B"]:
    """Return the number of the first action of every node that has the best value."""
    counts = np.diff(first_row)
    pick = np.zeros(best.shape, np.int16)
    for number in range(int(counts.max()) - 1, -1, -1):
        has = np.flatnonzero(counts > number)
        rows = q[first_row[has] + number] >= best[has]
        pick[has] = np.where(rows, number, pick[has])
    return pick


def _unique_nodes(
    state: np.ndarray, returns: np.ndarray, unit: float | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct (state, return) pairs, ascending, and the number of each given pair among them."""
    if returns.size == 0:
        return state, returns, np.zeros(0, np.int64)
    if unit is not None:
        whole = np.rint(returns / unit).astype(np.int64)
        low = int(whole.min())
        width = int(whole.max()) - low + 1
        if (int(state.max()) + 1) * width <= MAX_CELLS:  # then marking a table is faster than sorting
            key = state * width + (whole - low)
            occupied = np.zeros((int(state.max()) + 1) * width, bool)
            occupied[key] = True
            number = np.cumsum(occupied) - 1
            distinct = np.flatnonzero(occupied)
            return distinct // width, (distinct % width + low) * unit, number[key]
    order = np.lexsort((returns, state))
    states, ascending = state[order], returns[order]
    scale = max(1.0, float(np.abs(returns).max()))
    new = (np.diff(states, prepend=-1) != 0) | (np.diff(ascending, prepend=-np.inf) > ATOM_TOLERANCE * scale)
    place = np.empty(returns.size, np.int64)
    place[order] = np.cumsum(new) - 1
    return states[new], ascending[new], place
