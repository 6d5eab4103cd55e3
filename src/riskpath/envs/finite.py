"""Finite problems as environments: a `FiniteMDP` becomes arrays that a compiled program can index.

Observations are state numbers. `FiniteProblem` is the base of parametrised families such as `RiskyGrid`.
"""

import abc
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from riskpath.envs.environment import Environment
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import State
from riskpath.types import EnvSpec, Key


class Tables(eqx.Module):
    """A finite problem as arrays; O is the largest number of outcomes of any action."""

    cumulative: Float[Array, "S A O"]
    """Cumulative probabilities of the outcomes."""
    reward: Float[Array, "S A O"]
    following: Int[Array, "S A O"]
    available: Bool[Array, "S A"]
    """Terminal states have none."""
    start: Float[Array, " S"]
    """Cumulative probabilities of the start states."""
    max_episode_steps: int = eqx.field(static=True)
    """The most steps an episode can have."""
    horizon: int | None = eqx.field(static=True)
    """After how many steps it is cut off."""
    deterministic: bool = eqx.field(static=True)
    """One start, and one successor for each state and action?"""


class FiniteEnvironment(Environment):
    """A `FiniteMDP` as an environment; observations are state numbers, the state is (number, time)."""

    tables: Tables
    """The problem as arrays."""
    problem: FiniteMDP | None = eqx.field(static=True)
    """The problem for the exact solvers; None in the copy that a compiled program sees."""

    @property
    def spec(self) -> EnvSpec:
        """Sizes of the problem."""
        states, actions = self.tables.available.shape[-2:]
        tables = self.tables
        return EnvSpec(actions, (), states, tables.max_episode_steps, deterministic=tables.deterministic)

    def mdp(self, discount: float = 1.0) -> FiniteMDP:
        """The problem under a discount."""
        assert self.problem is not None
        return self.problem.with_discount(discount)

    def reset(self, key: Key) -> tuple[Int[Array, ""], tuple[Int[Array, ""], Int[Array, ""]]]:
        """Draws a start."""
        state = jnp.searchsorted(self.tables.start, jax.random.uniform(key), side="right").astype(jnp.int32)
        return state, (state, jnp.zeros((), jnp.int32))

    def step(self, key: Key, state: Any, action: Int[Array, ""]):
        """Draws an outcome."""
        number, time = state
        tables = self.tables
        outcome = jnp.searchsorted(tables.cumulative[number, action], jax.random.uniform(key), side="right")
        following = tables.following[number, action, outcome]
        time = time + 1
        terminated = ~tables.available[following].any()
        truncated = ~terminated & (time >= tables.horizon) if tables.horizon else jnp.zeros((), bool)
        return following, (following, time), tables.reward[number, action, outcome], terminated, truncated

    def action_mask(self, state: Any) -> Bool[Array, " A"]:
        """The actions that have outcomes; all of them in a terminal state."""
        available = self.tables.available[state[0]]
        return available | ~available.any()


def finite(problem: FiniteMDP) -> FiniteEnvironment:
    """A `FiniteMDP` as an environment."""
    return FiniteEnvironment(tabulate(problem), problem)


class FiniteProblem(Environment):
    """A family of finite problems: typed fields, and `mdp` says which problem they make."""

    @abc.abstractmethod
    def mdp(self, discount: float = 1.0) -> FiniteMDP:
        """The problem for the exact solvers."""

    @property
    def spec(self) -> EnvSpec:
        """Sizes of the problem."""
        return as_finite(self).spec

    def reset(self, key: Key) -> Any:
        """The first observation (a state number) and state."""
        return as_finite(self).reset(key)

    def step(self, key: Key, state: Any, action: Int[Array, ""]) -> Any:
        """Observation, state, reward, terminated, truncated."""
        return as_finite(self).step(key, state, action)

    def action_mask(self, state: Any) -> Bool[Array, " A"]:
        """Which actions are available."""
        return as_finite(self).action_mask(state)


@functools.lru_cache(maxsize=64)
def as_finite(problem: FiniteProblem) -> FiniteEnvironment:
    """The arrays of a problem, made once."""
    with jax.ensure_compile_time_eval():
        return finite(problem.mdp())


def state_numbers(mdp: FiniteMDP) -> dict[State, int]:
    """Every state that can occur, numbered in order of first appearance, terminal ones included."""
    found = dict.fromkeys(mdp.start)
    for layer in mdp.layers:
        for state in layer:
            found.setdefault(state)
            for listed in mdp.outcomes[state].values():
                found.update(dict.fromkeys(outcome.next for outcome in listed))
    return {state: number for number, state in enumerate(found)}


def action_numbers(mdp: FiniteMDP) -> dict[Any, int]:
    """Every action of any state, numbered in order of first appearance."""
    found = dict.fromkeys(action for state in mdp.outcomes for action in mdp.actions(state))
    return {action: number for number, action in enumerate(found)}


def tabulate(mdp: FiniteMDP) -> Tables:
    """The arrays of a finite problem."""
    states, actions = state_numbers(mdp), action_numbers(mdp)
    width = max(len(listed) for table in mdp.outcomes.values() for listed in table.values())
    shape = (len(states), len(actions), width)
    cumulative, reward = np.ones(shape), np.zeros(shape)
    following, available = np.zeros(shape, int), np.zeros(shape[:2], bool)
    for state, number in states.items():
        for action, listed in mdp.outcomes.get(state, {}).items():
            at = (number, actions[action])
            available[at] = True
            padded = [*listed, *[listed[-1]] * (width - len(listed))]
            cumulative[at] = np.minimum(np.cumsum([o.prob for o in listed] + [0.0] * (width - len(listed))), 1.0)
            cumulative[at][len(listed) - 1 :] = 1.0
            reward[at] = [o.reward for o in padded]
            following[at] = [states[o.next] for o in padded]
    start = np.cumsum([mdp.start.get(state, 0.0) for state in states])
    start[len(mdp.start) - 1 :] = 1.0
    return Tables(
        jnp.asarray(cumulative, jnp.float32),
        jnp.asarray(reward, jnp.float32),
        jnp.asarray(following, jnp.int32),
        jnp.asarray(available),
        jnp.asarray(start, jnp.float32),
        len(mdp.layers),
        mdp.horizon,
        len(mdp.start) == 1 and bool((following == following[:, :, :1]).all()),
    )


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
