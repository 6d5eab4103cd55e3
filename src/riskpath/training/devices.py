"""Lanes on several devices: each device trains its own lanes with the same program, without communication.

Every array of `Lanes` is split along the axis of lanes, the replay buffer along its columns. The number of devices used
divides the number of lanes: eight lanes use eight devices, or four of six. Random numbers do not depend on the number
of devices, nor do any bits of agents with tables. XLA compiles networks differently for several devices, and for other
numbers of lanes, so sums of products are rounded differently.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from riskpath.agents.agent import Agent
from riskpath.errors import RiskpathError

AXIS = "lanes"
Program = Callable[[Any, Any, Any], tuple[Any, Any]]
"""A function of lanes, a specification and a number of repetitions that returns lanes, and metrics of each lane."""


OLDEST = 8.0
"""The compute capability that kernels for GPUs need."""


def chosen_kernels(agent: Agent) -> ModuleType | None:
    """Return the kernels that an agent's network asks for, or None; refuse them on other devices."""
    if not getattr(getattr(agent, "network", None), "gpu_kernels", False):
        return None
    device = jax.local_devices()[0]
    if not device.device_kind.startswith("NVIDIA") or float(device.compute_capability) < OLDEST:
        needs = f"an NVIDIA GPU with compute capability {OLDEST:g} or newer"
        raise RiskpathError(f"gpu_kernels=True needs {needs}; this device is {device.device_kind}")
    from riskpath.nn import gpu  # importing Pallas takes a second

    return gpu


def lane_mesh(count: int, most: int | None = None) -> Mesh | None:
    """Return the local devices that share `count` lanes, at most `most` of them; None for one device."""
    devices = jax.local_devices()[:most]
    used = max(number for number in range(1, len(devices) + 1) if count % number == 0)
    return None if used == 1 else Mesh(np.array(devices[:used]), (AXIS,))


def placed_rows(mesh: Mesh | None) -> NamedSharding | None:
    """Return where the rows of a replay buffer are: its columns are those of the lanes."""
    return None if mesh is None else NamedSharding(mesh, P(None, AXIS))


def spread(lanes: Any, mesh: Mesh) -> Any:
    """Return lanes whose arrays lie on the devices of a mesh."""
    arrays, fixed = eqx.partition(lanes, eqx.is_array)
    places = jax.tree.map(lambda spec: NamedSharding(mesh, spec), _specs(arrays))
    return eqx.combine(jax.device_put(arrays, places), fixed)


@eqx.filter_jit
def on_devices(program: Program, mesh: Mesh, lanes: Any, spec: Any, times: Any) -> tuple[Any, Any]:
    """Run a program on every device of a mesh, each with its own lanes."""
    arrays, fixed = eqx.partition(lanes, eqx.is_array)

    def local(arrays: Any, times: Any) -> tuple[Any, Any]:
        after, metrics = program(eqx.combine(arrays, fixed), spec, times)
        everywhere = jax.lax.psum(jnp.asarray(~after.valid, jnp.int32), AXIS) == 0
        return eqx.filter(eqx.tree_at(lambda s: s.valid, after, everywhere), eqx.is_array), metrics

    specs = _specs(arrays)
    mapped = jax.shard_map(local, mesh=mesh, in_specs=(specs, P()), out_specs=(specs, P(AXIS)), check_vma=False)
    arrays, metrics = mapped(arrays, times)
    return eqx.combine(arrays, fixed), metrics


def _specs(arrays: Any) -> Any:
    """Return the axis along which each array of lanes is split; counters and checks are the same everywhere."""
    split = jax.tree.map(lambda _: P(AXIS), arrays)
    common = lambda s: (s.store.rows, s.store.num_added, s.steps, s.clock.updates, s.clock.planned, s.valid)
    return eqx.tree_at(common, split, (P(None, AXIS), P(), P(), P(), P(), P()))
