"""A policy as a program for one environment, with the description of its inputs: the basis of every export.

action, memory = step(memory, observation, reward, mask, start, seed)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from riskpath.envs.finite import FiniteEnvironment, name_of
from riskpath.envs.plain_spaces import describe_space
from riskpath.evaluation.policy_program import first_memory, needs_rewards, step_of
from riskpath.version import versions

FORMAT, VERSION = "riskpath policy", 1


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
    spec, mixed = env.spec, len(policy.members()) > 1
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


def plain_name(name: Any) -> Any:
    """Return a name as JSON; lists stand for tuples, and a text for anything else."""
    if isinstance(name, tuple | list):
        return [plain_name(part) for part in name]
    return name.item() if isinstance(name, np.generic) else name if isinstance(name, str | int | float) else repr(name)
