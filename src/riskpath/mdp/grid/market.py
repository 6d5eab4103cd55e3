"""Solve a problem with an exogenous price and a position on a lattice: choose the axes, and bracket the optimum.

The mean is solved first, over all positions that an episode can reach. Its simulated episodes show which positions and
returns matter. The tail is solved on those, its policy is simulated, and wider and finer axes are chosen from these
episodes, until the bracket is narrow enough or the time is over.
"""

import time as clock
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from riskpath.errors import RiskpathError
from riskpath.mdp.grid.axes import choose_axes, choose_returns, price_axis
from riskpath.mdp.grid.chance import PriceAxis, as_floats
from riskpath.mdp.grid.form import Form, realised
from riskpath.mdp.grid.layout import SHARE
from riskpath.mdp.grid.market_policy import MarketPolicy
from riskpath.mdp.grid.mean import MeanTables, best_mean, path_means_after, solve_mean
from riskpath.mdp.grid.play import Played, corners, look_ahead, play
from riskpath.mdp.grid.tail import GROUP, PARTS, Axes, Tail, before_table, solve_tail
from riskpath.mdp.grid.utility import KinkedUtility
from riskpath.mdp.problem import Progress, silent
from riskpath.memory import free_bytes, in_units

MEAN_PATHS = 256
"""The number of paths behind the upper bound of the mean."""
ROUNDS = ((1.0, 512, 0), (1.0, 512, 16), (2.0, 512, 32), (4.0, 768, 64), (8.0, 1024, 128), (12.0, 1536, 256))
"""Every round: how many more prices than usual, returns, paths of the upper bound. The first only chooses the axes."""
MORE = 64
"""The factor on the number of paths where there is no position: they cost nearly nothing."""
TINY = 1e-7
"""A bracket of this width is always narrow enough."""
COMPILING = 8.0
"""The approximate compile time of a round in seconds."""
LOSS = 0.02
"""The accepted loss by the grid of returns, per fineness of prices, as a fraction of the gain over the mean policy."""
SKIPPED = 0.2
"""A round that takes less than this fraction of the remaining time is skipped for a finer one."""


class Settings(NamedTuple):
    """How precisely a problem is solved."""

    episodes: int = 200_000
    tolerance: float = 0.01
    """The accepted width of a bracket, as a fraction of the difference between the best and the mean-optimal policy."""
    time_limit: float = 60.0
    """The time in seconds after which no finer round begins."""
    progress: Progress = silent
    seed: int = 0
    """The seed of all simulations."""


@dataclass(frozen=True, eq=False)
class Bracket:
    """A policy with its simulated value and an upper bound for all policies."""

    policy: MarketPolicy
    lower: float
    """The simulated value of the policy."""
    lower_error: float
    """The standard error of `lower`."""
    upper: float | None
    """The upper bound, averaged over paths."""
    upper_error: float
    played: Played
    touched: dict[str, dict[str, float]]
    """For each axis how often an episode reaches an end, and the value at stake there."""
    cells: int
    needs: str = ""
    """What a narrower bracket would need; empty if it is narrow enough."""

    @property
    def width(self) -> float:
        """The width of the bracket, with the 95% intervals of both ends."""
        return np.inf if self.upper is None else self.upper - self.lower + 1.96 * (self.upper_error + self.lower_error)


def bracket_mean(
    form: Form, episodes: int, seed: int, *, bound: bool = True, prices: PriceAxis | None = None
) -> Bracket:
    """Return the mean-optimal policy with its bracket."""
    prices = price_axis(form) if prices is None else prices
    _require_means(form, prices)
    means = solve_mean(form, prices)
    played = play(form, means, None, 0.0, episodes, seed + 1)
    lower, error = float(played.values.mean()), _error(played.values)  # they begin with the potential of the start
    upper, upper_error = None, 0.0
    if bound:
        upper, upper_error = _upper_mean(form, means, seed)
    policy, cells = MarketPolicy(form, means), prices.size * len(form.lattice)
    return Bracket(policy, lower, error, upper, upper_error, played, touched(policy, played), cells)


def _upper_mean(form: Form, means: MeanTables, seed: int) -> tuple[float, float]:
    """Return a bound of the mean, averaged over paths, and its standard error."""
    paths, found = [as_floats(x) for x in form.paths(MEAN_PATHS, seed + 2)], []
    for group in range(0, MEAN_PATHS, GROUP):
        prices, noise = (x[group : group + GROUP] for x in paths)
        known = chance = parts = None
        for time in reversed(range(form.problem.steps)):
            price = prices[:, time]
            if known is not None:
                chance = form.nodes(means.prices, time, price, means.width)
                parts = realised(chance, noise[:, time])
            after, _ = path_means_after(form, time, means, price, noise[:, time], chance, parts, known)
            known = best_mean(after, form.decisions(time, price, 0, len(form.lattice)))
        found.append(np.asarray(known, np.float64)[:, form.start] + form.problem.start_potential)
    return float(np.mean(found)), _error(np.concatenate(found))


