"""Products with the embedding of levels.

An update of a wide network is limited by the memory of a GPU, and most of that traffic is the embedding of levels,
φ(τ) = relu(W cos(π i τ) + b): an array of levels × width for every lane, written and read again several times. Here φ
is computed where it is used and never stored, nor is x = ψ ⊙ V_a, the features of a sample times the weights of its
action. Each program works on a block of rows of W:

    product      z = x φᵀ                                  partial sums, which XLA adds up
    gradients    dx = dz φ,   dψ = dx ⊙ V_a,   dV_a = Σ dx ⊙ ψ over the samples of a,   dW = ((xᵀ dz) ⊙ 1{φ > 0}) cos
    mean         the mean of φ over the levels
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int

from riskpath.nn.cosines import chosen_row
from riskpath.nn.gpu.launch import block_of, columns, launch, plainly, rows, suits, suits_width, whole

PRODUCT_ROOM, SMALL_PRODUCT_ROOM, MEAN_ROOM = 40_960, 12_288, 20_480
"""At most how many numbers a program holds for its rows: each row has a number for every level, sample and wave. Larger
rooms share more work, smaller ones let more programs run side by side. These are the fastest of those tried; a small
product, of less than 64 × 32 outputs, can take ten times as long with too large a block."""
GRADIENTS_BLOCK = 64
"""Rows of W of a program for the gradients; for all numbers of levels and samples within a fifth of the fastest."""
OUTPUTS = 8
"""Most actions. With 16 of them, and 32 levels and samples, XLA is faster."""


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
    return plainly(of_action.fun, batched, arguments)


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
    room = PRODUCT_ROOM if len(waves) * len(features) >= 64 * 32 else SMALL_PRODUCT_ROOM
    block = block_of(room, weight, waves, features)
    parts = (len(weight) // block, len(features), len(waves))
    place = pl.BlockSpec((None, *parts[1:]), lambda i: (i, 0, 0))
    arguments, shape = (weight, bias, waves, out, features, actions), jax.ShapeDtypeStruct(parts, features.dtype)
    return jnp.sum(_call(_product, block, arguments, shape, place), axis=0)


def _product(weight: Any, bias: Any, waves: Any, out: Any, features: Any, actions: Any, result: Any) -> None:
    phi = jnp.maximum(jnp.dot(waves[...], weight[...].T) + bias[...][None, :], 0.0)
    x = features[...] * _weights_of(out, actions[...])
    result[...] = jnp.dot(phi, x.T).T


def _phi(weight: Array, bias: Array, waves: Array) -> Float[Array, "H N"]:
    """Return φ, transposed."""
    return jnp.maximum(jnp.dot(weight, waves.T) + bias[:, None], 0.0)


def _weights_of(out: Any, actions: Int[Array, " B"]) -> Float[Array, "B H"]:
    """Return V_a of every sample."""
    chosen = jnp.broadcast_to(out[0, :][None, :], (len(actions), out.shape[1]))
    for a in range(1, len(out)):
        chosen = jnp.where((actions == a)[:, None], out[a, :][None, :], chosen)
    return chosen


def _forward(*arguments: Array) -> tuple[Array, tuple[Array, ...]]:
    return product(*arguments), arguments


def _backward(saved: tuple[Array, ...], cotangent: Array) -> tuple[Array | None, ...]:
    weight, _, waves, out, features, _ = saved
    shapes = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (weight, out, features))
    places = (rows(weight, GRADIENTS_BLOCK), *(columns(x, GRADIENTS_BLOCK) for x in (out, features)))
    arguments = (*saved, cotangent, waves.T)
    d_weight, d_out, d_features = _call(_gradients, GRADIENTS_BLOCK, arguments, shapes, places)
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
    phi, weights = _phi(weight[...], bias[...], waves[...]), _weights_of(out, actions[...])
    d_x = jnp.dot(phi, cotangent[...].T)
    d_features[...] = (d_x * weights.T).T
    terms = d_x * features[...].T
    for a in range(len(out)):
        d_out[a, :] = jnp.sum(jnp.where((actions[...] == a)[None, :], terms, 0.0), axis=1)
    d_phi = jnp.where(phi > 0.0, jnp.dot((features[...] * weights).T, cotangent[...]), 0.0)
    d_weight[...] = jnp.dot(d_phi, turned[...].T)


product.defvjp(_forward, _backward)


@jax.custom_vjp
def mean(weight: Float[Array, "H K"], bias: Float[Array, " H"], waves: Float[Array, "N K"]) -> Float[Array, " H"]:
    """Return the mean of φ over the levels. Its gradient is hardly ever needed and has no kernel."""
    block = block_of(MEAN_ROOM, weight, waves)
    return _call(_mean, block, (weight, bias, waves), jax.ShapeDtypeStruct(bias.shape, bias.dtype), rows(bias, block))


def _mean(weight: Any, bias: Any, waves: Any, out: Any) -> None:
    out[...] = jnp.sum(_phi(weight[...], bias[...], waves[...]), axis=1) * (1.0 / waves.shape[0])


def _plain_mean(weight: Array, bias: Array, waves: Array) -> Array:
    return jnp.mean(_phi(weight, bias, waves), axis=1)


mean.defvjp(
    lambda *arguments: (mean(*arguments), arguments),
    lambda saved, cotangent: jax.vjp(_plain_mean, *saved)[1](cotangent),
)


def _call(kernel: Any, block: int, arguments: tuple[Array, ...], out: Any, places: Any) -> Any:
    """Run a kernel for every block of W. Of its arguments, `mean` has the first three and `product` the first six."""
    kinds = (rows, rows, whole, columns, columns, whole, whole, whole)
    specs = [kind(x, block) for kind, x in zip(kinds, arguments, strict=False)]
    return launch(kernel, len(arguments[0]) // block, specs, arguments, out, places)
