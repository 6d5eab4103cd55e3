"""A greedy policy as a program over arrays: one step of one environment, or of many at once.

    action, memory = step(memory, observation, reward, mask, start, seed)

The memory is passed as the tuple of its arrays, and `start` resets it: a caller needs no knowledge of the agent.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Shaped

from riskpath.agents.agent import Agent, AgentState, act_greedily
from riskpath.types import EnvSpec, TimeStep, tree_where


class PolicyMemory(eqx.Module):
    """The memory of a policy during an episode."""

    agent: Any
    """The agent's own memory."""
    prev_action: Shaped[Array, "*act"]
    """The action taken in the step before."""
    time: Int[Array, ""]
    """The number of steps taken."""

    def time_step(self, observation: Any, reward: Any, mask: Any) -> TimeStep:
        """Return what the agent sees now."""
        return TimeStep(observation, reward, mask, self.prev_action, self.time)


def stack_rows(rows: Sequence[bytes], like: PolicyMemory) -> PolicyMemory:
    """Return the memories of all rows, with an axis for them."""
    leaves, structure = jax.tree.flatten(like)
    table = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)
    parts = np.split(table, np.cumsum([leaf.nbytes for leaf in leaves])[:-1], axis=1)
    columns = zip(parts, leaves, strict=True)
    arrays = [np.ascontiguousarray(part).view(leaf.dtype).reshape(-1, *leaf.shape) for part, leaf in columns]
    return jax.tree.unflatten(structure, arrays)


def split_rows(memories: PolicyMemory, count: int) -> list[bytes]:
    """Return the first memories as bytes, which exact evaluation compares: it has thousands of them."""
    arrays = [np.ascontiguousarray(array[:count]) for array in jax.tree.leaves(memories)]
    table = np.concatenate([array.reshape(count, -1).view(np.uint8) for array in arrays], axis=1)
    return [row.tobytes() for row in table]


def first_memory(state: AgentState, spec: EnvSpec) -> PolicyMemory:
    """Return the memory at the start of an episode."""
    return PolicyMemory(state.initial_memory, spec.no_action(), jnp.zeros((), jnp.int32))


def act_with_memory(
    agent: Agent, state: AgentState, memory: PolicyMemory, observation: Any, reward: Any, mask: Any, seed: Any = 0
) -> tuple[Any, PolicyMemory]:
    """Return the greedy action and the memory after it; a mixture of policies draws one of them by the seed."""
    time_step = memory.time_step(observation, reward, mask)
    output = act_greedily(agent, state, memory.agent, time_step, key=jax.random.key(seed))
    return output.action, PolicyMemory(output.memory, output.action, memory.time + 1)


def step_of(agent: Agent, state: AgentState, spec: EnvSpec) -> Callable[..., tuple[Any, tuple[Any, ...]]]:
    """Return one step as a function of arrays; at the start of an episode memory and reward do not count."""
    fresh = first_memory(state, spec)

    def step(memory: Any, observation: Any, reward: Any, mask: Any, start: Any, seed: Any) -> Any:
        memory = tree_where(start, fresh, jax.tree.unflatten(jax.tree.structure(fresh), memory))
        reward = jnp.where(start, jnp.zeros_like(reward), reward)
        action, memory = act_with_memory(agent, state, memory, observation, reward, mask, seed)
        return action, tuple(jax.tree.leaves(memory))

    return step


@eqx.filter_jit
def step_many(
    agent: Agent,
    state: AgentState,
    spec: EnvSpec,
    memories: Any,
    observations: Any,
    rewards: Any,
    masks: Any,
    starts: Any,
    seeds: Any,
) -> Any:
    """Return an action and the memory after it for each of many environments."""
    return jax.vmap(step_of(agent, state, spec))(memories, observations, rewards, masks, starts, seeds)


def needs_rewards(agent: Agent, state: AgentState, spec: EnvSpec) -> bool:
    """Tell whether anything that follows from acting depends on the last reward; `vmap` over rewards finds out."""
    obs, mask = jnp.zeros(spec.observation_shape, spec.observation_dtype), spec.every_action()

    def act(reward: jax.Array) -> Any:
        return act_with_memory(agent, state, first_memory(state, spec), obs, reward, mask)

    jax.eval_shape(act, jnp.zeros(()))  # raises any other error
    try:
        jax.eval_shape(jax.vmap(act, out_axes=None), jnp.zeros((2,)))
    except ValueError:  # an output varies with the reward
        return True
    return False
