"""The backward pass over (price, position, return so far), and its upper bound along paths of the price.

With x the discounted return so far minus the threshold b, and u the utility of the final x:

    EV_t(S, q', x) = E[V_{t+1}(S', q', x + r_move)],    V_t(S, q, x) = max_a EV_t(S, q', x + r_a),    V_T = u.

For any functions V that do not look ahead, and any policy, Σ_t (V_{t+1}(next) − EV_t) has mean zero. So a decision
maker who knows the whole path, but pays this sum as a penalty, does at least as well as any policy:

    P_t(q, x) = max_a { P_{t+1}(q', x') − V_{t+1}(S_{t+1}, q', x') + EV_t(S_t, q', x + r_a) },   x' = x + r_a + r_move,

has E[P_0] ≥ max over policies of E[u(x_T)], for every x at once. With the exact V both sides are equal on every path. A
state beyond the tables is worth at most u(x + M) with M the largest mean to go, which has a bound of the same kind.
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from riskpath.mdp.grid.chance import Numbers, PriceAxis, as_floats
from riskpath.mdp.grid.form import Form, realised
from riskpath.mdp.grid.mean import MeanTables, best_mean, node_payments, path_means_after
from riskpath.mdp.grid.rows import Beyond, Window, at_end, best, best_up, expected, with_penalty
from riskpath.mdp.grid.utility import KinkedUtility
from riskpath.mdp.problem import Progress, silent
from riskpath.memory import free_bytes

GROUP = 16
"""Paths are followed in groups, of this size on a processor: small tables stay near it."""
LARGE = 128
"""The largest group on another device: every group costs time between programs."""
PARTS = 16
"""The number of parts of a cell of returns at the start."""


class Axes(NamedTuple):
    """The axes of a table."""

    prices: PriceAxis
    width: int
    """The number of nodes of a move."""
    first: int
    """The number of the first position on the lattice."""
    positions: int
    """The number of positions of the table."""
    every: int
    """The stride of the table's positions on the lattice."""
    window: Window
    points: int
    parts: int = 1
    """The factor by which returns are finer along paths."""

    @property
    def fine(self) -> Window:
        """The returns along paths."""
        return Window(self.window.low, self.window.step / self.parts)

    @property
    def rows(self) -> int:
        """The number of positions of the lattice from the first to the last."""
        return self.every * (self.positions - 1) + 1

    @property
    def cells(self) -> int:
        """The number of cells of a table."""
        return self.prices.size * self.positions * self.points


class Tail(NamedTuple):
    """The result of a backward pass."""

    axes: Axes
    utility: KinkedUtility
    tables: tuple[Float[Numbers, "S C X"], ...]
    """V_t for every time."""
    known: Float[np.ndarray, "n parts X"] | None
    """P_0 at the start for every path, if a bound was asked for; the parts divide every cell of fine returns."""
    mean: Float[np.ndarray, " n"] | None
    """The bound of the mean to go at the start for every path."""


class Known(NamedTuple):
    """What a decision maker who knows the path, and pays the penalty, can reach before the decision of one time."""

    value: Float[Numbers, "n Q X"]
    """P_t."""
    mean: Float[Numbers, "n L"]
    """The same for the mean."""
    sign: Float[Numbers, "n L"]
    """The mean to go, estimated."""


def solve_tail(
    form: Form,
    axes: Axes,
    utility: KinkedUtility,
    means: MeanTables | None = None,
    paths: tuple[Float[np.ndarray, "n times"], Float[np.ndarray, "n steps"]] | None = None,
    progress: Progress = silent,
) -> Tail:
    """Maximise the expected utility for all states and returns; with paths, bound it from above along them."""
    axis = axes.prices.points
    tables: list[Array] = []
    size = group_size(axes)
    groups = [] if paths is None else [tuple(x[k : k + size] for x in paths) for k in range(0, len(paths[0]), size)]
    found: list[Known | None] = [None] * len(groups)
    for time in reversed(range(form.problem.steps)):
        later = tables[-1] if tables else None
        for number, (prices, noise) in enumerate(groups):
            price, luck = (as_floats(x) for x in (prices[:, time], noise[:, time]))
            assert means is not None
            found[number] = _path_step(form, axes, time, price, luck, means, later, found[number], utility)
        tables.append(before_table(form, axes, time, after_table(form, axes, time, axis, later, utility), utility))
        tables[-1].block_until_ready()
        progress(form.problem.steps - time, form.problem.steps)
    known = mean = None
    if found:
        known = np.concatenate([np.asarray(one.value, np.float64) for one in found if one is not None])
        mean = np.concatenate([np.asarray(one.mean, np.float64)[:, form.start] for one in found if one is not None])
    return Tail(axes, utility, tuple(tables[::-1]), known, mean)


