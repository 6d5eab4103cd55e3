"""A trained policy as a plain function, and what it believes."""

import functools
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from riskpath.agents.agent import Agent
from riskpath.envs.environment import Environment, FiniteEnvironment, action_numbers, state_numbers
from riskpath.errors import RiskpathError, in_one_line
from riskpath.mdp.model import FiniteMDP
from riskpath.nn.losses import midpoints
from riskpath.types import Percept


@dataclass(frozen=True)
class LearnedPolicy:
    """A trained policy as a plain function; on a finite problem it speaks of that problem's states and actions."""

    agent: Agent
    critic: Any = field(repr=False)
    world: Environment

    def __call__(self, state: Any, memory: Any = None, reward: float = 0.0, mask: Any = None) -> tuple[Any, Any]:
        """The greedy action and the memory after it; where the problem is not finite, `mask` says what is available."""
        memory, percept, names = self._percept(state, memory, reward, mask)
        action, memory = _act(self.agent, self.critic, memory, percept)
        if translation := getattr(self.world, "translation", None):
            return translation.write(np.asarray(action)), memory
        if self.world.spec.action_size:
            return np.asarray(action), memory
        return names[int(action)] if names else int(action), memory

    def took(self, memory: Any, action: Any) -> Any:
        """The memory if another action was taken than the one this policy chose."""
        problem = self.world.problem if isinstance(self.world, FiniteEnvironment) else None
        if problem and action not in _names(problem)[1]:
            raise RiskpathError(f"the problem has no action {action!r}; it has {_few(_names(problem)[1])}")
        number = _names(problem)[1].index(action) if problem else action
        kind = jnp.float32 if self.world.spec.action_size else jnp.int32
        return self.agent.took(memory, jnp.asarray(number, kind))

    def estimate(self, state: Any, memory: Any = None, reward: float = 0.0) -> dict[Any, float]:
        """What the agent believes each available action to be worth."""
        memory, percept, names = self._percept(state, memory, reward)
        values = np.asarray(self.agent.estimate(self.critic, memory, percept))
        return {names[i] if names else i: float(values[i]) for i in self._choices(percept)}

    def quantiles(self, state: Any, memory: Any = None, reward: float = 0.0, count: int = 100) -> dict[Any, np.ndarray]:
        """What the agent believes the law of the return to be: its quantiles at the levels (i + ½)/count."""
        memory, percept, names = self._percept(state, memory, reward)
        table = np.asarray(self.agent.quantiles(self.critic, memory, percept, midpoints(count)))
        return {names[i] if names else i: table[:, i] for i in self._choices(percept)}

    def _choices(self, percept: Percept) -> list[int]:
        """The actions there is an estimate for: available ones, or 0 for the policy's own vector."""
        return [0] if self.world.spec.action_size else np.flatnonzero(percept.mask).tolist()

    def _percept(self, state: Any, memory: Any, reward: float, mask: Any = None) -> tuple[Any, Percept, list[Any]]:
        obs, available, names = self._read(state)
        mask = available if mask is None else np.asarray(mask, bool)
        percept = Percept(jnp.asarray(obs), jnp.asarray(reward, jnp.float32), jnp.asarray(mask))
        return self.agent.reset(self.critic, self.world.spec) if memory is None else memory, percept, names

    def _read(self, state: Any) -> tuple[Any, np.ndarray, list[Any]]:
        if translation := getattr(self.world, "translation", None):
            space = translation.observation_space
            with in_one_line(f"an observation must be one of {space}".replace("\n", " ")):
                state = translation.read(state)
        if not isinstance(self.world, FiniteEnvironment):
            shape = self.world.spec.observation_shape
            if np.shape(state) != shape:
                raise RiskpathError(f"an observation must have shape {shape}, got {np.shape(state)}")
            return state, np.ones(self.world.spec.num_actions, bool), []
        assert self.world.problem is not None
        number, names = _names(self.world.problem)
        if state not in number:
            raise RiskpathError(f"the problem has no state {state!r}; it has {_few(number)}")
        return np.int32(number[state]), np.asarray(self.world.tables.available[number[state]]), names


def _few(names: Any) -> str:
    """The first of them."""
    return ", ".join(repr(name) for name in list(names)[:6]) + (", …" if len(names) > 6 else "")


@eqx.filter_jit
def _act(agent: Agent, critic: Any, memory: Any, percept: Percept) -> Any:
    return agent.act(critic, memory, percept, key=jax.random.key(0), explore=jnp.zeros(()))


@functools.lru_cache(maxsize=64)
def _names(problem: FiniteMDP) -> tuple[dict[Any, int], list[Any]]:
    """State numbers and action names of a problem, remembered with it."""
    return state_numbers(problem), list(action_numbers(problem))