def bracket_tail(
    form: Form, utility: KinkedUtility, mean: Bracket, mean_value: float, settings: Settings, until: float
) -> Bracket:
    """Return the best policy of max_b {b + E[u(x)]} with its bracket, refined until it is narrow.

    `mean_value` is the value of the mean-optimal policy: the tolerance is a fraction of the best policy's gain over it.
    No refinement begins that would end after the time `until`.
    """
    means, played, result, bound = mean.policy.means, mean.played, mean, form.problem.all_actions
    most = mean.lower + 0.02 * abs(mean.lower - mean_value)
    window, scale, speed = choose_returns(form, utility, most, mean_value, mean.played), np.inf, 0.0
    for number, (finer, count, paths) in enumerate(ROUNDS):
        step = float(np.sqrt(LOSS / finer * scale))
        axes = choose_axes(form, price_axis(form, finer), [mean.played, played], window, count, step)
        if (needed := _bytes(form, axes)) > SHARE * (free_bytes() or np.inf):
            if number == 0:
                raise RiskpathError(f"the tables of {form.problem.name} need about {in_units(needed)}")
            return replace(result, needs=f"a narrower bracket needs about {in_units(needed)} of memory")
        seconds, left = COMPILING + speed * _work(form, axes, paths), until - clock.perf_counter()
        if number > 1 and seconds > left:
            return replace(result, needs=f"a narrower bracket needs about {seconds:.0f} s more")
        if number and seconds < SKIPPED * left and number < len(ROUNDS) - 1:
            continue  # a finer one is nearly as fast
        drawn = form.paths(paths * (1 if axes.rows > 1 else MORE), settings.seed + 3) if paths and bound else None
        tail = solve_tail(form, axes, utility, means, drawn, settings.progress)
        result = measure(form, means, tail, settings.episodes, settings.seed)
        played, gain = result.played, abs(result.lower - mean_value)
        if number and (not bound or result.width <= settings.tolerance * gain + TINY):
            return result
        if number == 0:
            speed = _seconds(form, tail)
            # reading from above between two returns costs about step²·(slope of u)/(3·spread of returns) in each step
            spread = float(np.diff(np.quantile(played.returns, [0.16, 0.84]))[0]) / 2
            scale = float(3 * gain * spread / ((utility.slope + utility.tail) * form.problem.steps))
    return replace(result, needs="a narrower bracket needs more prices")


def better_of(found: Bracket, mean: Bracket, utility: KinkedUtility, episodes: int, seed: int) -> Bracket:
    """Return the bracket with the mean-optimal policy where that one is clearly better.

    Over hundreds of steps the returns on the axis are coarse, and the policy that reads them can lose more than the
    mean-optimal policy does by ignoring risk. Its value comes from new episodes, its threshold from the earlier ones.
    """
    goal = float(np.quantile(mean.played.returns, (1 - utility.slope) / utility.tail))
    x = mean.policy.play(episodes, seed + 4).returns - goal
    values = np.asarray(goal + utility.slope * x + utility.tail * np.minimum(x, 0.0))
    value, error = float(values.mean()), _error(values)
    if value - 3 * error <= found.lower:
        return found
    return replace(found, policy=mean.policy, lower=value, lower_error=error, played=mean.played, touched=mean.touched)


def _work(form: Form, axes: Axes, paths: int) -> float:
    """Return the work of a round, in readings of a cell."""
    actions, silent = len(form.problem.actions), all(form.silent[:-1])
    nodes = 4 if silent else axes.width  # a matrix product is much faster than readings
    along = paths * axes.rows * axes.points * (1.5 * actions * axes.parts + nodes)
    return form.problem.steps * (axes.cells * (actions + 2 * nodes) + along)


def _seconds(form: Form, tail: Tail) -> float:
    """Return the time of one reading of a cell, compiled."""
    time, actions = max(0, form.problem.steps - 2), len(form.problem.actions)
    after = jax.block_until_ready(look_ahead(form, tail, time))
    start = clock.perf_counter()
    jax.block_until_ready(before_table(form, tail.axes, time, after, tail.utility))
    return (clock.perf_counter() - start) / (tail.axes.cells * actions)


def measure(form: Form, means: MeanTables, tail: Tail, episodes: int, seed: int) -> Bracket:
    """Return the bracket of one pass."""
    axes, potential = tail.axes, form.problem.start_potential
    goal = best_threshold(form, tail)
    policy = MarketPolicy(form, means, tail, goal)
    played = policy.play(episodes, seed + 1)
    values = played.values + own_thresholds(played.returns, tail.utility, goal)
    upper, upper_error = None, 0.0
    if tail.known is not None and tail.mean is not None:
        upper, upper_error = upper_of(axes, tail.utility, tail.known, potential, float(tail.mean.mean()))
    return Bracket(
        policy, float(values.mean()), _error(values), upper, upper_error, played, touched(policy, played), axes.cells
    )


