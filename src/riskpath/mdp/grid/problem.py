"""Decision problems with a continuous state of few dimensions, in the form that the grid solver needs.

A step has two parts. The action has a deterministic effect, `decide`; then chance moves the state, `move`:

    post-state, reward = decide(time, state, action),   next state, reward = move(time, post-state, noise),

and `finish(state)` is paid after the last move. The functions are written for one sample with `jax.numpy`; a state is a
tuple of numbers in the order of `axes`. Where chance is a normal variable, its expectation is a quadrature.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from riskpath.errors import RiskpathError, in_one_line, short_repr
from riskpath.mdp.model_input import check_discount
from riskpath.types import Key
from riskpath.validation import require_counts

GridState = tuple[Any, ...]
"""A state: one number for each axis."""


@dataclass(frozen=True, eq=False)
class Quadrature:
    """Chance as finitely many values with weights; make one with `normal_noise` or `finite_noise`."""

    nodes: Float[np.ndarray, " K"]
    """The values of the noise."""
    weights: Float[np.ndarray, " K"]
    """Their weights, which sum to 1."""
    draw: Callable[[Key], Float[Array, ""]] | None = None
    """Draws the true noise for simulations; None if the nodes are all its values."""

    def __post_init__(self):
        nodes, weights = np.asarray(self.nodes, np.float64), np.asarray(self.weights, np.float64)
        if nodes.ndim != 1 or nodes.shape != weights.shape or not nodes.size:
            raise RiskpathError(
                f"a quadrature needs as many weights as nodes, at least one: got {nodes.shape}, {weights.shape}"
            )
        if not np.isfinite(nodes).all() or not (weights >= 0).all():
            raise RiskpathError("a quadrature needs finite nodes and weights of at least 0")
        if abs(weights.sum() - 1) > 1e-6:
            raise RiskpathError(f"the weights of a quadrature must sum to 1, their sum is {weights.sum():.9g}")
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "weights", weights / weights.sum())

    def sample(self, key: Key) -> Float[Array, ""]:
        """Draw the noise of one step."""
        if self.draw is not None:
            return self.draw(key)
        cumulative = jnp.asarray(np.cumsum(self.weights)[:-1], jnp.float32)
        place = jnp.searchsorted(cumulative, jax.random.uniform(key), side="right", method="scan_unrolled")
        return jnp.asarray(self.nodes, jnp.float32)[place]


def normal_noise(count: int = 48) -> Quadrature:
    """Return a standard normal variable with the Gauss–Hermite quadrature of `count` nodes."""
    require_counts(2, count=count)
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    weights = weights / weights.sum()
    kept = weights > 1e-10  # the outermost nodes cost time and change nothing
    return Quadrature(nodes[kept], weights[kept] / weights[kept].sum(), jax.random.normal)


def finite_noise(values: Sequence[float], probs: Sequence[float] | None = None) -> Quadrature:
    """Return a variable with finitely many values, equally likely unless probabilities are given."""
    nodes = np.asarray(values, np.float64)
    return Quadrature(nodes, np.full(nodes.shape, 1 / max(1, nodes.size)) if probs is None else np.asarray(probs))


@dataclass(frozen=True, eq=False, repr=False)
class GridProblem:
    """A decision problem whose continuous state has few dimensions, with the grid to solve it on."""

    axes: Mapping[str, Any]
    """The coordinates of the state: for each name the points of its grid, ascending, at least two."""
    actions: Any
    """The actions, [A] or [A, k]; `decide` gets one of them."""
    steps: int
    """The number of decisions in an episode."""
    start: Any
    """The state at the start of an episode: a number for each axis, or {name: number}."""
    noise: Quadrature
    """Chance in one step."""
    decide: Callable[[Any, GridState, Any], tuple[Any, ...]]
    """(time, state, action) → (post-state, reward), or (post-state, reward, ends): the effect of an action.

    Where `ends` is true the episode ends with this reward; `move` and `finish` are then not called."""
    move: Callable[[Any, GridState, Any], tuple[GridState, Any]]
    """(time, post-state, noise) → (next state, reward): the random step."""
    finish: Callable[[GridState], Any] | None = None
    """state → reward, paid after the last move; None if nothing is paid."""
    potential: Callable[[Any, GridState], Any] | None = None
    """(time, state) → a rough value of the return to go, for example a price; None stands for 0.

    It changes no result, but what a table has to hold: the difference from this value, which is smoother."""
    endless: Sequence[str] = ()
    """The axes that only show the spacing of a coordinate: the solver may continue them beyond both ends."""
    all_actions: bool = True
    """Whether `actions` are all actions that there are; False if they are points of a range of actions."""
    discount: float = 1.0
    """γ; the reward of `finish` is discounted by γ^steps."""
    return_points: int = 1001
    """The number of points of the grid of returns."""
    action_labels: Any = None
    """What a policy returns for each action, [A] or [A, k]; None stands for the numbers 0, …, A − 1."""
    read_state: Callable[[Any], Sequence[float]] | None = None
    """Observation → state, for a policy; None stands for the first entries of the observation."""
    name: str = "GridProblem"
    """The name in messages."""

    def __post_init__(self):
        require_counts(steps=self.steps)
        require_counts(2, return_points=self.return_points)
        if not isinstance(self.axes, Mapping) or not self.axes:
            raise RiskpathError(f"axes must name at least one coordinate, got {short_repr(self.axes)}")
        axes = {str(name): _check_axis(str(name), points) for name, points in self.axes.items()}
        with in_one_line("actions must be numbers, [A] or [A, k]"):
            actions = np.asarray(self.actions, np.float32)
        if actions.ndim not in (1, 2) or not len(actions) or not np.isfinite(actions).all():
            raise RiskpathError(f"actions must be finite numbers, [A] or [A, k], got shape {actions.shape}")
        if not isinstance(self.noise, Quadrature):
            raise RiskpathError(f"noise must be normal_noise(…) or finite_noise(…), got {short_repr(self.noise)}")
        if self.action_labels is not None and len(self.action_labels) != len(actions):
            raise RiskpathError(f"got {len(self.action_labels)} action labels for {len(actions)} actions")
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "actions", actions)
        object.__setattr__(self, "start", _check_start(axes, self.start))
        object.__setattr__(self, "discount", check_discount(self.discount))

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of points of every axis."""
        return tuple(len(points) for points in self.axes.values())

    @property
    def cells(self) -> int:
        """The number of cells of the grid: all states times the returns."""
        return int(np.prod(self.shape)) * self.return_points

    @cached_property
    def grid_states(self) -> GridState:
        """All states of the grid, one array [N] for each axis; the last axis runs fastest."""
        mesh = np.meshgrid(*self.axes.values(), indexing="ij")
        return tuple(coordinate.ravel().astype(np.float32) for coordinate in mesh)

    def after_decision(self, time: Any, state: GridState, action: Any) -> tuple[GridState, Array, Array]:
        """Return post-state, reward plus rise of the potential, and whether the episode ends, for one sample."""
        post, reward, *ends = self.decide(time, state, action)
        post, over = self._state(post), jnp.asarray(ends[0] if ends else False, bool)
        after = jnp.where(over, 0.0, self.potential_at(time, post))
        return post, _number(reward) + after - self.potential_at(time, state), over

    def options(self, time: Any, state: GridState) -> tuple[GridState, Array, Array, Array]:
        """Return post-state, reward, end and refusal of every action in one state, [A].

        An action that takes the state out of the grid is refused where another one does not: beyond its last points
        the grid knows nothing.
        """
        post, reward, ends = jax.vmap(self.after_decision, (None, None, 0))(time, state, jnp.asarray(self.actions))
        leaves = jnp.zeros_like(ends)
        for points, before, after in zip(self.axes.values(), state, post, strict=True):
            slack = jnp.float32(1e-5 * (points[-1] - points[0]))
            leaves |= _outside(points, after) > _outside(points, before) + slack
        refused = leaves & ~ends
        return post, reward, ends, refused & ~refused.all()

    def after_move(self, time: Any, post: GridState, noise: Any) -> tuple[GridState, Array]:
        """Return next state and reward plus rise of the potential, which is 0 at the end, for one sample."""
        following, reward = self.move(time, post, noise)
        following = self._state(following)
        later = jnp.where(time == self.steps - 1, 0.0, self.potential_at(time + 1, following))
        return following, _number(reward) + jnp.float32(self.discount) * later - self.potential_at(time, post)

    def potential_at(self, time: Any, state: GridState) -> Array:
        """Return the potential of one state."""
        return _number(0.0 if self.potential is None else self.potential(time, state))

    @cached_property
    def start_potential(self) -> float:
        """The potential of the start."""
        state = tuple(jnp.float32(x) for x in self.start)
        return float(self.potential_at(jnp.int32(0), state))

    def present(self, time: Any) -> Array:
        """Return γᵗ."""
        return jnp.float32(self.discount) ** jnp.asarray(time, jnp.float32)

    def at_end(self, state: GridState) -> Array:
        """Return the reward after the last move, for one sample."""
        return _number(0.0 if self.finish is None else self.finish(state))

    def label(self, number: int) -> Any:
        """Return what a policy answers for the action of this number."""
        if self.action_labels is None:
            return int(number)
        label = np.asarray(self.action_labels)[int(number)]
        return label if label.ndim else label.item()

    def on_grid(self, axes: Mapping[str, Any] | None = None, return_points: int | None = None) -> "GridProblem":
        """Return the same problem on another grid."""
        return replace(self, axes=axes or self.axes, return_points=return_points or self.return_points)

    def with_discount(self, discount: float) -> "GridProblem":
        """Return the same problem with another discount."""
        return replace(self, discount=discount)

    def _state(self, state: Any) -> GridState:
        if len(state) != len(self.axes):
            raise RiskpathError(f"a state of {self.name} has {len(self.axes)} coordinates, got {len(state)}")
        return tuple(_number(coordinate) for coordinate in state)

    def __repr__(self) -> str:
        axes = " × ".join(f"{name} {len(points)}" for name, points in self.axes.items())
        sizes = f"{axes} × returns {self.return_points}, {len(self.actions)} actions, {self.steps} steps"
        return f"<GridProblem {self.name}: {sizes}, discount {self.discount:g}>"


