"""Finite problems as environments: a `FiniteMDP` becomes arrays that a compiled program can index.

Observations are state numbers, or the features of states if the problem has them. `FiniteProblem` is the base of
parametrised families such as `RiskyGrid`.
"""

import abc
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from riskpath.envs.environment import Environment
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import State
from riskpath.memory import require_table
from riskpath.types import EnvSpec, Key

FEW_STATES = 2_048
"""The largest number of states for which encoders get the number of values of a feature, to distinguish all of them."""


class Tables(eqx.Module):
    """A finite problem as arrays; O is the largest number of outcomes of any action."""

    cumulative: Float[Array, "S A O"]
    """Cumulative probabilities of the outcomes."""
    reward: Float[Array, "S A O"]
    next_state: Int[Array, "S A O"]
    available: Bool[Array, "S A"]
    """Which actions each state has; terminal states have none."""
    start: Float[Array, " S"]
    """Cumulative probabilities of the start states."""
    max_episode_steps: int = eqx.field(static=True)
    """The largest number of steps in an episode."""
    horizon: int | None = eqx.field(static=True)
    """The number of steps after which an episode is cut off; None if there is no limit."""
    deterministic: bool = eqx.field(static=True)
    """Whether there is one start state, and one next state for each state and action."""
    features: Float[Array, "S F"] | None = None
    """The vector that is observed in each state; None if the state number is observed."""
    bounds: tuple[tuple[float, float], ...] | None = eqx.field(static=True, default=None)
    """Lowest and highest value of each feature."""
    levels: tuple[int, ...] | None = eqx.field(static=True, default=None)
    """Number of different values of each feature."""
    coordinates: tuple[tuple[float, ...], ...] | None = eqx.field(static=True, default=None)
    """Without features: where each state lies, from −1 to 1, if states are numbers or tuples of numbers."""

    def observation(self, state: Int[Array, ""]) -> Int[Array, ""] | Float[Array, " F"]:
        """Return the observation of a state, given by its number."""
        return state if self.features is None else self.features[state]


