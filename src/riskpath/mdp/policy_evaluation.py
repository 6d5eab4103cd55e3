"""The exact distribution of the return of a policy, by propagating the distribution of the return so far forward in
time.

Episodes that are in the same state and are about to take the same action with the same memory form one group: their
futures have the same distribution, and only the distribution of the return so far matters. A policy that remembers the
return so far has one group per return; a Markov policy has one group per state and action.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from riskpath.errors import RiskpathError, in_one_line, short_repr
from riskpath.mdp.law import Law
from riskpath.mdp.policies import Policy, answers, checked_choices
from riskpath.mdp.problem import MAX_STEPS, Action, Problem, State, require_exact_steps

MAX_GROUPS = 2_000_000
"""The largest number of groups at one time."""
MAX_LOOK_AHEAD = 200_000
"""The largest number of groups that are followed to see whether a policy ends its episodes in time."""


class TooManySituations(RiskpathError):
    """A policy distinguishes too many situations at one time for an exact evaluation."""


class Arrival(NamedTuple):
    """Episodes before their next decision that look the same to the policy."""

    state: State
    memory: Any
    reward: float
    prob: float
    return_so_far: Law


class Visit(NamedTuple):
    """A group of episodes after `time` steps: their state, next action, memory, probability and return so far."""

    time: int
    state: State
    action: Action
    memory: Any
    prob: float
    return_so_far: Law


Group = TypeVar("Group", Arrival, Visit)


def visits(
    mdp: Problem, policy: Policy, finals: list[tuple[float, Law]] | None = None, max_situations: int | None = None
) -> Iterator[Visit]:
    """Yield every group that can occur under the policy, in order of time.

    The probability and the distribution of the return of episodes that end are appended to `finals`. A policy that
    distinguishes more situations at one time than `max_situations`, by default two million, is refused.
    """
    most = max_situations or MAX_GROUPS
    if mdp.horizon is not None and mdp.horizon > MAX_STEPS:
        _require_short_episodes(mdp, policy)
    arrivals = [Arrival(state, None, 0.0, prob, Law.point(0.0)) for state, prob in mdp.start.items()]
    time = 0
    while arrivals:
        groups: dict[Any, list[Visit]] = {}
        ended, going = [], []
        for arrival in arrivals:
            (ended if mdp.is_terminal(arrival.state, time) else going).append(arrival)
        if finals is not None:
            finals += [(arrival.prob, arrival.return_so_far) for arrival in ended]
        answered = answers(policy, [arrival[:3] for arrival in going])
        for (state, _, _, prob, law), answer in zip(going, answered, strict=True):
            for share, action, remembered in checked_choices(answer, state, mdp.actions(state)):
                if prob * share > 0:  # the probability of a long path can underflow
                    visit = Visit(time, state, action, remembered, prob * share, law)
                    groups.setdefault((state, action, _hashable(remembered)), []).append(visit)
        if len(groups) > most:
            raise TooManySituations(f"the policy distinguishes more than {most:,} situations at time {time}")
        if groups:
            require_exact_steps(time + 1, mdp.horizon)
        following: dict[Any, list[Arrival]] = {}
        scale = mdp.discount**time
        for (*_, remembered), members in groups.items():
            visit = _merge(members)
            yield visit
            for prob, reward, state in mdp.outcomes[visit.state][visit.action]:
                if prob * visit.prob > 0:
                    arrival = Arrival(state, visit.memory, reward, prob * visit.prob, visit.return_so_far)
                    following.setdefault((state, remembered, reward), []).append(arrival)
        # Episodes that look the same to the policy are answered once, and their returns are shifted once.
        merged = map(_merge, following.values())
        arrivals = [one._replace(return_so_far=one.return_so_far.shift(scale * one.reward)) for one in merged]
        time += 1


def _require_short_episodes(mdp: Problem, policy: Policy) -> None:
    """Refuse a policy whose episodes are too long for an exact distribution, by following probabilities only."""
    groups = {(state, None, 0.0): (None, prob) for state, prob in mdp.start.items()}
    time, followed = 0, 0
    while groups and followed < MAX_LOOK_AHEAD:
        following: dict[Any, tuple[Any, float]] = {}
        for (state, _, reward), (memory, prob) in groups.items():
            if mdp.is_terminal(state, time):
                continue
            require_exact_steps(time + 1, mdp.horizon)
            for share, action, remembered in checked_choices(policy(state, memory, reward), state, mdp.actions(state)):
                for chance, next_reward, next_state in mdp.outcomes[state][action]:
                    key = (next_state, _hashable(remembered), next_reward)
                    total = following.get(key, (None, 0.0))[1] + prob * share * chance
                    if total > 0:  # the probability of a long path can underflow
                        following[key] = (remembered, total)
        followed += len(groups)
        time, groups = time + 1, following


def _merge(members: Sequence[Group]) -> Group:
    """Return one group for several that differ in the return so far only."""
    first = members[0]
    if len(members) == 1:
        return first
    total, laws = sum(member.prob for member in members), [member.return_so_far for member in members]
    if len(laws[0]) > 1 or any(len(law) > 1 or law.atoms[0] != laws[0].atoms[0] for law in laws):
        return first._replace(prob=total, return_so_far=Law.mix(laws, [member.prob / total for member in members]))
    return first._replace(prob=total)  # a policy that remembers the return so far: all of these have the same one


def evaluate(mdp: Problem, policy: Policy, max_situations: int | None = None) -> Law:
    """Return the distribution of Σₜ γᵗ rₜ under the policy."""
    finals: list[tuple[float, Law]] = []
    for _ in visits(mdp, policy, finals, max_situations):
        pass
    return Law.mix([law for _, law in finals], [prob for prob, _ in finals])


def simulate(mdp: Problem, policy: Policy, episodes: int, seed: int | np.random.Generator) -> np.ndarray:
    """Return the returns of independent episodes, simulated step by step. `evaluate` must agree with them."""
    with in_one_line(f"seed must be a whole number or a NumPy generator, got {short_repr(seed)}"):
        rng = np.random.default_rng(seed)
    starts, start_probs = list(mdp.start), np.fromiter(mdp.start.values(), float)
    returns = np.zeros(episodes)
    for episode in range(episodes):
        state, memory, reward, time = starts[_draw(rng, start_probs)], None, 0.0, 0
        while not mdp.is_terminal(state, time):
            options = list(checked_choices(policy(state, memory, reward), state, mdp.actions(state)))
            _, action, memory = options[_draw(rng, [prob for prob, _, _ in options])]
            outcomes = mdp.outcomes[state][action]
            _, reward, state = outcomes[_draw(rng, [outcome.prob for outcome in outcomes])]
            returns[episode] += mdp.discount**time * reward
            time += 1
    return returns


def describe_policy(
    mdp: Problem, policy: Policy, limit: int | None = None, max_situations: int | None = None
) -> list[str]:
    """Return the decisions of a policy in words, one line for every time and state that it can reach.

    States without a real choice (one action, or several with the same outcomes) are left out. A limit replaces all
    lines beyond it by one line that counts them. Times from which the policy distinguishes more than `max_situations`
    are left out.
    """
    situations: dict[tuple[int, State], dict[Action, list[Law]]] = {}
    rest = []
    try:
        for visit in visits(mdp, policy, max_situations=max_situations):
            actions = situations.setdefault((visit.time, visit.state), {})
            actions.setdefault(visit.action, []).append(visit.return_so_far)
    except TooManySituations:
        if max_situations is None:
            raise
        rest = ["… and many more decisions"]
    lines = []
    for (time, state), actions in situations.items():
        if len({frozenset(listed) for listed in mdp.outcomes[state].values()}) > 1:
            lines.append(f"step {time + 1}, {state}: {_describe_choice(actions)}")
    if limit is not None and len(lines) + len(rest) > limit:
        return lines[: limit - 1] + (rest or [f"… and {len(lines) - limit + 1:,} more decisions"])
    return lines + rest or ["no choice anywhere"]


def _describe_choice(actions: dict[Action, list[Law]]) -> str:
    """Return which action is taken after which return so far."""
    if len(actions) == 1:
        return str(next(iter(actions)))
    spans = sorted(
        (min(law.atoms[0] for law in laws), max(law.atoms[-1] for law in laws), str(action))
        for action, laws in actions.items()
    )
    if all(high < low for (_, high, _), (low, _, _) in pairwise(spans)):
        listed = [(name, f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}") for low, high, name in spans]
        return "; ".join(f"{name} if the return so far is {span}" for name, span in listed)
    points = sorted((atom, str(action)) for action, laws in actions.items() for law in laws for atom in law.atoms)
    if len({atom for atom, _ in points}) == len(points):
        return "; ".join(f"{name} at return {atom:.6g}" for atom, name in points)
    return " or ".join(name for _, _, name in spans) + ", depending on the history"


def _draw(rng: np.random.Generator, probs: Any) -> int:
    return bisect_right(list(accumulate(probs))[:-1], rng.random())  # for a few numbers faster than NumPy


def _hashable(memory: Any) -> Any:
    """Return a hashable value that is equal for equal memories; arrays are compared by their bytes."""
    try:
        hash(memory)
    except TypeError:
        leaves, structure = jax.tree.flatten(memory)
        arrays = [np.asarray(leaf) for leaf in leaves]
        return structure, tuple((array.shape, array.dtype.str, array.tobytes()) for array in arrays)
    return memory
