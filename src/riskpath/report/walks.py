"""Where policies walk on a grid: the moves of an episode and how often each is made, exactly."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from riskpath.envs.finite import FiniteEnvironment
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policy_evaluation import visits
from riskpath.report.run_record import GridPath, GridRecord
from riskpath.training.run import Run

RARE = 0.005
"""Moves that an episode makes less often than this are not shown."""
MOST_CELLS = 400


def grid_of(run: Run, setting: int) -> GridRecord | None:
    """Return the grid of a problem whose states have a row and a column (or x and y), and every seed's path on it."""
    env = run.environments[setting]
    if not isinstance(env, FiniteEnvironment) or env.problem is None:
        return None
    mdp = env.mdp()
    followers = (o.next for actions in mdp.outcomes.values() for listed in actions.values() for o in listed)
    states = list(dict.fromkeys([*mdp.outcomes, *followers]))
    if not all(_place(state) for state in states):
        return None
    height = max(_place(state)[0] for state in states)
    turned = any(hasattr(state, "y") for state in states)  # y points upward, rows downward
    at = lambda state: (height - _place(state)[0] if turned else _place(state)[0], _place(state)[1])
    starts, rewards = {at(state) for state in mdp.start}, _rewards(mdp, at)
    usual = Counter(reward for listed in rewards.values() for reward in listed).most_common(1)[0][0]
    cells = {at(state): _kind(state, at(state) in starts, rewards.get(at(state), [usual]), usual) for state in states}
    if len(cells) > MOST_CELLS:
        return None
    paths: dict[Any, list[int]] = {}
    for seed in range(run.seeds):
        often: dict[tuple[int, int, int, int], float] = {}
        for weight, policy in run.policy(seed, setting).members():
            for visit in visits(mdp, policy):
                for outcome in mdp.outcomes[visit.state][visit.action]:
                    move = (*at(visit.state), *at(outcome.next))
                    often[move] = often.get(move, 0.0) + weight * visit.prob * outcome.prob
        moves = [(*move, round(rate, 4)) for move, rate in sorted(often.items())]
        shown = tuple(move for move in moves if move[-1] >= RARE and move[:2] != move[2:4])
        paths.setdefault(shown, []).append(seed)
    listed = [GridPath(seeds, list(moves)) for moves, seeds in paths.items()]
    return GridRecord([(*place, kind) for place, kind in cells.items()], listed)


def _place(state: Any) -> tuple[int, int]:
    """Return row and column of a state; empty if it has none."""
    for row, column in (("row", "col"), ("y", "x")):
        if hasattr(state, row) and hasattr(state, column):
            return int(getattr(state, row)), int(getattr(state, column))
    return ()  # pyright: ignore[reportReturnType]


def _rewards(mdp: FiniteMDP, at: Callable[[Any], tuple[int, int]]) -> dict[tuple[int, int], list[float]]:
    """Return the rewards of all steps that end in each place."""
    found: dict[tuple[int, int], list[float]] = {}
    for actions in mdp.outcomes.values():
        for listed in actions.values():
            for outcome in listed:
                found.setdefault(at(outcome.next), []).append(outcome.reward)
    return found


def _kind(state: Any, start: bool, rewards: list[float], usual: float) -> str:
    """Return the colour that a state has itself, or what it pays: a goal more than a usual step, a cliff less."""
    if isinstance(own := getattr(state, "colour", None), str):
        return own
    if start:
        return "start"
    low, high = min(rewards), max(rewards)
    return "goal" if low >= usual < high else "cliff" if low < usual >= high else "free"
