"""Where kernels written by hand are used instead of XLA's: on recent NVIDIA GPUs, except in exported programs.

Some of them are for a whole batch: `vmap` over samples becomes one kernel. JAX can differentiate the mean over a batch
of those, but not the function of one sample; so they are used only in the loss of a batch (`over_batch`). A loss that
itself takes the gradient of a network has to do so in `without_kernels`.
"""

import contextlib
import contextvars
import functools
import importlib
from collections.abc import Iterator
from types import ModuleType

import jax
from jaxtyping import Array

OLDEST = 8.0
"""The compute capability that they need."""
_portable = contextvars.ContextVar("portable", default=False)
_in_batch = contextvars.ContextVar("in_batch", default=False)


def gpu_kernels() -> ModuleType | None:
    """Return the package `nn.gpu`, or None where its kernels cannot be used."""
    return None if _portable.get() else _load()


def batch_kernels(x: Array) -> ModuleType | None:
    """Return the same in the loss of a batch, for an argument that differs between its samples; else None."""
    return gpu_kernels() if _in_batch.get() and type(x).__name__ == "BatchTracer" else None  # JAX's class is private


@contextlib.contextmanager
def _true(variable: contextvars.ContextVar[bool]) -> Iterator[None]:
    token = variable.set(True)
    try:
        yield
    finally:
        variable.reset(token)


def over_batch() -> contextlib.AbstractContextManager[None]:
    """Use kernels for a whole batch inside: for a `vmap` over samples whose result is differentiated outside of it."""
    return _true(_in_batch)


def without_kernels() -> contextlib.AbstractContextManager[None]:
    """Use none inside, for programs that other machines will run."""
    return _true(_portable)


@functools.cache
def _load() -> ModuleType | None:
    device = jax.devices()[0]
    if not device.device_kind.startswith("NVIDIA") or float(device.compute_capability) < OLDEST:
        return None
    return importlib.import_module("riskpath.nn.gpu")  # takes a second, so only where it is used
