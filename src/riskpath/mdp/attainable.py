"""Every return law worth having: the undominated laws that deterministic reward-adaptive policies can attain.

What can still be attained from (time, state) does not depend on the past. After an action, each outcome
(reward, next state) may be followed by a different one of the laws attainable from there:

    A_t(s) = ⋃_a { Σ_o p_o · (r_o + γ L_o) :  L_o ∈ A_{t+1}(s_o) },     pruned to undominated laws.

The best law of A₀ is optimal for any measure that respects the dominance used: a proof, where it is affordable.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from riskpath.mdp.dominance import undominated
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.problem import Action, Outcome, State
from riskpath.risk.law import Law


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """What to do from here on, whatever happens: a tree over rewards and states."""

    law: Law
    """The law of the return to go."""
    action: Action
    """What to do now."""
    after: dict[tuple[float, State], "Plan | None"]
    """What to do next, by the reward received and the state reached; None where the episode ends."""


@dataclass(frozen=True)
class PlanPolicy:
    """Follows a plan for each start; its memory is the part of the plan that is left."""

    plans: dict[State, Plan]
    """By start state."""

    def __call__(self, state: State, memory: Any = None, reward: float = 0.0) -> tuple[Action, Any]:
        """The action of the plan."""
        plan = self.plans[state] if memory is None else memory.after[reward, state]
        return plan.action, plan


class _TooMany(Exception):
    pass


def attainable(mdp: FiniteMDP, order: int, limit: int) -> list[tuple[Law, PlanPolicy]] | None:
    """Undominated laws of the whole return with policies that have them; None if more than `limit` come up."""
    try:
        following: dict[State, list[Plan]] = {}
        for layer in reversed(mdp.layers):
            following = {state: _plans(mdp, state, following, order, limit) for state in layer}
        return _joined(mdp, following, order, limit)
    except _TooMany:
        return None


def _plans(mdp: FiniteMDP, state: State, following: dict[State, list[Plan]], order: int, limit: int) -> list[Plan]:
    plans: list[Plan] = []
    for action, outcomes in mdp.outcomes[state].items():
        plans.extend(_combinations(mdp, action, outcomes, following, limit))
    return [plans[i] for i in undominated([plan.law for plan in plans], order)]


def _combinations(
    mdp: FiniteMDP,
    action: Action,
    outcomes: tuple[Outcome, ...],
    following: dict[State, list[Plan]],
    limit: int,
) -> Iterator[Plan]:
    options = [following.get(outcome.next) or [None] for outcome in outcomes]
    if math.prod(len(option) for option in options) > limit:
        raise _TooMany
    probs = [outcome.prob for outcome in outcomes]
    for chosen in product(*options):
        laws = [
            Law.point(outcome.reward) if plan is None else plan.law.scale(mdp.discount).shift(outcome.reward)
            for outcome, plan in zip(outcomes, chosen, strict=True)
        ]
        after = {(o.reward, o.next): plan for o, plan in zip(outcomes, chosen, strict=True)}
        yield Plan(Law.mix(laws, probs), action, after)


def _joined(mdp: FiniteMDP, first: dict[State, list[Plan]], order: int, limit: int) -> list[tuple[Law, PlanPolicy]]:
    """One plan for each start; the return is the mixture."""
    options = [first.get(state) or [None] for state in mdp.start]
    if math.prod(len(option) for option in options) > limit:
        raise _TooMany
    joined = []
    for chosen in product(*options):
        law = Law.mix([Law.point(0.0) if p is None else p.law for p in chosen], mdp.start.values())
        plans = {state: plan for state, plan in zip(mdp.start, chosen, strict=True) if plan is not None}
        joined.append((law, PlanPolicy(plans)))
    return [joined[i] for i in undominated([law for law, _ in joined], order)]
