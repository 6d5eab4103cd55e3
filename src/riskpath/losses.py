"""The quantile Huber loss of one sample, and the levels at which critics are read."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from riskpath.types import Key


def quantile_huber(
    predicted: Float[Array, " N"], taus: Float[Array, " N"], target: Float[Array, " M"], kappa: Float[Array, ""] | float
) -> Float[Array, ""]:
    """Σᵢ meanⱼ ρ^κ_{τᵢ}(yⱼ − θᵢ), with ρ^κ_τ(u) = |τ − 1{u<0}| L_κ(u) / κ.

    κ is in the units of the return. If it is large beside their spread, the loss learns expectiles, not quantiles.
    """
    error = target[None, :] - predicted[:, None]
    weight = jnp.abs(taus[:, None] - jnp.where(error < 0, 1.0, 0.0))
    return jnp.sum(jnp.mean(weight * optax.losses.huber_loss(error / kappa, delta=1.0), axis=1)) * kappa


def midpoints(count: int) -> Float[Array, " count"]:
    """(i + ½)/count: where to read a quantile function when nothing is random."""
    return (jnp.arange(count, dtype=jnp.float32) + 0.5) / count


def stratified(count: int, *, key: Key) -> Float[Array, " count"]:
    """One uniform level in each of `count` equal parts of [0, 1]: as random as independent ones, less noisy."""
    return (jnp.arange(count, dtype=jnp.float32) + jax.random.uniform(key, (count,))) / count
