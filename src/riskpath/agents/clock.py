"""How much of a training is done. Schedules are fractions of it, so the same ones suit short and long trainings."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Clock(eqx.Module):
    """The progress of a training, the same for all lanes."""

    updates: Int[Array, ""]
    """Updates so far."""
    planned: Int[Array, ""]
    """Updates of the whole training; 0 if that is unknown."""

    @property
    def done(self) -> Float[Array, ""]:
        """Return the progress of the training, from 0 to 1; 0 if its length is unknown."""
        share = self.updates.astype(jnp.float32) / jnp.maximum(self.planned, 1).astype(jnp.float32)
        return jnp.where(self.planned > 0, jnp.minimum(share, 1.0), 0.0)


def ramp(done: float | Array, starts: float | Array, ends: float | Array) -> Float[Array, ""]:
    """Return a number that rises linearly from 0 to 1 while `done` goes from `starts` to `ends`."""
    return jnp.clip((jnp.asarray(done) - starts) / jnp.maximum(jnp.asarray(ends) - starts, 1e-6), 0.0, 1.0)
