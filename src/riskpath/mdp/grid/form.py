"""The form of a problem that a bound needs: an exogenous price, a position on a lattice, and nothing else.

The price is random and does not depend on the position. A decision moves the position on the points of a lattice,
independently of the price. Either coordinate may be missing. Along one path of the noise such a problem is a
deterministic one over (position, return so far), which `tail` solves. `detect` finds the form of a problem.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from riskpath.mdp.grid.chance import NODES, REACH, Nodes, Numbers, PriceAxis, as_floats, cardinal, cells, node_weights
from riskpath.mdp.grid.problem import GridProblem, GridState

PATHS = 4096
"""The smallest number of paths drawn, so that only one number of paths is compiled."""
SIZES = (1 << 13, 1 << 16, 1 << 19)
"""The numbers of samples for which the functions of a problem are compiled."""
FAR = 7.0
"""A node that more noise leads to is given this noise; it has no weight."""


class Decisions(NamedTuple):
    """The effects of all actions at n prices and Q positions."""

    position: Int[Numbers, "A Q"]
    """The number of the next position on the lattice of all positions."""
    reward: Float[Numbers, "A n Q"]
    """The present value of reward and rise of the potential."""
    ends: Bool[Numbers, "A n Q"]


@dataclass(frozen=True, eq=False)
class Form:
    """A problem with an exogenous price and a position on a lattice."""

    problem: GridProblem
    price: int | None
    """The coordinate of the price."""
    position: int | None
    """The coordinate of the position."""
    lattice: Float[np.ndarray, " L"]
    """All positions that an episode can reach, equally spaced."""
    start: int
    """The number of the position at the start."""
    silent: tuple[bool, ...]
    """For every time whether the move pays nothing; the last one always counts as paying."""
    ends: bool

    @property
    def unit(self) -> float:
        """The distance of two positions."""
        return float(self.lattice[1] - self.lattice[0]) if len(self.lattice) > 1 else 1.0

    @cached_property
    def start_price(self) -> float:
        """The price at the start; 0 if there is none."""
        return 0.0 if self.price is None else self.problem.start[self.price]

    def state(self, price: Any, position: Any) -> GridState:
        """Return the state of a price and a position."""
        values = {self.price: price, self.position: position}
        return tuple(values[number] for number in range(len(self.problem.axes)))

    def decisions(self, time: int, prices: Float[Numbers, " n"], first: int, count: int, every: int = 1) -> Decisions:
        """Return the effects of all actions at some prices and at `count` positions of the lattice from `first` on."""
        places = np.arange(first, first + every * (count - 1) + 1, every)
        position, reward, ends = self._decided(time, np.asarray(prices)[:, None], places[None, :])
        return Decisions(position[:, 0], reward, ends)

    def decisions_at(self, time: int, prices: Float[Numbers, " n"], places: Int[Numbers, " n"]) -> Decisions:
        """Return the effects of all actions at pairs of a price and the number of a position; Q is 1."""
        position, reward, ends = self._decided(time, np.asarray(prices), np.asarray(places))
        return Decisions(position, reward[..., None], ends[..., None])

    def decisions_of_one(self, time: Any, price: Any, place: Any) -> Decisions:
        """Return the same for one pair, as a compiled program computes it."""
        count = len(self.problem.actions)
        prices, positions = (
            jnp.broadcast_to(x, (count,)) for x in (price, jnp.asarray(as_floats(self.lattice))[place])
        )
        position, reward, ends = _decisions(self, time, jnp.arange(count), prices, positions)
        return Decisions(position[:, None], reward[:, None, None], ends[:, None, None])

    def moves(
        self, time: int, prices: Float[Numbers, " n"], noise: Float[Numbers, "n K"], places: Int[Numbers, "n Q"]
    ) -> tuple[Float[Numbers, "n K"], Float[Numbers, "n K Q"]]:
        """Return the next prices and the present values of the payments of a move; the last one includes the end."""
        positions = as_floats(self.lattice)[np.asarray(places)]
        arrays = np.asarray(prices)[:, None, None], np.asarray(noise)[:, :, None], positions[:, None, :]
        after, paid = _samples(_moves, self, np.int32(time), arrays)
        return after[..., 0], paid

    def last_payments(
        self, time: int, prices: Float[Numbers, " n"], places: Int[Numbers, "n Q"]
    ) -> tuple[Float[Numbers, "n K Q"], Float[np.ndarray, " K"]]:
        """Return the payments of the last move in narrow cells of the noise, and the probabilities of the cells."""
        means, probs = cells()
        noise = np.broadcast_to(as_floats(means), (len(prices), len(means)))
        return self.moves(time, prices, noise, places)[1], as_floats(probs)

    def _decided(self, time: int, prices: np.ndarray, places: np.ndarray) -> tuple[Any, Any, Any]:
        numbers = np.arange(len(self.problem.actions), dtype=np.int32).reshape(-1, *[1] * places.ndim)
        arrays = numbers, prices, as_floats(self.lattice)[places]
        return _samples(_decisions, self, np.int32(time), arrays)

    def nodes(self, axis: PriceAxis, time: int, prices: Float[Numbers, " n"], width: int) -> Nodes:
        """Return the nodes of a move from some prices: `width` points of the axis, or of the noise without a price."""
        if self.price is None:
            middle, slope = (np.full(prices.shape, x, np.float32) for x in ((width - 1) / 2, (width - 1) / (2 * REACH)))
        else:
            noise = np.broadcast_to(as_floats([-1.0, 0.0, 1.0]), (len(prices), 3))
            following = self.moves(time, prices, noise, np.full((len(prices), 1), self.start, np.int32))[0]
            middle, slope = _line(axis.curved, as_floats([axis.low, axis.step]), following)
        return _nodes(middle, slope, width, axis.size)

    def width(self, axis: PriceAxis) -> int:
        """Return the number of axis points that the nodes of a move need, a multiple of 16 or all of them."""
        if self.price is None:
            return NODES
        noise = np.broadcast_to(as_floats([-REACH, 0.0, REACH]), (axis.size, 3))
        most = 0
        for time in {0, self.problem.steps // 2, self.problem.steps - 1}:
            following = self.moves(time, axis.points, noise, np.full((axis.size, 1), self.start, np.int32))[0]
            after = np.log(following) if axis.curved else np.asarray(following)
            most = max(most, float(np.abs(np.diff(after)).max()) / axis.step)
        return min(axis.size, 16 * -(-int(2 * most + 6) // 16))

    def paths(self, count: int, seed: int) -> tuple[Float[np.ndarray, "n times"], Float[np.ndarray, "n steps"]]:
        """Return paths of the price, [count, steps + 1], and their noise."""
        drawn = jax.device_get(_paths(self, max(count, PATHS), jax.random.key(seed)))
        return drawn[0][:count], drawn[1][:count]


def _samples(function: Any, form: Form, time: np.int32, arrays: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
    """Apply a function of many samples to arrays that are broadcast; few sizes are compiled unless they are large."""
    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    total = int(np.prod(shape))
    size = next((n for n in SIZES if n >= total), None)
    if size is None:
        return _broadcast(function, form, time, arrays, shape)
    flat = tuple(np.pad(np.broadcast_to(x, shape).ravel(), (0, size - total), mode="edge") for x in arrays)
    found = _broadcast(function, form, time, flat, (size,))
    return tuple(np.asarray(x)[:total].reshape(shape) for x in found)


@partial(jax.jit, static_argnums=(0, 1, 4))
def _broadcast(
    function: Any, form: Form, time: Numbers, arrays: tuple[Numbers, ...], shape: tuple[int, ...]
) -> tuple[Any, ...]:
    found = function(form, time, *(jnp.broadcast_to(x, shape).ravel() for x in arrays))
    return tuple(x.reshape(shape) for x in found)


def _decisions(form: Form, time: Numbers, actions: Numbers, prices: Numbers, positions: Numbers) -> tuple[Any, ...]:
    def one(action: Numbers, price: Numbers, position: Numbers) -> tuple[Any, Any, Any]:
        post, reward, ends = form.problem.after_decision(time, form.state(price, position), action)
        after = position if form.position is None else post[form.position]
        return after, reward * form.problem.present(time), ends

    after, reward, ends = jax.vmap(one)(jnp.asarray(form.problem.actions)[actions], prices, positions)
    return _place(form, after), reward, ends


def _moves(form: Form, time: Numbers, prices: Numbers, noise: Numbers, positions: Numbers) -> tuple[Any, Any]:
    def one(price: Numbers, noise: Numbers, position: Numbers) -> tuple[Any, Any]:
        following, reward = form.problem.after_move(time, form.state(price, position), noise)
        ending = form.problem.at_end(following) * jnp.float32(form.problem.discount)
        paid = reward + jnp.where(time == form.problem.steps - 1, ending, 0.0)
        after = price if form.price is None else following[form.price]
        return after, paid * form.problem.present(time)

    return jax.vmap(one)(prices, noise, positions)


@partial(jax.jit, static_argnums=0)
def _line(curved: bool, numbers: Numbers, following: Float[Numbers, "n 3"]) -> tuple[Any, Any]:
    """Return on the axis the next price without noise, and how far a noise of 1 moves it."""
    places = ((jnp.log(following) if curved else following) - numbers[0]) / numbers[1]
    return places[:, 1], (places[:, 2] - places[:, 0]) / 2


@partial(jax.jit, static_argnums=(2, 3))
def _nodes(middle: Numbers, slope: Numbers, width: int, count: int) -> Nodes:
    first = jnp.clip(jnp.floor(middle) - width // 2, 0.0, max(0, count - width))
    local = middle - first
    numbers = jnp.arange(width, dtype=jnp.int32)
    row = first.astype(jnp.int32)[:, None] + numbers if count > 1 else jnp.zeros((len(middle), width), jnp.int32)
    noise = jnp.clip((numbers.astype(jnp.float32) - local[:, None]) / slope[:, None], -FAR, FAR)
    return Nodes(row, noise, node_weights(local, slope, width), local, slope)


@jax.jit
def realised(nodes: Nodes, noise: Float[Numbers, " n"]) -> Float[Numbers, "n W"]:
    """Return ℓ_j(ξ), the parts of the nodes in what happened."""
    return cardinal(nodes.middle + nodes.slope * noise, nodes.row.shape[1])


@partial(jax.jit, static_argnums=(0, 1))
def _paths(form: Form, count: int, key: Numbers) -> tuple[Any, Any]:
    noise = jax.random.normal(key, (form.problem.steps, count))
    position = jnp.float32(form.lattice[form.start])

    def step(price: Numbers, this: tuple[Array, Array]) -> tuple[Any, Any]:
        time, noise = this
        move = jax.vmap(lambda price, noise: form.problem.move(time, form.state(price, position), noise)[0])
        after = price if form.price is None else jnp.asarray(move(price, noise)[form.price], jnp.float32)
        return after, after

    first = jnp.full((count,), form.start_price, jnp.float32)
    prices = jax.lax.scan(step, first, (jnp.arange(form.problem.steps), noise))[1]
    return jnp.concatenate([first[None], prices]).T, noise.T


def _place(form: Form, position: Numbers) -> Int[Numbers, "*m"]:
    if form.position is None:
        return jnp.zeros(position.shape, jnp.int32)
    return jnp.round((position - form.lattice[0]) / form.unit).astype(jnp.int32)


def size_class(size: int) -> int:
    """Return the smallest of few sizes that is large enough: powers of 2, and 3/2 of them."""
    whole = 1 << (size - 1).bit_length()
    return whole if size > 3 * whole // 4 else 3 * whole // 4
