"""The quantile Huber loss of one sample, and quantile levels."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from riskpath.nn.kernels import gpu_kernels
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
    kernels = gpu_kernels()
    if kernels is not None and kernels.suits(len(predicted), len(target)):
        share = jnp.full(target.shape, 1.0 / len(target)) if probs is None else probs
        loss, slope = kernels.pair_sums(predicted, taus, target, jnp.asarray(kappa), share)
    else:
        pairs = loss_and_slope(target[None, :] - predicted[:, None], taus[:, None], kappa)
        loss, slope = (_mean_of_rows(one, probs) for one in pairs)
    return jnp.sum(loss), (-slope, (taus, target, kappa, probs))


def loss_and_slope(error: Array, taus: Array, kappa: Array | float) -> tuple[Array, Array]:
    """Return ρ^κ_τ(u) of errors u and its derivative by u."""
    clipped = jnp.clip(error * (1.0 / kappa), -1.0, 1.0)  # one division, not one for each pair
    # |τ − 1{u<0}| c = τ c + (1 − 2τ) min(c, 0). A comparison would be stored for all pairs on a GPU.
    slope = taus * clipped + (1.0 - 2.0 * taus) * jnp.minimum(clipped, 0.0)
    # L_κ(u)/κ = c (u − ½κ c), so both sums are over products with the same slope.
    return slope * (error - 0.5 * kappa * clipped), slope


def _mean_of_rows(pairs: Float[Array, "N M"], probs: Float[Array, " M"] | None) -> Float[Array, " N"]:
    """Return the mean of each row. On a CPU only a product is vectorised; on a GPU it would store all pairs."""
    if probs is not None:
        return pairs @ probs
    ones = jnp.full(pairs.shape[1:], 1.0 / pairs.shape[1])
    return jax.lax.platform_dependent(pairs, cpu=lambda x: x @ ones, default=lambda x: jnp.mean(x, axis=1))


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
    return in_parts(jax.random.uniform(key, (count,)))


def in_parts(draws: Float[Array, " N"]) -> Float[Array, " N"]:
    """Return uniform draws as levels, one in each of N equal parts of [0, 1]."""
    return (jnp.arange(len(draws), dtype=jnp.float32) + draws) / len(draws)


def sample_quantiles(atoms: Float[Array, "K *A"], taus: Float[Array, " N"]) -> Float[Array, "N *A"]:
    """Return F⁻¹(τ) of K equally likely atoms, along the first axis."""
    count = atoms.shape[0]
    ranks = jnp.clip(jnp.ceil(taus * count).astype(jnp.int32) - 1, 0, count - 1)
    return jnp.sort(atoms, axis=0)[ranks]
