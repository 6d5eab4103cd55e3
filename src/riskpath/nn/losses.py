"""The quantile Huber loss of one sample, and quantile levels."""

import functools
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

    κ is in the units of the return. If it is large compared with the scale of the returns, the loss learns expectiles.
    By default all targets are equally likely.
    """
    return _forward(predicted, taus, target, kappa, probs)[0]


def _forward(
    predicted: Array, taus: Array, target: Array, kappa: Array | float, probs: Array | None
) -> tuple[Array, tuple[Array, Any]]:
    """Return the loss and its gradient, −Σⱼ pⱼ |τᵢ − 1{u<0}| clip(u/κ, −1, 1), from one pass over all pairs."""
    kernels = gpu_kernels()
    share = jnp.full(target.shape, 1.0 / len(target)) if probs is None else probs
    arguments = (predicted, taus, target, jnp.asarray(kappa, predicted.dtype), share)
    if kernels is not None and kernels.suits(len(predicted), len(target)):
        loss, slope = kernels.pair_sums(*arguments)
    else:
        at_once = functools.partial(_all_pairs, equal=probs is None)
        loss, slope = jax.lax.platform_dependent(*arguments, cpu=_target_by_target, default=at_once)
    return jnp.sum(loss), (-slope, (taus, target, kappa, probs))


def _all_pairs(
    predicted: Array, taus: Array, target: Array, kappa: Array, share: Array, equal: bool
) -> tuple[Array, Array]:
    """Return the loss and the slope of every prediction.

    A mean stores no pairs on a GPU, a product does; but XLA compiles sums of `pairs * share` of 256 levels for minutes.
    """
    pairs = loss_and_slope(target[None, :] - predicted[:, None], taus[:, None], kappa)
    loss, slope = (jnp.mean(one, axis=1) if equal else one @ share for one in pairs)
    return loss, slope


def _target_by_target(predicted: Array, taus: Array, target: Array, kappa: Array, share: Array) -> tuple[Array, Array]:
    """Return the same without storing pairs; on a CPU up to twice as fast."""
    together = next(number for number in (4, 2, 1) if len(target) % number == 0)
    groups = target.reshape(-1, together), share.reshape(-1, together)

    def add(i: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        loss, slope = sums
        for one, weight in zip(groups[0][i], groups[1][i], strict=True):
            losses, slopes = loss_and_slope(one - predicted, taus, kappa)
            loss, slope = loss + weight * losses, slope + weight * slopes
        return loss, slope

    return jax.lax.fori_loop(0, len(groups[0]), add, (jnp.zeros_like(predicted),) * 2)


def loss_and_slope(error: Array, taus: Array, kappa: Array | float) -> tuple[Array, Array]:
    """Return ρ^κ_τ(u) of errors u and its derivative by u."""
    clipped = jnp.clip(error * (1.0 / kappa), -1.0, 1.0)  # one division, not one for each pair
    # |τ − 1{u<0}| c = τ c + (1 − 2τ) min(c, 0). A comparison would be stored for all pairs on a GPU.
    slope = taus * clipped + (1.0 - 2.0 * taus) * jnp.minimum(clipped, 0.0)
    # L_κ(u)/κ = c (u − ½κ c), so both sums are over products with the same slope.
    return slope * (error - 0.5 * kappa * clipped), slope


def _backward(saved: tuple[Array, Any], cotangent: Array) -> tuple[Array | None, ...]:
    gradient, others = saved
    # Targets and levels get no gradient.
    return cotangent * gradient, *jax.tree.map(jnp.zeros_like, others)


quantile_huber.defvjp(_forward, _backward)


def smooth_pinball(
    predicted: Float[Array, " N"],
    taus: Float[Array, " N"],
    target: Float[Array, " M"],
    kappa: Float[Array, ""],
    probs: Float[Array, " M"],
) -> Float[Array, ""]:
    """Return Σᵢ Σⱼ pⱼ [(τᵢ − ½) u + ½ L_κ(u)/κ], u = yⱼ − θᵢ: the quantile loss with |u| smoothed on both sides alike.

    Its minimum differs from the quantile by the order of κ². That of `quantile_huber` differs by κ (½ − τ), towards the
    median: where predictions become targets, every backup then shortens both tails a little.
    """
    halves = jnp.full_like(taus, 0.5)
    tilt = jnp.sum((taus - 0.5) * (jnp.sum(probs * target) - predicted))
    return quantile_huber(predicted, halves, target, kappa, probs) + tilt


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
