"""A finite decision problem with random rewards and transitions, checked when it is made.

An outcome is a triple (probability, reward, next state): reward and next state are drawn together. A state
without actions is terminal; an episode also ends after `horizon` steps, if there is one. The return of an
episode is Σₜ γᵗ rₜ.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np

from riskpath.errors import RiskpathError
from riskpath.mdp.policies import PolicyLike, as_policy
from riskpath.mdp.policy_evaluation import evaluate, simulate
from riskpath.mdp.problem import Action, Outcome, Outcomes, State
from riskpath.risk.law import PROB_TOLERANCE, Law
from riskpath.validation import given, require_counts


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """A finite problem; make one with `FiniteMDP.from_outcomes`."""

    outcomes: Outcomes
    """What each action of each non-terminal state may lead to."""
    start: Mapping[State, float]
    """Where an episode starts, with which probability."""
    discount: float = 1.0
    """γ in (0, 1]."""
    horizon: int | None = None
    """The most steps an episode can have; None if it ends by itself."""
    name: str = field(default="FiniteMDP", repr=False)
    """What it is called in messages."""

    @staticmethod
    def from_outcomes(
        outcomes: Mapping[Any, Iterable[tuple[float, float, Any]]],
        start: State | Mapping[Any, float],
        discount: float = 1.0,
        horizon: Integral | int | None = None,
        terminal: Iterable[State] | None = None,
        name: str = "FiniteMDP",
    ) -> "FiniteMDP":
        """Makes a problem from {(state, action): [(probability, reward, next state), …]}.

        A state with no action is terminal. Naming the terminal states in `terminal` guards against typing
        errors: then every next state must either have an action or be one of them.
        """
        table: dict[State, dict[Action, tuple[Outcome, ...]]] = {}
        for key, entries in outcomes.items():
            if not (isinstance(key, tuple) and len(key) == 2):
                raise RiskpathError(f"keys of outcomes must be (state, action) pairs, got {key!r}")
            state, action = key
            table.setdefault(state, {})[action] = _checked_outcomes(state, action, entries)
        if terminal is not None:
            _check_terminal(table, set(terminal))
        limit = int(horizon) if isinstance(horizon, Integral) else horizon
        mdp = FiniteMDP(table, _checked_start(start), float(discount), limit, name)
        known = set(table) | {o.next for actions in table.values() for listed in actions.values() for o in listed}
        if missing := [state for state in mdp.start if state not in known]:
            raise RiskpathError(f"start state {missing[0]!r} does not occur in the outcomes")
        if not 0 < mdp.discount <= 1:
            raise RiskpathError(f"discount must be in (0, 1], got {discount}")
        require_counts(**given(horizon=horizon))
        if horizon is None and (loop := _find_loop(mdp)):
            raise RiskpathError(f"episodes of this problem need not end ({' → '.join(map(str, loop))}): give horizon=…")
        return mdp

    def evaluate(self, policy: PolicyLike) -> Law:
        """The exact law of the return under a policy: a function, a dict {state: action}, or a list of actions."""
        return evaluate(self, as_policy(policy))

    def simulate(self, policy: PolicyLike, episodes: int, seed: int | np.random.Generator = 0) -> np.ndarray:
        """Returns of independent simulated episodes."""
        require_counts(episodes=episodes)
        return simulate(self, as_policy(policy), episodes, seed)

    def actions(self, state: State) -> tuple[Action, ...]:
        """The actions of a state, in the order given; none if it is terminal."""
        return tuple(self.outcomes.get(state, ()))

    def is_terminal(self, state: State, time: int = 0) -> bool:
        """Does an episode that is in `state` after `time` steps end there?"""
        return state not in self.outcomes or (self.horizon is not None and time >= self.horizon)

    @cached_property
    def reward_laws(self) -> dict[tuple[State, Action], Law]:
        """The law of the immediate reward R(s, a)."""
        return {
            (state, action): Law([o.reward for o in listed], [o.prob for o in listed])
            for state, actions in self.outcomes.items()
            for action, listed in actions.items()
        }

    @cached_property
    def successor(self) -> dict[tuple[State, Action], State] | None:
        """M(s, a), if the next state never depends on chance; None otherwise."""
        successor: dict[tuple[State, Action], State] = {}
        for state, actions in self.outcomes.items():
            for action, listed in actions.items():
                nexts = {outcome.next for outcome in listed}
                if len(nexts) > 1:
                    return None
                successor[state, action] = nexts.pop()
        return successor

    @cached_property
    def layers(self) -> tuple[tuple[State, ...], ...]:
        """The states an episode can be in (and still act) after 0, 1, 2, … steps."""
        layers: list[tuple[State, ...]] = []
        current = tuple(state for state in self.start if not self.is_terminal(state, 0))
        while current:
            layers.append(current)
            following = {
                outcome.next: None
                for state in current
                for listed in self.outcomes[state].values()
                for outcome in listed
                if not self.is_terminal(outcome.next, len(layers))
            }
            current = tuple(following)
        return tuple(layers)

    def backward(self, expect: Callable[[list[float], list[float]], float]) -> list[dict[State, dict[Action, float]]]:
        """Backward induction: Q_t(s, a) = expect(values, probs) of r + γ V_{t+1}(s′), with V_t(s) = max_a Q_t(s, a).

        Returns Q_t by time; `expect` is the mean for the usual problem, a risk measure for a nested one.
        """
        following: dict[State, float] = {}
        tables: list[dict[State, dict[Action, float]]] = []
        for layer in reversed(self.layers):
            table: dict[State, dict[Action, float]] = {}
            for state in layer:
                table[state] = {
                    action: expect(
                        [o.reward + self.discount * following.get(o.next, 0.0) for o in listed],
                        [o.prob for o in listed],
                    )
                    for action, listed in self.outcomes[state].items()
                }
            tables.append(table)
            following = {state: max(values.values()) for state, values in table.items()}
        return tables[::-1]

    def with_discount(self, discount: float) -> "FiniteMDP":
        """The same problem under another discount."""
        if not 0 < discount <= 1:
            raise RiskpathError(f"discount must be in (0, 1], got {discount}")
        return replace(self, discount=float(discount))


def _checked_outcomes(state: State, action: Action, entries: Any) -> tuple[Outcome, ...]:
    where = f"outcomes of ({state!r}, {action!r})"
    merged: dict[tuple[float, State], float] = {}
    if not isinstance(entries, Iterable):
        raise RiskpathError(f"{where}: expected a list of (probability, reward, next state), got {entries!r}")
    for entry in entries:
        try:
            prob, reward, following = entry
            prob, reward = float(prob), float(reward)
            hash(following)
        except (TypeError, ValueError):
            raise RiskpathError(f"{where}: {entry!r} is not a (probability, reward, next state) triple") from None
        if not 0 <= prob <= 1 + PROB_TOLERANCE:
            raise RiskpathError(f"{where}: probability must be in [0, 1], got {prob} in {entry!r}")
        if not math.isfinite(reward):
            raise RiskpathError(f"{where}: reward must be a finite number, got {reward} in {entry!r}")
        if prob > 0:
            merged[reward, following] = merged.get((reward, following), 0.0) + prob
    if abs((total := sum(merged.values())) - 1) > PROB_TOLERANCE:
        raise RiskpathError(f"{where}: probabilities must sum to 1, their sum is {total:.12g}")
    return tuple(Outcome(prob / total, reward, following) for (reward, following), prob in merged.items())


def _check_terminal(table: Outcomes, terminal: set[State]) -> None:
    for state, actions in table.items():
        if state in terminal:
            raise RiskpathError(f"state {state!r} is listed as terminal but has actions {list(actions)!r}")
        for action, listed in actions.items():
            for outcome in listed:
                if outcome.next not in table and outcome.next not in terminal:
                    raise RiskpathError(
                        f"outcomes of ({state!r}, {action!r}): next state {outcome.next!r} has no action "
                        "and is not listed as terminal"
                    )


def _checked_start(start: Any) -> dict[State, float]:
    if not isinstance(start, Mapping):
        return {start: 1.0}
    if not all(isinstance(prob, Real) for prob in start.values()):
        raise RiskpathError(f"start probabilities must be numbers, got {dict(start)!r}")
    probs = {state: float(prob) for state, prob in start.items() if prob != 0}
    if not all(prob > 0 for prob in probs.values()) or abs((total := sum(probs.values())) - 1) > PROB_TOLERANCE:
        raise RiskpathError(f"start probabilities must be non-negative and sum to 1, got {dict(start)!r}")
    return {state: prob / total for state, prob in probs.items()}


def _find_loop(mdp: FiniteMDP) -> list[State] | None:
    """A way to return to a state already visited, if there is one reachable from the start."""
    done: set[State] = set()
    for root in mdp.start:
        path: list[State] = []
        on_path: set[State] = set()
        stack: list[tuple[State, bool]] = [(root, True)]
        while stack:  # iterative: problems may be deeper than Python's recursion limit
            state, entering = stack.pop()
            if not entering:
                done.add(state)
                on_path.discard(path.pop())
                continue
            if state in on_path:
                return [*path[path.index(state) :], state]
            if state in done:
                continue
            path.append(state)
            on_path.add(state)
            stack.append((state, False))
            nexts = {o.next for listed in mdp.outcomes.get(state, {}).values() for o in listed}
            stack.extend((following, True) for following in nexts)
    return None
