"""The call that every policy answers, and the classes of policies that the exact solvers return.

A policy is a function: `action, memory = policy(state, memory, reward)`. The memory is None at the start of an
episode and afterwards the value that the policy returned last; the reward is that of the step before. The content of
the memory defines the class of the policy: nothing (markov), states and actions (history), the return so far
(adaptive). A randomised policy returns a `Lottery`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from riskpath.errors import RiskpathError, short_repr
from riskpath.mdp.problem import Action, State

History: TypeAlias = tuple[Any, ...]
"""(s₀, a₀, s₁, …, s_t): states and actions, no rewards."""


@dataclass(frozen=True)
class Lottery:
    """A random choice of an action."""

    choices: tuple[tuple[float, Action, Any], ...]
    """(probability, action, memory) triples."""


@runtime_checkable
class Policy(Protocol):
    """The call that every policy answers, exact or learned."""

    def __call__(self, state: State, memory: Any, reward: float) -> tuple[Action, Any] | Lottery:
        """Return the action in `state` and the new memory."""
        ...


@dataclass(frozen=True)
class MarkovPolicy:
    """π(s): the action depends on the state only."""

    table: Mapping[Any, Action | Mapping[Any, float]]
    """For every state an action, or a dict {action: probability}."""

    def __call__(self, state: State, memory: Any = None, reward: float = 0.0) -> tuple[Action, Any] | Lottery:
        choice = _look_up(self.table, state, "state")
        if isinstance(choice, Mapping):
            return Lottery(tuple((prob, action, None) for action, prob in choice.items()))
        return choice, None


@dataclass(frozen=True)
class TimedPolicy:
    """π(t, s): the action depends on the state and the number of steps taken, for problems with a horizon."""

    table: Mapping[Any, Action]
    """An action for every (time, state)."""

    def __call__(self, state: State, memory: Any = None, reward: float = 0.0) -> tuple[Action, Any]:
        """Return the action of this time and state; the memory is the time."""
        time = 0 if memory is None else memory
        return _look_up(self.table, (time, state), "(time, state)"), time + 1


def timed_policy(table: Mapping[Any, Action]) -> MarkovPolicy | TimedPolicy:
    """Return the policy of {(time, state): action}, as a table of states where the time does not matter."""
    plain = {state: action for (_, state), action in table.items()}
    same = all(plain[state] == action for (_, state), action in table.items())
    return MarkovPolicy(plain) if same else TimedPolicy(table)


@dataclass(frozen=True)
class HistoryPolicy:
    """π(h): the action depends on all states and actions so far, not on rewards. The class of Trajectory Q-Learning."""

    table: Mapping[Any, Action]
    """An action for every history (s₀, a₀, s₁, …, s_t) that can occur."""

    def __call__(self, state: State, memory: Any = None, reward: float = 0.0) -> tuple[Action, Any]:
        """Return the action after this history; the memory is the history."""
        history = (*(memory or ()), state)
        action = _look_up(self.table, history, "history")
        return action, (*history, action)


@dataclass(frozen=True)
class AdaptivePolicy:
    """π(t, s, ρ): the action depends on the time, the state and the return so far ρ = r₀ + γ r₁ + … + γᵗ⁻¹ rₜ₋₁."""

    table: Mapping[Any, tuple[np.ndarray, Sequence[Action]]]
    """For every (time, state): the returns so far that can occur, ascending, and the action for each."""
    discount: float
    """γ."""

    def __call__(self, state: State, memory: Any = None, reward: float = 0.0) -> tuple[Action, Any]:
        """Return the action of the nearest return so far; the memory is the time and the return so far."""
        time, return_so_far = (0, 0.0) if memory is None else memory
        if memory is not None:
            return_so_far += self.discount**time * reward
            time += 1
        returns, actions = _look_up(self.table, (time, state), "(time, state)")
        nearest = int(np.abs(returns - return_so_far).argmin())
        # Equal sums differ in their last bits with the order of addition: the value of the table replaces them.
        same = abs(returns[nearest] - return_so_far) <= 1e-6 * max(1.0, abs(return_so_far))
        return actions[nearest], (time, float(returns[nearest]) if same else return_so_far)


@dataclass(frozen=True)
class ActionSequence:
    """A fixed list of actions. Under deterministic transitions every history policy is one."""

    actions: tuple[Action, ...]

    def __call__(self, state: State, memory: Any = None, reward: float = 0.0) -> tuple[Action, Any]:
        """Return the next action of the list; the memory is the number of actions taken."""
        time = memory or 0
        if time >= len(self.actions):
            raise RiskpathError(f"the action sequence has {len(self.actions)} actions, the episode needs more")
        return self.actions[time], time + 1


@dataclass(frozen=True)
class RandomisedPolicy:
    """Draws one of several policies at the start of an episode and follows it to the end."""

    parts: tuple[tuple[float, Policy], ...]
    """(probability, policy) pairs."""

    def __call__(self, state: State, memory: Any = None, reward: float = 0.0) -> tuple[Action, Any] | Lottery:
        """Return a lottery over the first actions, later the action of the policy that was drawn."""
        if memory is not None:
            number, inner = memory
            action, inner = _single(self.parts[number][1](state, inner, reward))
            return action, (number, inner)
        first = [(prob, *_single(policy(state, None, reward))) for prob, policy in self.parts]
        return Lottery(tuple((prob, action, (number, inner)) for number, (prob, action, inner) in enumerate(first)))


def _single(answer: tuple[Action, Any] | Lottery) -> tuple[Action, Any]:
    assert not isinstance(answer, Lottery), "the parts of a randomised policy are deterministic"
    return answer


PolicyLike: TypeAlias = Policy | Callable[..., Any] | Mapping[Any, Any] | Sequence[Action]
"""A policy, a dict {state: action}, or a list of actions."""


def as_policy(policy: PolicyLike) -> Policy:
    """Return a policy: a dict becomes a Markov policy, a list or tuple a sequence of actions."""
    if isinstance(policy, Mapping):
        return MarkovPolicy(policy)
    if callable(policy):
        return policy
    if isinstance(policy, Sequence) and not isinstance(policy, str):
        return ActionSequence(tuple(policy))
    raise RiskpathError(
        f"a policy must be a function, a dict from states to actions or a list of actions, got {type(policy).__name__}"
    )


def answers(policy: Policy, situations: Sequence[tuple[State, Any, float]]) -> Sequence[Any]:
    """Return a policy's result for each (state, memory, reward); in one call, if it has a method `answer_all`."""
    if (together := getattr(policy, "answer_all", None)) is not None:
        return together(situations)
    return [policy(*situation) for situation in situations]


