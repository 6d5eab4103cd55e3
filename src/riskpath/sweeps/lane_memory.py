"""How many lanes fit into the memory of a device.

A lane is little more than its replay buffer, its networks and the activations of one update. The estimate has room for
a second copy, which a program needs for its result. Where it is too optimistic, training ends with an error of the
runtime, and the cell is split in halves (`jobs.py`).
"""

import math
import os
from typing import Any

import equinox as eqx
import jax

from riskpath.agents.agent import Agent
from riskpath.agents.config import ReplayTraining
from riskpath.training import inputs
from riskpath.training.lanes import start

SHARE = 0.6
"""Share of the memory that lanes may use."""
COPIES, ROOM = 3, 16e6
"""Copies of the state of a lane, and bytes for the activations of an update."""


def lane_bytes(agent: Agent, env: Any, num_envs: int) -> float:
    """Return the memory that one lane needs, from the shapes of its arrays."""
    environment = inputs.as_environments(env, 1)[0][0]
    shapes = jax.tree.leaves(eqx.filter_eval_shape(start, [agent], [environment], 1, num_envs, 0))
    sizes = (math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in shapes if isinstance(leaf, jax.ShapeDtypeStruct))
    return COPIES * sum(sizes) + ROOM


def memory() -> float:
    """Return the bytes of each local device; the memory of a machine is shared by its CPU devices."""
    devices = jax.local_devices()
    limits = [(device.memory_stats() or {}).get("bytes_limit") for device in devices]
    if None not in limits:
        return float(min(limit or 0 for limit in limits))
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) / len(devices)
    return 8e9


def lanes_that_fit(agent: Agent, env: Any, num_envs: int, wanted: int) -> int:
    """Return how many lanes a device trains at a time: as many as wanted, or fewer."""
    room = SHARE * memory()
    if isinstance(agent.training, ReplayTraining):
        least = COPIES * 4 * 10 * agent.training.buffer_size + ROOM  # a transition has about ten numbers
        if wanted * 10 * least < room:  # certainly enough: tracing shapes takes a second
            return wanted
    return max(1, min(wanted, int(room / lane_bytes(agent, env, num_envs))))
