"""relu(W x + b) for a batch of short inputs.

Such a layer costs a GPU little but the traffic of its outputs. XLA writes the product, reads it, adds b and writes it
again, and does the same on the way back. Here outputs are written once, and their gradient is read once:

    layer        y = relu(x Wᵀ + b)
    gradients    dW = (dy ⊙ 1{y > 0})ᵀ x,   db = Σ dy ⊙ 1{y > 0} over the samples
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

from riskpath.nn.gpu.launch import SMALLEST, block_of, columns, launch, plainly, rows, suits, suits_width, whole

LONGEST = 32
"""Most inputs. With 64 XLA is as fast, with 128 faster."""
ROOM = 20_480
"""At most how many numbers a program holds for its rows of W: each row has a number for every input and sample."""


@custom_vmap
def relu_layer(weight: Float[Array, "H D"], bias: Float[Array, " H"], x: Float[Array, " D"]) -> Float[Array, " H"]:
    """Return relu(W x + b). The kernel is for a batch, so under `vmap`."""
    return jax.nn.relu(weight @ x + bias)


@relu_layer.def_vmap
def _batch(size: int, batched: list[bool], weight: Array, bias: Array, x: Array) -> tuple[Array, bool]:
    if batched == [False, False, True] and suits_width(len(weight)) and suits(size) and x.shape[1] <= LONGEST:
        return layer(*(_padded(one) for one in (weight, x)), bias), True
    return plainly(relu_layer.fun, batched, (weight, bias, x))


def _padded(x: Float[Array, "N D"]) -> Float[Array, "N P"]:
    """Append zeros until the number of inputs is a power of two."""
    size = max(SMALLEST, 1 << (x.shape[1] - 1).bit_length())
    return jnp.pad(x, ((0, 0), (0, size - x.shape[1])))


@jax.custom_vjp
def layer(weight: Float[Array, "H D"], x: Float[Array, "B D"], bias: Float[Array, " H"]) -> Float[Array, "B H"]:
    """Return relu(x Wᵀ + b); differentiable in all three."""
    block = block_of(ROOM, weight, x)
    out = jax.ShapeDtypeStruct((len(x), len(weight)), x.dtype)
    specs = (rows(weight, block), whole(x, block), rows(bias, block))
    return launch(_layer, len(weight) // block, specs, (weight, x, bias), out, columns(out, block))


def _layer(weight: Any, x: Any, bias: Any, out: Any) -> None:
    out[...] = jnp.maximum(jnp.dot(x[...], weight[...].T) + bias[...][None, :], 0.0)


def _forward(*arguments: Array) -> tuple[Array, tuple[Array, ...]]:
    out = layer(*arguments)
    return out, (*arguments, out)


def _backward(saved: tuple[Array, ...], cotangent: Array) -> tuple[Array, Array, Array]:
    weight, x, bias, out = saved
    block = block_of(ROOM, weight, x)
    shapes = tuple(jax.ShapeDtypeStruct(one.shape, one.dtype) for one in (weight, bias))
    specs = (columns(out, block), columns(out, block), whole(x, block))
    places = (rows(weight, block), rows(bias, block))
    d_weight, d_bias = launch(_gradients, len(weight) // block, specs, (cotangent, out, x), shapes, places)
    d_x = jnp.where(out > 0.0, cotangent, 0.0) @ weight  # not computed where it is not needed, so for a first layer
    return d_weight, d_x, d_bias


def _gradients(cotangent: Any, out: Any, x: Any, d_weight: Any, d_bias: Any) -> None:
    slopes = jnp.where(out[...] > 0.0, cotangent[...], 0.0)
    d_weight[...] = jnp.dot(slopes.T, x[...])
    d_bias[...] = jnp.sum(slopes, axis=0)


layer.defvjp(_forward, _backward)
