"""What every lane predicts at the start of an episode."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from riskpath.agents.agent import Agent, AgentState
from riskpath.agents.learning import masked_argmax
from riskpath.envs.environment import Environment
from riskpath.nn.heads import columns_of
from riskpath.types import EnvSpec, Key


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
