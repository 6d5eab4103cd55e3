"""Increasing functions from [0, 1] to itself on NumPy or JAX arrays: namespaces, safe end points, numeric inverse."""

import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
import scipy.special


def namespace(*values: Any) -> tuple[Any, Any]:
    """Return jax.numpy and its special functions if these PyTrees contain a JAX array or a tracer, else NumPy's."""
    uses_jax = any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(values))
    return (jnp, jax.scipy.special) if uses_jax else (np, scipy.special)


def as_float(x: Any, xp: Any) -> Any:
    """Return `x` as a floating-point array: float64 in NumPy; in JAX its own precision, or the default one."""
    if xp is np:
        return np.asarray(x, dtype=np.float64)
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float)


def on_interior(function: Callable[[Any], Any], t: Any, xp: Any) -> Any:
    """Return `function(t)` inside (0, 1), 0 below and 1 above. Infinite slopes at the ends give no NaN gradients."""
    t = as_float(t, xp)
    tiny = float(xp.finfo(t.dtype).eps)
    inner = function(xp.clip(t, tiny / 8, 1 - tiny / 2))
    return xp.where(t <= 0, xp.zeros_like(inner), xp.where(t >= 1, xp.ones_like(inner), inner))


def inverse(function: Callable[[Any], Any], y: Any, side: Literal["left", "right"] = "right") -> Any:
    """Invert an increasing function by bisection: return sup{x: f(x) ≤ y}, or inf{x: f(x) ≥ y} with side="left".

    In JAX the result is differentiable in `y` and in all values that `function` closes over.
    """
    xp, _ = namespace(y, function(0.5))
    y = as_float(y, xp)
    below, beyond = (xp.less_equal, xp.greater_equal) if side == "right" else (xp.less, xp.greater)
    steps = 8 - math.frexp(float(xp.finfo(y.dtype).eps))[1]
    if xp is jnp:
        low, half = jnp.zeros_like(y), jnp.ones_like(y) / 2
        halve = lambda _, at: (jnp.where(below(function(sum(at)), y), sum(at), at[0]), at[1] / 2)
        low, _ = jax.lax.fori_loop(0, steps, halve, (low, half))
        x = _newton_step(function, jax.lax.stop_gradient(low), y)
        return jnp.where(beyond(y, function(jnp.ones_like(y))), 1.0, jnp.where(y <= 0, 0.0, x))
    # A distribution function has few distinct values, often 0 and 1: each of the others is searched once.
    distinct, place = np.unique(y, return_inverse=True)
    x = np.where(beyond(distinct, function(1.0)), 1.0, 0.0)
    inner = (x == 0) & (distinct > 0)
    if inner.any():
        x[inner] = _bisect_in_pieces(function, below, distinct[inner], steps)
    return x[place].reshape(y.shape)


def _bisect_in_pieces(function: Any, below: Any, y: np.ndarray, bits: int) -> np.ndarray:
    """Return the inverse to `bits` binary digits, by bisection into many pieces: few values need few calls."""
    pieces = 2 ** max(1, 6 - int(np.log2(len(y))) // 2)
    low, width = np.zeros(len(y)), 1.0
    for _ in range(math.ceil(bits / math.log2(pieces))):
        width /= pieces
        inside = low[:, None] + width * np.arange(1, pieces)
        low = low + width * below(function(inside.ravel()).reshape(inside.shape), y[:, None]).sum(axis=1)
    return low


def _newton_step(function: Callable[[Any], Any], x: jax.Array, y: jax.Array) -> jax.Array:
    """Return x − (f(x) − y)/f′(x). After bisection the value hardly changes; the derivative is that of the inverse."""
    eps = float(jnp.finfo(x.dtype).eps)
    inside = jnp.clip(x, eps, 1 - eps)
    value, slope = jax.jvp(function, (inside,), (jnp.ones_like(inside),))
    slope = jax.lax.stop_gradient(slope)
    usable = jnp.isfinite(slope) & (slope > eps) & (x > eps) & (x < 1 - eps)
    return jnp.where(usable, x - (value - y) / jnp.where(usable, slope, 1.0), x)
