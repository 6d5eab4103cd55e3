"""What the training loop tells every agent about its episodes: the returns so far, and where episodes start.

Agents take their scales from here, so that nobody has to tell them the unit of the rewards: if all rewards are
multiplied by a power of two, every number that an agent computes is multiplied with them, or stays the same, exactly.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

NUM_STARTS = 16
"""First observations that are kept."""
MEMORY = 1000.0
"""Episodes before the latest thousand or so fade from mean and spread."""
NEGLIGIBLE = 1e-5
"""A spread below this share of the largest return is rounding."""


class Episodes(eqx.Module):
    """Running statistics of the finished training episodes of one lane, and first observations of the latest ones."""

    count: Float[Array, ""]
    """Number of finished episodes."""
    mean: Float[Array, ""]
    """Mean of their (discounted) returns."""
    squares: Float[Array, ""]
    """Sum of squared deviations from the mean."""
    low: Float[Array, ""]
    """Lowest return."""
    high: Float[Array, ""]
    """Highest return."""
    largest: Float[Array, ""]
    """Largest |R_{0:t}| of all steps, for the time before an episode has finished."""
    first_observation: Shaped[Array, "K *obs"]
    """A ring of first observations."""
    first_action_mask: Bool[Array, "K A"]
    """Which actions were available there."""
    num_starts: Int[Array, ""]
    """Number of first observations ever added."""

    @property
    def spread(self) -> Float[Array, ""]:
        """Return the standard deviation of returns; where all are equal, their size; where all are 0, 1."""
        deviation = jnp.sqrt(self.squares / jnp.maximum(self.count, 1.0))
        size = jnp.where(self.largest > 0, self.largest, 1.0)
        return jnp.where(deviation > NEGLIGIBLE * self.largest, deviation, size)

    def add(
        self,
        return_so_far: Float[Array, " E"],
        done: Bool[Array, " E"],
        observation: Shaped[Array, "E *obs"],
        action_mask: Bool[Array, "E A"],
    ) -> "Episodes":
        """Return the statistics after one step of all environments; `observation` starts the next episode if `done`."""
        new = jnp.sum(done.astype(jnp.float32))
        total = self.count + new
        mean = jnp.sum(jnp.where(done, return_so_far, 0.0)) / jnp.maximum(new, 1.0)
        within = jnp.sum(jnp.where(done, (return_so_far - mean) ** 2, 0.0))
        apart = jnp.where(new > 0, mean - self.mean, 0.0)
        slots = self.first_observation.shape[0]
        rank = jnp.cumsum(done.astype(jnp.int32)) - 1
        slot = jnp.where(done & (rank < slots), (self.num_starts + rank) % slots, slots)  # beyond the ring: dropped
        return Episodes(
            jnp.minimum(total, MEMORY),
            self.mean + apart * (new / jnp.maximum(total, 1.0)),
            (self.squares + within + apart**2 * (self.count * new / jnp.maximum(total, 1.0)))
            * jnp.minimum(1.0, MEMORY / jnp.maximum(total, 1.0)),
            jnp.minimum(self.low, jnp.min(jnp.where(done, return_so_far, jnp.inf))),
            jnp.maximum(self.high, jnp.max(jnp.where(done, return_so_far, -jnp.inf))),
            jnp.maximum(self.largest, jnp.max(jnp.abs(return_so_far))),
            self.first_observation.at[slot].set(observation, mode="drop"),
            self.first_action_mask.at[slot].set(action_mask, mode="drop"),
            self.num_starts + new.astype(jnp.int32),
        )


def no_episodes(observation: Shaped[Array, "*obs"], action_mask: Bool[Array, " A"]) -> Episodes:
    """Return the statistics before training, from the first observation."""
    zero, many = jnp.zeros(()), (NUM_STARTS,)
    return Episodes(
        zero,
        zero,
        zero,
        jnp.asarray(jnp.inf),
        jnp.asarray(-jnp.inf),
        zero,
        jnp.broadcast_to(observation, many + observation.shape),
        jnp.broadcast_to(action_mask, many + action_mask.shape),
        jnp.zeros((), jnp.int32),
    )


class Units(eqx.Module):
    """The unit in which a critic counts, and the range of returns; all in units of the return."""

    spread: Float[Array, ""]
    """The unit."""
    mean: Float[Array, ""]
    """The mean return."""
    low: Float[Array, ""]
    """The lowest return so far; minus one unit before an episode has finished."""
    high: Float[Array, ""]
    """The highest return so far; one unit before."""

    @staticmethod
    def of(episodes: Episodes | None, unit: Float[Array, ""]) -> "Units":
        """Return the units that follow from the episodes."""
        if episodes is None:
            return Units(unit, jnp.zeros(()), -unit, unit)
        known = episodes.count > 0
        return Units(unit, episodes.mean, jnp.where(known, episodes.low, -unit), jnp.where(known, episodes.high, unit))
