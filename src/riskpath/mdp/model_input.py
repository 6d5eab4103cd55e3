"""Checks of the tables from which a `FiniteMDP` is made. Every message names the entry that is wrong."""

import math
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from riskpath.errors import RiskpathError, short_repr
from riskpath.mdp.law import PROB_TOLERANCE
from riskpath.mdp.problem import Action, Outcome, Outcomes, State, successors
from riskpath.validation import LARGEST, as_float


def check_outcomes(outcomes: Any) -> dict[State, dict[Action, tuple[Outcome, ...]]]:
    """Return {state: {action: outcomes}} from {(state, action): [(probability, reward, next state), …]}."""
    if not isinstance(outcomes, Mapping):
        expected = "{(state, action): [(probability, reward, next state), …]}"
        raise RiskpathError(f"outcomes must be a dict {expected}, got {short_repr(outcomes)}")
    table: dict[State, dict[Action, tuple[Outcome, ...]]] = {}
    for key, entries in outcomes.items():
        if not (isinstance(key, tuple) and len(key) == 2):
            raise RiskpathError(f"keys of outcomes must be (state, action) pairs, got {short_repr(key)}")
        state, action = key
        table.setdefault(state, {})[action] = _check_entries(f"outcomes of ({state!r}, {action!r})", entries)
    return table


def _check_entries(where: str, entries: Any) -> tuple[Outcome, ...]:
    """Return the outcomes of one action: equal ones merged, impossible ones dropped, probabilities normalised."""
    merged: dict[tuple[float, State], float] = {}
    if not isinstance(entries, Iterable):
        raise RiskpathError(f"{where}: expected a list of (probability, reward, next state), got {short_repr(entries)}")
    for entry in entries:
        try:
            prob, reward, following = entry
            prob, reward = as_float(prob), as_float(reward)
        except (TypeError, ValueError):
            raise RiskpathError(
                f"{where}: {short_repr(entry)} is not a (probability, reward, next state) triple"
            ) from None
        _require_hashable(following, f"{where}: a state")
        if not 0 <= prob <= 1 + PROB_TOLERANCE:
            raise RiskpathError(f"{where}: probability must be in [0, 1], got {prob} in {short_repr(entry)}")
        if not abs(reward) <= LARGEST:
            accepted = f"at most {LARGEST:.2g} in size" if math.isfinite(reward) else "a finite number"
            raise RiskpathError(f"{where}: reward must be {accepted}, got {reward} in {short_repr(entry)}")
        if prob > 0:
            merged[reward, following] = merged.get((reward, following), 0.0) + prob
    if abs((total := sum(merged.values())) - 1) > PROB_TOLERANCE:
        raise RiskpathError(f"{where}: probabilities must sum to 1, their sum is {total:.12g}")
    return tuple(Outcome(prob / total, reward, following) for (reward, following), prob in merged.items())


def check_terminal(table: Outcomes, terminal: Any) -> None:
    """Require that a next state has no action exactly if it is one of the `terminal` states."""
    if isinstance(terminal, str) or not isinstance(terminal, Iterable):
        hint = f"; write [{terminal!r}] for one state" if isinstance(terminal, str) else ""
        raise RiskpathError(f"terminal must be a list of states, got {short_repr(terminal)}{hint}")
    ends: set[State] = set()
    for state in terminal:
        _require_hashable(state, "a terminal state")
        ends.add(state)
    for state, actions in table.items():
        if state in ends:
            raise RiskpathError(f"state {state!r} is listed as terminal but has actions {short_repr(list(actions))}")
        for action, listed in actions.items():
            for outcome in listed:
                if outcome.next not in table and outcome.next not in ends:
                    raise RiskpathError(
                        f"outcomes of ({state!r}, {action!r}): next state {outcome.next!r} has no action "
                        "and is not listed as terminal"
                    )


def check_start(table: Outcomes, start: Any) -> dict[State, float]:
    """Return {state: probability} from one start state or from such a dict."""
    if not isinstance(start, Mapping):
        _require_hashable(start, "start must be one state or a dict {state: probability}; a state")
        start = {start: 1.0}
    if not all(isinstance(prob, Real) for prob in start.values()):
        raise RiskpathError(f"start probabilities must be numbers, got {short_repr(dict(start))}")
    probs = {state: as_float(prob) for state, prob in start.items() if prob != 0}
    if not all(prob > 0 for prob in probs.values()) or abs((total := sum(probs.values())) - 1) > PROB_TOLERANCE:
        raise RiskpathError(f"start probabilities must be non-negative and sum to 1, got {short_repr(dict(start))}")
    known = {*table, *successors(table, list(table))}
    if missing := [state for state in probs if state not in known]:
        raise RiskpathError(f"start state {short_repr(missing[0])} does not occur in the outcomes")
    return {state: prob / total for state, prob in probs.items()}


def check_features(table: Outcomes, features: Any) -> dict[State, tuple[float, ...]]:
    """Return {state: vector} for every state, with vectors of equal lengths."""
    if not isinstance(features, Mapping):
        raise RiskpathError(f"features must be a dict {{state: vector}}, got {short_repr(features)}")
    vectors: dict[State, tuple[float, ...]] = {}
    length = None
    for state in dict.fromkeys([*table, *successors(table, list(table))]):
        if state not in features:
            raise RiskpathError(f"features must have a vector for every state; state {short_repr(state)} has none")
        where = f"features of state {short_repr(state)}"
        vectors[state] = _check_vector(where, features[state])
        length = length or len(vectors[state])
        if len(vectors[state]) != length:
            raise RiskpathError(
                f"{where}: all vectors must have the same length, got {len(vectors[state])} instead of {length} numbers"
            )
    return vectors


def _check_vector(where: str, vector: Any) -> tuple[float, ...]:
    """Return a vector of finite numbers as a tuple."""
    try:
        numbers = tuple(as_float(number) for number in vector) if not isinstance(vector, str) else ()
    except (TypeError, ValueError):
        numbers = ()
    if not numbers or not all(map(math.isfinite, numbers)):
        raise RiskpathError(f"{where} must be a vector of finite numbers, got {short_repr(vector)}")
    return numbers


def check_discount(discount: Any) -> float:
    """Return the discount as a float in (0, 1]."""
    try:
        number = as_float(discount)
    except (TypeError, ValueError):
        raise RiskpathError(f"discount must be a number in (0, 1], got {short_repr(discount)}") from None
    if not 0 < number <= 1:
        raise RiskpathError(f"discount must be in (0, 1], got {discount}")
    return number


def _require_hashable(value: Any, what: str) -> None:
    try:
        hash(value)
    except TypeError:
        accepted = "must be hashable, for example a string, a number or a tuple"
        raise RiskpathError(f"{what} {accepted}; got {short_repr(value)}") from None
