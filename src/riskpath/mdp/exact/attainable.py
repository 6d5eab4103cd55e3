"""The undominated return distributions that deterministic reward-adaptive policies can attain.

The distributions attainable from (time, state) do not depend on the past. After an action, each outcome (reward, next
state) can be followed by any of the distributions attainable from there:

    A_t(s) = ⋃_a { Σ_o p_o · (r_o + γ L_o) :  L_o ∈ A_{t+1}(s_o) },     pruned to undominated distributions.

The best distribution of A₀ is optimal for every measure that respects this order of dominance, which proves a solution.

Adding an independent return, shifting, scaling and mixing preserve stochastic dominance. So a dominated distribution
can be replaced by the distribution that dominates it, at any point of an episode, without loss, to the order that the
measure respects: `RiskMeasure.order`. Measures of order 0 respect none, and only equal distributions are dropped.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from riskpath.mdp.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.problem import Action, State

_LEVELS = np.linspace(0, 1, 18)[1:]
"""The levels at which distributions are compared before the full test."""


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

    def __call__(self, state: State, memory: Any = None, reward: float = 0.0) -> tuple[Action, Any]:
        plan = self.plans[state] if memory is None else memory.after[reward, state]
        return plan.action, plan


def undominated(laws: Sequence[Law], order: int) -> list[int]:
    """Return the indices of the undominated distributions, by descending mean; keep equal distributions once."""
    if len(laws) <= 1:
        return list(range(len(laws)))
    if order == 0:
        distinct = {(law.atoms.tobytes(), law.probs.tobytes()): index for index, law in enumerate(laws)}
        return sorted(distinct.values(), key=lambda index: -laws[index].mean)
    # A distribution can only dominate another one if it is ahead at each of a few points, which is a quick test.
    points = np.stack([_signature(law, order) for law in laws])
    slack = 1e-8 * max(1.0, float(np.abs(points).max()))
    kept: list[int] = []
    kept_points = np.empty_like(points)
    for index in np.argsort(-points[:, -1], kind="stable"):
        ahead = (kept_points[: len(kept)] >= points[index] - slack).all(axis=1)
        if not any(laws[kept[rival]].dominates(laws[index], order) for rival in np.flatnonzero(ahead)):
            kept_points[len(kept)] = points[index]
            kept.append(int(index))
    return kept


def _signature(law: Law, order: int) -> np.ndarray:
    """Return quantiles (order 1) or integrated quantiles (order 2) at a few levels, the least return and the mean."""
    if order == 1:
        inner = law.quantile(_LEVELS - 1 / 36)
    else:
        # ∫₀^τ F⁻¹ is piecewise linear in τ, with kinks at the cumulative probabilities.
        inner = np.interp(_LEVELS, np.append(0, law.cumulative), np.append(0, np.cumsum(law.atoms * law.probs)))
    return np.concatenate([inner, [law.atoms[0], law.mean]])


class _TooManyLaws(Exception):
    """More combinations of distributions than the limit."""


class _Budget:
    """Counts combinations of distributions: at one state, and at all of them."""

    def __init__(self, limit: int, total: int):
        self.limit, self.left = limit, total

    def combine(self, options: Sequence[Sequence[Plan | None]]) -> Iterable[tuple[Plan | None, ...]]:
        """Return every combination of one plan from each list, or stop if there are too many."""
        combinations = math.prod(len(option) for option in options)
        self.left -= combinations
        if combinations > self.limit or self.left < 0:
            raise _TooManyLaws
        return product(*options)


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
        joined = []
        for chosen in budget.combine([following.get(state) or [None] for state in mdp.start]):
            law = Law.mix([Law.point(0.0) if p is None else p.law for p in chosen], mdp.start.values())
            plans = {state: plan for state, plan in zip(mdp.start, chosen, strict=True) if plan is not None}
            joined.append((law, PlanPolicy(plans)))
    except _TooManyLaws:
        return None
    return [joined[i] for i in undominated([law for law, _ in joined], order)]


def _plans(mdp: FiniteMDP, state: State, following: dict[State, list[Plan]], order: int, budget: _Budget) -> list[Plan]:
    """Return the undominated plans from a state on: of every combination of plans after the outcomes of an action."""
    plans: list[Plan] = []
    for action, outcomes in mdp.outcomes[state].items():
        probs = [outcome.prob for outcome in outcomes]
        for chosen in budget.combine([following.get(outcome.next) or [None] for outcome in outcomes]):
            laws = [
                Law.point(outcome.reward) if plan is None else plan.law.scale(mdp.discount).shift(outcome.reward)
                for outcome, plan in zip(outcomes, chosen, strict=True)
            ]
            after = {(o.reward, o.next): plan for o, plan in zip(outcomes, chosen, strict=True)}
            plans.append(Plan(Law.mix(laws, probs), action, after))
    return [plans[i] for i in undominated([plan.law for plan in plans], order)]
