"""Greedy rollouts of many lanes in environments that are part of the program, and what agents predict at the start.

Rollouts run in pieces that fit into memory. Every episode has its own random key, so the size of the pieces does not
change the episodes; only the rounding of their discounted returns may differ.
"""

import math
from collections.abc import Hashable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from riskpath.agents.agent import Agent, AgentState, act_greedily
from riskpath.agents.learning import masked_argmax
from riskpath.envs.environment import Environment
from riskpath.nn.heads import columns_of
from riskpath.types import EnvSpec, Key, Keys, TimeStep, shapes_of

Returns = tuple[Float[np.ndarray, "L N"], Float[np.ndarray, "L N"], Bool[np.ndarray, "L N"]]
"""Returns, discounted returns, and which episodes ended before the limit on their steps."""
MEMORY_SHARE, DEFAULT_MEMORY = 0.25, 4e9
"""Fraction of the device's memory that a piece may use, and the assumed memory of a device that does not report it."""
_NEEDED: dict[Hashable, int] = {}
"""Bytes for one step of one episode, for every agent seen so far: tracing `act` takes as long as a short rollout."""


def lane_count(state: AgentState) -> int:
    """Return the number of lanes."""
    return jax.tree.leaves(eqx.filter(state, eqx.is_array))[0].shape[0]


