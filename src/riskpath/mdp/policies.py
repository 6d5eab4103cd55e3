"""What a policy is, and the three classes of them that the exact solvers speak of.

A policy is a function: `action, memory = policy(state, memory, reward)`. The memory is None when an episode
starts and afterwards whatever the policy returned; the reward is the one just received. What a policy keeps in
its memory is its class: nothing (markov), states and actions (history), the return so far (adaptive). A policy
that draws its action returns a `Lottery` instead.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from riskpath.errors import RiskpathError
from riskpath.mdp.problem import Action, State

History: TypeAlias = tuple[Any, ...]
"""(s₀, a₀, s₁, …, s_t): states and actions, no rewards."""


@dataclass(frozen=True)
class Lottery:
    """A random choice: (probability, action, memory) triples."""

    choices: tuple[tuple[float, Action, Any], ...]


@runtime_checkable
class Policy(Protocol):
    """The call that every policy answers, exact or learned."""

    def __call__(self, state: State, memory: Any, reward: float) -> tuple[Action, Any] | Lottery:
        """The action in `state`, and what to remember."""
        ...


@dataclass(frozen=True)
class MarkovPolicy:
    """π(s): looks at the state alone."""

    table: Mapping[Any, Action | Mapping[Any, float]]
    """An action for every state, or probabilities of actions."""

    def __call__(self, state: State, memory: Any = None, reward: float = 0.0) -> tuple[Action, Any] | Lottery:
        """The action of this state."""
        choice = _look_up(self.table, state, "state")
        if isinstance(choice, Mapping):
            return Lottery(tuple((prob, action, None) for action, prob in choice.items()))
        return choice, None


@dataclass(frozen=True)
class TimedPolicy:
    """π(t, s): a Markov policy that also counts the steps, for problems with a horizon."""

    table: Mapping[Any, Action]
    """An action for every (time, state)."""

    def __call__(self, state: State, memory: Any = None, reward: float = 0.0) -> tuple[Action, Any]:
        """The action of this time and state; remembers the time."""
        time = 0 if memory is None else memory
        return _look_up(self.table, (time, state), "(time, state)"), time + 1


@dataclass(frozen=True)
class HistoryPolicy:
    """π(h): looks at the states and actions so far, never at rewards. The class of Trajectory Q-Learning."""

    table: Mapping[Any, Action]
    """An action for every history (s₀, a₀, s₁, …, s_t) that can occur."""

    def __call__(self, state: State, memory: Any = None, reward: float = 0.0) -> tuple[Action, Any]:
        """The action after this history; remembers the history."""
        history = (*(memory or ()), state)
        action = _look_up(self.table, history, "history")
        return action, (*history, action)


@dataclass(frozen=True)
class AdaptivePolicy:
    """π(t, s, ρ): also looks at ρ = Σᵢ₍ᵢ﹤ₜ₎ γⁱ rᵢ, the return so far."""

    table: Mapping[Any, tuple[np.ndarray, Sequence[Action]]]
    """For every (time, state), the returns so far that can occur, ascending, and the action for each."""
    discount: float
    """γ."""

    def __call__(self, state: State, memory: Any = None, reward: float = 0.0) -> tuple[Action, Any]:
        """The action of the nearest return so far; remembers the time and that return."""
        time, earned = (0, 0.0) if memory is None else memory
        if memory is not None:
            earned += self.discount**time * reward
            time += 1
        returns, actions = _look_up(self.table, (time, state), "(time, state)")
        nearest = int(np.abs(returns - earned).argmin())
        # Sums reached along different paths differ in the last bits: the table's own value is kept.
        same = abs(returns[nearest] - earned) <= 1e-6 * max(1.0, abs(earned))
        return actions[nearest], (time, float(returns[nearest]) if same else earned)


@dataclass(frozen=True)
class ActionSequence:
    """A fixed list of actions, whatever happens: all that a history policy is under deterministic transitions."""

    actions: tuple[Action, ...]
    """a₀, a₁, …"""

    def __call__(self, state: State, memory: Any = None, reward: float = 0.0) -> tuple[Action, Any]:
        """The next action of the list; remembers how many were taken."""
        time = memory or 0
        if time >= len(self.actions):
            raise RiskpathError(f"the action sequence has {len(self.actions)} actions, the episode needs more")
        return self.actions[time], time + 1


PolicyLike: TypeAlias = Policy | Callable[..., Any] | Mapping[Any, Any] | Sequence[Action]
"""A policy, a dict from states to actions, or a list of actions."""


def as_policy(policy: PolicyLike) -> Policy:
    """A dict is read as a Markov policy, a list or tuple as a sequence of actions."""
    if isinstance(policy, Mapping):
        return MarkovPolicy(policy)
    if callable(policy):
        return policy
    if isinstance(policy, Sequence) and not isinstance(policy, str):
        return ActionSequence(tuple(policy))
    raise RiskpathError(
        f"a policy must be a function, a dict from states to actions or a list of actions, got {type(policy).__name__}"
    )


def choices(
    policy: Policy, state: State, memory: Any, reward: float, available: Sequence[Action]
) -> Iterator[tuple[float, Action, Any]]:
    """What the policy may do here, as (probability, action, memory), each action checked."""
    answer = policy(state, memory, reward)
    if not isinstance(answer, Lottery) and not (isinstance(answer, tuple) and len(answer) == 2):
        raise RiskpathError(f"a policy must return (action, memory) or a Lottery, got {answer!r} in state {state!r}")
    options = answer.choices if isinstance(answer, Lottery) else ((1.0, *answer),)
    total = sum(prob for prob, _, _ in options)
    if abs(total - 1) > 1e-6 or any(prob < 0 for prob, _, _ in options):
        raise RiskpathError(f"action probabilities of the policy in state {state!r} must be non-negative and sum to 1")
    for prob, action, remembered in options:
        if action not in available:
            raise RiskpathError(
                f"the policy chose {action!r} in state {state!r}, whose actions are {', '.join(map(repr, available))}"
            )
        if prob > 0:
            yield prob / total, action, remembered


def _look_up(table: Mapping[Any, Any], key: Any, kind: str) -> Any:
    try:
        return table[key]
    except KeyError:
        raise RiskpathError(f"the policy has no action for {kind} {key!r}") from None
