"""Solving a problem with an exogenous price and a position on a lattice: axes that are chosen, and a bracket.

The mean is solved first, over all positions that an episode can reach. Its simulated episodes say which positions and
returns matter; the tail is solved on those, its policy is simulated, and the axes are chosen again from it, wider and
finer, until the bracket is narrow enough or the time is over.
"""

import time as clock
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from riskpath.errors import RiskpathError
from riskpath.mdp.grid_backward import Progress
from riskpath.mdp.grid_form import Form
from riskpath.mdp.grid_mean import MeanTables, best_mean, path_means_after, solve_mean
from riskpath.mdp.grid_memory import SHARE, free_bytes, in_units
from riskpath.mdp.grid_play import Played, choose, look_ahead, play
from riskpath.mdp.grid_policy import read_observation
from riskpath.mdp.grid_rows import Window, returns
from riskpath.mdp.grid_tail import Axes, Tail, solve_tail
from riskpath.mdp.grid_utility import KinkedUtility

BROADCASTING = partial(jax.numpy_rank_promotion, "allow")
"""The tables combine arrays of different ranks."""
SCOUTS = 4096
"""The number of episodes that choose the axes."""
MEAN_PATHS = 256
"""The number of paths behind the upper bound of the mean."""
ROUNDS = ((128, 0), (256, 24), (448, 64), (768, 96))
"""(returns, paths of the upper bound) of every round; the first one only chooses the axes."""
MORE = 64
"""So many times more paths where there is no position: they cost nearly nothing."""
POSITIONS = 256
"""The largest number of positions of a table."""
MARGIN = 1.8
"""The axis of positions is this much wider than what the policy visits."""
TINY = 1e-7
"""A bracket of this width is always narrow enough."""
TIME_LIMIT = 60.0
"""After this many seconds no finer round is begun."""


@dataclass(frozen=True, eq=False, repr=False)
class MarketPolicy:
    """A policy of the grid solver: `action, memory = policy(observation, memory, reward)`."""

    form: Form
    """The problem."""
    means: MeanTables
    """The tables of the mean."""
    tail: Tail | None = None
    """The tables of the tail; None for the mean-optimal policy."""
    goal: float = 0.0
    """The threshold b, which is subtracted from the return so far."""
    _tables: dict[int, Any] = field(default_factory=dict)

    @property
    def problem(self) -> Any:
        """The problem."""
        return self.form.problem

    def __call__(self, state: Any, memory: Any = None, reward: float = 0.0) -> tuple[Any, Any]:
        """Return the action for an observation; the memory is the time and the return so far."""
        with BROADCASTING():
            return self._act(state, memory, reward)

    def _act(self, state: Any, memory: Any, reward: float) -> tuple[Any, Any]:
        problem = self.problem
        time, total = (0, 0.0) if memory is None else memory
        if memory is not None:
            total += problem.discount**time * float(reward)
            time += 1
        if time >= problem.steps:
            raise RiskpathError(f"an episode of {problem.name} has {problem.steps} steps, it needs reset")
        place = read_observation(problem, state)
        mark = float(problem.potential_at(jnp.int32(time), tuple(jnp.float32(x) for x in place)))
        price = jnp.full((1,), 0.0 if self.form.price is None else place[self.form.price], jnp.float32)
        spot = 0
        if self.form.position is not None:
            spot = round((place[self.form.position] - float(self.form.lattice[0])) / self.form.unit)
        x = jnp.full((1,), total + problem.discount**time * mark - self.goal, jnp.float32)
        chosen = choose(
            self.form, self.means, self.tail, self._look_ahead(time), time, price, jnp.full((1,), spot, jnp.int32), x
        )
        return problem.label(int(chosen[0][0])), (time, total)

    def _look_ahead(self, time: int) -> Any:
        if self.tail is not None and time not in self._tables:
            self._tables.clear()  # one table at a time
            self._tables[time] = look_ahead(self.form, self.tail, time)
        return self._tables.get(time)

    def with_goal(self, goal: float) -> "MarketPolicy":
        """Return the same tables with another threshold."""
        return replace(self, goal=float(goal))

    def simulate(self, episodes: int, seed: int = 0) -> Float[np.ndarray, " episodes"]:
        """Return the discounted returns of independent episodes of the continuous problem."""
        return self.play(episodes, seed).returns

    def play(self, episodes: int, seed: int = 0) -> Played:
        """Return simulated episodes of the continuous problem."""
        with BROADCASTING():
            return play(self.form, self.means, self.tail, self.goal, episodes, seed)

    @property
    def memory_bytes(self) -> int:
        """The memory of the tables."""
        tables = () if self.tail is None else self.tail.tables
        return sum(table.nbytes for table in (*tables, *self.means.before, *self.means.after))

    def __repr__(self) -> str:
        kind = "mean-optimal" if self.tail is None else f"adaptive, goal {self.goal:.6g}"
        return f"<MarketPolicy of {self.problem.name}: {kind}>"


