"""Select hand-written GPU kernels instead of XLA's, where `Network.gpu_kernels` asks for them.

Some of them are for a whole batch: `vmap` over samples becomes one kernel. JAX can differentiate the mean over a batch
of those, but not the function of one sample; so they are used only in a loss that is mapped by `over_batch`, which must
not take gradients of a network itself.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import jax
from jaxtyping import Array, Float

BATCH = "batch"
"""The name of the axis of samples."""
_used: contextvars.ContextVar[ModuleType | None] = contextvars.ContextVar("used", default=None)


def gpu_kernels() -> ModuleType | None:
    """Return the package `nn.gpu` if its kernels are used here, else None."""
    return _used.get()


@contextlib.contextmanager
def use_kernels(package: ModuleType | None) -> Iterator[None]:
    """Use the kernels of a package inside, or none."""
    token = _used.set(package)
    try:
        yield
    finally:
        _used.reset(token)


def over_batch(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of a batch for that of a sample; in it, kernels for a batch can be used."""
    return jax.vmap(loss, axis_name=BATCH)


def batch_kernels() -> ModuleType | None:
    """Return the package if kernels are used and this is the loss of a batch, else None."""
    if _used.get() is not None:
        with contextlib.suppress(NameError):  # there is no such axis
            jax.lax.axis_index(BATCH)
            return _used.get()
    return None


def of_sample(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return x as an array that each sample of the batch has for itself, also where all samples share it."""
    return x + (0 * jax.lax.axis_index(BATCH)).astype(x.dtype)
