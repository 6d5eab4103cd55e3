"""A finite decision problem with random rewards and transitions.

An outcome is a triple (probability, reward, next state): reward and next state are drawn together. A state
without actions is terminal. An episode also ends after `horizon` steps, if a horizon is set. The return of an
episode is Σₜ γᵗ rₜ.
"""

from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np

from riskpath.errors import RiskpathError, did_you_mean, short_repr
from riskpath.mdp.law import Law
from riskpath.mdp.model_input import check_discount, check_features, check_outcomes, check_start, check_terminal
from riskpath.mdp.policies import PolicyLike, as_policy
from riskpath.mdp.policy_evaluation import evaluate, simulate
from riskpath.mdp.problem import (
    Action,
    Layers,
    Outcome,
    Outcomes,
    Progress,
    State,
    depth_first,
    require_exact_steps,
    silent,
    successors,
)
from riskpath.validation import given, require_counts

__all__ = ["FiniteMDP", "Outcome"]


@dataclass(frozen=True, eq=False, repr=False)
class FiniteMDP:
    """A finite decision problem. Make one with `FiniteMDP.from_outcomes`, which checks its input."""

    outcomes: Outcomes
    """The outcomes of every action of every non-terminal state."""
    start: Mapping[State, float]
    """The probability of every start state."""
    discount: float = 1.0
    """γ in (0, 1]."""
    horizon: int | None = None
    """The number of steps after which an episode is cut off; None if every episode ends by itself."""
    name: str = "FiniteMDP"
    """The name in messages."""
    features: Mapping[State, tuple[float, ...]] | None = None
    """The vector that a learning agent observes in every state; None if it observes the number of the state."""

    @staticmethod
    def from_outcomes(
        outcomes: Mapping[Any, Iterable[tuple[float, float, Any]]],
        start: State | Mapping[Any, float],
        discount: float = 1.0,
        horizon: Integral | int | None = None,
        terminal: Iterable[State] | None = None,
        name: str = "FiniteMDP",
        features: Mapping[Any, Any] | None = None,
    ) -> "FiniteMDP":
        """Make a problem from {(state, action): [(probability, reward, next state), …]}.

        A state without actions is terminal. If `terminal` lists the terminal states, spelling mistakes are
        refused: every next state must have an action or be in that list.

        `features` gives every state a vector of numbers, {state: vector}. Agents that learn then observe this vector
        instead of a state number, so that networks generalise over states. Exact solvers do not use it.
        """
        require_counts(**given(horizon=horizon))
        table = check_outcomes(outcomes)
        if terminal is not None:
            check_terminal(table, terminal)
        steps = None if horizon is None else int(horizon)
        vectors = None if features is None else check_features(table, features)
        mdp = FiniteMDP(table, check_start(table, start), check_discount(discount), steps, name, vectors)
        if horizon is None and (loop := depth_first(table, mdp.start)[1]):
            raise RiskpathError(f"episodes of this problem need not end ({' → '.join(map(str, loop))}): give horizon=…")
        return mdp

    def with_discount(self, discount: float) -> "FiniteMDP":
        """Return the same problem with another discount."""
        return replace(self, discount=check_discount(discount))

    def evaluate(self, policy: PolicyLike, max_situations: int | None = None) -> Law:
        """Return the exact return distribution under a policy.

        Args:
            policy: A function, a dict {state: action} or a list of actions.
            max_situations: A policy that distinguishes more of them at one time is refused; by default two million.
        """
        require_counts(**given(max_situations=max_situations))
        return evaluate(self, as_policy(policy), max_situations)

    def simulate(self, policy: PolicyLike, episodes: int, seed: int | np.random.Generator = 0) -> np.ndarray:
        """Return the returns of independent simulated episodes."""
        require_counts(episodes=episodes)
        return simulate(self, as_policy(policy), episodes, seed)

    def actions(self, state: State) -> tuple[Action, ...]:
        """Return the actions of a state in the order of the input; a terminal state has none."""
        try:
            if state in self.outcomes:
                return tuple(self.outcomes[state])
            if state in self._state_set:
                return ()
        except TypeError:  # not hashable, so not a state
            pass
        names = [name for name in self.states if isinstance(name, str)]
        hint = did_you_mean(state, names) if isinstance(state, str) else ""
        raise RiskpathError(f"unknown state {short_repr(state)}{hint}; the states are {_first(self.states)}")

    def is_terminal(self, state: State, time: int = 0) -> bool:
        """Return whether an episode that is in `state` after `time` steps ends there."""
        return state not in self.outcomes or (self.horizon is not None and time >= self.horizon)

    @cached_property
    def states(self) -> tuple[State, ...]:
        """All states, terminal ones included: first the reachable ones, then the rest in the order of the input."""
        return tuple(
            dict.fromkeys([*self.reachable_states, *self.outcomes, *successors(self.outcomes, [*self.outcomes])])
        )

    @cached_property
    def reachable_states(self) -> tuple[State, ...]:
        """The states that can occur in an episode, in order of first appearance, terminal ones included."""
        reached = dict.fromkeys(self.start)
        for layer in self.layers.distinct:
            reached |= successors(self.outcomes, layer)
        return tuple(reached)

    @cached_property
    def _state_set(self) -> frozenset[State]:
        return frozenset(self.states)

    @cached_property
    def layers(self) -> Layers:
        """The non-terminal states that an episode can be in after 0, 1, 2, … steps."""
        return Layers(self.outcomes, self.start, self.horizon)

    @property
    def max_episode_steps(self) -> int:
        """The largest number of steps an episode can have."""
        return len(self.layers)

    @cached_property
    def reward_laws(self) -> dict[tuple[State, Action], Law]:
        """The distribution of the immediate reward R(s, a)."""
        return {
            (state, action): Law([o.reward for o in listed], [o.prob for o in listed])
            for state, actions in self.outcomes.items()
            for action, listed in actions.items()
        }

    @cached_property
    def successor(self) -> dict[tuple[State, Action], State] | None:
        """The next state M(s, a) if all transitions are deterministic; None otherwise."""
        successor = {(s, a): listed[0].next for s, table in self.outcomes.items() for a, listed in table.items()}
        random = any(o.next != following for (s, a), following in successor.items() for o in self.outcomes[s][a])
        return None if random else successor

    def backward(
        self, expect: Callable[[list[float], list[float]], float], progress: Progress = silent
    ) -> list[dict[State, dict[Action, float]]]:
        """Return Q_t(s, a) = expect(values, probs) of r + γ V_{t+1}(s′) for every time t.

        V_t(s) = max_a Q_t(s, a). `expect` is the mean for the usual backward induction, a risk measure for a nested
        problem.
        """
        require_exact_steps(self.max_episode_steps)
        following: dict[State, float] = {}
        tables: list[dict[State, dict[Action, float]]] = []

        def value(outcomes: tuple[Outcome, ...]) -> float:
            paid = [o.reward + self.discount * following.get(o.next, 0.0) for o in outcomes]
            return expect(paid, [o.prob for o in outcomes])

        for layer in reversed(self.layers):
            table = {state: {a: value(listed) for a, listed in self.outcomes[state].items()} for state in layer}
            tables.append(table)
            progress(len(tables), len(self.layers))
            following = {state: max(values.values()) for state, values in table.items()}
        return tables[::-1]

    def __repr__(self) -> str:
        actions = {action for listed in self.outcomes.values() for action in listed}
        horizon = "no horizon" if self.horizon is None else f"horizon {self.horizon:,}"
        sizes = f"{_count(self.states, 'state')}, {_count(actions, 'action')}, {horizon}, discount {self.discount:g}"
        name = "" if self.name == "FiniteMDP" else f" {short_repr(self.name, 60)}"
        return f"<FiniteMDP{name}: {sizes}, start {_first(self.start)}>"


def _count(things: Sized, noun: str) -> str:
    return f"{len(things):,} {noun}{'' if len(things) == 1 else 's'}"


def _first(states: Iterable[State], count: int = 3) -> str:
    listed = list(states)
    shown = ", ".join(short_repr(state, 60) for state in listed[:count])
    return shown if len(listed) <= count else f"{shown}, … ({len(listed) - count:,} more)"
