"""Kernels for NVIDIA GPUs: products with the embedding of levels, and sums over pairs of quantiles.

An update of a wide network is limited by the memory of a GPU, and most of that traffic is the embedding of levels,
φ(τ) = relu(W cos(π i τ) + b): an array of levels × width for every lane, written and read again several times. Here φ
is computed where it is used and never stored. Each program works on a block of rows of W:

    product      z = x φᵀ                                  partial sums, which XLA adds up
    gradients    dx = dz φ,   dW = ((dzᵀ x) ⊙ 1{φ > 0})ᵀ cos
    mean         the mean of φ over the levels

The quantile loss compares all pairs of a prediction and a target. One program has all pairs of one sample in its
registers; XLA's sums over rows exchange numbers between threads for every row.

Kernels are interpreted on other devices, for tests.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from riskpath.nn.losses import loss_and_slope

BLOCKS = (128, 64)
"""Rows of W that one program works on: the first of these that divides their number."""
SMALLEST, LARGEST = 16, 128
"""Other sizes must be powers of two in this range."""
WARPS = 4
"""Of a program for a block of W; 8 take 12% longer for the whole update of 512 lanes, 2 with blocks of 64 rows 4%."""
PAIRS = 2_048
"""Pairs of quantiles for each warp. With half or twice as many the update takes 1% to 3% longer."""


def suits(*sizes: int) -> bool:
    """Tell whether there are kernels for these numbers of levels, targets or samples."""
    return all(SMALLEST <= size <= LARGEST and size & (size - 1) == 0 for size in sizes)


def suits_width(width: int) -> bool:
    """Tell whether there are kernels for an embedding with this many outputs."""
    return width % BLOCKS[-1] == 0


@custom_vmap
def dot(
    weight: Float[Array, "H K"], bias: Float[Array, " H"], waves: Float[Array, "N K"], x: Float[Array, " H"]
) -> Float[Array, " N"]:
    """Return φ x for the levels whose cosines are `waves`. The kernel is for a batch of x, so under `vmap`."""
    return _phi(weight, bias, waves).T @ x


@dot.def_vmap
def _batch(size: int, batched: list[bool], *arguments: Array) -> tuple[Array, bool]:
    weight, _, waves, _ = arguments
    if batched == [False, False, False, True] and suits_width(len(weight)) and suits(len(waves), size):
        return product(*arguments), True
    return jax.vmap(dot.fun, in_axes=[0 if one else None for one in batched])(*arguments), True


@jax.custom_vjp
def product(
    weight: Float[Array, "H K"], bias: Float[Array, " H"], waves: Float[Array, "N K"], x: Float[Array, "B H"]
) -> Float[Array, "B N"]:
    """Return x φᵀ; differentiable in W, b and x."""
    parts = (len(weight) // _block(weight), len(x), len(waves))
    place = pl.BlockSpec((None, *parts[1:]), lambda i: (i, 0, 0))
    return jnp.sum(_call(_product, (weight, bias, waves, x), jax.ShapeDtypeStruct(parts, x.dtype), place), axis=0)


def _product(weight: Any, bias: Any, waves: Any, x: Any, out: Any) -> None:
    out[...] = jnp.dot(x[...], _phi(weight[...], bias[...], waves[...]))


def _phi(weight: Array, bias: Array, waves: Array) -> Float[Array, "H N"]:
    """Return φ, transposed."""
    return jnp.maximum(jnp.dot(weight, waves.T) + bias[:, None], 0.0)


def _forward(*arguments: Array) -> tuple[Array, tuple[Array, ...]]:
    return product(*arguments), arguments


def _backward(saved: tuple[Array, ...], cotangent: Array) -> tuple[Array, ...]:
    weight, _, waves, x = saved
    shapes = (jax.ShapeDtypeStruct(weight.shape, weight.dtype), jax.ShapeDtypeStruct(x.shape, x.dtype))
    block = _block(weight)
    d_weight, d_x = _call(_gradients, (*saved, cotangent), shapes, (_rows(weight, block), _columns(x, block)))
    return d_weight, d_weight[:, 0], jnp.zeros_like(waves), d_x  # the first wave is cos(0) = 1


def _gradients(weight: Any, bias: Any, waves: Any, x: Any, cotangent: Any, d_weight: Any, d_x: Any) -> None:
    phi = _phi(weight[...], bias[...], waves[...])
    d_x[...] = jnp.dot(cotangent[...], phi.T)
    d_phi = jnp.where(phi > 0.0, jnp.dot(x[...].T, cotangent[...]), 0.0)
    d_weight[...] = jnp.dot(d_phi, waves[...])


product.defvjp(_forward, _backward)


@jax.custom_vjp
def mean(weight: Float[Array, "H K"], bias: Float[Array, " H"], waves: Float[Array, "N K"]) -> Float[Array, " H"]:
    """Return the mean of φ over the levels. Its gradient is hardly ever needed and has no kernel."""
    out = jax.ShapeDtypeStruct(bias.shape, bias.dtype)
    return _call(_mean, (weight, bias, waves), out, _rows(bias, _block(weight)))


def _mean(weight: Any, bias: Any, waves: Any, out: Any) -> None:
    out[...] = jnp.sum(_phi(weight[...], bias[...], waves[...]), axis=1) * (1.0 / waves.shape[0])


def _plain_mean(weight: Array, bias: Array, waves: Array) -> Array:
    return jnp.mean(_phi(weight, bias, waves), axis=1)


mean.defvjp(
    lambda *arguments: (mean(*arguments), arguments),
    lambda saved, cotangent: jax.vjp(_plain_mean, *saved)[1](cotangent),
)


def pair_sums(
    predicted: Float[Array, " N"],
    taus: Float[Array, " N"],
    target: Float[Array, " M"],
    kappa: Float[Array, ""],
    share: Float[Array, " M"],
) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Return Σⱼ pⱼ ρ^κ_{τᵢ}(yⱼ − θᵢ) and its derivative by yⱼ − θᵢ, for every prediction."""
    out = (jax.ShapeDtypeStruct(predicted.shape, predicted.dtype),) * 2
    made = functools.partial(pl.pallas_call, _pair_sums, out_shape=out)
    warps = max(1, len(predicted) * len(target) // PAIRS)
    return _run(made, warps, (predicted, taus, target, kappa[None], share))


def _pair_sums(predicted: Any, taus: Any, target: Any, kappa: Any, share: Any, loss: Any, slope: Any) -> None:
    """Targets are rows, so that each thread adds up its own columns."""
    error = target[...][:, None] - predicted[...][None, :]
    losses, slopes = loss_and_slope(error, taus[...][None, :], kappa[0])
    loss[...] = jnp.sum(share[...][:, None] * losses, axis=0)
    slope[...] = jnp.sum(share[...][:, None] * slopes, axis=0)


def _block(weight: Any) -> int:
    return next(size for size in BLOCKS if len(weight) % size == 0)


def _rows(x: Any, block: int) -> pl.BlockSpec:
    return pl.BlockSpec((block, *x.shape[1:]), lambda i: (i, *[0] * (x.ndim - 1)))


def _columns(x: Any, block: int) -> pl.BlockSpec:
    return pl.BlockSpec((len(x), block), lambda i: (0, i))


def _whole(x: Any, block: int) -> pl.BlockSpec:
    return pl.BlockSpec(x.shape, lambda i: (0,) * x.ndim)


def _call(kernel: Any, arguments: tuple[Array, ...], out: Any, places: Any) -> Any:
    """Run a kernel of W, b, the cosines and, where they are given, x and the cotangent, for every block of W."""
    block = _block(arguments[0])
    kinds = (_rows, _rows, _whole, _columns, _whole)
    specs = [kind(x, block) for kind, x in zip(kinds, arguments, strict=False)]
    made = functools.partial(pl.pallas_call, kernel, out_shape=out, in_specs=specs, out_specs=places)
    return _run(functools.partial(made, grid=(len(arguments[0]) // block,)), WARPS, arguments)


def _run(made: Any, warps: int, arguments: tuple[Array, ...]) -> Any:
    compiled = made(compiler_params=triton.CompilerParams(num_warps=warps, num_stages=1))
    return jax.lax.platform_dependent(*arguments, cuda=compiled, default=made(interpret=True))
