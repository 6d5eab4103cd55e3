"""What the benchmarks of speed train: agents and sizes, one process on one core, and what its rates depend on."""

import contextlib
import dataclasses
import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import riskpath as rp
from riskpath.agents.config import ActorCritic
from riskpath.nn.kernels import use_kernels
from riskpath.training import fused_loop
from riskpath.training.inputs import as_environment
from riskpath.training.lanes import Lanes, start

RESULTS = Path(__file__).parents[1] / "results"
AGENTS = {
    "IQN": rp.IQN,
    "CVaR-DRL": rp.CVaRDRL,
    "TQL joint": lambda *args, **kw: rp.TQL(*args, critic="joint", **kw),
    "TQL trajectory": lambda *args, **kw: rp.TQL(*args, critic="trajectory", **kw),
    "TQL convolved": lambda *args, **kw: rp.TQL(*args, critic="convolved", **kw),
    "QR-SRM": rp.QRSRM,
    "Adaptive": rp.Adaptive,
}
CONTINUOUS = {"IQTD3": rp.IQTD3, "TQL continuous": rp.TQLContinuous, "Adaptive continuous": rp.AdaptiveContinuous}
OWN_HEAD = ("QR-SRM", "Adaptive")
"""Agents whose networks end in their own way; their rates stand beside those of factored heads."""
STEPS_PER_CHUNK = 200
"""Gradient steps between two looks at the clock."""


class Size(NamedTuple):
    """The sizes of agents with discrete actions, and of the peers."""

    name: str
    width: int
    quantiles: int
    compared: int
    """Number of seeds with which the peers are compared."""
    batch: int = 32
    buffer_size: int = 10_000
    learning_starts: int = 200
    target_update_interval: int = 100

    def __str__(self) -> str:
        return f"{self.width} wide, {self.quantiles} quantiles"

    def agent(self, name: str, head: Any = "factored") -> rp.Agent:
        """Make an agent of this size."""
        training = rp.Training(
            batch_size=self.batch,
            num_quantiles=self.quantiles,
            num_target_quantiles=self.quantiles,
            buffer_size=self.buffer_size,
            learning_starts=self.learning_starts,
            target_update_interval=self.target_update_interval,
        )
        return AGENTS[name](rp.CVaR(0.25), network=rp.Network(hidden=(self.width,), head=head), training=training)


class ContinuousSize(NamedTuple):
    """The size of agents with continuous actions."""

    name: str = "continuous"
    width: int = 128
    quantiles: int = 32
    batch: int = 256
    buffer_size: int = 20_000

    def __str__(self) -> str:
        return f"{self.width} wide, batch {self.batch}"

    def agent(self, name: str, head: Any = "factored") -> rp.Agent:
        """Make an agent of this size."""
        own = CONTINUOUS[name]().training  # the interval of target updates, at which Adaptive renews its plan
        sizes: dict[str, Any] = {"batch_size": self.batch, "buffer_size": self.buffer_size, "learning_starts": 800}
        training = dataclasses.replace(own, **sizes)
        network = rp.Network(hidden=(self.width, self.width), window=10 if "TQL" in name else None, head=head)
        return CONTINUOUS[name](rp.CVaR(0.25), network=network, training=training)


PAPER = Size("paper", width=512, quantiles=64, compared=1)
SMALL = Size("small", width=64, quantiles=32, compared=8)
SIZES: dict[str, Size | ContinuousSize] = {size.name: size for size in (PAPER, SMALL, ContinuousSize())}


def begin(agent: rp.Agent, lanes: int) -> tuple[Lanes, Any]:
    """Return the state before learning, and the spec of the environment."""
    continuous = agent.actions == "continuous"
    environment = as_environment(rp.RiskyMountainCar(0.5, 300) if continuous else "RiskyGrid")
    return start([agent], [environment], lanes, 4 if continuous else 1, 0), environment.spec


def kernels(plain: bool = False) -> contextlib.AbstractContextManager[None]:
    """Use the kernels for GPUs on a GPU, as `rp.Network(gpu_kernels=True)` does, unless the program is to be plain."""
    if plain or jax.default_backend() == "cpu":
        return contextlib.nullcontext()
    from riskpath.nn import gpu

    return use_kernels(gpu)


def work(agent: rp.Agent, lanes: int) -> Iterator[int]:
    """Train, and yield the gradient steps of all lanes after every chunk."""
    state, spec = begin(agent, lanes)
    training = agent.training
    assert isinstance(training, rp.Training)
    state, _ = fused_loop.warm_up(state, spec, jnp.asarray(training.learning_starts, jnp.int32))
    delay = agent.actor.policy_delay if isinstance(agent, ActorCritic) else 1
    steps_per_round = training.target_update_interval * delay
    rounds = max(1, STEPS_PER_CHUNK // steps_per_round)
    while True:
        with kernels():
            state, _ = jax.block_until_ready(fused_loop.chunk(state, spec, jnp.asarray(rounds, jnp.int32)))
        yield rounds * steps_per_round * lanes


def on_one_core() -> None:
    """Start this program anew on one core of a CPU: XLA sizes its pools of threads once, when it starts."""
    if jax.default_backend() != "cpu" or not hasattr(os, "sched_setaffinity"):
        return
    allowed, one_thread = os.sched_getaffinity(0), {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    if len(allowed) > 1 or one_thread.items() - os.environ.items():
        os.sched_setaffinity(0, {max(allowed)})
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **one_thread})


def machine() -> dict[str, Any]:
    """Return what the rates depend on besides the code."""
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else []
    packages = ["jax", "jaxlib", "equinox", "optax", "numpy"]
    return {
        "device": jax.devices()[0].device_kind,
        "processor": names[0] if names else platform.processor(),
        "cores_allowed": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "versions": {"riskpath": rp.__version__} | {name: importlib.metadata.version(name) for name in packages},
    }
