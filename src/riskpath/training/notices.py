"""Warnings of one line: the agent does not suit the environment, its critic predicts returns that are far off, or
environments were lost.

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
from riskpath.training.run_state import RunState

LOGGER = logging.getLogger("riskpath")
TRIALS, STEPS = 8, 5
"""Short episodes with equal actions that are compared."""
FAR = 3.0
"""An estimate diverges if it lies outside of the returns seen by more than this multiple of their range."""
LEAST_RANGE = 0.1
"""The smallest range, as a fraction of the largest return, for the time when all episodes have the same return."""
FEWEST_EPISODES, FEWEST_UPDATES = 20, 1_000
"""Estimates are not compared with returns before this."""


def notice_random_transitions(agent: Agent, env: Environment, lanes: Lanes, on_host: bool) -> None:
    """Warn if an agent for deterministic transitions is trained with random ones; on a host, starts are compared."""
    if not agent.for_deterministic_transitions or isinstance(agent.risk, Mean):
        return
    if on_host:
        starts = np.asarray(lanes.time_step.observation)
        random = bool((starts != starts[:1, :1]).any())
    else:
        random = has_random_transitions(env)
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


def notice_of_losses(run: RunState) -> str | None:
    """Return one line if environments were lost with their workers during training."""
    if not run.losses:
        return None
    if len(run.losses) == 1:
        return f"at step {run.losses[0].step:,}: {run.losses[0]}"
    environments, last = sum(loss.environments for loss in run.losses), run.losses[-1].step
    return (
        f"lost environments with their workers {len(run.losses)} times, the last time at step {last:,}: new episodes "
        f"began elsewhere, {environments} unfinished ones do not count"
    )


def notice_of_estimates(run: RunState) -> str | None:
    """Return one line if the estimates of some lanes are far outside of their latest returns."""
    state = run.lanes.agent_state
    assert state.episodes is not None
    if not all(agent.risk.monetary for agent in run.agents):
        return None  # estimates such as a probability are not in the unit of the returns
    counts, updates = np.asarray(state.episodes.count), int(run.lanes.clock.updates)
    if counts.min() < FEWEST_EPISODES or updates < FEWEST_UPDATES:
        return None
    ring, estimates = np.asarray(state.episodes.ring, np.float64), run.estimates().ravel()
    latest = [lane[: int(min(count, len(lane)))] for lane, count in zip(ring, counts, strict=True)]
    low, high = (np.array([function(lane) for lane in latest]) for function in (np.min, np.max))
    reach = FAR * np.maximum(high - low, LEAST_RANGE * np.maximum(np.abs(low), np.abs(high)))
    far = np.flatnonzero((estimates > high + reach) | (estimates < low - reach) | ~np.isfinite(estimates))
    if not len(far):
        return None
    worst = far[np.argmax(np.abs(estimates[far] - (low + high)[far] / 2))]
    return (
        f"the critic predicts returns far from all that were seen, in {len(far)} of {len(estimates)} lanes: lane "
        f"{worst} predicts {estimates[worst]:,.6g}, its latest episodes returned {low[worst]:,.6g} to "
        f"{high[worst]:,.6g}; "
        "do not trust its estimates, and try a smaller learning_rate, a discount below 1, or more steps"
    )