def group_size(axes: Axes) -> int:
    """Return the number of paths that are followed together."""
    if axes.rows == 1:
        return 2048
    if jax.default_backend() == "cpu":
        return GROUP
    room = 0.2 * (free_bytes() or 8e9) / (32 * axes.rows * axes.points * axes.parts)
    return next((n for n in (LARGE, 64, 32) if n <= room), GROUP)


def after_table(
    form: Form, axes: Axes, time: int, prices: Float[Numbers, " n"], later: Float[Numbers, "S C X"] | None, utility
) -> Float[Numbers, "n Q X"]:
    """Return EV_t at some prices and at all positions of the lattice within the axes."""
    if later is None:
        return last_move(form, axes, time, prices, utility, axes.every)
    chance = form.nodes(axes.prices, time, prices, axes.width)
    payment = node_payments(form, time, prices, chance, _places(axes, len(prices), axes.every))
    return expected(later, chance.row, payment, chance.weights, axes.window, utility, axes.every)


def last_move(
    form: Form, axes: Axes, time: int, prices: Float[Numbers, " n"], utility: KinkedUtility, every: int
) -> Float[Numbers, "n Q X"]:
    """Return the expected utility of the last move."""
    payment, probs = form.last_payments(time, prices, _places(axes, len(prices), every))
    return at_end(payment, probs, axes.window, utility, axes.points, every)


def _places(axes: Axes, count: int, every: int) -> np.ndarray:
    places = axes.first + np.arange(0, axes.rows, every, dtype=np.int32)
    return np.broadcast_to(places, (count, len(places)))


def before_table(
    form: Form, axes: Axes, time: int, after: Float[Numbers, "S Q X"], utility: KinkedUtility
) -> Float[Array, "S C X"]:
    """Return V_t from EV_t."""
    chosen = form.decisions(time, axes.prices.points, axes.first, axes.positions, axes.every)
    ends = chosen.ends if form.ends else None
    return best(after, chosen.position - axes.first, chosen.reward, ends, axes.window, utility)


def _path_step(form, axes, time, price, noise, means, later, known: Known | None, utility) -> Known:
    """Return the bound along paths before the decision."""
    chance = parts = None
    if later is None or known is None:  # along paths returns are finer, and every position counts
        fine = axes._replace(window=axes.fine, points=axes.parts * axes.points)
        after = last_move(form, fine, time, price, utility, every=1)
    else:
        after = _path_after(form, axes, time, price, noise, later, known, utility)
        chance = form.nodes(means.prices, time, price, means.width)
        parts = realised(chance, noise)
    mean = None if known is None else known.mean
    to_go, estimate = path_means_after(form, time, means, price, noise, chance, parts, mean)
    first, count = (form.start, 1) if time == 0 else (axes.first, axes.rows)
    position, reward, ends = form.decisions(time, price, first, count)
    if time == 0:  # one position, many returns within a cell
        position = np.broadcast_to(position, (len(position), PARTS))
        reward = reward + as_floats(axes.fine.step * np.arange(PARTS) / PARTS)
        ends = np.broadcast_to(ends, reward.shape)
    beyond = Beyond(to_go, estimate, axes.first)
    value = best_up(after, position, reward, ends if form.ends else None, axes.fine, utility, beyond)
    everywhere = form.decisions(time, price, 0, len(form.lattice))
    return Known(value, best_mean(to_go, everywhere), best_mean(estimate, everywhere))


def _path_after(form, axes, time, price, noise, later, known: Known, utility):
    """Return P_{t+1} minus the penalty of the move, after the decision, on the window of this time."""
    count = len(price)
    chance = form.nodes(axes.prices, time, price, axes.width)
    share = chance.weights - realised(chance, noise)
    payment = node_payments(form, time, price, chance, _places(axes, count, axes.every))
    penalty = expected(later, chance.row, payment, share, axes.window, utility, axes.every)
    if payment is None:
        return with_penalty(known.value, penalty, None, None, None, axes.fine, utility, axes.parts)
    paid = form.moves(time, price, noise[:, None], _places(axes, count, 1))[1][:, 0]
    mean, sign = (x[:, axes.first : axes.first + axes.rows] for x in (known.mean, known.sign))
    return with_penalty(known.value, penalty, paid, mean, sign, axes.fine, utility, axes.parts)
