"""What the training loop tells every agent about its episodes: the returns so far, and where episodes start.

Agents take their scales from here, so the unit of the rewards does not have to be configured: if all rewards are
multiplied by a power of two, every number that an agent computes is multiplied with them, or stays the same, exactly.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

NUM_STARTS = 16
"""First observations that are kept."""
FADING = 4.0
"""The weight of the n-th episode in mean and deviation is about n to this power."""
REACH = 10.0
"""Returns to go are not larger than this many spreads, in the quadratic mean."""
STEP = 2.0
"""The unit is left alone as long as it is right within this factor."""
FAR_OFF = 16.0
"""Returns that are more spreads than this from the mean belong to early exploration. No quantile at a level from 0.02
to 0.98 is more than 7 standard deviations from the mean, and the unit may be half of one."""

EARLY = 1000
"""Episodes in which it is counted how often returns repeat. Later on a policy may do the same in all of them."""
SAME = 1e-5
"""Returns are the same if they differ by less than this many spreads."""


class Episodes(eqx.Module):
    """Running statistics of the finished training episodes of one lane, and first observations of the latest ones.

    The weight of the n-th episode in mean and deviation grows as n⁴, so that early exploration fades from them. An
    episode that was truncated counts as it is, without the return that would have followed.
    """

    count: Float[Array, ""]
    """Number of finished episodes."""
    mean: Float[Array, ""]
    """Mean of their (discounted) returns."""
    deviation: Float[Array, ""]
    """Standard deviation of the same."""
    low: Float[Array, ""]
    """Lowest return."""
    high: Float[Array, ""]
    """Highest return."""
    recent: Float[Array, " E"]
    """Σ γ^{t−i} r_i up to the latest step of each environment, the mirror image of the return to go."""
    size: Float[Array, ""]
    """Quadratic mean of `recent` over all steps, the n-th with a weight of about n⁴."""
    steps: Float[Array, ""]
    """Number of steps."""
    spread: Float[Array, ""]
    """The standard deviation of returns, or what keeps returns to go within `REACH`; 1 before there are rewards.

    The second is larger before two episodes have finished, where returns hardly differ, and where discounting leaves
    little of late rewards at the start of an episode. Critics have to learn anew whenever this unit changes, so it
    changes only where it is wrong by more than the factor `STEP`, and only as long as they learn fast enough.
    """
    first_observation: Shaped[Array, "K *obs"]
    """A ring of first observations."""
    first_action_mask: Bool[Array, "K *A"]
    """Which actions were available there."""
    num_starts: Int[Array, ""]
    """Number of first observations ever added."""
    latest: Float[Array, " E"]
    """The return of the latest finished episode of each environment; infinite before."""
    repeats: Float[Array, ""]
    """The share of the first `EARLY` episodes with the same return as the one before. 0 if returns are continuous."""

    def add(
        self,
        reward: Float[Array, " E"],
        return_so_far: Float[Array, " E"],
        done: Bool[Array, " E"],
        observation: Shaped[Array, "E *obs"],
        action_mask: Bool[Array, "E *A"],
        discount: float | Array,
        settled: bool | Bool[Array, ""] = False,
    ) -> "Episodes":
        """Return the statistics after one step of all environments; `observation` starts the next episode if `done`.

        Once learning is `settled`, the unit stays.
        """
        new = jnp.sum(done.astype(jnp.float32))
        past = self.count / (FADING + 1)
        total = jnp.maximum(past + new, 1.0)
        mean = jnp.sum(jnp.where(done, return_so_far, 0.0)) / jnp.maximum(new, 1.0)
        apart = jnp.where(new > 0, mean - self.mean, 0.0)
        between = jnp.stack([self.deviation * jnp.sqrt(past), apart * jnp.sqrt(past * new / total)])
        within = jnp.where(done, return_so_far - mean, 0.0)
        deviation = _norm(jnp.concatenate([between, within])) / jnp.sqrt(total)
        recent = discount * self.recent + reward
        earlier = self.steps / (FADING + 1)
        sizes = jnp.concatenate([jnp.sqrt(earlier)[None] * self.size, recent / jnp.sqrt(float(len(recent)))])
        size = _norm(sizes) / jnp.sqrt(earlier + 1.0)
        deviation = jnp.where(new > 0, deviation, self.deviation)
        spread = jnp.maximum(deviation, size / REACH)
        right = (spread < STEP * self.spread) & (self.spread < STEP * spread)
        stays = (self.size > 0) & (right | settled)
        same = done & (jnp.abs(return_so_far - self.latest) < SAME * self.spread)
        share = jnp.sum(same.astype(jnp.float32)) / jnp.maximum(new, 1.0)
        pace = jnp.where(self.count < EARLY, new / jnp.maximum(self.count + new, 1.0), 0.0)
        slots = self.first_observation.shape[0]
        rank = jnp.cumsum(done.astype(jnp.int32)) - 1
        slot = jnp.where(done & (rank < slots), (self.num_starts + rank) % slots, slots)  # beyond the ring: dropped
        return Episodes(
            self.count + new,
            self.mean + apart * (new / total),
            deviation,
            jnp.minimum(self.low, jnp.min(jnp.where(done, return_so_far, jnp.inf))),
            jnp.maximum(self.high, jnp.max(jnp.where(done, return_so_far, -jnp.inf))),
            jnp.where(done, 0.0, recent),
            size,
            self.steps + 1.0,
            jnp.where(stays | (spread <= 0), self.spread, spread),
            self.first_observation.at[slot].set(observation, mode="drop"),
            self.first_action_mask.at[slot].set(action_mask, mode="drop"),
            self.num_starts + jnp.sum(done.astype(jnp.int32)),
            jnp.where(done, return_so_far, self.latest),
            self.repeats + pace * (share - self.repeats),
        )


def no_episodes(observation: Shaped[Array, "E *obs"], action_mask: Bool[Array, "E *A"]) -> Episodes:
    """Return the statistics before training, from the first observations of all environments."""
    zero, envs = jnp.zeros(()), observation.shape[0]
    ring = jnp.arange(NUM_STARTS) % envs
    return Episodes(
        count=zero,
        mean=zero,
        deviation=zero,
        low=jnp.asarray(jnp.inf, jnp.float32),
        high=jnp.asarray(-jnp.inf, jnp.float32),
        recent=jnp.zeros((envs,)),
        size=zero,
        steps=zero,
        spread=jnp.ones(()),
        first_observation=observation[ring],
        first_action_mask=action_mask[ring],
        num_starts=jnp.zeros((), jnp.int32),
        latest=jnp.full((envs,), jnp.inf, jnp.float32),
        repeats=zero,
    )


def _norm(x: Float[Array, " D"]) -> Float[Array, ""]:
    """Return the Euclidean norm; squares of very large or small numbers would not be finite, or 0."""
    largest = jnp.max(jnp.abs(x))
    unit = jnp.where(largest > 0, largest, 1.0)
    return unit * jnp.sqrt(jnp.sum((x / unit) ** 2))


class Units(eqx.Module):
    """The unit in which a critic counts, and the range of returns; all in units of the return."""

    spread: Float[Array, ""]
    """The unit."""
    mean: Float[Array, ""]
    """The mean return."""
    low: Float[Array, ""]
    """The lowest return so far, at most `FAR_OFF` units below the mean; minus one unit before one is known."""
    high: Float[Array, ""]
    """The highest return so far, at most as far above the mean; one unit before."""

    @staticmethod
    def of(episodes: Episodes | None, unit: Float[Array, ""]) -> "Units":
        """Return the units that follow from the episodes."""
        if episodes is None:
            return Units(unit, jnp.zeros(()), -unit, unit)
        known, mean = episodes.count > 0, episodes.mean
        low = jnp.where(known, jnp.maximum(episodes.low, mean - FAR_OFF * unit), -unit)
        high = jnp.where(known, jnp.minimum(episodes.high, mean + FAR_OFF * unit), unit)
        return Units(unit, mean, low, high)
