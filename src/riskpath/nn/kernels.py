"""Where kernels written by hand are used instead of XLA's: on recent NVIDIA GPUs, except in exported programs."""

import contextlib
import contextvars
import functools
import importlib
from collections.abc import Iterator
from types import ModuleType

import jax

OLDEST = 8.0
"""The compute capability that they need."""
_portable = contextvars.ContextVar("portable", default=False)


def gpu_kernels() -> ModuleType | None:
    """Return the package `nn.gpu`, or None where its kernels cannot be used."""
    return None if _portable.get() else _load()


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """Use none inside, for programs that other machines will run."""
    token = _portable.set(True)
    try:
        yield
    finally:
        _portable.reset(token)


@functools.cache
def _load() -> ModuleType | None:
    device = jax.devices()[0]
    if not device.device_kind.startswith("NVIDIA") or float(device.compute_capability) < OLDEST:
        return None
    return importlib.import_module("riskpath.nn.gpu")  # takes a second, so only where it is used