def checked_choices(answer: Any, state: State, available: Sequence[Action]) -> Iterator[tuple[float, Action, Any]]:
    """Yield the possible choices in what a policy returned as (probability, action, memory)."""
    if not isinstance(answer, Lottery) and not (isinstance(answer, tuple) and len(answer) == 2):
        raise RiskpathError(
            f"a policy must return (action, memory) or a Lottery, got {short_repr(answer)} in state {state!r}"
        )
    options = answer.choices if isinstance(answer, Lottery) else ((1.0, *answer),)
    total = sum(prob for prob, _, _ in options)
    if abs(total - 1) > 1e-6 or any(prob < 0 for prob, _, _ in options):
        raise RiskpathError(f"action probabilities of the policy in state {state!r} must be non-negative and sum to 1")
    for prob, action, remembered in options:
        if not _is_one_of(action, available):
            accepted = ", ".join(map(repr, available))
            raise RiskpathError(
                f"the policy chose {short_repr(action)} in state {state!r}, whose actions are {accepted}"
            )
        if prob > 0:
            yield prob / total, action, remembered


def _is_one_of(action: Any, available: Sequence[Action]) -> bool:
    """Return whether an action is available. A value that is not hashable, such as an array, is not an action."""
    try:
        hash(action)
    except TypeError:
        return False
    return action in available


def _look_up(table: Mapping[Any, Any], key: Any, kind: str) -> Any:
    try:
        return table[key]
    except KeyError:
        raise RiskpathError(f"the policy has no action for {kind} {short_repr(key)}") from None
