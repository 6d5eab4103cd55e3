"""The largest mean of the return: tables over (price, position) without returns, and an upper bound along paths.

    M_t(S, q) = max_a { r_a + E[r_move + M_{t+1}(S', q')] }.

The positions are all that an episode can reach, so no axis has an end that could bind.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from riskpath.mdp.grid_chance import Nodes, Numbers, as_floats, cardinal, cells, nodes, price_stencil
from riskpath.mdp.grid_form import Decisions, Form

MEAN_NODES = 33
"""The number of nodes of chance."""


class MeanTables(NamedTuple):
    """The solution of the mean on a grid of prices."""

    prices: Float[np.ndarray, " S"]
    """The prices."""
    before: tuple[Float[Numbers, "S L"], ...]
    """M_t, the mean to go before the decision, for every time."""
    after: tuple[Float[Numbers, "S L"], ...]
    """The mean to go after the decision."""


class PathMeans(NamedTuple):
    """The mean problem along paths of the price."""

    known: Float[Numbers, "n L"]
    """The largest return to go minus its penalty, if the whole path is known: its expectation is an upper bound."""
    estimate: Float[Numbers, "n L"]
    """The mean to go after a decision by the tables."""


def solve_mean(form: Form, prices: Float[np.ndarray, " S"]) -> MeanTables:
    """Return the tables of the mean."""
    axis = as_floats(prices)
    before, after = [], []
    for time in reversed(range(form.problem.steps)):
        expected = mean_after(form, time, axis, axis, before[-1] if before else None)
        decisions = form.decisions(time, axis, 0, len(form.lattice))
        after.append(expected)
        before.append(best_mean(expected, decisions))
    return MeanTables(np.asarray(prices), tuple(before[::-1]), tuple(after[::-1]))


def mean_after(
    form: Form, time: int, axis: Float[Numbers, " S"], prices: Float[Numbers, " n"], later: Float[Numbers, "S L"] | None
) -> Float[Numbers, "n L"]:
    """Return the expected payment of a move and what follows it, at any prices; without a table, of the last move."""
    places = np.broadcast_to(np.arange(len(form.lattice), dtype=np.int32), (len(prices), len(form.lattice)))
    if later is None:
        means, probs = cells()
        payment = form.moves(time, prices, np.broadcast_to(as_floats(means), (len(prices), len(means))), places)[1]
        return _weighted(as_floats(probs), payment)
    chance = nodes(MEAN_NODES)
    following, payment = node_moves(form, time, prices, chance, places)
    share = np.broadcast_to(as_floats(chance.weights), following.shape)
    return read_means(later, axis, following, payment, share)


def node_moves(
    form: Form, time: int, prices: Float[Numbers, " n"], chance: Nodes, places: Int[Numbers, "n L"]
) -> tuple[Float[Numbers, "n J"], Float[Numbers, "n J L"] | None]:
    """Return the prices after the move at every node, and its payments; None if it pays nothing."""
    noise = np.broadcast_to(as_floats(chance.places), (len(prices), len(chance.places)))
    if form.silent[time]:
        return form.moves(time, prices, noise, places[:, :1])[0], None
    return form.moves(time, prices, noise, places)


def axis_shares(
    axis: Float[Numbers, " S"], following: Float[Numbers, "n J"], share: Float[Numbers, "n J"]
) -> Float[Numbers, "n S"]:
    """Return the weights of the prices of an axis in a weighted sum over nodes."""
    if len(axis) == 1:
        return share.sum(axis=1, keepdims=True)
    row, weight = price_stencil(axis, following)
    weight = (weight * share[..., None]).reshape(len(following), -1)
    row = row.reshape(weight.shape)
    return jax.vmap(lambda row, weight: jnp.zeros(axis.shape, jnp.float32).at[row].add(weight))(row, weight)


@jax.jit
def read_means(
    later: Numbers, axis: Numbers, following: Numbers, payment: Numbers | None, share: Numbers
) -> Float[Numbers, "n L"]:
    """Return the weighted sum over nodes of payments and tables."""
    total = jnp.einsum("ns,sl->nl", axis_shares(axis, following, share), later, precision="highest")
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
    known: Float[Numbers, "n L"] | None,
) -> PathMeans:
    """Return the mean problem along paths after the decision of one time, from that before the next decision."""
    axis = as_floats(tables.prices)
    if known is None:
        expected = mean_after(form, time, axis, prices, None)
        return PathMeans(expected, expected)
    places = np.broadcast_to(np.arange(len(form.lattice), dtype=np.int32), (len(prices), len(form.lattice)))
    chance = nodes(MEAN_NODES)
    following, payment = node_moves(form, time, prices, chance, places)
    later = tables.before[time + 1]
    expected = read_means(later, axis, following, payment, np.broadcast_to(as_floats(chance.weights), following.shape))
    realised = read_means(later, axis, following, payment, cardinal(noise, MEAN_NODES))
    paid = None if payment is None else form.moves(time, prices, noise[:, None], places)[1]
    return PathMeans(_penalised(known, paid, realised, expected), expected)


@jax.jit
def _weighted(probs: Float[Numbers, " K"], payment: Float[Numbers, "n K L"]) -> Float[Numbers, "n L"]:
    return jnp.einsum("k,nkl->nl", probs, payment, precision="highest")


@jax.jit
def _penalised(known: Numbers, paid: Numbers | None, realised: Numbers, expected: Numbers) -> Float[Numbers, "n L"]:
    return known - realised + expected + (0.0 if paid is None else paid[:, 0])
