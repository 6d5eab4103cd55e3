"""Estimate, before training starts, how many lanes fit into the memory of a device.

A lane consists mainly of its replay buffer, its networks and the activations of one update. The estimate includes a
second copy, which a program needs for its result. If it is too optimistic, training ends with an out-of-memory error,
and the cell is split in halves (`jobs.py`).
"""

import math
import os
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax

from riskpath.agents.agent import Agent
from riskpath.agents.config import Training
from riskpath.envs.environment import Environment
from riskpath.memory import free_bytes, require_memory
from riskpath.training import inputs
from riskpath.training.lanes import start
from riskpath.types import EnvSpec

SHARE = 0.6
"""Share of the memory that lanes may use."""
COPIES, ROOM, KEY_BYTES = 3, 16e6, 16.0
"""Copies of the state of a lane, bytes for the activations of an update, and for the random key of a seed."""


def state_bytes(agent: Agent, environment: Environment, num_envs: int) -> float:
    """Return the memory of all arrays of one lane, from their shapes."""
    shapes = jax.tree.leaves(eqx.filter_eval_shape(start, [agent], [environment], 1, num_envs, 0))
    return sum(
        float(math.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in shapes if isinstance(leaf, jax.ShapeDtypeStruct)
    )


def lane_bytes(agent: Agent, env: Any, num_envs: int) -> float:
    """Return the memory that one lane needs for training."""
    return COPIES * state_bytes(agent, inputs.as_environments(env, 1)[0][0], num_envs) + ROOM


def require_lanes(agents: Sequence[Agent], environment: Environment, seeds: int, num_envs: int, before: int) -> None:
    """Refuse lanes whose arrays alone cannot fit into the free memory, and say how many would fit.

    A key is made for each seed, also for those `before` the first one.
    """
    lanes, keys, free = len(agents) * seeds, KEY_BYTES * (before + seeds), free_bytes()
    if free is None or 10 * (lanes * _rough_bytes(agents[0], environment.spec, num_envs) + keys) < free:
        return  # certainly enough: tracing shapes takes a second
    each = state_bytes(agents[0], environment, num_envs)

    def cure(free: float) -> str:
        fit = int(SHARE * free / (COPIES * each * len(agents)))
        if lanes * each < free:
            return "use a smaller first_seed"
        return f"about {fit:,} seeds fit" if fit else "use a smaller training.buffer_size, or fewer num_envs"

    settings = "" if len(agents) == 1 else f"{len(agents):,} settings with "
    require_memory(f"training {settings}seeds={seeds:,}, num_envs={num_envs:,}", lanes * each + keys, cure)


def _rough_bytes(agent: Agent, spec: EnvSpec, num_envs: int) -> float:
    """Return a rough estimate for one lane, without tracing: its replay buffer, environments and networks."""
    rows = agent.training.buffer_size if isinstance(agent.training, Training) else 1_000 * num_envs
    numbers = 2.0 * math.prod(spec.observation_shape) + 30.0
    return 4.0 * numbers * (rows + 100.0 * num_envs) + ROOM


def memory() -> float:
    """Return the bytes of each local device; CPU devices share the memory of the machine."""
    devices = jax.local_devices()
    limits = [(device.memory_stats() or {}).get("bytes_limit") for device in devices]
    if None not in limits:
        return float(min(limit or 0 for limit in limits))
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) / len(devices)
    return 8e9


def lanes_that_fit(agent: Agent, env: Any, num_envs: int, wanted: int) -> int:
    """Return the number of lanes that a device trains at a time, at most `wanted`."""
    room, environment = SHARE * memory(), inputs.as_environments(env, 1)[0][0]
    if 10 * wanted * COPIES * _rough_bytes(agent, environment.spec, num_envs) < room:
        return wanted  # certainly enough: tracing shapes takes a second
    return max(1, min(wanted, int(room / lane_bytes(agent, env, num_envs))))
