"""A trained policy as a plain function, and what the agent predicts."""

import functools
import math
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Shaped

from riskpath.agents.agent import Agent, AgentState, act_greedily
from riskpath.envs.environment import Environment
from riskpath.envs.finite import FiniteEnvironment, action_numbers, state_numbers
from riskpath.errors import RiskpathError, in_one_line
from riskpath.mdp.model import FiniteMDP
from riskpath.nn.losses import midpoints
from riskpath.types import EnvSpec, TimeStep


class PolicyMemory(eqx.Module):
    """What a policy carries through an episode."""

    agent: Any
    """The agent's own memory."""
    prev_action: Shaped[Array, "*act"]
    """The action taken in the step before."""
    time: Int[Array, ""]
    """The number of steps taken."""


def first_memory(state: AgentState, spec: EnvSpec) -> PolicyMemory:
    """Return the memory at the start of an episode."""
    return PolicyMemory(state.initial_memory, spec.no_action(), jnp.zeros((), jnp.int32))


def act_with_memory(
    agent: Agent, state: AgentState, memory: PolicyMemory, observation: Any, reward: Any, mask: Any
) -> tuple[Any, PolicyMemory]:
    """Return the greedy action and the memory after it."""
    time_step = TimeStep(observation, reward, mask, memory.prev_action, memory.time)
    output = act_greedily(agent, state, memory.agent, time_step, key=jax.random.key(0))
    return output.action, PolicyMemory(output.memory, output.action, memory.time + 1)


@dataclass(frozen=True)
class LearnedPolicy:
    """A trained policy as a function; on a finite problem it takes and returns that problem's states and actions."""

    agent: Agent
    state: AgentState = field(repr=False)
    environment: Environment

    def __call__(self, state: Any, memory: Any = None, reward: float = 0.0, mask: Any = None) -> tuple[Any, Any]:
        """Return the greedy action and the memory for the next call.

        Args:
            state: The observation, or the state of a finite problem.
            memory: What the previous call returned; None at the start of an episode.
            reward: The reward of the previous step; 0 at the start.
            mask: Which discrete actions are available; needed only where the problem is not finite and restricts them.
        """
        memory, time_step, names = self._inputs(state, memory, reward, mask)
        arrays = (time_step.observation, time_step.reward, time_step.action_mask)
        action, memory = _act(self.agent, self.state, memory, *arrays)
        if translation := getattr(self.environment, "translation", None):
            return translation.write(np.asarray(action)), memory
        if self.environment.spec.action_size:
            return np.asarray(action), memory
        return names[int(action)] if names else int(action), memory

    def override_action(self, memory: PolicyMemory, action: Any) -> PolicyMemory:
        """Return the memory for the case that another action was taken than the policy's own."""
        spec, problem = self.environment.spec, getattr(self.environment, "problem", None)
        if problem and action not in _names(problem)[1]:
            raise RiskpathError(f"the problem has no action {action!r}; it has {_few(_names(problem)[1])}")
        number = _names(problem)[1].index(action) if problem else action
        taken = jnp.asarray(number, jnp.float32 if spec.action_size else jnp.int32)
        return PolicyMemory(memory.agent, taken, memory.time)

    def estimate(self, state: Any, memory: Any = None, reward: float = 0.0) -> dict[Any, float]:
        """Return the agent's estimate of the value of each available action."""
        memory, time_step, names = self._inputs(state, memory, reward)
        values = np.asarray(_estimate(self.agent, self.state, memory.agent, time_step))
        return {names[i] if names else i: float(values[i]) for i in self._choices(time_step)}

    def quantiles(self, state: Any, memory: Any = None, reward: float = 0.0, count: int = 100) -> dict[Any, np.ndarray]:
        """Return the predicted quantiles of the return, at the levels (i + ½)/count, of each available action."""
        memory, time_step, names = self._inputs(state, memory, reward)
        table = np.asarray(_quantiles(self.agent, self.state, memory.agent, time_step, midpoints(count)))
        return {names[i] if names else i: table[:, i] for i in self._choices(time_step)}

    def _choices(self, time_step: TimeStep) -> list[int]:
        """Return the available actions; 0 stands for the policy's own continuous action."""
        return [0] if self.environment.spec.action_size else np.flatnonzero(time_step.action_mask).tolist()

    def _inputs(
        self, state: Any, memory: Any, reward: float, mask: Any = None
    ) -> tuple[PolicyMemory, TimeStep, list[Any]]:
        spec = self.environment.spec
        observation, available, names = self._read(state)
        require_finite(observation, "an observation")
        if not isinstance(reward, int | float | np.number | jax.Array | np.ndarray) or not math.isfinite(float(reward)):
            raise RiskpathError(f"a reward must be a finite number, got {reward!r}")
        if memory is not None and not isinstance(memory, PolicyMemory):
            raise RiskpathError(f"memory must be None or what the policy returned, got a {type(memory).__name__}")
        memory = first_memory(self.state, spec) if memory is None else memory
        mask = available if mask is None else as_mask(mask, (spec.num_actions,))
        time_step = TimeStep(
            jnp.asarray(observation, spec.observation_dtype),
            jnp.asarray(float(reward), jnp.float32),
            jnp.asarray(mask),
            memory.prev_action,
            memory.time,
        )
        return memory, time_step, names

    def _read(self, state: Any) -> tuple[Any, np.ndarray, list[Any]]:
        if translation := getattr(self.environment, "translation", None):
            space = translation.observation_space
            with in_one_line(f"an observation must be one of {space}".replace("\n", " ")):
                state = translation.read(state)
        if not isinstance(self.environment, FiniteEnvironment):
            shape = self.environment.spec.observation_shape
            if np.shape(state) != shape:
                raise RiskpathError(f"an observation must have shape {shape}, got {np.shape(state)}")
            return state, np.ones(self.environment.spec.num_actions, bool), []
        assert self.environment.problem is not None
        number, names = _names(self.environment.problem)
        if state not in number:
            raise RiskpathError(f"the problem has no state {state!r}; it has {_few(number)}")
        available = np.asarray(self.environment.tables.available[number[state]])
        return np.int32(number[state]), available | ~available.any(), names


def require_finite(observation: Any, what: str) -> None:
    """Refuse NaN and infinite entries."""
    if not np.isfinite(np.asarray(observation)).all():
        raise RiskpathError(f"{what} must consist of finite numbers, got {np.asarray(observation).tolist()}")


def as_mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return an action mask as an array; refuse one of another shape or without any available action."""
    array = np.asarray(mask, bool)
    if array.shape != shape:
        raise RiskpathError(f"an action mask must have shape {shape}, got {array.shape}")
    if array.size and not array.any(axis=-1).all():
        raise RiskpathError("an action mask must leave at least one action available")
    return array


def _few(names: Any) -> str:
    """Return the first few names."""
    return ", ".join(repr(name) for name in list(names)[:6]) + (", …" if len(names) > 6 else "")


_act = eqx.filter_jit(act_with_memory)


@eqx.filter_jit
def _estimate(agent: Agent, state: AgentState, memory: Any, time_step: TimeStep) -> Any:
    return agent.estimate(state, memory, time_step)


@eqx.filter_jit
def _quantiles(agent: Agent, state: AgentState, memory: Any, time_step: TimeStep, taus: Any) -> Any:
    return agent.quantiles(state, memory, time_step, taus)


@functools.lru_cache(maxsize=64)
def _names(problem: FiniteMDP) -> tuple[dict[Any, int], list[Any]]:
    """Return state numbers and action names of a problem, cached with it."""
    return state_numbers(problem), list(action_numbers(problem))