@dataclass(frozen=True, eq=False)
class Bracket:
    """A policy with what it earns and what no policy can exceed."""

    policy: MarketPolicy
    """The policy."""
    lower: float
    """What it earns, simulated."""
    lower_error: float
    """The standard error of `lower`."""
    upper: float | None
    """The upper bound, averaged over paths."""
    upper_error: float
    """Its standard error."""
    played: Played
    """The simulated episodes."""
    touched: float
    """The share of episodes that reach an end of the axis of positions."""
    cells: int
    """The number of cells of a table."""
    needs: str = ""
    """What a narrower bracket would need; empty if it is narrow enough."""

    @property
    def width(self) -> float:
        """The width of the bracket, with the 95% intervals of both ends."""
        return np.inf if self.upper is None else self.upper - self.lower + 1.96 * (self.upper_error + self.lower_error)


def prices_of(form: Form) -> Float[np.ndarray, " S"]:
    """Return the points of the axis of prices; one if there is none."""
    return np.zeros(1) if form.price is None else list(form.problem.axes.values())[form.price]


def bracket_mean(form: Form, episodes: int, seed: int, *, bound: bool = True) -> Bracket:
    """Return the mean-optimal policy with its bracket."""
    _require_means(form)
    means = solve_mean(form, prices_of(form))
    played = play(form, means, None, 0.0, episodes, seed + 1)
    lower, error = float(played.values.mean()), _error(played.values)  # they begin with the potential of the start
    upper, upper_error = None, 0.0
    if bound:
        prices, noise = form.paths(MEAN_PATHS, seed + 2)
        known = None
        for time in reversed(range(form.problem.steps)):
            price = prices[:, time]
            after = path_means_after(form, time, means, price, noise[:, time], known)
            known = best_mean(after.known, form.decisions(time, price, 0, len(form.lattice)))
        found = np.asarray(known, np.float64)[:, form.start] + form.problem.start_potential
        upper, upper_error = float(found.mean()), _error(found)
    cells = len(means.prices) * len(form.lattice)
    return Bracket(MarketPolicy(form, means), lower, error, upper, upper_error, played, 0.0, cells)


def bracket_tail(
    form: Form,
    utility: KinkedUtility,
    mean: Bracket,
    mean_value: float,
    *,
    episodes: int,
    seed: int,
    tolerance: float,
    bound: bool = True,
    time_limit: float = TIME_LIMIT,
    progress: Progress | None = None,
) -> Bracket:
    """Return the best policy of max_b {b + E[u(x)]} with its bracket, refined until it is narrow.

    `mean_value` is the value of the mean-optimal policy: the tolerance is a share of what the best policy adds to it.
    """
    means, played, result = mean.policy.means, mean.played, mean
    began = clock.perf_counter()
    for number, (count, paths) in enumerate(ROUNDS):
        start = clock.perf_counter()
        axes = choose_axes(form, means, [mean.played, played], count)
        if (needed := _bytes(form, axes, paths)) > SHARE * (free_bytes() or np.inf):
            if number == 0:
                raise RiskpathError(f"the tables of {form.problem.name} need about {in_units(needed)}")
            return replace(result, needs=f"a narrower bracket needs about {in_units(needed)} of memory")
        drawn = form.paths(paths * (1 if axes.rows > 1 else MORE), seed + 3) if paths and bound else None
        tail = solve_tail(form, axes, utility, means, drawn, progress)
        result = _measure(form, means, tail, SCOUTS if number == 0 else episodes, seed)
        played = result.played
        if number and (not bound or result.width <= tolerance * abs(result.lower - mean_value) + TINY):
            return result
        spent, now = clock.perf_counter() - start, clock.perf_counter() - began
        if number and now + 2.5 * spent > time_limit:
            return replace(result, needs=f"a narrower bracket needs about {2.5 * spent:.0f} s more")
    return replace(result, needs="a narrower bracket needs a finer axis of returns")


