"""The backward pass over a grid of states and returns. With x the return so far minus the threshold, all discounted:

    EV_t(y, x) = Σ_k w_k V_{t+1}(move(y, ξ_k), x + γᵗ r_k),     V_T(s, x) = u(x + γᵀ finish(s)),
    V_t(s, x)  = max_a EV_t(decide(s, a), x + γᵗ r_a).

Rewards enter with their present value, so a reward shifts a whole row of the table by one number. Beyond the grid of
returns rows continue with the slopes of u, which is exact where the sign of the final x is certain.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from riskpath.mdp.grid.chance import as_floats
from riskpath.mdp.grid.layout import Layout, between_points, decisions, moves
from riskpath.mdp.grid.problem import GridProblem, GridState
from riskpath.mdp.grid.stencils import Stencil, corners, read, whole_and_rest, widen
from riskpath.mdp.grid.utility import LINEAR, ReturnAxis, Utility
from riskpath.mdp.problem import Progress, silent


class Choices(NamedTuple):
    """Where every action leads from N states."""

    stencil: Stencil
    """Where to read the table after the decision."""
    ends: Bool[Array, "A N"] | None
    """Where the episode ends; None if it never does."""
    refused: Bool[Array, "A N"] | None
    """Which actions would leave the grid; None if none does."""


@dataclass(frozen=True, eq=False)
class Pass:
    """The result of a backward pass."""

    axis: ReturnAxis
    utility: Utility
    tables: tuple[Float[Array, "N X"], ...]
    """EV_t for every time."""
    root: Float[np.ndarray, " X"]
    """V_0 at the start state, for every x."""


def backward(
    plan: Layout, axis: ReturnAxis, utility: Utility, *, round_up: bool = False, progress: Progress = silent
) -> Pass:
    """Maximise the expected utility for all states and returns; `round_up` rounds shifts up, for an upper bound."""
    problem, margin, states = plan.problem, plan.margin(axis), plan.problem.grid_states
    value, tables = None, []
    for time in reversed(range(problem.steps)):
        expected = expectation(plan, time, value, axis, utility, margin, round_up)
        tables.append(expected)
        if time:
            value = _maximise(expected, choices(plan, time, states, axis, round_up), axis, utility, margin)
            value.block_until_ready()
        progress(problem.steps - time, problem.steps)
    start = tuple(jnp.asarray(as_floats([x])) for x in problem.start)
    root = _maximise(tables[-1], choices(plan, 0, start, axis, round_up), axis, utility, margin)
    return Pass(axis, utility, tuple(tables[::-1]), np.asarray(root[0], np.float64))


def mean_tables(plan: Layout) -> tuple[tuple[Float[Array, " N"], ...], float]:
    """Return the largest expected return to go after every decision, for every time, and at the start."""
    result = backward(plan, ReturnAxis(0.0, max(plan.largest, 1e-6), 2), LINEAR)
    return tuple(table[:, 0] for table in result.tables), float(result.root[0]) + plan.problem.start_potential


def expectation(
    plan: Layout,
    time: int,
    value: Array | None,
    axis: ReturnAxis,
    utility: Utility,
    margin: int,
    round_up: bool = False,
) -> Float[Array, "N X"]:
    """Return EV_t; without a table of the next step, from the utility of the end itself."""
    problem = plan.problem
    weights = jnp.asarray(as_floats(problem.noise.weights))
    if value is not None and (matrix := plan.matrices[time]) is not None:
        return _multiply(value, jnp.asarray(as_floats(matrix[1])), problem.shape, matrix[0])
    following, reward, ending = moves(problem, jnp.int32(time), problem.grid_states)
    if value is None:
        shift = reward + ending
        return _at_the_end(weights, _up(shift / axis.step) * axis.step if round_up else shift, axis, utility)
    shift = reward / axis.step
    stencil = _stencil(problem, following, _up(shift) if round_up else shift, plan.move_between)
    return _expect(value, stencil, weights, axis, utility, margin)


def choices(plan: Layout, time: int, states: GridState, axis: ReturnAxis, round_up: bool = False) -> Choices:
    """Return where all actions in some states lead."""
    post, reward, ends, refused = decisions(plan.problem, jnp.int32(time), states)
    between = plan.decide_between
    if len(states[0]) == 1:  # the start need not be a point of the grid
        between = tuple(map(bool, np.asarray(between_points(plan.problem, post))))
    shift = reward / axis.step
    stencil = _stencil(plan.problem, post, _up(shift) if round_up else shift, between)
    return Choices(stencil, ends if plan.ends else None, refused if plan.refusals else None)


def _up(shift: Float[Array, "*m"]) -> Float[Array, "*m"]:
    whole, rest = whole_and_rest(shift)
    return whole.astype(jnp.float32) + (rest > 0).astype(jnp.float32)


@partial(jax.jit, static_argnums=(0, 3))
def _stencil(problem: GridProblem, states: GridState, shift: Array, between: tuple[bool, ...]) -> Stencil:
    return Stencil(*corners(tuple(problem.axes.values()), states, between), shift)


def rise(axis: ReturnAxis, utility: Utility) -> tuple[Array, Array]:
    """Return how much a row rises in one cell beyond its lower and its upper end."""
    low, high = utility.ends()
    return jnp.float32(low * axis.step), jnp.float32(high * axis.step)


@partial(jax.jit, static_argnums=(2, 3))
def _multiply(value: Array, matrix: Array, shape: tuple[int, ...], axis: int) -> Float[Array, "N X"]:
    """Return the expectation over the next point of one axis."""
    before = int(np.prod(shape[:axis]))
    blocks = value.reshape(before, shape[axis], -1)
    return jnp.einsum("ij,bjx->bix", matrix, blocks, precision="highest").reshape(value.shape)


@partial(jax.jit, static_argnames=("margin",))
def _expect(
    value: Array, stencil: Stencil, weights: Array, axis: ReturnAxis, utility: Utility, margin: int
) -> Float[Array, "N X"]:
    wide = widen(value, margin, rise(axis, utility))

    def add(total: Array, node: tuple[Array, Stencil]) -> tuple[Array, None]:
        weight, one = node
        return total + weight * read(wide, margin, axis.count, *one), None

    return jax.lax.scan(add, jnp.zeros_like(value), (weights, stencil))[0]


@jax.jit
def _at_the_end(weights: Array, shift: Array, axis: ReturnAxis, utility: Utility) -> Float[Array, "N X"]:
    def add(total: Array, node: tuple[Array, Array]) -> tuple[Array, None]:
        weight, shifts = node
        return total + weight * utility.rows(axis, shifts), None

    zero = jnp.zeros((shift.shape[1], axis.count), jnp.float32)
    return jax.lax.scan(add, zero, (weights, shift))[0]


@partial(jax.jit, static_argnames=("margin",))
def _maximise(
    expected: Array, options: Choices, axis: ReturnAxis, utility: Utility, margin: int
) -> Float[Array, "N X"]:
    wide = widen(expected, margin, rise(axis, utility))

    def better(best: Array, option: Choices) -> tuple[Array, None]:
        value = read(wide, margin, axis.count, *option.stencil)
        if option.ends is not None:
            value = jnp.where(option.ends[:, None], utility.rows(axis, option.stencil.shift * axis.step), value)
        if option.refused is not None:
            value = jnp.where(option.refused[:, None], -jnp.inf, value)
        return jnp.maximum(best, value), None

    worst = jnp.full((options.stencil.row.shape[1], axis.count), -jnp.inf, jnp.float32)
    return jax.lax.scan(better, worst, options)[0]
