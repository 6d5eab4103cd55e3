"""The largest mean of the return: tables over (price, position) without returns, and an upper bound along paths.

    M_t(S, q) = max_a { r_a + E[r_move + M_{t+1}(S', q')] }.

The positions are all that an episode can reach, so no axis has an end that could bind.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from riskpath.mdp.grid.chance import Nodes, Numbers, PriceAxis
from riskpath.mdp.grid.form import Decisions, Form
from riskpath.mdp.grid.rows import near


class MeanTables(NamedTuple):
    """The solution of the mean on a grid of prices."""

    prices: PriceAxis
    width: int
    before: tuple[Float[Numbers, "S L"], ...]
    """M_t, the mean to go before the decision, for every time."""
    after: tuple[Float[Numbers, "S L"], ...]
    """The mean to go after the decision."""


def solve_mean(form: Form, prices: PriceAxis) -> MeanTables:
    """Return the tables of the mean."""
    axis, width = prices.points, form.width(prices)
    before, after = [], []
    for time in reversed(range(form.problem.steps)):
        if before:
            chance = form.nodes(prices, time, axis, width)
            expected = read_means(before[-1], chance.row, node_payments(form, time, axis, chance), chance.weights)
        else:
            expected = last_mean(form, time, axis)
        decisions = form.decisions(time, axis, 0, len(form.lattice))
        after.append(expected)
        before.append(best_mean(expected, decisions))
    return MeanTables(prices, width, tuple(before[::-1]), tuple(after[::-1]))


def all_places(form: Form, count: int) -> Int[np.ndarray, "n L"]:
    """Return the numbers of all positions, for every price."""
    return np.broadcast_to(np.arange(len(form.lattice), dtype=np.int32), (count, len(form.lattice)))


def last_mean(form: Form, time: int, prices: Float[Numbers, " n"]) -> Float[Numbers, "n L"]:
    """Return the expected payment of the last move."""
    payment, probs = form.last_payments(time, prices, all_places(form, len(prices)))
    return _weighted(probs, payment)


def node_payments(
    form: Form, time: int, prices: Float[Numbers, " n"], chance: Nodes, places: Int[Numbers, "n Q"] | None = None
) -> Float[Numbers, "n W Q"] | None:
    """Return the payments of a move at every node; None if it pays nothing."""
    if form.silent[time]:
        return None
    return form.moves(time, prices, chance.noise, all_places(form, len(prices)) if places is None else places)[1]


@jax.jit
def read_means(later: Numbers, row: Numbers, payment: Numbers | None, share: Numbers) -> Float[Numbers, "n L"]:
    """Return the weighted sum over nodes of payments and tables."""
    total = jnp.einsum("ns,sl->nl", near(later, row, share), later, precision="highest")
    return total if payment is None else total + jnp.einsum("nj,njl->nl", share, payment, precision="highest")


@jax.jit
def best_mean(after: Float[Numbers, "n L"], decisions: Decisions) -> Float[Numbers, "n L"]:
    """Return the mean of the best action."""

    def better(top: Numbers, option: Decisions) -> tuple[Array, None]:
        then = after[:, jnp.clip(option.position, 0, after.shape[1] - 1)]
        return jnp.maximum(top, option.reward + jnp.where(option.ends, 0.0, then)), None

    return jax.lax.scan(better, jnp.full(after.shape, -jnp.inf), decisions)[0]


def path_means_after(
    form: Form,
    time: int,
    tables: MeanTables,
    prices: Float[Numbers, " n"],
    noise: Float[Numbers, " n"],
    chance: Nodes | None,
    realised: Float[Numbers, "n W"] | None,
    known: Float[Numbers, "n L"] | None,
) -> tuple[Float[Numbers, "n L"], Float[Numbers, "n L"]]:
    """Return the mean to go along paths after the decision of one time: for one who knows the path, and by the tables.

    The first is the largest return to go minus its penalty, so its expectation is an upper bound; `known` is the same
    before the next decision.
    """
    if known is None or chance is None or realised is None:
        expected = last_mean(form, time, prices)
        return expected, expected
    payment = node_payments(form, time, prices, chance)
    paid = None if payment is None else form.moves(time, prices, noise[:, None], all_places(form, len(prices)))[1]
    return _penalised(known, tables.before[time + 1], chance, payment, realised, paid)


@jax.jit
def _weighted(probs: Float[Numbers, " K"], payment: Float[Numbers, "n K L"]) -> Float[Numbers, "n L"]:
    return jnp.einsum("k,nkl->nl", probs, payment, precision="highest")


@jax.jit
def _penalised(known, later, chance, payment, realised, paid):
    expected = read_means(later, chance.row, payment, chance.weights)
    gained = read_means(later, chance.row, payment, realised)
    return known - gained + expected + (0.0 if paid is None else paid[:, 0]), expected