def _measure(form: Form, means: MeanTables, tail: Tail, episodes: int, seed: int) -> Bracket:
    """Return the bracket of one pass."""
    axes = tail.axes
    goals = form.problem.start_potential - np.asarray(returns(axes.window, axes.points), np.float64)
    goal = float(goals[(goals + np.asarray(tail.tables[0][0, 0])).argmax()])
    policy = MarketPolicy(form, means, tail, goal)
    played = policy.play(episodes, seed + 1)
    upper, upper_error = None, 0.0
    if tail.known is not None:
        upper, upper_error = upper_of(goals, tail.known)
    ends = (axes.first, axes.first + axes.rows - 1)
    closed = axes.first == 0 and axes.rows >= len(form.lattice)
    at_end = np.isin(played.positions, ends).any(axis=0) | played.refused
    return Bracket(
        policy,
        goal + float(played.values.mean()),
        _error(played.values),
        upper,
        upper_error,
        played,
        0.0 if closed else float(at_end.mean()),
        len(axes.prices) * axes.positions * axes.points,
    )


def upper_of(goals: Float[np.ndarray, " X"], known: Float[np.ndarray, "n X"]) -> tuple[float, float]:
    """Return max_b {b + E[P_0]} over all thresholds, with its standard error.

    Between the best threshold and its neighbours the parabola through these three points is used.
    """
    values = goals + known.mean(axis=0)
    best = int(values.argmax())
    near = values[max(0, best - 1) : best + 2]
    lift = max(0.0, 2 * near.max() - near[0] - near[-1]) / 8 if len(near) == 3 else 0.0
    return float(values[best] + lift), _error(known[:, best])


def choose_axes(form: Form, means: MeanTables, played: list[Played], count: int) -> Axes:
    """Return axes around what simulated episodes visit; the last episodes choose the positions."""
    to_go = np.concatenate([(one.totals[-1:] - one.totals[:-1]).ravel() for one in played])
    low, high = np.quantile(to_go, [0.0005, 0.9995])
    wider = 0.1 * max(high - low, 1e-6 * max(1.0, abs(low), abs(high)))
    low, high = min(low, 0.0) - wider, max(high, 0.0) + wider
    scale = (high - low) / 150
    bottom, top = np.arcsinh(-high / scale), np.arcsinh(-low / scale)
    growth = (top - bottom) / (count - 2)
    window = Window(scale, growth, float(np.floor(bottom / growth)))
    lots = len(form.lattice)
    first, last = (int(x) for x in np.quantile(played[-1].positions, [0.0001, 0.9999]))
    if form.problem.endless:
        usual = np.quantile(played[0].positions, [0.02, 0.98])  # a policy that hardly trades says too little
        first, last = (round(form.start + MARGIN * (end - form.start)) for end in (first - 2, last + 2))
        first, last = min(first, int(usual[0])), max(last, int(usual[1]))
        first, last = max(0, first), min(lots - 1, last)
    else:
        first, last = 0, lots - 1
    every = max(1, -(-(last - first) // POSITIONS))
    positions = -(-(last - first) // every) + 1
    first = max(0, min(first, lots - 1 - every * (positions - 1)))
    return Axes(means.prices, first, positions, every, window, count)


def _bytes(form: Form, axes: Axes, paths: int) -> int:
    table = 4 * len(axes.prices) * axes.positions * axes.points
    along = 4 * max(paths, len(axes.prices)) * axes.rows * axes.points
    return table * form.problem.steps + 8 * along


def _require_means(form: Form) -> None:
    size = 8 * len(prices_of(form)) * len(form.lattice) * form.problem.steps
    free = free_bytes()
    if free is not None and size > SHARE * free:
        raise RiskpathError(
            f"{form.problem.name} can reach {len(form.lattice):,} positions in {form.problem.steps} steps: its tables "
            f"need about {in_units(size)}, and {in_units(free)} are free"
        )


def _error(values: Float[np.ndarray, " n"]) -> float:
    return float(values.std() / np.sqrt(len(values)))
