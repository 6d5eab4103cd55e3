"""The undominated return distributions that deterministic reward-adaptive policies can attain.

The distributions attainable from (time, state) do not depend on the past. After an action, each outcome (reward, next
state) can be followed by any of the distributions attainable from there:

    A_t(s) = ⋃_a { Σ_o p_o · (r_o + γ L_o) :  L_o ∈ A_{t+1}(s_o) },     pruned to undominated distributions.

The best distribution of A₀ is optimal for every measure that respects this order of dominance, which proves a solution.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from riskpath.mdp.exact.dominance import undominated
from riskpath.mdp.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.problem import Action, Outcome, State


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """The actions from one state on, for every sequence of rewards and states: a tree."""

    law: Law
    """The distribution of the return to go."""
    action: Action
    after: dict[tuple[float, State], "Plan | None"]
    """The plan that follows each (reward, next state); None where the episode ends."""


@dataclass(frozen=True)
class PlanPolicy:
    """A policy that follows one plan for each start state; its memory is the current plan."""

    plans: dict[State, Plan]
    """The plan of each start state."""

    def __call__(self, state: State, memory: Any = None, reward: float = 0.0) -> tuple[Action, Any]:
        """Return the action of the current plan."""
        plan = self.plans[state] if memory is None else memory.after[reward, state]
        return plan.action, plan


class _TooManyLaws(Exception):
    """More combinations of distributions than the limit."""


class _Budget:
    """Counts combinations of distributions: at one state, and at all of them."""

    def __init__(self, limit: int, total: int):
        self.limit, self.left = limit, total

    def spend(self, combinations: int) -> None:
        """Stop if there are too many combinations."""
        self.left -= combinations
        if combinations > self.limit or self.left < 0:
            raise _TooManyLaws


def attainable(mdp: FiniteMDP, order: int, limit: int, total: int | None = None) -> list[tuple[Law, PlanPolicy]] | None:
    """Return the undominated distributions of the whole return with their policies.

    The result is None if distributions can be combined in more than `limit` ways at one state, or in more than `total`
    ways at all states together (by default 4 × `limit`).
    """
    budget = _Budget(limit, 4 * limit if total is None else total)
    try:
        following: dict[State, list[Plan]] = {}
        for layer in reversed(mdp.layers):
            following = {state: _plans(mdp, state, following, order, budget) for state in layer}
        return _mix_starts(mdp, following, order, budget)
    except _TooManyLaws:
        return None


def _plans(mdp: FiniteMDP, state: State, following: dict[State, list[Plan]], order: int, budget: _Budget) -> list[Plan]:
    plans: list[Plan] = []
    for action, outcomes in mdp.outcomes[state].items():
        plans.extend(_combinations(mdp, action, outcomes, following, budget))
    return [plans[i] for i in undominated([plan.law for plan in plans], order)]


def _combinations(
    mdp: FiniteMDP,
    action: Action,
    outcomes: tuple[Outcome, ...],
    following: dict[State, list[Plan]],
    budget: _Budget,
) -> Iterator[Plan]:
    """Yield the plans that start with one action: every combination of plans after its outcomes."""
    options = [following.get(outcome.next) or [None] for outcome in outcomes]
    budget.spend(math.prod(len(option) for option in options))
    probs = [outcome.prob for outcome in outcomes]
    for chosen in product(*options):
        laws = [
            Law.point(outcome.reward) if plan is None else plan.law.scale(mdp.discount).shift(outcome.reward)
            for outcome, plan in zip(outcomes, chosen, strict=True)
        ]
        after = {(o.reward, o.next): plan for o, plan in zip(outcomes, chosen, strict=True)}
        yield Plan(Law.mix(laws, probs), action, after)


def _mix_starts(
    mdp: FiniteMDP, first: dict[State, list[Plan]], order: int, budget: _Budget
) -> list[tuple[Law, PlanPolicy]]:
    """Return the undominated mixtures of one plan for each start state."""
    options = [first.get(state) or [None] for state in mdp.start]
    budget.spend(math.prod(len(option) for option in options))
    joined = []
    for chosen in product(*options):
        law = Law.mix([Law.point(0.0) if p is None else p.law for p in chosen], mdp.start.values())
        plans = {state: plan for state, plan in zip(mdp.start, chosen, strict=True) if plan is not None}
        joined.append((law, PlanPolicy(plans)))
    return [joined[i] for i in undominated([law for law, _ in joined], order)]
