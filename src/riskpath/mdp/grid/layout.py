"""What all backward passes over one problem share: where states lie on the grid, the size of rewards, and memory."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from riskpath import memory
from riskpath.errors import RiskpathError
from riskpath.mdp.grid.form import size_class
from riskpath.mdp.grid.problem import GridProblem, GridState
from riskpath.mdp.grid.stencils import lies_between
from riskpath.mdp.grid.utility import ReturnAxis

SHARE = 0.85
"""The fraction of the free memory that a grid may take."""


def needed_bytes(problem: GridProblem) -> int:
    """Return a rough size of a backward pass in bytes: a table for every step, the tables in use, the stencils."""
    branches = max(len(problem.actions), len(problem.noise.nodes))
    stencils = int(np.prod(problem.shape)) * branches * (2 ** len(problem.axes) + 2 * len(problem.axes) + 2)
    return 4 * problem.cells * (problem.steps + 7) + 8 * stencils


def require_memory(problem: GridProblem) -> None:
    """Refuse a grid that does not fit."""
    shape = " × ".join(f"{len(points):,} {name}" for name, points in problem.axes.items())
    what = f"a grid of {shape} × {problem.return_points:,} returns × {problem.steps} steps"
    needed = needed_bytes(problem) / SHARE

    def cure(free: float) -> str:
        return f"use fewer points, for example {max(2, int(problem.return_points * free / needed)):,} returns"

    memory.require_memory(what, needed, cure)


@partial(jax.jit, static_argnums=0)
def decisions(problem: GridProblem, time: Any, states: GridState) -> tuple[GridState, Array, Array, Array]:
    """Return post-states, present values of the rewards, ends and refusals of all actions in all states, [A, N]."""
    each_state = jax.vmap(problem.options, (None, 0), out_axes=1)
    post, reward, ends, refused = each_state(time, states)
    return post, reward * problem.present(time), ends, refused


@partial(jax.jit, static_argnums=0)
def between_points(problem: GridProblem, states: GridState) -> Bool[Array, " d"]:
    """Tell for each axis whether any of the states lies between its points."""
    return lies_between(tuple(problem.axes.values()), states)


@partial(jax.jit, static_argnums=0)
def moves(problem: GridProblem, time: Any, states: GridState) -> tuple[GridState, Array, Array]:
    """Return next states, present values of the rewards and of the rewards at the end, [K, N]."""
    each_state = jax.vmap(problem.after_move, (None, 0, None))
    nodes = jnp.asarray(problem.noise.nodes, jnp.float32)
    following, reward = jax.vmap(each_state, (None, None, 0))(time, states, nodes)
    ending = jax.vmap(jax.vmap(problem.at_end))(following) * jnp.float32(problem.discount**problem.steps)
    return following, reward * problem.present(time), ending


@dataclass(frozen=True, eq=False)
class Layout:
    """Where states fall on the grid, and how large rewards are."""

    problem: GridProblem
    decide_between: tuple[bool, ...]
    """Which axes an action can leave between two points."""
    move_between: tuple[bool, ...]
    """Which axes a move can leave between two points."""
    largest: float
    """The largest present value of a reward, without its sign."""
    ends: bool
    refusals: bool
    """Whether an action can leave the grid."""
    bounds: tuple[float, float]
    """Bounds of the return to go at every time, from the smallest and largest rewards of the grid."""
    unit: float | None
    """The largest number that all rewards are whole multiples of, if there is one."""
    matrices: tuple[tuple[int, Float[np.ndarray, "n n"]] | None, ...]
    """For every time the axis that moves and its transition matrix, if the move pays nothing and is that simple."""

    @property
    def axes(self) -> tuple[Float[np.ndarray, " _"], ...]:
        """The points of every axis."""
        return tuple(self.problem.axes.values())

    def margin(self, axis: ReturnAxis) -> int:
        """Return how many cells a reward can shift a row, and one more; few numbers are compiled."""
        return size_class(int(np.ceil(self.largest / axis.step)) + 1)


def layout(problem: GridProblem) -> Layout:
    """Return the layout of a problem; it looks at every action and move of every state once."""
    states = problem.grid_states
    between = np.zeros((2, len(problem.axes)), bool)
    largest, any_ends, refusals, lows, highs = 0.0, False, False, 0.0, 0.0
    matrices: list[tuple[int, np.ndarray] | None] = []
    unit: float | None = 0.0
    for time in range(problem.steps):
        post, paid, ends, refused = decisions(problem, jnp.int32(time), states)
        following, reward, ending = moves(problem, jnp.int32(time), states)
        between[0] |= np.asarray(between_points(problem, post))
        last = time == problem.steps - 1  # there the end is computed without a table
        between[1] |= np.asarray(between_points(problem, following)) & (not last)
        any_ends, refusals = any_ends or bool(ends.any()), refusals or bool(refused.any())
        payments = [np.asarray(paid), np.asarray(reward), *([np.asarray(ending)] if last else [])]
        _require_finite(problem, time, payments)
        largest = max(largest, *(float(np.abs(x).max()) for x in payments[:2]))
        lows += sum(min(float(x.min()), 0.0) for x in payments)
        highs += sum(max(float(x.max()), 0.0) for x in payments)
        for payment in payments:
            unit = common_unit(payment, unit)
        matrices.append(None if last else _axis_matrix(problem, following, payments[1]))
    decide_between, move_between = (tuple(map(bool, row)) for row in between)
    known = decide_between, move_between, largest, any_ends, refusals, (lows, highs), unit or None
    return Layout(problem, *known, tuple(matrices))


def _require_finite(problem: GridProblem, time: int, payments: list[np.ndarray]) -> None:
    for payment, origin in zip(payments, ("decide", "move", "finish"), strict=False):
        if not np.isfinite(payment).all():
            raise RiskpathError(f"{origin} of {problem.name} pays {payment[~np.isfinite(payment)][0]} at time {time}")


def common_unit(payment: np.ndarray, unit: float | None) -> float | None:
    """Return the largest number that rewards and an earlier unit are whole multiples of; None if it is too small."""
    if unit is None:
        return None
    few = np.unique(np.abs(payment.ravel()[:: max(1, payment.size // 20_000)]).round(6))
    if len(few) > 512 or len(few := np.unique(np.abs(payment).round(6))) > 512:
        return None
    slack = 1e-5 * max(1.0, unit, float(few[-1]))
    for value in few[few > 0]:
        a, b = max(unit, float(value)), min(unit, float(value))
        while b > slack:
            a, b = b, abs(a - round(a / b) * b)
        unit = a
        if unit < 100 * slack:  # rounding alone would decide
            return None
    return unit


def _axis_matrix(
    problem: GridProblem, following: GridState, reward: np.ndarray
) -> tuple[int, Float[np.ndarray, "n n"]] | None:
    """Return the one axis that moves and its matrix, if it moves in the same way wherever the other axes are."""
    if np.abs(reward).max() > 0:
        return None
    nodes, shape = len(problem.noise.nodes), problem.shape
    moving = [
        axis
        for axis, (after, before) in enumerate(zip(following, problem.grid_states, strict=True))
        if np.abs(np.asarray(after) - before[None, :]).max() > 0
    ]
    if len(moving) != 1:
        return None
    (axis,) = moving
    points = problem.axes[list(problem.axes)[axis]]
    values = np.moveaxis(np.asarray(following[axis], np.float64).reshape(nodes, *shape), 1 + axis, 1)
    values = values.reshape(nodes, len(points), -1)
    if np.ptp(values, axis=2).max() > 1e-6 * max(1.0, np.abs(points).max()):
        return None
    place = np.interp(values[:, :, 0], points, np.arange(len(points)))
    lower = np.minimum(place.astype(int), len(points) - 2)
    matrix = np.zeros((len(points), len(points)))
    rows = np.broadcast_to(np.arange(len(points)), place.shape)
    weights = np.broadcast_to(problem.noise.weights[:, None], place.shape)
    np.add.at(matrix, (rows, lower), weights * (1 - (place - lower)))
    np.add.at(matrix, (rows, lower + 1), weights * (place - lower))
    return axis, matrix
