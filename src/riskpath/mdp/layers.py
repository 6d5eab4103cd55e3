"""The states that an episode can be in after 0, 1, 2, … steps, stored only until they repeat.

The layer after t + 1 steps follows from the layer after t steps. So once a layer occurs a second time, all later
layers repeat with a fixed period: a horizon of a million steps on two states needs no more than a few stored layers.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, cycle, islice
from typing import Any

from riskpath.errors import RiskpathError
from riskpath.mdp.problem import Outcomes, State


class Layers(Sequence[tuple[State, ...]]):
    """A read-only sequence: entry t holds the non-terminal states that can occur after t steps."""

    def __init__(self, outcomes: Outcomes, start: Mapping[State, float], horizon: int | None):
        stored: list[tuple[State, ...]] = []
        time_of: dict[tuple[State, ...], int] = {}
        layer = tuple(state for state in start if state in outcomes)
        while layer and layer not in time_of and (horizon is None or len(stored) < horizon):
            time_of[layer] = len(stored)
            stored.append(layer)
            layer = tuple(state for state in successors(outcomes, layer) if state in outcomes)
        self.distinct = tuple(stored)
        """Every layer once, in order of first occurrence."""
        self._length, self._repeats_from = len(stored), len(stored)
        if layer in time_of:
            if horizon is None:
                raise RiskpathError("episodes of this problem need not end: give horizon=…")
            self._length, self._repeats_from = horizon, time_of[layer]

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(self._length)[index])
        time = range(self._length)[index]
        if time >= len(self.distinct):
            time = self._repeats_from + (time - self._repeats_from) % (len(self.distinct) - self._repeats_from)
        return self.distinct[time]

    def __iter__(self) -> Iterator[tuple[State, ...]]:
        return islice(chain(self.distinct, cycle(self.distinct[self._repeats_from :])), self._length)

    def __repr__(self) -> str:
        return f"<Layers: {self._length:,} layers, {len(self.distinct):,} stored>"


def successors(outcomes: Outcomes, states: Sequence[State]) -> dict[State, None]:
    """Return all possible next states of some non-terminal states, in order and each once."""
    listed = (entries for state in states for entries in outcomes[state].values())
    return dict.fromkeys(outcome.next for entries in listed for outcome in entries)
