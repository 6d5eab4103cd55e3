"""The embedding of quantile levels, φ(τ) = relu(W cos(π i τ) + b), i = 0 … 63, as in IQN.

A gradient step embeds every level that it uses, so the cosines and the gradient are written for speed.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from riskpath.nn.kernels import batch_kernels, gpu_kernels, of_sample
from riskpath.types import Key

WAVES = 64
SINE = (-0.0070283864, 0.0820504018, -0.5992521978, 2.5501633189, -5.1677127646, 3.1415926535)
"""Coefficients of sin(πy)/y in y², from the highest power down."""


class Cosines(eqx.Module):
    """φ(τ)."""

    linear: eqx.nn.Linear

    def __init__(self, width: int, *, key: Key):
        self.linear = eqx.nn.Linear(WAVES, width, key=key)

    def __call__(self, taus: Float[Array, " N"]) -> Float[Array, "N H"]:
        """Return φ of every level."""
        return jax.nn.relu(_affine(*self._arrays(taus)))

    def of_action(
        self, taus: Float[Array, " N"], out: Float[Array, "A H"], features: Float[Array, " H"], action: Int[Array, ""]
    ) -> Float[Array, " N"]:
        """Return φ · (ψ ⊙ V_a) of every level, for the weights V of all actions."""
        kernels = batch_kernels()
        if kernels is not None:
            return kernels.of_action(*self._arrays(taus), out, of_sample(features), action)
        return self(taus) @ (features * chosen_row(out, action))

    def mean(self, taus: Float[Array, " N"]) -> Float[Array, " H"]:
        """Return the mean of φ over the levels."""
        kernels = gpu_kernels()
        if kernels is not None and kernels.suits_width(self.linear.out_features) and kernels.suits(len(taus)):
            return kernels.mean(*self._arrays(taus))
        return _mean_of_rows(self(taus))

    def _arrays(self, taus: Float[Array, " N"]) -> tuple[Float[Array, "H K"], Float[Array, " H"], Float[Array, "N K"]]:
        """Return W, b and the cosines of every level."""
        assert self.linear.bias is not None
        waves = cos_pi(jnp.arange(WAVES, dtype=jnp.float32)[None, :] * taus[:, None])
        return self.linear.weight, self.linear.bias, waves


def cos_pi(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return cos(πx) up to 1e-6, as sin(πy) with |y| ≤ ½; on a CPU several times faster than `cos`."""
    y = 0.5 - jnp.abs(x - 2.0 * jnp.round(0.5 * x))
    return y * jnp.polyval(jnp.asarray(SINE, x.dtype), y * y, unroll=len(SINE))


def _mean_of_rows(x: Float[Array, "N H"]) -> Float[Array, " H"]:
    """Return the mean over the rows. On a CPU a product is several times faster; on a GPU it would store all rows."""
    share = jnp.full(x.shape[:1], 1.0 / x.shape[0])
    return jax.lax.platform_dependent(x, cpu=lambda x: share @ x, default=lambda x: jnp.mean(x, axis=0))


def chosen_row(x: Float[Array, "A *H"], row: Int[Array, ""]) -> Float[Array, "*H"]:
    """Return one row; a product has a faster gradient than an index."""
    return jax.nn.one_hot(row, len(x), dtype=x.dtype) @ x


@jax.custom_vjp
def _affine(weight: Float[Array, "H K"], bias: Float[Array, " H"], waves: Float[Array, "N K"]) -> Float[Array, "N H"]:
    """Return W x + b for rows x that start with cos(0) = 1; differentiable in W and b."""
    return waves @ weight.T + bias[None, :]


def _affine_forward(weight: Array, bias: Array, waves: Array) -> tuple[Array, Array]:
    return _affine(weight, bias, waves), waves


def _affine_backward(waves: Array, cotangent: Array) -> tuple[Array, Array, Array]:
    """Return the gradients. That of b is the one of W for the constant wave, so it needs no sum of its own."""
    gradient = cotangent.T @ waves
    return gradient, gradient[:, 0], jnp.zeros_like(waves)


_affine.defvjp(_affine_forward, _affine_backward)