def _number(value: Any) -> Float[Array, ""]:
    return jnp.asarray(value, jnp.float32)


def _outside(points: Float[np.ndarray, " n"], value: Float[Array, "*m"]) -> Float[Array, "*m"]:
    """Return how far a value lies outside of an axis."""
    return jnp.maximum(jnp.maximum(points[0] - value, value - points[-1]), 0.0)


def _check_axis(name: str, points: Any) -> Float[np.ndarray, " n"]:
    with in_one_line(f"axis {name!r} must be a list of numbers"):
        axis = np.asarray(points, np.float64)
    if axis.ndim != 1 or axis.size < 2 or not np.isfinite(axis).all() or not (np.diff(axis) > 0).all():
        raise RiskpathError(
            f"axis {name!r} must have at least 2 finite points in ascending order, got {short_repr(points)}"
        )
    return axis


def _check_start(axes: Mapping[str, Any], start: Any) -> tuple[float, ...]:
    if isinstance(start, Mapping):
        if set(start) != set(axes):
            raise RiskpathError(f"start must have the coordinates {', '.join(axes)}, got {', '.join(map(str, start))}")
        start = [start[name] for name in axes]
    with in_one_line(f"start must have one number for each of {', '.join(axes)}"):
        state = tuple(float(coordinate) for coordinate in start)
    if len(state) != len(axes) or not np.isfinite(state).all():
        raise RiskpathError(f"start must have one number for each of {', '.join(axes)}, got {short_repr(start)}")
    for (name, points), value in zip(axes.items(), state, strict=True):
        if not points[0] <= value <= points[-1]:
            raise RiskpathError(
                f"start is outside of axis {name!r}: {value:g} is not in [{points[0]:g}, {points[-1]:g}]"
            )
    return state
