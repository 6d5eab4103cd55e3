"""A warning of one line: the agent is made for deterministic transitions, and those of the environment are random.

Lines go to the logger "riskpath", which prints them to standard error unless it is set up differently.
"""

import logging
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from riskpath.agents.agent import Agent
from riskpath.envs.environment import Environment
from riskpath.envs.finite import FiniteEnvironment, as_arrays
from riskpath.risk.measures import Mean
from riskpath.risk.tabulated import Tabulated
from riskpath.training.lanes import Lanes

LOGGER = logging.getLogger("riskpath")
TRIALS, STEPS = 8, 5
"""Short episodes with equal actions that are compared."""


def notice_random_transitions(agent: Agent, env: Environment, lanes: Lanes, on_host: bool) -> None:
    """Warn if an agent for deterministic transitions is trained with random ones."""
    if not agent.for_deterministic_transitions or isinstance(agent.risk, Mean):
        return
    random = _starts_differ(lanes) if on_host else has_random_transitions(env)
    if random:
        other = "AdaptiveContinuous" if agent.actions == "continuous" else "Adaptive"
        LOGGER.warning(
            "%s: transitions or starts of this environment are random: it maximises %s given each history, "
            "which is not that of the whole return; use rp.%s",
            type(agent).__name__,
            "its measure" if isinstance(agent.risk, Tabulated) else agent.risk,
            other,
        )


def has_random_transitions(env: Environment) -> bool:
    """Tell whether equal actions lead to different observations; a short trial, which may miss rare events."""
    if isinstance(env, FiniteEnvironment):
        return not env.tables.deterministic
    seen = np.asarray(_trial(as_arrays(env), jax.random.split(jax.random.key(0), TRIALS)))
    return bool((seen != seen[:1]).any())


@eqx.filter_jit
def _trial(env: Environment, keys: Any) -> Any:
    """Return the observations of short episodes with equal actions and different random numbers."""
    spec = env.spec

    def episode(key: Any) -> Any:
        reset_key, key = jax.random.split(key)
        observation, state = env.reset(reset_key)
        observations, over = [observation], jnp.zeros((), bool)
        for step, step_key in enumerate(jax.random.split(key, STEPS)):
            action_key = jax.random.key(step)  # the same in all episodes
            scores = jax.random.uniform(action_key, (spec.num_actions or spec.action_size,))
            action = 2.0 * scores - 1.0
            if spec.num_actions:
                action = jnp.argmax(jnp.where(env.action_mask(state), scores, -1.0)).astype(jnp.int32)
            following, state, _, terminated, truncated = env.step(step_key, state, action)
            observation = jnp.where(over, observation, following)
            over = over | terminated | truncated
            observations.append(observation)
        return jnp.stack(observations)

    return jax.vmap(episode)(keys)


def _starts_differ(lanes: Lanes) -> bool:
    """Tell whether the environments of a host began with different observations; False if there is only one."""
    first = np.asarray(lanes.time_step.observation)
    flat = first.reshape(first.shape[0] * first.shape[1], -1)
    return bool((flat != flat[:1]).any())
