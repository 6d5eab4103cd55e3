"""The structure of a finite decision problem: states, actions, outcomes, and the states that can occur after each step.

This module lies below the evaluation of policies and below `FiniteMDP`, which offers that evaluation as a method.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, cycle, islice
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from riskpath.errors import RiskpathError

MAX_STEPS = 10_000
"""The largest number of steps of an episode that exact computations go through."""

State: TypeAlias = Hashable
Action: TypeAlias = Hashable
Progress: TypeAlias = Callable[[int, int], None]
"""Receives the number of steps done and of all steps."""


def silent(done: int, total: int) -> None:
    """Report no progress."""


class Outcome(NamedTuple):
    """One possible result of an action."""

    prob: float
    reward: float
    next: State


Outcomes: TypeAlias = Mapping[State, Mapping[Action, tuple[Outcome, ...]]]
"""The outcomes of every action of every non-terminal state."""


@runtime_checkable
class Problem(Protocol):
    """A finite decision problem, as the evaluation of a policy sees it; `riskpath.FiniteMDP` is one."""

    @property
    def outcomes(self) -> Outcomes: ...
    @property
    def start(self) -> Mapping[State, float]: ...
    @property
    def discount(self) -> float: ...
    @property
    def horizon(self) -> int | None: ...
    def actions(self, state: State) -> tuple[Action, ...]: ...
    def is_terminal(self, state: State, time: int = 0) -> bool: ...


class Layers(Sequence[tuple[State, ...]]):
    """A read-only sequence: entry t holds the non-terminal states that can occur after t steps.

    The states after t + 1 steps follow from those after t steps. So once an entry occurs a second time, all later ones
    repeat with a fixed period: a horizon of a million steps on two states needs no more than a few stored entries.
    """

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


def depth_first(outcomes: Outcomes, start: Iterable[State]) -> tuple[list[State], list[State]]:
    """Return the non-terminal states, each after its successors, and a path from a state back to itself; [] if none.

    If there is such a path, the search ends there.
    """
    order: list[State] = []
    done: dict[State, bool] = {}  # False while the successors of a state are followed
    path: list[tuple[State, Iterator[State]]] = [(None, iter(start))]  # not recursive: problems may be deep
    while path:
        state, following = path[-1]
        for ahead in following:
            if ahead in outcomes and not done.get(ahead, False):
                break
        else:
            path.pop()
            if path:
                done[state] = True
                order.append(state)
            continue
        if ahead in done:
            states = [state for state, _ in path[1:]]
            return order, [*states[states.index(ahead) :], ahead]
        done[ahead] = False
        path.append((ahead, iter(successors(outcomes, [ahead]))))
    return order, []


def require_exact_steps(steps: int, horizon: int | None = None) -> None:
    """Refuse an exact computation over more than `MAX_STEPS` steps of an episode; the message names the horizon."""
    if steps > MAX_STEPS:
        raise RiskpathError(
            f"episodes of this problem can have {horizon or steps:,} steps, more than the limit of {MAX_STEPS:,} "
            "for exact computations; choose a smaller horizon"
        )
