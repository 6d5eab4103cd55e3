"""How the kernels are launched: the sizes that they accept, their blocks, and compilation by Triton.

Kernels are interpreted on other devices, for tests.
"""

import functools
from typing import Any

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array

BLOCKS = (256, 128, 64, 32)
"""Rows of W that one program works on: the first of these that divides their number and suits the kernel's room."""
SMALLEST, LARGEST = 16, 128
"""Numbers of levels, targets and samples must be powers of two in this range."""
WARPS = 4
"""Of a program for a block of W."""


def suits(*sizes: int) -> bool:
    """Tell whether there are kernels for these numbers of levels, targets or samples."""
    return all(SMALLEST <= size <= LARGEST and size & (size - 1) == 0 for size in sizes)


def suits_width(width: int) -> bool:
    """Tell whether there are kernels for a layer with this number of outputs."""
    return width % 64 == 0


def block_of(room: int, weight: Any, *others: Any) -> int:
    """Return how many rows of W a program works on, if it holds a number for every input and every other row."""
    numbers = weight.shape[1] + sum(map(len, others))
    return next(size for size in BLOCKS if len(weight) % size == 0 and (size * numbers <= room or size == BLOCKS[-1]))


def plainly(function: Any, batched: list[bool], arguments: tuple[Array, ...]) -> tuple[Array, bool]:
    """Answer a rule of `custom_vmap` for which there is no kernel: with `vmap` itself."""
    return jax.vmap(function, in_axes=[0 if one else None for one in batched])(*arguments), True


def rows(x: Any, block: int) -> pl.BlockSpec:
    """Give program i the i-th block of rows."""
    return pl.BlockSpec((block, *x.shape[1:]), lambda i: (i, *[0] * (x.ndim - 1)))


def columns(x: Any, block: int) -> pl.BlockSpec:
    """Give program i the i-th block of columns."""
    return pl.BlockSpec((len(x), block), lambda i: (0, i))


def whole(x: Any, block: int) -> pl.BlockSpec:
    """Give every program the whole array."""
    return pl.BlockSpec(x.shape, lambda i: (0,) * x.ndim)


def launch(kernel: Any, programs: int, specs: Any, arguments: tuple[Array, ...], out: Any, places: Any) -> Any:
    """Run a kernel for every block."""
    made = functools.partial(pl.pallas_call, kernel, out_shape=out, in_specs=list(specs), out_specs=places)
    return run(functools.partial(made, grid=(programs,)), WARPS, arguments)


def run(made: Any, warps: int, arguments: tuple[Array, ...]) -> Any:
    """Run a kernel with this number of warps; on other devices interpret it."""
    compiled = made(compiler_params=triton.CompilerParams(num_warps=warps, num_stages=1))
    return jax.lax.platform_dependent(*arguments, cuda=compiled, default=made(interpret=True))
