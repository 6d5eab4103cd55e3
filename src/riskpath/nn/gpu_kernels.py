"""Kernels for NVIDIA GPUs: products with the embedding of levels, and sums over pairs of quantiles.

An update of a wide network is limited by the memory of a GPU, and most of that traffic is the embedding of levels,
φ(τ) = relu(W cos(π i τ) + b): an array of levels × width for every lane, written and read again several times. Here φ
is computed where it is used and never stored, nor is x = ψ ⊙ V_a, the features of a sample times the weights of its
action. Each program works on a block of rows of W:

    product      z = x φᵀ                                  partial sums, which XLA adds up
    gradients    dx = dz φ,   dψ = dx ⊙ V_a,   dV_a = Σ dx ⊙ ψ over the samples of a,   dW = ((xᵀ dz) ⊙ 1{φ > 0}) cos
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
from jaxtyping import Array, Float, Int

from riskpath.nn.cosines import chosen_row
from riskpath.nn.losses import loss_and_slope

BLOCKS = (256, 128, 64, 32)
"""Rows of W that one program works on: the first of these that divides their number and suits the kernel's room."""
PRODUCT_ROOM, GRADIENTS_ROOM, MEAN_ROOM = 40_960, 10_240, 20_480
"""At most how many numbers a program holds for its rows: each row has a number for every level, sample and wave. Larger
rooms share more work, smaller ones let more programs run side by side; these are the fastest for 64 levels and 32
samples."""
SMALLEST, LARGEST = 16, 128
"""Numbers of levels, targets and samples must be powers of two in this range."""
OUTPUTS = 32
"""Most actions."""
WARPS = 4
"""Of a program for a block of W."""
PAIRS = 2_048
"""Pairs of quantiles for each warp. With half or twice as many the update takes 1% to 3% longer."""


def suits(*sizes: int) -> bool:
    """Tell whether there are kernels for these numbers of levels, targets or samples."""
    return all(SMALLEST <= size <= LARGEST and size & (size - 1) == 0 for size in sizes)


def suits_width(width: int) -> bool:
    """Tell whether there are kernels for an embedding with this many outputs."""
    return width % 64 == 0


@custom_vmap
def of_action(
    weight: Float[Array, "H K"],
    bias: Float[Array, " H"],
    waves: Float[Array, "N K"],
    out: Float[Array, "A H"],
    features: Float[Array, " H"],
    action: Int[Array, ""],
) -> Float[Array, " N"]:
    """Return φ (ψ ⊙ V_a) for the levels whose cosines are `waves`. The kernel is for a batch, so under `vmap`."""
    return _phi(weight, bias, waves).T @ (features * chosen_row(out, action))


@of_action.def_vmap
def _batch(size: int, batched: list[bool], *arguments: Array) -> tuple[Array, bool]:
    weight, _, waves, out, _, _ = arguments
    fits = suits_width(len(weight)) and suits(len(waves), size) and len(out) <= OUTPUTS
    if fits and batched == [False] * 4 + [True] * 2:
        return product(*arguments), True
    return jax.vmap(of_action.fun, in_axes=[0 if one else None for one in batched])(*arguments), True


@jax.custom_vjp
def product(
    weight: Float[Array, "H K"],
    bias: Float[Array, " H"],
    waves: Float[Array, "N K"],
    out: Float[Array, "A H"],
    features: Float[Array, "B H"],
    actions: Int[Array, " B"],
) -> Float[Array, "B N"]:
    """Return (ψ ⊙ V_a) φᵀ of every sample; differentiable in W, b, V and ψ."""
    block = _block(PRODUCT_ROOM, weight, waves, features)
    parts = (len(weight) // block, len(features), len(waves))
    place = pl.BlockSpec((None, *parts[1:]), lambda i: (i, 0, 0))
    arguments, shape = (weight, bias, waves, out, features, actions), jax.ShapeDtypeStruct(parts, features.dtype)
    return jnp.sum(_call(_product, block, arguments, shape, place), axis=0)


def _product(weight: Any, bias: Any, waves: Any, out: Any, features: Any, actions: Any, result: Any) -> None:
    phi = jnp.maximum(jnp.dot(waves[...], weight[...].T) + bias[...][None, :], 0.0)
    x = features[...] * _rows_of(out, actions[...])
    result[...] = jnp.dot(phi, x.T).T


def _phi(weight: Array, bias: Array, waves: Array) -> Float[Array, "H N"]:
    """Return φ, transposed."""
    return jnp.maximum(jnp.dot(weight, waves.T) + bias[:, None], 0.0)


def _rows_of(out: Any, actions: Int[Array, " B"]) -> Float[Array, "B H"]:
    """Return V_a of every sample."""
    rows = jnp.broadcast_to(out[0, :][None, :], (len(actions), out.shape[1]))
    for a in range(1, len(out)):
        rows = jnp.where((actions == a)[:, None], out[a, :][None, :], rows)
    return rows


def _forward(*arguments: Array) -> tuple[Array, tuple[Array, ...]]:
    return product(*arguments), arguments


def _backward(saved: tuple[Array, ...], cotangent: Array) -> tuple[Array | None, ...]:
    weight, _, waves, out, features, _ = saved
    block = _block(GRADIENTS_ROOM, weight, waves, features)
    shapes = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (weight, out, features))
    places = (_rows(weight, block), _columns(out, block), _columns(features, block))
    arguments = (*saved, cotangent, waves.T)
    d_weight, d_out, d_features = _call(_gradients, block, arguments, shapes, places)
    return d_weight, d_weight[:, 0], None, d_out, d_features, None  # the first wave is cos(0) = 1


