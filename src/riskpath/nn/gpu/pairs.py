"""The quantile loss: sums over all pairs of a prediction and a target.

One program has all pairs of one sample in its registers; XLA's sums over rows exchange numbers between threads for
every row.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from riskpath.nn.gpu.launch import run
from riskpath.nn.losses import loss_and_slope

PAIRS = 2_048
"""Pairs of quantiles for each warp. With half or twice as many the update takes 1% to 3% longer."""


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
    return run(made, warps, (predicted, taus, target, kappa[None], share))


def _pair_sums(predicted: Any, taus: Any, target: Any, kappa: Any, share: Any, loss: Any, slope: Any) -> None:
    """Targets are rows, so that each thread adds up its own columns."""
    error = target[...][:, None] - predicted[...][None, :]
    losses, slopes = loss_and_slope(error, taus[...][None, :], kappa[0])
    loss[...] = jnp.sum(share[...][:, None] * losses, axis=0)
    slope[...] = jnp.sum(share[...][:, None] * slopes, axis=0)
