"""The backward pass over (price, position, return so far), and its upper bound along paths of the price.

With x the discounted return so far minus the threshold b, and u the utility of the final x:

    EV_t(S, q', x) = E[V_{t+1}(S', q', x + r_move)],    V_t(S, q, x) = max_a EV_t(S, q', x + r_a),    V_T = u.

For any functions V that do not look ahead, and any policy, Σ_t (V_{t+1}(next) − EV_t) has mean zero. So a decision
maker who knows the whole path, but pays this sum as a penalty, does at least as well as any policy:

    P_t(q, x) = max_a { P_{t+1}(q', x') − V_{t+1}(S_{t+1}, q', x') + EV_t(S_t, q', x + r_a) },   x' = x + r_a + r_move,

has E[P_0] ≥ max over policies of E[u(x_T)], for every x at once. With the exact V both sides are equal on every path. A
state beyond the tables is worth at most u(x + M) with M the largest mean to go, which has a bound of the same kind.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from riskpath.mdp.grid_backward import Progress
from riskpath.mdp.grid_chance import Numbers, as_floats, cardinal, cells, nodes, price_stencil
from riskpath.mdp.grid_form import Form
from riskpath.mdp.grid_mean import MeanTables, axis_shares, best_mean, node_moves, path_means_after
from riskpath.mdp.grid_rows import (
    Beyond,
    Terms,
    Window,
    at_end,
    bend,
    best,
    best_up,
    by_mean,
    expected,
    finer,
    returns,
    shifted_up,
)
from riskpath.mdp.grid_utility import KinkedUtility


class Axes(NamedTuple):
    """The axes of a table."""

    prices: Float[np.ndarray, " S"]
    """The prices; one if there is none."""
    first: int
    """The number of the first position on the lattice."""
    positions: int
    """The number of positions of the table."""
    every: int
    """Every which position of the lattice it has."""
    window: Window
    """The returns x."""
    points: int
    """The number of returns."""

    @property
    def rows(self) -> int:
        """The number of positions of the lattice from the first to the last."""
        return self.every * (self.positions - 1) + 1


class Tail(NamedTuple):
    """The result of a backward pass."""

    axes: Axes
    """The axes."""
    utility: KinkedUtility
    """u."""
    tables: tuple[Float[Numbers, "S C X"], ...]
    """V_t for every time; the first entry is V_0 at the start, [1, 1, X]."""
    known: Float[np.ndarray, "n X"] | None
    """P_0 at the start for every path, if a bound was asked for."""


def node_count(form: Form) -> int:
    """Return the number of nodes of chance: many where a table is small."""
    return 33 if len(form.lattice) > 1 else 129


def solve_tail(
    form: Form,
    axes: Axes,
    utility: KinkedUtility,
    means: MeanTables | None = None,
    paths: tuple[Float[np.ndarray, "n times"], Float[np.ndarray, "n steps"]] | None = None,
    progress: Progress | None = None,
) -> Tail:
    """Maximise the expected utility for all states and returns; with paths, bound it from above along them."""
    axis = as_floats(axes.prices)
    tables: list[Array] = []
    known = mean_known = mean_sign = None
    for time in reversed(range(form.problem.steps)):
        later = tables[-1] if tables else None
        if paths is not None and means is not None:
            price, noise = (as_floats(x[:, time]) for x in paths)
            mean = path_means_after(form, time, means, price, noise, mean_known)
            after = _path_after(form, axes, time, price, noise, later, known, mean_known, mean_sign, utility)
            if mean_known is None:
                after = last_move(form, axes, time, price, utility, every=1)
            first, count = (form.start, 1) if time == 0 else (axes.first, axes.rows)
            chosen = form.decisions(time, price, first, count)
            beyond = Beyond(mean.known, mean.estimate, axes.first)
            ends = chosen.ends if form.ends else None
            known = _best_up(after, chosen.position, chosen.reward, ends, axes.window, utility, beyond)
            all_chosen = form.decisions(time, price, 0, len(form.lattice))
            mean_known, mean_sign = best_mean(mean.known, all_chosen), best_mean(mean.estimate, all_chosen)
        here = axis if time else np.full((1,), form.start_price, np.float32)
        tables.append(_before(form, axes, time, here, after_table(form, axes, time, here, later, utility), utility))
        if progress is not None:
            progress(form.problem.steps - time, form.problem.steps)
    start = None if known is None else np.asarray(known[:, 0], np.float64)
    return Tail(axes, utility, tuple(tables[::-1]), start)


def after_table(
    form: Form, axes: Axes, time: int, prices: Float[Numbers, " n"], later: Float[Numbers, "S C X"] | None, utility
) -> Float[Numbers, "n Q X"]:
    """Return EV_t at some prices and at all positions of the lattice within the axes."""
    if later is None:
        return last_move(form, axes, time, prices, utility, axes.every)
    axis = as_floats(axes.prices)
    chance = nodes(node_count(form))
    following, payment = node_moves(form, time, prices, chance, _places(axes, len(prices), axes.every))
    share = np.broadcast_to(as_floats(chance.weights), following.shape)
    return _finer(_sum(later, axis, following, payment, share, axes.window), axes.every)


def last_move(
    form: Form, axes: Axes, time: int, prices: Float[Numbers, " n"], utility: KinkedUtility, every: int
) -> Float[Numbers, "n Q X"]:
    """Return the expected utility of the last move."""
    means, probs = cells()
    noise = np.broadcast_to(as_floats(means), (len(prices), len(means)))
    payment = form.moves(time, prices, noise, _places(axes, len(prices), every))[1]
    table = _at_end(payment, as_floats(probs), axes.window, utility, axes.points)
    return _finer(table, every)


def _places(axes: Axes, count: int, every: int) -> np.ndarray:
    places = axes.first + np.arange(0, axes.rows, every, dtype=np.int32)
    return np.broadcast_to(places, (count, len(places)))


def _before(form: Form, axes: Axes, time: int, prices: Numbers, after: Numbers, utility: KinkedUtility) -> Array:
    """Return V_t; at the start for its position alone."""
    first, count, every = (axes.first, axes.positions, axes.every) if time else (form.start, 1, 1)
    chosen = form.decisions(time, prices, first, count, every)
    ends = chosen.ends if form.ends else None
    return _best(after, chosen.position - axes.first, chosen.reward, ends, axes.window, utility)


def _path_after(form, axes, time, price, noise, later, known, mean_known, mean_sign, utility):
    """Return P_{t+1} minus the penalty of the move, after the decision, on the window of this time."""
    if later is None:
        return None
    axis = as_floats(axes.prices)
    count = node_count(form)
    chance = nodes(count)
    following, payment = node_moves(form, time, price, chance, _places(axes, len(price), axes.every))
    share = as_floats(chance.weights)[None, :] - cardinal(noise, count)
    penalty = _sum(later, axis, following, payment, share, axes.window)
    if payment is None:
        paid = np.zeros((len(price), axes.rows), np.float32)
    else:
        paid = form.moves(time, price, noise[:, None], _places(axes, len(price), 1))[1][:, 0]
    mean, sign = (x[:, axes.first : axes.first + axes.rows] for x in (mean_known, mean_sign))
    return _path_sum(known, penalty, paid, mean, sign, axes.window, utility, axes.every)


@partial(jax.jit, static_argnames=("every",))
def _path_sum(known, penalty, paid, mean, sign, window, utility, every):
    count = known.shape[-1]
    value, out = shifted_up(known, bend(known, window), paid, window)
    then = returns(window, count) + paid[..., None]
    value = jnp.where(out, by_mean(utility, then, mean[..., None], sign[..., None]), value)
    return value + finer(penalty, every)


@jax.jit
def _sum(table, axis, following, payment, share, window):
    """Return the weighted sum over nodes of tables that are read after the payments."""
    if payment is None:
        return jnp.einsum("ns,sqx->nqx", axis_shares(axis, following, share), table, precision="highest")
    if len(axis) == 1:
        row, weight = jnp.zeros((*share.shape, 1), jnp.int32), share[..., None]
    else:
        row, weight = price_stencil(axis, following)
        weight = weight * share[..., None]
    return expected(table, Terms(row, weight, payment), window)


_at_end = jax.jit(at_end, static_argnames=("count",))
_best, _best_up = jax.jit(best), jax.jit(best_up)
_finer = jax.jit(finer, static_argnames=("every",))
