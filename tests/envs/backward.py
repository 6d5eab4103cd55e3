"""Backward passes in NumPy over a finite problem whose rewards are multiples of a unit; not the library's own solvers.

Every problem here has its step in its state, so that a list of states from the last step to the first is an order in
which next states come first.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import riskpath as rp

IntLaw = tuple[np.ndarray, np.ndarray]
"""Returns in units, ascending, and their probabilities."""


def outcome_law(listed: Any) -> dict[tuple[float, Any], float]:
    """Return {(reward, next state): probability}; equal outcomes are merged, impossible ones left out."""
    law: dict[tuple[float, Any], float] = {}
    for prob, reward, following in listed:
        if prob:
            law[round(reward, 9), following] = law.get((round(reward, 9), following), 0.0) + prob
    return {key: round(prob, 12) for key, prob in law.items()}


def assert_same_outcomes(mdp: rp.FiniteMDP, expected: Callable[[Any, Any], Any], actions: Callable[[Any], Any]) -> None:
    """Compare every state and action with an independent implementation."""
    for state, listed in mdp.outcomes.items():
        assert list(listed) == list(actions(state)), state
        for action, outcomes in listed.items():
            assert outcome_law(outcomes) == outcome_law(expected(state, action)), (state, action)


def cvar(law: IntLaw, level: float) -> float:
    """Return CVaR of a law, in units."""
    returns, probs = law
    return float(np.diff(np.minimum(np.cumsum(probs), level), prepend=0.0) @ returns / level)


def mean(law: IntLaw) -> float:
    """Return the mean of a law, in units."""
    return float(law[0] @ law[1])


def greedy_law(mdp: rp.FiniteMDP, score: Callable[[IntLaw], float], unit: float = 1.0) -> IntLaw:
    """Return the law of the return of the policy that is greedy in the score of the return to go; ties go to the first.

    With the mean as score it is the mean-optimal policy, with a risk measure the policy of per-step methods.
    """
    laws: dict[Any, IntLaw] = {}
    end = np.zeros(1, int), np.ones(1)
    for state in _last_step_first(mdp):
        options = [
            _mixed([(o.prob, round(o.reward / unit), laws.get(o.next, end)) for o in listed])
            for listed in mdp.outcomes[state].values()
        ]
        scores = np.array([score(law) for law in options])
        laws[state] = options[int(np.flatnonzero(scores > scores.max() - 1e-9)[0])]
    (start,) = mdp.start
    return laws[start]


def _last_step_first(mdp: Any) -> list[Any]:
    return sorted(mdp.outcomes, key=lambda state: -state[-1])  # the last field of a state is the step


def _mixed(parts: list[tuple[float, int, IntLaw]]) -> IntLaw:
    returns = np.concatenate([reward + law[0] for _, reward, law in parts])
    low = returns.min()
    probs = np.bincount(returns - low, np.concatenate([prob * law[1] for prob, _, law in parts]))
    kept = np.flatnonzero(probs)
    return kept + low, probs[kept]


def best_cvars(mdp: rp.FiniteMDP, levels: list[float], low: int, high: int, unit: float = 1.0) -> list[float]:
    """Return the largest CVaR of any policy that sees the return so far, for returns in [low, high], in units.

    W(s, c) = max_a E[W(s', c − r)] is the best expected shortfall below the goal c; CVaR = max_b {b + W(s₀, b)/η}.
    """
    goals = np.arange(low, high + 1)
    end = np.minimum(-goals, 0.0)
    tables: dict[Any, np.ndarray] = {}
    for state in _last_step_first(mdp):
        options = []
        for listed in mdp.outcomes[state].values():
            expected = np.zeros(len(goals))
            for o in listed:
                after = goals - round(o.reward / unit)
                beyond = np.maximum(after - high, 0)  # there W is linear: every return is below the goal
                expected += o.prob * (tables.get(o.next, end)[np.clip(after, low, high) - low] - beyond)
            options.append(expected)
        tables[state] = np.max(options, axis=0)
    (start,) = mdp.start
    return [float((goals + tables[start] / level).max()) for level in levels]