class FiniteEnvironment(Environment):
    """A `FiniteMDP` as an environment; observes state numbers or features, the state is (number, time)."""

    tables: Tables
    """The problem as arrays."""
    problem: FiniteMDP | None = eqx.field(static=True)
    """The problem for the exact solvers; None in the copy that a compiled program uses."""

    @property
    def spec(self) -> EnvSpec:
        """Return the numbers of states and actions or the number of features, and the length of episodes."""
        tables = self.tables
        states, actions = tables.available.shape[-2:]
        return EnvSpec(
            actions,
            () if tables.features is None else tables.features.shape[-1:],
            states if tables.features is None else None,
            tables.max_episode_steps,
            observation_bounds=tables.bounds,
            observation_levels=tables.levels,
            state_coordinates=tables.coordinates,
            deterministic=tables.deterministic,
        )

    @property
    def digest(self) -> str:
        """Return a short text that differs between problems with different numbers."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.tables)]
        text = b"".join(str(leaf.shape).encode() + leaf.tobytes() for leaf in leaves)
        return hashlib.sha256(text).hexdigest()[:16]

    def mdp(self, discount: float = 1.0) -> FiniteMDP:
        assert self.problem is not None
        return self.problem.with_discount(discount)

    def reset(self, key: Key) -> tuple[Shaped[Array, "*obs"], tuple[Int[Array, ""], Int[Array, ""]]]:
        """Draw a start state."""
        state = _draw(self.tables.start, key)
        return self.tables.observation(state), (state, jnp.zeros((), jnp.int32))

    def step(self, key: Key, state: Any, action: Int[Array, ""]):
        """Draw an outcome of the action."""
        number, time = state
        tables = self.tables
        outcome = _draw(tables.cumulative[number, action], key)
        next_state = tables.next_state[number, action, outcome]
        time = time + 1
        terminated = ~tables.available[next_state].any()
        truncated = ~terminated & (time >= tables.horizon) if tables.horizon else jnp.zeros((), bool)
        reward = tables.reward[number, action, outcome]
        return tables.observation(next_state), (next_state, time), reward, terminated, truncated

    def action_mask(self, state: Any) -> Bool[Array, " A"]:
        """Return which actions have outcomes; all of them in a terminal state."""
        available = self.tables.available[state[0]]
        return available | ~available.any()


def _draw(cumulative: Float[Array, " K"], key: Key) -> Int[Array, ""]:
    """Draw a number from cumulative probabilities; a loop of a few tiny steps would be slow on a GPU."""
    place = jnp.searchsorted(cumulative, jax.random.uniform(key), side="right", method="scan_unrolled")
    return place.astype(jnp.int32)


def finite(problem: FiniteMDP) -> FiniteEnvironment:
    """Return a `FiniteMDP` as an environment."""
    return FiniteEnvironment(tabulate(problem), problem)


def name_of(env: Environment) -> str:
    """Return the name of an environment: that of its finite problem, or of its class."""
    return env.problem.name if isinstance(env, FiniteEnvironment) and env.problem else type(env).__name__


class FiniteProblem(Environment):
    """A family of finite problems: its fields are parameters, and `mdp` makes the problem from them."""

    @abc.abstractmethod
    def mdp(self, discount: float = 1.0) -> FiniteMDP:
        """Return the problem for the exact solvers."""

    @property
    def spec(self) -> EnvSpec:
        return as_finite(self).spec

    def reset(self, key: Key) -> Any:
        return as_finite(self).reset(key)

    def step(self, key: Key, state: Any, action: Int[Array, ""]) -> Any:
        return as_finite(self).step(key, state, action)

    def action_mask(self, state: Any) -> Bool[Array, " A"]:
        return as_finite(self).action_mask(state)


@functools.lru_cache(maxsize=64)
def as_finite(problem: FiniteProblem) -> FiniteEnvironment:
    """Return the environment of a problem; its arrays are made once."""
    with jax.ensure_compile_time_eval():
        return finite(problem.mdp())


def state_numbers(mdp: FiniteMDP) -> dict[State, int]:
    """Number every state that an episode can reach, terminal ones included, in breadth-first order from the start."""
    return {state: number for number, state in enumerate(mdp.reachable_states)}


def action_numbers(mdp: FiniteMDP) -> dict[Any, int]:
    """Number the actions of all states in order of first appearance."""
    actions = dict.fromkeys(action for state in mdp.outcomes for action in mdp.actions(state))
    return {action: number for number, action in enumerate(actions)}


def tabulate(mdp: FiniteMDP) -> Tables:
    """Return a finite problem as arrays."""
    states, actions = state_numbers(mdp), action_numbers(mdp)
    width = max(len(listed) for table in mdp.outcomes.values() for listed in table.values())
    shape = (len(states), len(actions), width)
    cumulative, reward = np.ones(shape), np.zeros(shape)
    next_state, available = np.zeros(shape, int), np.zeros(shape[:2], bool)
    for state, number in states.items():
        for action, listed in mdp.outcomes.get(state, {}).items():
            at = (number, actions[action])
            available[at] = True
            padded = [*listed, *[listed[-1]] * (width - len(listed))]
            cumulative[at] = np.minimum(np.cumsum([o.prob for o in listed] + [0.0] * (width - len(listed))), 1.0)
            cumulative[at][len(listed) - 1 :] = 1.0
            reward[at] = [o.reward for o in padded]
            # A state first reached at the horizon has actions that are never taken: they may lead to unnumbered states.
            next_state[at] = [states.get(o.next, number) for o in padded]
    start = np.cumsum([mdp.start.get(state, 0.0) for state in states])
    start[len(mdp.start) - 1 :] = 1.0
    return Tables(
        jnp.asarray(cumulative.astype(np.float32)),  # cast by NumPy, which compiles no program
        jnp.asarray(reward.astype(np.float32)),
        jnp.asarray(next_state.astype(np.int32)),
        jnp.asarray(available),
        jnp.asarray(start.astype(np.float32)),
        mdp.max_episode_steps,
        mdp.horizon,
        len(mdp.start) == 1 and bool((next_state == next_state[:, :, :1]).all()),
        *_features(mdp, states),
        coordinates=_coordinates(states) if mdp.features is None else None,
    )


def _features(mdp: FiniteMDP, states: Iterable[State]) -> tuple[Any, Any, Any]:
    """Return the features of states as an array, with bounds and number of values of each; None without features."""
    if mdp.features is None:
        return None, None, None
    features = np.array([mdp.features[state] for state in states], np.float32)
    bounds = zip(features.min(axis=0).tolist(), features.max(axis=0).tolist(), strict=True)
    # An encoder divides by the width of the bounds, which must not be 0.
    wide = tuple((low, high) if low < high else (low - 1, low + 1) for low, high in bounds)
    few = len(features) <= FEW_STATES
    return jnp.asarray(features), wide, tuple(len(np.unique(column)) for column in features.T) if few else None


def _coordinates(states: Iterable[State]) -> tuple[tuple[float, ...], ...] | None:
    """Return states that are numbers, or tuples of equally many numbers, scaled to [−1, 1]; None for other states."""
    rows = [state if isinstance(state, tuple) else (state,) for state in states]
    numbers = all(isinstance(x, int | float | np.integer | np.floating) for row in rows for x in row)
    if not numbers or len({len(row) for row in rows}) != 1 or not rows[0] or len(rows) > FEW_STATES:
        return None
    table = np.array(rows, np.float64)
    low, high = table.min(axis=0), table.max(axis=0)
    wide = np.isfinite(table).all(axis=0) & (high > low)
    if not wide.any():
        return None
    table, low, high = table[:, wide], low[wide], high[wide]
    return tuple(map(tuple, (2 * (table - low) / (high - low) - 1).round(6).tolist()))


def pad_alike(environments: list[FiniteEnvironment]) -> list[FiniteEnvironment]:
    """Return environments with tables of equal shapes; the states and outcomes that are added never occur.

    So problems with features, whose numbers of states differ, can be trained together.
    """
    shapes = {env.tables.reward.shape for env in environments}
    if len(shapes) == 1:
        return environments
    states, _, outcomes = (max(sizes) for sizes in zip(*shapes, strict=True))
    return [FiniteEnvironment(_padded(env.tables, states, outcomes), env.problem) for env in environments]


def _padded(tables: Tables, states: int, outcomes: int) -> Tables:

    def pad(name: str) -> Array:
        array = np.asarray(getattr(tables, name))
        more = [(0, states - array.shape[0]), (0, 0), (0, outcomes - array.shape[-1])][: array.ndim]
        return jnp.asarray(np.pad(array, more, constant_values=1 if name in ("cumulative", "start") else 0))

    names = ["cumulative", "reward", "next_state", "available", "start"]
    names += [] if tables.features is None else ["features"]
    return dataclasses.replace(tables, **{name: pad(name) for name in names})


def explored(
    name: str, start: Any, options: Callable[[Any], Mapping[Any, Any]], features: Callable[[Any], Any], discount: float
) -> FiniteMDP:
    """Return the problem of all states that can be reached.

    `options` returns {action: [(probability, reward, next state), …]} for a state, or {} where the episode ends.
    """
    outcomes, queue, known, room = {}, [start], {start}, 100_000
    for state in queue:  # grows while it is read
        choices = options(state)
        if (pairs := len(queue) * len(choices)) > room:
            require_table(name, pairs)
            room = 2 * pairs
        for action, listed in choices.items():
            outcomes[state, action] = listed
            new = dict.fromkeys(following for *_, following in listed if following not in known)
            queue += new
            known.update(new)  # `|=` of keys would copy the set
    return with_features(name, outcomes, start, features, discount)


def with_features(
    name: str, outcomes: Mapping[Any, Any], start: Any, features: Callable[[Any], Any], discount: float
) -> FiniteMDP:
    """Return the problem {(state, action): outcomes} with the features of every state."""
    states = dict.fromkeys(state for state, _ in outcomes)
    states |= dict.fromkeys(following for listed in outcomes.values() for *_, following in listed)
    vectors = {state: features(state) for state in states}
    return FiniteMDP.from_outcomes(outcomes, start, discount, name=name, features=vectors)


def scaled(value: float, most: float) -> float:
    """Return a number from 0 to `most` as a feature from −1 to 1."""
    return 2 * value / most - 1 if most else 0.0


def as_arrays(env: Environment) -> Environment:
    """Return the part of an environment that a compiled program needs, with its numbers as arrays.

    Environments that differ only in the values of these arrays share one compiled program. A finite problem becomes its
    tables; any other environment keeps its structure, and its Python floats become arrays.
    """
    if isinstance(env, FiniteProblem):
        env = as_finite(env)
    if isinstance(env, FiniteEnvironment):
        return FiniteEnvironment(env.tables, None)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32) if isinstance(leaf, float) else leaf, env)
