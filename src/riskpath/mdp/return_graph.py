"""Dynamic programming over (time, state, return so far).

For a utility u of the final return, backward induction gives the best policy that sees the return so far:

    V_t(s, ρ) = max_a E[V_{t+1}(S′, ρ + γᵗR)],     V = u(ρ) where an episode ends.

The returns that can occur are collected once. Then any number of utilities is solved together, as the last axis of
every array (B below).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from riskpath.errors import RiskpathError
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import AdaptivePolicy
from riskpath.mdp.problem import Action, State
from riskpath.risk.law import ATOM_TOLERANCE, Law

MAX_NODES = 4_000_000
"""The largest number of (time, state, return so far) triples."""

Utilities = Float[np.ndarray, "Z B"]
"""u(z) for every final return z and each of B utilities."""


@dataclass(frozen=True)
class _Branch:
    """One outcome of an action, for all returns so far of a state."""

    prob: float
    next: State | None
    """None where the episode ends."""
    index: Int[np.ndarray, " n"]
    """For each return so far, its index among the returns of the next state or among the final returns."""


@dataclass(frozen=True)
class _Node:
    """A state at one time: the returns so far that can occur there, and the outcomes of its actions."""

    returns: Float[np.ndarray, " n"]
    branches: dict[Action, list[_Branch]]


class ReturnGraph:
    """All (time, state, return so far) that can occur under any policy."""

    finals: Float[np.ndarray, " Z"]
    """Every attainable final return, ascending."""

    def __init__(self, mdp: FiniteMDP):
        self.mdp = mdp
        self.layers: list[dict[State, _Node]] = []
        arriving: dict[State, np.ndarray] = {state: np.zeros(1) for state in mdp.start}
        ended: list[tuple[_Branch, np.ndarray]] = []
        nodes = 0
        while live := {s: rho for s, rho in arriving.items() if not mdp.is_terminal(s, len(self.layers))}:
            layer, arriving = self._expand(live, len(self.layers), ended)
            self.layers.append(layer)
            nodes += sum(len(rho) for rho in live.values())
            if nodes > MAX_NODES:
                raise RiskpathError(
                    f"the problem has more than {MAX_NODES:,} combinations of time, state and return so far; "
                    "round the rewards, use discount 1 or shorten the problem"
                )
        at_start = np.zeros(1) if any(mdp.is_terminal(state, 0) for state in mdp.start) else np.empty(0)
        self.finals, indices = _unique([rho for _, rho in ended] + [at_start])
        for (branch, _), index in zip(ended, indices, strict=False):
            branch.index[:] = index
        self.zero_index = indices[-1]
        """Index of the final return 0 of episodes that end where they start; empty if there are none."""

    def _expand(
        self, live: dict[State, np.ndarray], time: int, ended: list[tuple[_Branch, np.ndarray]]
    ) -> tuple[dict[State, _Node], dict[State, np.ndarray]]:
        """Return the nodes of one time and the returns so far of every state one step later; extend `ended`."""
        scale = self.mdp.discount**time
        waiting: dict[State, list[tuple[_Branch, np.ndarray]]] = {}
        layer: dict[State, _Node] = {}
        for state, rho in live.items():
            branches: dict[Action, list[_Branch]] = {}
            for action, outcomes in self.mdp.outcomes[state].items():
                for prob, reward, following in outcomes:
                    over = self.mdp.is_terminal(following, time + 1)
                    branch = _Branch(prob, None if over else following, np.zeros(len(rho), dtype=np.intp))
                    branches.setdefault(action, []).append(branch)
                    target = ended if over else waiting.setdefault(following, [])
                    target.append((branch, rho + scale * reward))
            layer[state] = _Node(rho, branches)
        arriving: dict[State, np.ndarray] = {}
        for following, entries in waiting.items():
            arriving[following], indices = _unique([rho for _, rho in entries])
            for (branch, _), index in zip(entries, indices, strict=True):
                branch.index[:] = index
        return layer, arriving

    def best_response(self, utilities: Utilities, prefer_mean: bool = False) -> "Response":
        """Return the best policy for each utility; of equally good actions the first, or the one with the best mean."""
        tie = self.finals[:, None] if prefer_mean else None
        chosen: list[dict[State, np.ndarray]] = []
        value: dict[State, np.ndarray] = {}
        value_of_tie: dict[State, np.ndarray] = {}
        for layer in reversed(self.layers):
            picks, new_value, new_tie = {}, {}, {}
            for state, node in layer.items():
                q = np.stack([_expect(branches, value, utilities) for branches in node.branches.values()])
                if tie is None:
                    picks[state] = q.argmax(axis=0)
                else:
                    means = np.stack([_expect(branches, value_of_tie, tie) for branches in node.branches.values()])
                    best = q >= q.max(axis=0) - 1e-12 * max(1.0, float(np.abs(q).max()))
                    picks[state] = np.where(best, means, -np.inf).argmax(axis=0)
                    new_tie[state] = np.take_along_axis(means, picks[state][None], axis=0)[0]
                new_value[state] = np.take_along_axis(q, picks[state][None], axis=0)[0]
            value, value_of_tie = new_value, new_tie
            chosen.append(picks)
        start = sum(
            (
                prob * (value[s][0] if s in value else utilities[self.zero_index[0]])
                for s, prob in self.mdp.start.items()
            ),
            np.zeros(utilities.shape[1]),
        )
        return Response(self, chosen[::-1], np.asarray(start))


@dataclass(frozen=True)
class Response:
    """Best policies for B utilities."""

    graph: ReturnGraph
    chosen: list[dict[State, np.ndarray]]
    """By time and state: the index of the chosen action, [returns, B]."""
    value: Float[np.ndarray, " B"]
    """E[u(Z)] from the start."""

    def final_probs(self) -> Float[np.ndarray, "Z B"]:
        """Return the probabilities of the final returns of the graph under each policy."""
        graph = self.graph
        width = self.value.shape[0]
        finals = np.zeros((len(graph.finals), width))
        mass: dict[State, np.ndarray] = {}
        for state, prob in graph.mdp.start.items():
            if graph.mdp.is_terminal(state, 0):
                finals[graph.zero_index[0]] += prob
            else:
                mass[state] = np.full((1, width), prob)
        for time, layer in enumerate(graph.layers):
            following = {
                state: np.zeros((len(node.returns), width))
                for state, node in (graph.layers[time + 1].items() if time + 1 < len(graph.layers) else ())
            }
            for state, node in layer.items():
                for number, branches in enumerate(node.branches.values()):
                    moving = np.where(self.chosen[time][state] == number, mass[state], 0.0)
                    if not moving.any():
                        continue
                    for branch in branches:
                        target = finals if branch.next is None else following[branch.next]
                        np.add.at(target, branch.index, branch.prob * moving)
            mass = following
        return finals

    def policy(self, column: int = 0) -> AdaptivePolicy:
        """Return the policy of one utility as a table."""
        table: dict[tuple[int, State], tuple[np.ndarray, list[Action]]] = {}
        for time, layer in enumerate(self.graph.layers):
            for state, node in layer.items():
                names = list(node.branches)
                table[time, state] = (node.returns, [names[i] for i in self.chosen[time][state][:, column]])
        return AdaptivePolicy(table, self.graph.mdp.discount)

    def law(self, column: int = 0) -> Law:
        """Return the law of the return of one policy."""
        probs = self.final_probs()[:, column]
        return Law(self.graph.finals, probs)


def _expect(branches: list[_Branch], value: dict[State, np.ndarray], at_end: np.ndarray) -> np.ndarray:
    """Return Σ over outcomes of probability × value, [returns, B]."""
    terms = [b.prob * (at_end if b.next is None else value[b.next])[b.index] for b in branches]
    return sum(terms[1:], terms[0])


def _unique(arrays: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the distinct values of all arrays, ascending, and the indices of the values of each array among them."""
    values = np.concatenate(arrays)
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    scale = max(1.0, float(np.abs(values).max())) if values.size else 1.0
    new: Bool[np.ndarray, " n"] = np.diff(ascending, prepend=-np.inf) > ATOM_TOLERANCE * scale
    place = np.empty(len(values), dtype=np.intp)
    place[order] = np.cumsum(new) - 1
    return ascending[new], np.split(place, np.cumsum([len(array) for array in arrays])[:-1])