def best_threshold(form: Form, tail: Tail) -> float:
    """Return the b that maximises b + V_0(−b) by the tables."""
    axes, potential = tail.axes, form.problem.start_potential
    row, weight = (np.asarray(k)[:, 0] for k in corners(axes.prices, as_floats([form.start_price])))
    at, rest = divmod(form.start - axes.first, axes.every)
    table = np.einsum("c,cqx->qx", weight, np.asarray(tail.tables[0], np.float64)[row])
    line = table[at] if rest == 0 else table[at] + rest / axes.every * (table[at + 1] - table[at])
    points = axes.window.low + axes.window.step * np.arange(axes.points)
    fine = np.linspace(points[0], points[-1], PARTS * (axes.points - 1) + 1)
    values = potential - fine + np.interp(fine, points, line)
    return float(potential - fine[values.argmax()])


def own_thresholds(returns: Float[np.ndarray, " n"], utility: KinkedUtility, goal: float) -> Float[np.ndarray, " n"]:
    """Return a threshold for every return, and what it adds to u(Z − goal).

    The best threshold of a sample is a quantile. Each half of the sample gets that of the other half, so that the
    estimate is one of a fixed threshold; `goal` stays where the other one is not clearly better.
    """
    level, added = (1 - utility.slope) / utility.tail, np.full(returns.shape, float(goal))
    u = lambda x: utility.slope * x + utility.tail * np.minimum(x, 0.0)
    for half in (0, 1) if level < 1 else ():
        there, here = returns[half::2], slice(1 - half, None, 2)
        own = float(np.quantile(there, level))
        gain = own - goal + u(there - own) - u(there - goal)
        if gain.mean() > 3 * _error(gain):
            added[here] = own + u(returns[here] - own) - u(returns[here] - goal)
    return added


def touched(policy: MarketPolicy, played: Played) -> dict[str, dict[str, float]]:
    """Return for every axis the fraction of episodes that reach its ends, and the mean of the value at stake there.

    For positions the stake is the most that a refused action could have added, by the largest mean to go. For prices
    and returns it is how far the samples of such episodes lie from their mean, the error that the ends cause.
    """
    form, tail = policy.form, policy.tail
    names, found = list(form.problem.axes), {}
    off = np.abs(played.values - played.values.mean())
    if form.price is not None:
        axis = (policy.means.prices if tail is None else tail.axes.prices).points
        out = ((played.prices <= axis[0]) | (played.prices >= axis[-1])).any(axis=0)
        found[names[form.price]] = {"share": float(out.mean()), "value": float((off * out).mean())}
    if form.position is not None:
        found[names[form.position]] = {"share": float(played.refused.mean()), "value": float(played.stake.mean())}
    if tail is not None:
        window, x = tail.axes.window, played.totals[:-1] - policy.goal
        out = (x < window.low) | (x > window.low + window.step * (tail.axes.points - 1))
        out = (out & (np.arange(len(x))[:, None] < played.decisions)).any(axis=0)  # at the end no table is read
        found["return"] = {"share": float(out.mean()), "value": float((off * out).mean())}
    return found


def upper_of(
    axes: Axes, utility: KinkedUtility, known: Float[np.ndarray, "n parts X"], potential: float, mean: float
) -> tuple[float, float]:
    """Return a bound of max_b {b + V_0(−b)} over all thresholds, with its standard error.

    V_0 rises with x, so between two thresholds the value is at most that of the upper x with the lower b. Beyond the
    window V_0(x) ≤ u(x + M), with M the largest mean.
    """
    count, (low, step) = axes.parts * axes.points, axes.fine
    fine = low + step * (np.arange(count)[None, :] + np.arange(PARTS)[:, None] / PARTS)
    values = known.mean(axis=0) + potential - fine + step / PARTS
    part, best = np.unravel_index(int(values.argmax()), values.shape)
    high = low + step * (count - 1)
    steep = utility.slope + utility.tail
    above = utility.slope * (high + mean) + utility.tail * min(high + mean, 0.0) - high
    below = steep * (low + mean) - low if low + mean < 0 else mean
    return float(max(values[part, best], potential + above, potential + below)), _error(known[:, part, best])


def _bytes(form: Form, axes: Axes) -> int:
    along = 4 * max(GROUP * axes.parts, axes.prices.size) * axes.rows * axes.points
    return 4 * axes.cells * (form.problem.steps + 6) + 8 * along


def _require_means(form: Form, prices: PriceAxis) -> None:
    size = 8 * prices.size * len(form.lattice) * form.problem.steps
    free = free_bytes()
    if free is not None and size > SHARE * free:
        raise RiskpathError(
            f"{form.problem.name} can reach {len(form.lattice):,} positions in {form.problem.steps} steps: its tables "
            f"need about {in_units(size)}, and {in_units(free)} are free"
        )


def _error(values: Float[np.ndarray, " n"]) -> float:
    return float(values.std() / np.sqrt(len(values)))
