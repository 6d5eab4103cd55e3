"""Times of a training."""

import jax.numpy as jnp

import riskpath as rp


def clock_at(done: float, planned: int = 1_000) -> rp.Clock:
    """Return the clock when a share of a training is done."""
    return rp.Clock(jnp.int32(round(planned * done)), jnp.int32(planned))


START = clock_at(0.0)
