"""The quantile Huber loss of one sample, and quantile levels."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from riskpath.types import Key


@jax.custom_vjp
def quantile_huber(
    predicted: Float[Array, " N"],
    taus: Float[Array, " N"],
    target: Float[Array, " M"],
    kappa: Float[Array, ""] | float,
    probs: Float[Array, " M"] | None = None,
) -> Float[Array, ""]:
    """Return Σᵢ Σⱼ pⱼ ρ^κ_{τᵢ}(yⱼ − θᵢ), with ρ^κ_τ(u) = |τ − 1{u<0}| L_κ(u) / κ; differentiable in θ only.

    κ is in the units of the return. If it is large compared with their spread, the loss learns expectiles. By default
    all targets are equally likely.
    """
    return _forward(predicted, taus, target, kappa, probs)[0]


def _forward(
    predicted: Array, taus: Array, target: Array, kappa: Array | float, probs: Array | None
) -> tuple[Array, tuple[Array, Any]]:
    """Return the loss and its gradient, −Σⱼ pⱼ |τᵢ − 1{u<0}| clip(u/κ, −1, 1), from one pass over all pairs."""
    error = target[None, :] - predicted[:, None]
    clipped = jnp.clip(error / kappa, -1.0, 1.0)
    slope = jnp.abs(taus[:, None] - jnp.where(error < 0, 1.0, 0.0)) * clipped
    # L_κ(u)/κ = clip(u/κ)·(u − ½κ·clip(u/κ)), so both sums are over products with the same slope.
    slopes, losses = _means_of_rows(slope, slope * (error - 0.5 * kappa * clipped), probs)
    return jnp.sum(losses), (-slopes, (taus, target, kappa, probs))


def _means_of_rows(
    x: Float[Array, "N M"], y: Float[Array, "N M"], probs: Float[Array, " M"] | None
) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Return the mean of each row of both arrays.

    On a CPU only a product is vectorised. On a GPU it would store all pairs; one reduction of both stores none of them.
    """
    if probs is not None:
        return x @ probs, y @ probs
    ones = jnp.full(x.shape[1:], 1.0 / x.shape[1])
    return jax.lax.platform_dependent(x, y, cpu=lambda x, y: (x @ ones, y @ ones), default=_reduce_both)


def _reduce_both(x: Float[Array, "N M"], y: Float[Array, "N M"]) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Return the mean of each row of both arrays, from one reduction."""
    zero, count = jnp.zeros(()), x.shape[1]
    x, y = jax.lax.reduce((x, y), (zero, zero), lambda a, b: (a[0] + b[0], a[1] + b[1]), (1,))
    return x / count, y / count


def _backward(saved: tuple[Array, Any], cotangent: Array) -> tuple[Array | None, ...]:
    gradient, others = saved
    # Targets and levels get no gradient.
    return cotangent * gradient, *jax.tree.map(jnp.zeros_like, others)


quantile_huber.defvjp(_forward, _backward)


def midpoints(count: int) -> Float[Array, " count"]:
    """Return the fixed levels (i + ½)/count."""
    return (jnp.arange(count, dtype=jnp.float32) + 0.5) / count


def stratified(count: int, *, key: Key) -> Float[Array, " count"]:
    """Draw one uniform level from each of `count` equal parts of [0, 1]; less noisy than independent draws."""
    return (jnp.arange(count, dtype=jnp.float32) + jax.random.uniform(key, (count,))) / count


def sample_quantiles(atoms: Float[Array, "K *A"], taus: Float[Array, " N"]) -> Float[Array, "N *A"]:
    """Return F⁻¹(τ) of K equally likely atoms, along the first axis."""
    count = atoms.shape[0]
    ranks = jnp.clip(jnp.ceil(taus * count).astype(jnp.int32) - 1, 0, count - 1)
    return jnp.sort(atoms, axis=0)[ranks]
