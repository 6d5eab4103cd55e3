"""Detect, from a few states, whether a problem has an exogenous price and a position on a lattice."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from riskpath.mdp.grid.chance import Numbers, as_floats
from riskpath.mdp.grid.form import Form, size_class
from riskpath.mdp.grid.problem import GridProblem, GridState

ON_LATTICE = 1e-3
"""The largest distance, in units, of a position from the lattice point that it represents."""


def form_of(problem: GridProblem) -> Form | str:
    """Return the form of a problem, or the reason why it has none."""
    if problem.noise.draw is not jax.random.normal:
        return "chance is not a normal variable"
    if len(problem.axes) > 2:
        return "the state has more than two coordinates"
    rng = np.random.default_rng(0)
    axes = list(problem.axes.values())
    states = tuple(np.append(rng.choice(axis, 63), at) for axis, at in zip(axes, problem.start, strict=True))
    tries = [_try(problem, time, states) for time in sorted({0, problem.steps // 2, problem.steps - 1})]
    scale = [float(axis[-1] - axis[0]) for axis in axes]
    numbers = range(len(axes))
    moved = [any(np.abs(t.following[n] - states[n][:, None]).max() > 1e-6 * scale[n] for t in tries) for n in numbers]
    decided = [any(np.abs(t.post[n] - states[n][:, None]).max() > 1e-6 * scale[n] for t in tries) for n in numbers]
    if any(a and b for a, b in zip(moved, decided, strict=True)) or sum(moved) > 1 or sum(decided) > 1:
        return "decisions and chance move the same coordinate"
    price = moved.index(True) if any(moved) else (0 if len(axes) == 2 and not decided[0] else None)
    position = next((n for n in numbers if n != price), None)
    if price is not None and len(axes[price]) < 4:
        return f"the axis of {list(problem.axes)[price]} has fewer than 4 points"
    if price is not None and position is not None and not _independent(problem, price, position, states):
        return "the move of one coordinate depends on the other"
    if price is not None and any((np.diff(t.following[price]) <= 0).any() for t in tries):
        return f"{list(problem.axes)[price]} does not rise with chance"
    found = _lattice(problem, position, tries, states)
    if isinstance(found, str):
        return found
    silent = _silent(problem, states)
    return Form(problem, price, position, *found, silent, any(t.ends.any() for t in tries))


def _silent(problem: GridProblem, states: tuple[np.ndarray, ...]) -> tuple[bool, ...]:
    """Tell for every time whether the move pays nothing, from a few states."""
    here = tuple(as_floats(x) for x in states)
    noise = as_floats([-1.3, 0.4])
    move = jax.vmap(jax.vmap(jax.vmap(problem.after_move, (None, None, 0)), (None, 0, None)), (0, None, None))
    gained = np.abs(jax.device_get(jax.jit(move)(np.arange(problem.steps), here, noise)[1])).max(axis=(1, 2))
    return (*(bool(paid < 1e-6) for paid in gained[:-1]), False)


def is_silent(problem: GridProblem) -> bool:
    """Tell whether no move but the last one pays anything, from a few states."""
    rng = np.random.default_rng(0)
    return all(_silent(problem, tuple(rng.choice(axis, 64) for axis in problem.axes.values()))[:-1])


class _Try(NamedTuple):
    """What happens at one time from a few states."""

    post: tuple[np.ndarray, ...]
    ends: np.ndarray
    following: tuple[np.ndarray, ...]


def _try(problem: GridProblem, time: int, states: tuple[np.ndarray, ...]) -> _Try:
    here = tuple(as_floats(x) for x in states)
    return _Try(*jax.device_get(_effects(problem, np.int32(time), here)))


@partial(jax.jit, static_argnums=0)
def _effects(problem: GridProblem, time: Numbers, states: GridState) -> tuple[Any, ...]:
    noise = jnp.asarray([-2.1, -0.6, 0.3, 1.7], jnp.float32)
    decide = jax.vmap(jax.vmap(problem.after_decision, (None, None, 0)), (None, 0, None))
    move = jax.vmap(jax.vmap(problem.after_move, (None, None, 0)), (None, 0, None))
    post, _, ends = decide(time, states, jnp.asarray(problem.actions))
    return post, ends, move(time, states, noise)[0]


def _independent(problem: GridProblem, price: int, position: int, states: tuple[np.ndarray, ...]) -> bool:
    """Tell whether the other coordinate changes nothing in how a coordinate moves."""
    first = _try(problem, 0, states)
    mixed = tuple(np.roll(x, 1) if n == position else x for n, x in enumerate(states))
    other = _try(problem, 0, mixed)
    turned = tuple(np.roll(x, 1) if n == price else x for n, x in enumerate(states))
    third = _try(problem, 0, turned)
    slack = [1e-5 * float(np.ptp(axis)) for axis in problem.axes.values()]
    same_move = np.abs(first.following[price] - other.following[price]).max() < slack[price]
    return bool(same_move and np.abs(first.post[position] - third.post[position]).max() < slack[position])


def _lattice(
    problem: GridProblem, position: int | None, tries: list[_Try], states: tuple[np.ndarray, ...]
) -> tuple[Float[np.ndarray, " L"], int] | str:
    """Return all positions that can be reached and the number of the first one, or why they are no lattice."""
    if position is None:
        return np.zeros(1), 0
    name, axis = list(problem.axes.items())[position]
    unit = float(axis[1] - axis[0])
    if np.ptp(np.diff(axis)) > 1e-4 * unit:
        return f"the points of {name} are not equally spaced"
    reached = np.concatenate([t.post[position].ravel() for t in tries] + [[problem.start[position]]])
    places = (reached - axis[0]) / unit
    if np.abs(places - np.round(places)).max() > ON_LATTICE:
        return f"decisions leave the points of {name}"
    low, high = 0, len(axis) - 1
    if places.min() < -0.5 or places.max() > high + 0.5:
        if name not in problem.endless:
            return f"decisions leave the axis of {name}"
        change = np.concatenate([(t.post[position] - states[position][:, None]).ravel() for t in tries]) / unit
        start = round((problem.start[position] - axis[0]) / unit)
        low = start + problem.steps * min(0, round(float(change.min())))
        high = start + problem.steps * max(0, round(float(change.max())))
        high = low + size_class(high - low + 1) - 1  # positions that no episode reaches: few sizes are compiled
    lattice = axis[0] + unit * np.arange(low, high + 1)
    return lattice, round((problem.start[position] - lattice[0]) / unit)