def _gradients(
    weight: Any,
    bias: Any,
    waves: Any,
    out: Any,
    features: Any,
    actions: Any,
    cotangent: Any,
    turned: Any,
    d_weight: Any,
    d_out: Any,
    d_features: Any,
) -> None:
    """Sums run along the rows of arrays in memory, which is faster; therefore the waves are given turned as well."""
    phi, rows = _phi(weight[...], bias[...], waves[...]), _rows_of(out, actions[...])
    d_x = jnp.dot(phi, cotangent[...].T)
    d_features[...] = (d_x * rows.T).T
    terms = d_x * features[...].T
    for a in range(len(out)):
        d_out[a, :] = jnp.sum(jnp.where((actions[...] == a)[None, :], terms, 0.0), axis=1)
    d_phi = jnp.where(phi > 0.0, jnp.dot((features[...] * rows).T, cotangent[...]), 0.0)
    d_weight[...] = jnp.dot(d_phi, turned[...].T)


product.defvjp(_forward, _backward)


@jax.custom_vjp
def mean(weight: Float[Array, "H K"], bias: Float[Array, " H"], waves: Float[Array, "N K"]) -> Float[Array, " H"]:
    """Return the mean of φ over the levels. Its gradient is hardly ever needed and has no kernel."""
    block = _block(MEAN_ROOM, weight, waves)
    return _call(_mean, block, (weight, bias, waves), jax.ShapeDtypeStruct(bias.shape, bias.dtype), _rows(bias, block))


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


def _block(room: int, weight: Any, *others: Any) -> int:
    """Return how many rows of W a program works on, for these levels and samples."""
    numbers = weight.shape[1] + sum(map(len, others))
    return next(size for size in BLOCKS if len(weight) % size == 0 and (size * numbers <= room or size == BLOCKS[-1]))


def _rows(x: Any, block: int) -> pl.BlockSpec:
    return pl.BlockSpec((block, *x.shape[1:]), lambda i: (i, *[0] * (x.ndim - 1)))


def _columns(x: Any, block: int) -> pl.BlockSpec:
    return pl.BlockSpec((len(x), block), lambda i: (0, i))


def _whole(x: Any, block: int) -> pl.BlockSpec:
    return pl.BlockSpec(x.shape, lambda i: (0,) * x.ndim)


def _call(kernel: Any, block: int, arguments: tuple[Array, ...], out: Any, places: Any) -> Any:
    """Run a kernel for every block of W. Of its arguments, `mean` has the first three and `product` the first six."""
    kinds = (_rows, _rows, _whole, _columns, _columns, _whole, _whole, _whole)
    specs = [kind(x, block) for kind, x in zip(kinds, arguments, strict=False)]
    made = functools.partial(pl.pallas_call, kernel, out_shape=out, in_specs=specs, out_specs=places)
    return _run(functools.partial(made, grid=(len(arguments[0]) // block,)), WARPS, arguments)


def _run(made: Any, warps: int, arguments: tuple[Array, ...]) -> Any:
    compiled = made(compiler_params=triton.CompilerParams(num_warps=warps, num_stages=1))
    return jax.lax.platform_dependent(*arguments, cuda=compiled, default=made(interpret=True))
