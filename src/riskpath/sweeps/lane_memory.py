"""How many lanes fit into the memory of the local devices.

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
    """Return the bytes of all local devices together; of a CPU those of the machine."""
    devices = jax.local_devices()
    limits = [(device.memory_stats() or {}).get("bytes_limit") for device in devices]
    if None not in limits:
        return float(sum(limit or 0 for limit in limits))
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return 8e9


def lanes_that_fit(agent: Agent, env: Any, num_envs: int, wanted: int) -> int:
    """Return how many lanes are trained side by side: as many as wanted, or fewer.

    The lower number is a multiple of the number of devices, if possible, so that lanes can be spread over all of them.
    """
    room = SHARE * memory()
    least = COPIES * 4 * 10 * agent.training.buffer_size + ROOM  # a transition has about ten numbers
    if wanted * 10 * least < room:  # certainly enough: tracing shapes takes a second
        return wanted
    fit = max(1, int(room / lane_bytes(agent, env, num_envs)))
    devices = len(jax.local_devices())
    return wanted if wanted <= fit else fit - fit % devices if fit > devices else fit
