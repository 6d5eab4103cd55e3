"""A trained policy as a plain function, and the values and quantiles that its agent predicts."""

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from riskpath.agents.abilities import Population, require_quantiles
from riskpath.agents.agent import Agent, AgentState
from riskpath.envs.environment import Environment
from riskpath.envs.finite import FiniteEnvironment, action_numbers, state_numbers
from riskpath.errors import RiskpathError, in_one_line
from riskpath.evaluation.exported_policy import ExportedPolicy
from riskpath.evaluation.policy_file import PLATFORMS, compile_policy, write_policy
from riskpath.evaluation.policy_inputs import (
    as_action,
    as_mask,
    as_reward,
    missing_reward,
    read_action,
    require_known,
    require_states,
    short,
)
from riskpath.evaluation.policy_program import (
    PolicyMemory,
    act_with_memory,
    first_memory,
    split_rows,
    stack_rows,
    step_many,
    trace_learned,
)
from riskpath.evaluation.predictor import Predictor
from riskpath.mdp.model import FiniteMDP
from riskpath.nn.losses import midpoints
from riskpath.types import EnvSpec, shapes_of
from riskpath.validation import as_numbers, require_counts

Arrays = tuple[Any, Any, Any]
"""Observation, reward and mask."""
BATCHES = (512, 128, 32)
"""How many situations of an exact evaluation are answered in one call. Each size is compiled once."""


