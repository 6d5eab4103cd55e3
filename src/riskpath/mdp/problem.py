"""The structure of a finite decision problem: states, actions, outcomes, and the protocol that evaluation needs.

This module lies below the evaluation of policies and below `FiniteMDP`, which offers that evaluation as a method.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from riskpath.errors import RiskpathError

MAX_STEPS = 10_000
"""The largest number of steps of an episode that exact computations go through."""

State: TypeAlias = Hashable
Action: TypeAlias = Hashable
Progress: TypeAlias = Callable[[int, int], None]
"""Receives the number of steps done and of all steps."""


class Outcome(NamedTuple):
    """One possible result of an action."""

    prob: float
    reward: float
    next: State


Outcomes: TypeAlias = Mapping[State, Mapping[Action, tuple[Outcome, ...]]]
"""The outcomes of every action of every non-terminal state."""


@runtime_checkable
class Problem(Protocol):
    """A finite decision problem, as the evaluation of a policy sees it. `riskpath.FiniteMDP` is one."""

    @property
    def outcomes(self) -> Outcomes:
        """The outcomes of every action of every non-terminal state."""
        ...

    @property
    def start(self) -> Mapping[State, float]:
        """The probability of every start state."""
        ...

    @property
    def discount(self) -> float:
        """γ."""
        ...

    @property
    def horizon(self) -> int | None:
        """The number of steps after which an episode is cut off, or None."""
        ...

    def actions(self, state: State) -> tuple[Action, ...]:
        """Return the actions of a state."""
        ...

    def is_terminal(self, state: State, time: int = 0) -> bool:
        """Return whether an episode that is in `state` after `time` steps ends there."""
        ...


def too_many_steps(steps: int | None) -> bool:
    """Tell whether an episode with this number of steps is too long for exact computations."""
    return steps is not None and steps > MAX_STEPS


def require_exact_steps(steps: int, horizon: int | None = None) -> None:
    """Refuse an exact computation over more than `MAX_STEPS` steps of an episode; the message names the horizon."""
    if too_many_steps(steps):
        raise RiskpathError(
            f"episodes of this problem can have {horizon or steps:,} steps, more than the limit of {MAX_STEPS:,} "
            "for exact computations; choose a smaller horizon"
        )