def repeat_memory(memory: Any, times: int) -> Any:
    """Repeat the memories of lanes [L, …] for several environments [L, P, …]."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x[:, None], (x.shape[0], times, *x.shape[1:])), memory)


def with_reward(account: Any, reward: Any, discount: Any) -> tuple[Any, Any, Any]:
    """Return return, discounted return and γ^{t+1} after the reward at time t; `account` has those before it."""
    total, discounted, weight = account
    return total + reward, discounted + weight * reward, weight * discount


def rollout(
    agent: Agent, env: Environment, state: AgentState, spec: EnvSpec, episodes: int, limit: int, *, keys: Keys
) -> Returns:
    """Roll out greedy episodes of every lane; agent, environment, state and keys have an axis of lanes."""
    lanes = keys.shape[0]
    keys = jax.vmap(lambda key: jax.random.split(key, episodes))(keys)
    size = min(episodes, _piece(agent, state, spec, lanes))
    while True:
        try:
            return _in_pieces(agent, env, state, spec, keys, limit, size)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error) or size == 1:
                raise
            size = -(-size // 2)


def _in_pieces(
    agent: Agent, env: Environment, state: AgentState, spec: EnvSpec, keys: Any, limit: int, size: int
) -> Returns:
    episodes, parts = keys.shape[1], []
    for first in range(0, episodes, size):
        chosen = np.minimum(np.arange(first, first + size), episodes - 1)  # every piece has the same shape
        piece = keys if size == episodes else keys[:, chosen]
        parts.append(jax.device_get(_rollout_piece(agent, env, state, spec, piece, jnp.asarray(limit))))
    plain, discounted, finished = (np.concatenate(column, axis=1)[:, :episodes] for column in zip(*parts, strict=True))
    return plain, discounted, finished


@eqx.filter_jit
def _rollout_piece(agent: Agent, env: Environment, state: AgentState, spec: EnvSpec, keys: Any, limit: Any) -> Any:
    """Roll out one episode for each key [L, P]; finished episodes wait for the longest one."""

    def episode(agent: Agent, env: Environment, state: AgentState, key: Key) -> Any:
        start_key, key = jax.random.split(key)

        def step(carry: Any) -> Any:
            env_state, time_step, memory, account, _, key = carry
            key, act_key, env_key = jax.random.split(key, 3)
            output = act_greedily(agent, state, memory, time_step, key=act_key)
            observation, env_state, reward, terminated, truncated = env.step(env_key, env_state, output.action)
            account = with_reward(account, reward, agent.discount)
            mask = env.action_mask(env_state)
            following = TimeStep(observation, reward, mask, output.action, time_step.time + 1)
            return env_state, following, output.memory, account, terminated | truncated, key

        observation, env_state = env.reset(start_key)
        first = spec.first_time_step(observation, env.action_mask(env_state))
        account = (jnp.zeros(()), jnp.zeros(()), jnp.ones(()))
        carry = (env_state, first, state.initial_memory, account, jnp.zeros((), bool), key)
        going = lambda carry: ~carry[4] & (carry[1].time < limit)
        _, _, _, (total, discounted, _), done, _ = jax.lax.while_loop(going, step, carry)
        return total, discounted, done

    each = eqx.filter_vmap(episode, in_axes=(None, None, None, 0))
    return eqx.filter_vmap(each)(agent, env, state, keys)


def _piece(agent: Agent, state: AgentState, spec: EnvSpec, lanes: int) -> int:
    """Return the number of episodes of each lane that fit into memory together.

    One step of one episode needs at most the sum of all intermediate arrays of `act`.
    """
    known = shapes_of((agent, state, spec))
    if known not in _NEEDED:
        one = lambda tree: jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, tree)
        shapes = eqx.filter_eval_shape(one, (agent, state))
        closed = eqx.filter_make_jaxpr(lambda a, s: _first_action(a, s, spec))(*shapes)[0]
        _NEEDED[known] = _intermediate_bytes(closed.jaxpr)
    needed = _NEEDED[known]
    stats = jax.local_devices()[0].memory_stats() or {}
    room = MEMORY_SHARE * stats.get("bytes_limit", DEFAULT_MEMORY)
    return max(1, int(room / (needed * lanes)))


def _first_action(agent: Agent, state: AgentState, spec: EnvSpec) -> Any:
    observation = jnp.zeros(spec.observation_shape, spec.observation_dtype)
    time_step = spec.first_time_step(observation, spec.every_action())
    output = act_greedily(agent, state, state.initial_memory, time_step, key=jax.random.key(0))
    return output.action, output.memory


def _intermediate_bytes(jaxpr: Any) -> int:
    """Return the size of all arrays that a program computes, those of inner programs included."""
    total = 0
    for equation in jaxpr.eqns:
        for value in equation.outvars:
            total += math.prod(getattr(value.aval, "shape", ())) * 4
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "jaxpr")):
            if hasattr(inner, "jaxpr"):
                total += _intermediate_bytes(inner.jaxpr)
    return total


@eqx.filter_jit
def initial_values(
    agent: Agent, state: AgentState, spec: EnvSpec, observation: Shaped[Array, "L *obs"], mask: Bool[Array, "L *A"]
) -> Float[Array, " L"]:
    """Return the value that every lane predicts for an episode with this first observation."""

    def one(agent: Agent, state: AgentState, observation: Any, mask: Any) -> Float[Array, ""]:
        return agent.value(state, state.initial_memory, spec.first_time_step(observation, mask))

    return eqx.filter_vmap(one)(agent, state, observation, mask)


@eqx.filter_jit
def initial_quantiles(
    agent: Any,
    state: AgentState,
    spec: EnvSpec,
    observation: Shaped[Array, "L *obs"],
    mask: Bool[Array, "L *A"],
    taus: Float[Array, " N"],
) -> Float[Array, "L N"]:
    """Return the quantiles that every lane predicts for its best action after such a first observation."""

    def one(agent: Any, state: AgentState, observation: Any, mask: Any) -> Float[Array, " N"]:
        time_step = spec.first_time_step(observation, mask)
        quantiles = agent.quantiles(state, state.initial_memory, time_step, taus)
        if not mask.size:
            return quantiles[:, 0]
        best = masked_argmax(agent.estimate(state, state.initial_memory, time_step), mask)
        return jnp.sum(quantiles[:, columns_of(best, quantiles.shape[1])], axis=1)

    return eqx.filter_vmap(one)(agent, state, observation, mask)


@eqx.filter_jit
def first_observations(env: Environment, keys: Any) -> tuple[Any, Any]:
    """Return a first observation and action mask for every lane."""

    def one(env: Environment, key: Key) -> Any:
        observation, env_state = env.reset(key)
        return observation, env.action_mask(env_state)

    return eqx.filter_vmap(one)(env, keys)