@dataclass(frozen=True)
class LearnedPolicy:
    """A trained policy as a function; on a finite problem it takes and returns that problem's states and actions."""

    agent: Agent
    state: AgentState = field(repr=False)
    environment: Environment

    def __call__(
        self, state: Any, memory: Any = None, reward: float | None = None, mask: Any = None
    ) -> tuple[Any, Any]:
        """Return the greedy action and the memory for the next call.

        Args:
            state: The observation, or the state of a finite problem.
            memory: The memory that the previous call returned; None at the start of an episode.
            reward: The reward of the previous step; not needed at the start, nor by agents that do not act on rewards.
            mask: Which discrete actions are available; needed only where the problem is not finite and restricts them.
        """
        seed = random.getrandbits(31) if memory is None and self.mixed else 0
        memory, arrays = self._inputs(state, memory, reward, mask)
        action, memory = _act(self.agent, self.state, memory, *arrays, np.uint32(seed))
        if self._translation:
            return self._translation.write(np.asarray(action)), memory
        if self._spec.action_size:
            return np.asarray(action), memory
        return self._names[1][int(action)] if self._names[1] else int(action), memory

    def answer_all(self, situations: Sequence[tuple[Any, Any, float]]) -> list[tuple[Any, Any]]:
        """Return (action, memory) for every (state, memory, reward), many at once; the memories are for this method."""
        if not isinstance(self.environment, FiniteEnvironment):
            return [self(*situation) for situation in situations]
        found: list[tuple[Any, Any]] = []
        observations, available = self.tables
        while rest := situations[len(found) :]:
            size = next((size for size in BATCHES if size <= len(rest)), BATCHES[-1])
            some = list(rest[:size])
            states, rows, rewards = zip(*some, *[some[-1]] * (size - len(some)), strict=True)
            numbers, names = [self._number(state) for state in states], self._names[1]
            starts, seeds = np.array([row is None for row in rows]), np.zeros(size, np.uint32)
            seen = observations[numbers].astype(self._spec.observation_dtype)
            arrays = seen, np.array(rewards, np.float32), available[numbers], starts, seeds
            memories = stack_rows(rows, self.batch.fresh)
            actions, after = jax.device_get(step_many(self.agent, self.state, self._spec, memories, *arrays))
            chosen = [names[action] for action in actions[: len(some)]]
            found += zip(chosen, split_rows(after, len(some)), strict=True)
        return found

    def act_batch(
        self, observations: Any, memories: Any = None, rewards: Any = None, masks: Any = None, starts: Any = None
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Return greedy actions for many environments, and their memories for the next call.

        Observations and actions are numbers or arrays as in Gymnasium, not the names of a finite problem.

        Args:
            observations: One for each environment.
            memories: The memories that the previous call returned; None at first.
            rewards: The reward of the previous step of each environment; not needed where an episode begins, nor by
                agents that do not act on rewards.
            masks: Which actions are available, [environments, actions]; not needed for a finite problem.
            starts: In which environments an episode begins; by default in all if there are no memories, else in none.
        """
        read, single = self.batch.read(observations)
        if single:
            raise RiskpathError("act_batch takes observations of several environments: add an axis, or call the policy")
        return self.batch.act(read, memories, rewards, masks, starts)

    def export(self, path: str | Path, platforms: Sequence[str] = PLATFORMS) -> Path:
        """Write this policy to one file for production, which `load_policy` reads; return its path.

        Args:
            path: The file, "policy.zip", or "policy.onnx" for an ONNX model; only an older export is replaced.
            platforms: Where it is to run: "cpu", "cuda", "tpu" or "rocm"; an ONNX model runs where its runtime does.
        """
        return write_policy(trace_learned(self), path, tuple(platforms))

    def compiled(self) -> ExportedPolicy:
        """Return this policy with its parameters compiled in: a call takes a fraction of the time."""
        return compile_policy(trace_learned(self))

    def names(self) -> tuple[list[Any], list[Any]]:
        """Return the names of the states and actions of a finite problem, in the order of their numbers."""
        states, actions = self._names
        if not states:
            raise RiskpathError("only the states and actions of a finite problem have names")
        return list(states), actions

    @functools.cached_property
    def batch(self) -> Predictor:
        """This policy in many environments at once."""
        return Predictor(self)

    def members(self) -> list[tuple[float, "LearnedPolicy"]]:
        """Return the policies that this one draws from at the start of an episode, with their probabilities."""
        if not self.mixed:
            return [(1.0, self)]
        assert isinstance(self.agent, Population)
        alone = np.eye(self.agent.population()[0], dtype=np.float32)
        with_weights = self.agent.with_weights
        state = lambda member: with_weights(self.state, jnp.asarray(alone[member]))
        return [(w, LearnedPolicy(self.agent, state(m), self.environment)) for m, w in self._weights.items()]

    @property
    def mixed(self) -> bool:
        """Whether one of several policies is drawn at the start of an episode."""
        return len(self._weights) > 1

    @functools.cached_property
    def _weights(self) -> dict[int, float]:
        """The candidates that are played and their probabilities."""
        if not isinstance(self.agent, Population):
            return {0: 1.0}
        weights = np.asarray(self.agent.weights(self.state), np.float64)
        return {m: float(w) for m, w in enumerate(weights / weights.sum()) if w > 0}  # single precision does not add up

    def override_action(self, memory: PolicyMemory, action: Any) -> PolicyMemory:
        """Return the memory for the case that another action was taken than the policy's own.

        Args:
            memory: The memory that the policy returned with its own action.
            action: The action that was taken, of the kind that the policy returns.
        """
        self._require_memory(memory)
        if names := self._names[1]:
            require_known("action", action, names)
            action = names.index(action)
        if self._translation:
            joint, space = self._translation.joint, self._translation.action_space
            action = read_action(space, action) if joint is None else joint.read(action)
        taken = jax.device_put(as_action(action, self._spec), memory.time.sharding)
        return replace(memory, prev_action=taken)

    def estimate(
        self, state: Any, memory: Any = None, reward: float | None = None, mask: Any = None
    ) -> dict[Any, float]:
        """Return the agent's estimate of the value of each available action; arguments as in a call of the policy."""
        require_quantiles(self.agent, "estimate of each action; run.estimates() is that of the start")
        memory, arrays = self._inputs(state, memory, reward, mask)
        values = np.asarray(_estimate(self.agent, self.state, memory, arrays))
        return {self._name(i): float(values[i]) for i in self._choices(arrays[-1])}

    def quantiles(
        self, state: Any, memory: Any = None, reward: float | None = None, count: int = 100, mask: Any = None
    ) -> dict[Any, np.ndarray]:
        """Return the predicted quantiles of the return, at the levels (i + ½)/count, of each available action."""
        require_counts(count=count)
        require_quantiles(self.agent, "quantiles")
        memory, arrays = self._inputs(state, memory, reward, mask)
        table = np.asarray(_quantiles(self.agent, self.state, memory, arrays, int(count)))
        return {self._name(i): table[:, i] for i in self._choices(arrays[-1])}

    def _choices(self, mask: np.ndarray) -> list[int]:
        """Return the available actions; 0 stands for the policy's own continuous action."""
        return [0] if self._spec.action_size else np.flatnonzero(mask).tolist()

    def _name(self, column: int) -> Any:
        """Return what a column of the critic stands for: the name or number of an action, the numbers of a joint one,
        or head and option."""
        if names := self._names[1]:
            return names[column]
        if self._spec.action_heads:
            return divmod(column, self._spec.mask_shape[1])
        joint = getattr(self._translation, "joint", None)
        return column if joint is None else tuple(joint.parts(column).tolist())

    @property
    def _translation(self) -> Any:
        """What converts observations and actions of the environment; None if they are the agent's own."""
        return getattr(self.environment, "translation", None)

    @functools.cached_property
    def _names(self) -> tuple[dict[Any, int], list[Any]]:
        """State numbers and action names of a finite problem; both empty for any other environment."""
        problem = getattr(self.environment, "problem", None)
        return ({}, []) if problem is None else _names(problem)

    @functools.cached_property
    def _spec(self) -> EnvSpec:
        # An environment makes a new one for every call; exact evaluation asks thousands of times.
        return self.environment.spec

    @functools.cached_property
    def _first_memory(self) -> PolicyMemory:
        # On the state's device as every later memory is: otherwise the first call would need a program of its own.
        return jax.device_put(
            first_memory(self.state, self._spec), jax.tree.leaves(eqx.filter(self.state, eqx.is_array))[0].sharding
        )

    @functools.cached_property
    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """What is observed in every state of a finite problem, and which actions it has; terminal ones have all."""
        assert isinstance(self.environment, FiniteEnvironment)
        tables = jax.device_get(self.environment.tables)
        observations = np.arange(len(tables.available)) if tables.features is None else tables.features
        return observations, tables.available | ~tables.available.any(axis=1, keepdims=True)

    def _require_memory(self, memory: Any) -> None:
        if not isinstance(memory, PolicyMemory):
            raise RiskpathError(
                f"memory must be None or the memory that the policy returned, got a {type(memory).__name__}"
            )
        if shapes_of(memory) != shapes_of(self._first_memory):
            raise RiskpathError("memory was returned by another policy: start an episode with memory=None")

    def _inputs(self, state: Any, memory: Any, reward: float | None, mask: Any) -> tuple[PolicyMemory, Arrays]:
        """Return the memory; and observation, reward and mask as arrays."""
        spec = self._spec
        observation, available = self._read(state)
        if memory is not None:
            self._require_memory(memory)
        if reward is None:
            reward = missing_reward(memory is None or not self.batch.needs_rewards, type(self.agent).__name__)
        memory = self._first_memory if memory is None else memory
        mask = available if mask is None else as_mask(mask, spec.mask_shape)
        arrays = np.asarray(observation, spec.observation_dtype), np.asarray(as_reward(reward), np.float32), mask
        return memory, arrays

    def _number(self, state: Any) -> int:
        numbers = self._names[0]
        require_known("state", state, numbers)
        return numbers[state]

    def _read(self, state: Any) -> tuple[Any, np.ndarray]:
        """Return the observation and the available actions."""
        spec = self._spec
        if isinstance(self.environment, FiniteEnvironment):
            number, (observations, available) = self._number(state), self.tables
            return observations[number], available[number]
        if self._translation:
            space = self._translation.observation_space
            if space.shape is not None:  # not a dictionary or a tuple
                as_numbers(state, "an observation")
            if spec.num_states is not None and state not in space:
                raise RiskpathError(f"an observation must be one of {space}, got {short(state)}")
            with in_one_line(f"an observation must be one of {space}".replace("\n", " ")):
                state = self._translation.read(state)
        observation = as_numbers(state, "an observation")
        if observation.shape != spec.observation_shape:
            raise RiskpathError(f"an observation must have shape {spec.observation_shape}, got {observation.shape}")
        if spec.num_states is not None:
            require_states(observation, spec.num_states)
        return observation, np.asarray(spec.every_action())


_act = eqx.filter_jit(act_with_memory)


@eqx.filter_jit
def _estimate(agent: Any, state: AgentState, memory: PolicyMemory, arrays: Arrays) -> Any:
    return agent.estimate(state, memory.agent, memory.time_step(*arrays))


@eqx.filter_jit
def _quantiles(agent: Any, state: AgentState, memory: PolicyMemory, arrays: Arrays, count: int) -> Any:
    return agent.quantiles(state, memory.agent, memory.time_step(*arrays), midpoints(count))


@functools.lru_cache(maxsize=64)
def _names(problem: FiniteMDP) -> tuple[dict[Any, int], list[Any]]:
    """Return state numbers and action names of a problem, cached with it."""
    return state_numbers(problem), list(action_numbers(problem))
