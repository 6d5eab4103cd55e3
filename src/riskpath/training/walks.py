"""Where policies walk on a grid: the moves of an episode and how often each is made, exactly."""

from typing import Any

from riskpath.envs.finite import FiniteEnvironment
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policy_evaluation import visits
from riskpath.report.run_record import GridPath, GridRecord

RARE = 0.005
"""Moves that an episode makes less often than this are not shown."""
MOST_CELLS = 400


def grid_of(run: Any, setting: int) -> GridRecord | None:
    """Return the grid of a problem whose states have a row and a column (or x and y), and every seed's path on it."""
    env = run.environments[setting]
    if not isinstance(env, FiniteEnvironment) or env.problem is None:
        return None
    mdp = env.mdp()
    states = list(dict.fromkeys([*mdp.outcomes, *_followers(mdp)]))
    if not all(_place(state) for state in states):
        return None
    height = max(_place(state)[0] for state in states)
    turned = any(hasattr(state, "y") for state in states)  # y points upward, rows downward
    at = lambda state: (height - _place(state)[0] if turned else _place(state)[0], _place(state)[1])  # noqa: E731
    starts, ends = {at(state) for state in mdp.start}, {at(state) for state in states if state not in mdp.outcomes}
    cells = {at(state): _kind(state, at(state), starts, ends) for state in states}
    if mdp.name == "WindyCliff":  # its states do not say where the cliff is
        (*cliff, goal) = sorted(place for place in cells if place[0] == height and place[1] > 0)
        cells |= dict.fromkeys(cliff, "cliff") | {goal: "goal"}
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


def _followers(mdp: FiniteMDP) -> Any:
    """Yield every state that an action can lead to."""
    return (o.next for actions in mdp.outcomes.values() for listed in actions.values() for o in listed)


def _place(state: Any) -> tuple[int, int]:
    """Return row and column of a state; empty if it has none."""
    for row, column in (("row", "col"), ("y", "x")):
        if hasattr(state, row) and hasattr(state, column):
            return int(getattr(state, row)), int(getattr(state, column))
    return ()  # pyright: ignore[reportReturnType]


def _kind(state: Any, place: tuple[int, int], starts: set[tuple[int, int]], ends: set[tuple[int, int]]) -> str:
    """Return the colour that a state has itself, or its part in the problem."""
    if isinstance(own := getattr(state, "colour", None), str):
        return own
    return "start" if place in starts else "goal" if place in ends and len(ends) == 1 else "free"
