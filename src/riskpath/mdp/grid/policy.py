"""Policies of the grid solver, and their simulation in the true, continuous problem.

A policy looks one step ahead: it reads the tables after every action at the true state and the true return so far. An
adaptive policy maximises EV_t(y, x + γᵗ r); where several actions are equally good it takes the one with the larger
mean. A markov policy maximises γᵗ r + B_t(y), where B is the mean or the risk of the return to go.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from riskpath.errors import RiskpathError, in_one_line, short_repr
from riskpath.mdp.grid.backward import Pass
from riskpath.mdp.grid.problem import GridProblem, GridState
from riskpath.mdp.grid.stencils import corners
from riskpath.mdp.grid.utility import LINEAR, ReturnAxis, Utility
from riskpath.types import Key
from riskpath.validation import require_counts

TIE = 1e-5
"""The weight of the mean against the utility, whose slope is about 1: it decides between equally good actions."""
PIECE = 2**16
"""The number of episodes that one compiled call simulates."""


class Guide(NamedTuple):
    """The tables that a decision needs at one time."""

    values: Float[Array, "N X"] | None
    """EV_t; None if the policy does not look at the return so far."""
    base: Float[Array, " N"]
    """B_t, the mean or the risk of the return to go."""
    axis: ReturnAxis
    utility: Utility
    slack: Float[Array, ""]
    """Scores that differ by less are equal; the first action is then chosen."""
    first: Int[Array, ""] | int = 0
    """The row of the tables at which those of this time begin."""


class Episodes(NamedTuple):
    """Episodes that are simulated together."""

    state: GridState
    total: Float[Array, ""]
    """The return so far plus the present value of the potential."""
    over: Bool[Array, ""]


@dataclass(frozen=True, eq=False, repr=False)
class GridPolicy:
    """A policy of the grid solver: `action, memory = policy(observation, memory, reward)`."""

    problem: GridProblem
    """The problem."""
    base: tuple[Float[Array, " N"], ...]
    """The mean or the risk of the return to go after a decision, for every time."""
    expected: Pass | None = None
    """The backward pass of an adaptive policy; None for a markov one."""
    goal: float = 0.0
    """The threshold b, which is subtracted from the return so far."""
    slack: float | Array = 0.0
    """Scores of actions that differ by less are equal; the first of these actions is then chosen."""

    def __call__(self, state: Any, memory: Any = None, reward: float = 0.0) -> tuple[Any, Any]:
        """Return the action for an observation; the memory is the time and the return so far."""
        time, total = remembered(self.problem, memory, float(reward))
        place = tuple(jnp.float32(x) for x in read_observation(self.problem, state))
        number = _choose(self.problem, jnp.int32(time), self.guide(time), place, jnp.float32(total - self.goal))
        return self.problem.label(int(number)), (time, total)

    def guide(self, time: int) -> Guide:
        """Return the tables of one time, for `act`."""
        slack = jnp.float32(self.slack)
        if self.expected is None:
            return Guide(None, self.base[time], ReturnAxis(0.0, 1.0, 2), LINEAR, slack)
        return Guide(self.expected.tables[time], self.base[time], self.expected.axis, self.expected.utility, slack)

    def decider(self) -> Callable[..., Any]:
        """Return (time, state, return so far) → the number of the action, for a compiled program."""
        base, size = jnp.concatenate(self.base), len(self.base[0])  # so that a batch reads numbers, not tables
        tables = None if self.expected is None else jnp.concatenate(self.expected.tables)

        def decide(time: Array, state: GridState, total: Array) -> Array:
            guide = self.guide(0)._replace(values=tables, base=base, first=time * size)
            return _choose(self.problem, time, guide, state, total - jnp.float32(self.goal))

        return decide

    def simulate(self, episodes: int, seed: int = 0) -> Float[np.ndarray, " episodes"]:
        """Return the discounted returns of independent episodes of the continuous problem."""
        return self.simulate_totals(episodes, seed)[:, -1].copy()

    def simulate_totals(self, episodes: int, seed: int = 0) -> Float[np.ndarray, "episodes times"]:
        """Return the return so far plus the potential, before every decision and at the end, [episodes, steps + 1]."""
        require_counts(episodes=episodes)
        with in_one_line(f"seed must be a whole number, got {short_repr(seed)}"):
            key = jax.random.key(seed)
        paths = []
        pieces = -(-episodes // PIECE)
        size = -(-episodes // pieces)  # equal pieces need one compiled program
        for piece_key in jax.random.split(key, pieces):
            now = _begin(self.problem, size)
            path = [now.total]
            for time, key in enumerate(jax.random.split(piece_key, self.problem.steps)):
                now = _step(self.problem, size, jnp.int32(time), self.guide(time), now, jnp.float32(self.goal), key)
                path.append(now.total)
            paths.append(np.stack([np.asarray(total, np.float64) for total in path], axis=1))
        return np.concatenate(paths)[:episodes]

    @cached_property
    def memory_bytes(self) -> int:
        """The memory of the tables."""
        tables = () if self.expected is None else self.expected.tables
        return sum(table.nbytes for table in (*tables, *self.base))

    def __repr__(self) -> str:
        kind = "markov" if self.expected is None else f"adaptive, goal {self.goal:.6g}"
        return f"<GridPolicy of {self.problem.name}: {kind}>"


def remembered(problem: GridProblem, memory: Any, reward: float) -> tuple[int, float]:
    """Return the time and the return so far of a policy that is asked with this memory and the last reward."""
    time, total = (0, 0.0) if memory is None else (memory[0] + 1, memory[1] + problem.discount ** memory[0] * reward)
    if time >= problem.steps:
        raise RiskpathError(f"an episode of {problem.name} has {problem.steps} steps: call reset")
    return time, total


def read_observation(problem: GridProblem, observation: Any) -> list[float]:
    """Return the coordinates of an observation."""
    count = len(problem.axes)
    with in_one_line(f"a policy of {problem.name} cannot read the observation {short_repr(observation)}"):
        if problem.read_state is not None:
            return [float(x) for x in problem.read_state(observation)]
        entries = np.ravel(observation)
        if entries.size < count:
            raise RiskpathError(f"an observation needs {count} entries, got {entries.size}")
        return [float(x) for x in entries[:count]]


def act(
    problem: GridProblem, time: Int[Array, ""], guide: Guide, state: GridState, x: Float[Array, ""]
) -> tuple[Int[Array, ""], GridState, Float[Array, ""], Bool[Array, ""]]:
    """Return the best action of one state and its post-state, reward and end.

    x is the return so far plus the potential of the state, minus the goal.
    """
    post, reward, ends, refused = problem.options(time, state)
    paid = reward * problem.present(time)
    row, weight = corners(tuple(problem.axes.values()), post, (True,) * len(problem.axes))
    row = row + guide.first
    score = paid + jnp.where(ends, 0.0, (weight * guide.base[row]).sum(axis=-1))
    if guide.values is not None:
        axis, (low, high) = guide.axis, guide.utility.ends()
        place = (x + paid - axis.low) / axis.step
        inside = jnp.clip(place, 0.0, axis.count - 1.0)
        lower = jnp.minimum(inside.astype(jnp.int32), axis.count - 2)
        rest = (inside - lower.astype(jnp.float32))[:, None]
        below, above = (guide.values[row, column[:, None]] for column in (lower, lower + 1))
        value = (weight * (below + rest * (above - below))).sum(axis=-1)
        beyond = jnp.where(place < inside, low, high) * axis.step * (place - inside)
        # where the episode ends the utility is known
        score = jnp.where(ends, guide.utility.at(x + paid), value + beyond) + TIE * score
    best = first_best(jnp.where(refused, -jnp.inf, score), guide.slack)
    return best, tuple(coordinate[best] for coordinate in post), reward[best], ends[best]


def first_best(score: Float[Array, "A *m"], slack: Float[Array, ""]) -> Int[Array, "*m"]:
    """Return the first action whose score is at most `slack` below the best one."""
    return (score >= score.max(axis=0, keepdims=True) - slack).argmax(axis=0)


@partial(jax.jit, static_argnums=0)
def _choose(problem: GridProblem, time: Array, guide: Guide, state: GridState, x: Array) -> Int[Array, ""]:
    return act(problem, time, guide, state, x + problem.present(time) * problem.potential_at(time, state))[0]


def _begin(problem: GridProblem, size: int) -> Episodes:
    *state, total = (np.full(size, x, np.float32) for x in (*problem.start, problem.start_potential))
    return Episodes(tuple(state), jnp.asarray(total), jnp.asarray(np.zeros(size, bool)))


@partial(jax.jit, static_argnums=(0, 1))
def _step(problem: GridProblem, size: int, time: Array, guide: Guide, now: Episodes, goal: Array, key: Key) -> Episodes:
    """Take one step in every episode; after the last one the reward at the end is paid."""

    def one(now: Episodes, key: Key) -> Episodes:
        _, post, paid, ends = act(problem, time, guide, now.state, now.total - goal)
        following, reward = problem.after_move(time, post, problem.noise.sample(key))
        last = time == problem.steps - 1
        ending = jnp.where(last, problem.at_end(following) * jnp.float32(problem.discount), 0.0)
        gained = problem.present(time) * (paid + jnp.where(ends, 0.0, reward + ending))
        total = jnp.where(now.over, now.total, now.total + gained)
        return Episodes(following, total, now.over | ends)

    return jax.vmap(one)(now, jax.random.split(key, size))
