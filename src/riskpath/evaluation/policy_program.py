"""A greedy policy as a program over arrays: one step of one environment, or of many at once.

    action, memory = step(memory, observation, reward, mask, start, seed)

The memory is passed as the tuple of its arrays, and `start` resets it: a caller needs no knowledge of the agent. An
export adds what comes before and after, such as the observations of a finite problem, and a description of all inputs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Shaped

from riskpath.agents.agent import Agent, AgentState, act_greedily
from riskpath.envs.finite import FiniteEnvironment, name_of
from riskpath.envs.plain_spaces import describe_space
from riskpath.errors import RiskpathError
from riskpath.types import EnvSpec, TimeStep, tree_where
from riskpath.version import versions

FORMAT, VERSION = "riskpath policy", 1


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


def stack_rows(rows: Sequence[bytes | None], like: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Return the memories that `split_rows` made of arrays like these, with an axis for them; None becomes zeros."""
    blank = bytes(sum(leaf.nbytes for leaf in like))
    table = np.frombuffer(b"".join(row or blank for row in rows), np.uint8).reshape(len(rows), -1)
    parts = np.split(table, np.cumsum([leaf.nbytes for leaf in like])[:-1], axis=1)
    columns = zip(parts, like, strict=True)
    return tuple(np.ascontiguousarray(part).view(leaf.dtype).reshape(-1, *leaf.shape) for part, leaf in columns)


def split_rows(memories: Sequence[np.ndarray], count: int) -> list[bytes]:
    """Return the first memories as bytes, which exact evaluation compares: it has thousands of them."""
    arrays = [np.ascontiguousarray(array[:count]) for array in memories]
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
def step_many(agent: Agent, state: AgentState, spec: EnvSpec, *arrays: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return actions and next memories of many environments; `arrays` are the arguments of a step, one row for each."""
    return jax.vmap(step_of(agent, state, spec))(*arrays)


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


@dataclass(frozen=True)
class TracedPolicy:
    """A policy in the form that every export needs."""

    step: Callable[..., Any]
    """One step of one environment."""
    description: dict[str, Any]
    """Agent, measure, environment, inputs, names and versions, as JSON."""

    def inputs(self, count: Any) -> tuple[Any, ...]:
        """Return shapes and types of the program of many environments; `count` may be a symbol."""
        about = self.description
        array = lambda shape, dtype: jax.ShapeDtypeStruct((count, *shape), jnp.dtype(dtype))
        memory = tuple(array(leaf["shape"], leaf["dtype"]) for leaf in about["memory"])
        observation = array(about["observation"]["shape"], about["observation"]["dtype"])
        masks, flags = array((about["num_actions"],), bool), array((), bool)
        return memory, observation, array((), jnp.float32), masks, flags, array((), jnp.uint32)


def drawn(seed: Any, probs: Any) -> Any:
    """Return the number that a random whole number draws with some probabilities."""
    share, below = (seed & jnp.uint32(2**24 - 1)).astype(jnp.float32) / 2**24, np.cumsum(probs)
    return jnp.sum(share >= jnp.asarray(below[:-1] / below[-1], jnp.float32), dtype=jnp.int32)


def trace_learned(policy: Any) -> TracedPolicy:
    """Return a `LearnedPolicy` as a program."""
    agent, state, env = policy.agent, policy.state, policy.environment
    spec, mixed = env.spec, policy.mixed
    finite, translation = isinstance(env, FiniteEnvironment), getattr(env, "translation", None)
    seen, available = policy.tables if finite else (None, None)
    offset = int(getattr(getattr(translation, "observation_space", None), "start", 0))

    def one(memory: Any, obs: Any, reward: Any, mask: Any, start: Any, seed: Any) -> Any:
        if finite:  # by the number of the state
            obs, mask = jnp.asarray(seen)[obs], mask & jnp.asarray(available)[obs]
        elif offset:
            obs = obs - offset
        if spec.action_heads:
            mask = mask.reshape(spec.mask_shape) & spec.every_action()
        playing = state
        if mixed:  # the memory of an episode has what the member that began it needs
            probs = agent.weights(state)
            playing = agent.with_weights(state, jnp.eye(len(probs))[drawn(seed, probs)])
        action, memory = step_of(agent, playing, spec)(memory, obs, reward, mask, start, np.uint32(0))
        return (translation.scale(action) if translation else action), memory

    shape, dtype = ((), jnp.int32) if finite else (spec.observation_shape, spec.observation_dtype)
    states, actions = ([plain_name(name) for name in names] for names in policy.names()) if finite else (None, None)
    description = describe(
        jax.tree.leaves(first_memory(state, spec)),
        agent=type(agent).__name__,
        risk=str(jax.tree.map(lambda level: float(f"{level:.6g}"), agent.risk)),
        environment=name_of(env),
        observation={"shape": list(shape), "dtype": np.dtype(dtype).name},
        observation_space=translation and _unless_array(translation.observation_space, shape),
        action_space=translation and _unless_array(translation.action_space),
        num_states=len(available) if available is not None else spec.num_states,
        first_state=offset,
        num_actions=spec.num_actions,
        needs_rewards=needs_rewards(agent, state, spec),
        mixed=mixed,
        states=states,
        actions=actions,
    )
    return TracedPolicy(one, description)


def _unless_array(space: Any, shape: tuple[int, ...] | None = None) -> Any:
    """Return a space as plain data; None if its elements are numbers, or arrays of this shape."""
    about = describe_space(space)
    return None if about["space"] == "Discrete" or (about["space"] == "Box" and space.shape == shape) else about


def describe(memory: Sequence[Any], **about: Any) -> dict[str, Any]:
    """Return the description of a policy: format, versions, the arrays of its memory, and what is known `about` it."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "versions": versions(),
        "memory": [{"shape": list(leaf.shape), "dtype": np.dtype(leaf.dtype).name} for leaf in memory],
        "first_state": 0,
        "num_states": None,
        "states": None,
        "actions": None,
        "mixed": False,
        **about,
    }


def require_version(path: Any, description: dict[str, Any]) -> None:
    """Refuse a policy in a file of another format."""
    if description.get("format") != FORMAT or description.get("version") != VERSION:
        raise RiskpathError(f"{path} has another format than {FORMAT} {VERSION}")


def plain_name(name: Any) -> Any:
    """Return a name as JSON; lists stand for tuples, and a text for anything else."""
    if isinstance(name, tuple | list):
        return [plain_name(part) for part in name]
    return name.item() if isinstance(name, np.generic) else name if isinstance(name, str | int | float) else repr(name)
