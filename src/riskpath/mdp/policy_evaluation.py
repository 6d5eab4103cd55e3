"""The exact law of the return of a policy, by carrying the law of the return so far forward in time.

Episodes in the same state, about to take the same action with the same memory, are one group: however many
paths lead there, only the law of what they earned differs. A policy that remembers the return so far has one
group per return; a Markov policy has one per state.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np

from riskpath.errors import RiskpathError
from riskpath.mdp.policies import Policy, choices
from riskpath.mdp.problem import Action, Problem, State
from riskpath.risk.law import Law

MAX_GROUPS = 2_000_000


class Visit(NamedTuple):
    """A group of episodes: where they are after `time` steps, what they do next, and what they have earned."""

    time: int
    state: State
    action: Action
    memory: Any
    prob: float
    earned: Law


def visits(mdp: Problem, policy: Policy, finals: list[tuple[float, Law]] | None = None) -> Iterator[Visit]:
    """Every group that can occur under the policy, in order of time; ended episodes are added to `finals`."""
    arrivals = [(state, None, 0.0, prob, Law.point(0.0)) for state, prob in mdp.start.items()]
    time = 0
    while arrivals:
        groups: dict[Any, list[Visit]] = {}
        for state, memory, reward, prob, earned in arrivals:
            if mdp.is_terminal(state, time):
                if finals is not None:
                    finals.append((prob, earned))
                continue
            for share, action, remembered in choices(policy, state, memory, reward, mdp.actions(state)):
                visit = Visit(time, state, action, remembered, prob * share, earned)
                groups.setdefault((state, action, _key(remembered)), []).append(visit)
        if len(groups) > MAX_GROUPS:
            raise RiskpathError(f"the policy distinguishes more than {MAX_GROUPS:,} situations at time {time}")
        arrivals = []
        scale = mdp.discount**time
        for visit in map(_joined, groups.values()):
            yield visit
            for prob, reward, following in mdp.outcomes[visit.state][visit.action]:
                earned = visit.earned.shift(scale * reward)
                arrivals.append((following, visit.memory, reward, prob * visit.prob, earned))
        time += 1


def _joined(members: list[Visit]) -> Visit:
    """One group of several that differ in what they earned."""
    if len(members) == 1:
        return members[0]
    total = sum(member.prob for member in members)
    earned = Law.mix([member.earned for member in members], [member.prob / total for member in members])
    return members[0]._replace(prob=total, earned=earned)


def evaluate(mdp: Problem, policy: Policy) -> Law:
    """The law of Σₜ γᵗ rₜ under the policy."""
    finals: list[tuple[float, Law]] = []
    for _ in visits(mdp, policy, finals):
        pass
    return Law.mix([law for _, law in finals], [prob for prob, _ in finals])


def simulate(mdp: Problem, policy: Policy, episodes: int, seed: int | np.random.Generator) -> np.ndarray:
    """Returns of independent episodes, one step at a time: the plain thing that `evaluate` must agree with."""
    rng = np.random.default_rng(seed)
    starts, start_probs = list(mdp.start), np.fromiter(mdp.start.values(), float)
    returns = np.zeros(episodes)
    for episode in range(episodes):
        state, memory, reward, time = starts[_draw(rng, start_probs)], None, 0.0, 0
        while not mdp.is_terminal(state, time):
            options = list(choices(policy, state, memory, reward, mdp.actions(state)))
            _, action, memory = options[_draw(rng, [prob for prob, _, _ in options])]
            outcomes = mdp.outcomes[state][action]
            _, reward, state = outcomes[_draw(rng, [outcome.prob for outcome in outcomes])]
            returns[episode] += mdp.discount**time * reward
            time += 1
    return returns


def describe_policy(mdp: Problem, policy: Policy) -> list[str]:
    """The decisions of a policy in words, a line for every time and state in which it can find itself.

    States that leave no choice (one action, or several with the same outcomes) are passed over.
    """
    situations: dict[tuple[int, State], dict[Action, list[Law]]] = {}
    for visit in visits(mdp, policy):
        actions = situations.setdefault((visit.time, visit.state), {})
        actions.setdefault(visit.action, []).append(visit.earned)
    lines = []
    for (time, state), actions in situations.items():
        if len({frozenset(listed) for listed in mdp.outcomes[state].values()}) > 1:
            lines.append(f"step {time + 1}, {_show(state)}: {_conditions(actions)}")
    return lines or ["no choice anywhere"]


def _conditions(actions: dict[Action, list[Law]]) -> str:
    if len(actions) == 1:
        return _show(next(iter(actions)))
    spans = sorted(
        (min(law.atoms[0] for law in laws), max(law.atoms[-1] for law in laws), _show(action))
        for action, laws in actions.items()
    )
    if all(high < low for (_, high, _), (low, _, _) in pairwise(spans)):
        words = [f"{name} if the return so far is {_span(low, high)}" for low, high, name in spans]
        return "; ".join(words)
    points = sorted((atom, _show(a)) for a, laws in actions.items() for law in laws for atom in law.atoms)
    if len({atom for atom, _ in points}) == len(points):
        return "; ".join(f"{name} at return {atom:.6g}" for atom, name in points)
    return " or ".join(name for _, _, name in spans) + ", depending on the history"


def _span(low: float, high: float) -> str:
    return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"


def _show(thing: Any) -> str:
    return thing if isinstance(thing, str) else str(thing)


def _draw(rng: np.random.Generator, probs: Any) -> int:
    """An index with the given probabilities."""
    return int(np.searchsorted(np.cumsum(probs)[:-1], rng.random(), side="right"))


def _key(memory: Any) -> Any:
    """Something hashable that tells memories apart; arrays are compared by their bytes."""
    try:
        hash(memory)
    except TypeError:
        leaves, structure = jax.tree.flatten(memory)
        arrays = [np.asarray(leaf) for leaf in leaves]
        return structure, tuple((array.shape, array.dtype.str, array.tobytes()) for array in arrays)
    return memory
