"""Statistics of the training episodes, which the training loop keeps for every agent: returns and first observations.

Agents take their scales from here, so the unit of the rewards needs no configuration: if all rewards are multiplied by
a power of two, every number that an agent computes is multiplied with them, or stays the same, exactly.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

NUM_STARTS = 16
"""Number of first observations kept."""
FADING = 4.0
"""The weight of the n-th episode in mean and deviation is about n to this power."""
REACH = 10.0
"""The largest quadratic mean of the returns to go, in units."""
FAR_OFF = 16.0
"""Returns farther from the mean than this, in units, belong to early exploration. No quantile at a level from 0.02 to
0.98 is more than 7 standard deviations from the mean, and the unit may be half of one."""

EARLY = 1000
"""Number of first episodes in which repeated returns are counted. Later a policy may do the same in all episodes."""
SAME = 1e-5
"""Returns that differ by less than this, in units, count as equal."""

PATH = 64
"""Number of times of an episode at which the mean return so far is kept."""
WINDOW = 128
"""Latest returns that are kept."""
ENOUGH = 20
"""Number of latest returns needed for quantiles."""


class Episodes(eqx.Module):
    """Running statistics of the finished training episodes of one lane, and first observations of the latest ones.

    The weight of the n-th episode in mean and standard deviation grows as n⁴, so that early exploration fades. A
    truncated episode counts as it is, without the return that would have followed.
    """

    count: Float[Array, ""]
    """Number of finished episodes."""
    mean: Float[Array, ""]
    """Mean of their (discounted) returns."""
    deviation: Float[Array, ""]
    """Standard deviation of their returns."""
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
    unit: Float[Array, ""]
    """The unit of the critics; 1 before there are rewards. It follows `wanted_unit` (`agents/learning.py`)."""
    first_observation: Shaped[Array, "K *obs"]
    """A ring of first observations."""
    first_action_mask: Bool[Array, "K *A"]
    """The action masks there."""
    num_starts: Int[Array, ""]
    """Number of first observations ever added."""
    latest: Float[Array, " E"]
    """The return of the latest finished episode of each environment; infinite before."""
    repeats: Float[Array, ""]
    """The share of the first `EARLY` episodes with the same return as the one before. 0 if returns are continuous."""
    longest: Float[Array, ""]
    """The largest number of steps in an episode: the limit of the environment, or the longest episode so far."""
    path: Float[Array, " P"]
    """Mean return so far at `PATH` equally spaced times of an episode, the n-th visit with a weight of about n⁴."""
    visits: Float[Array, " P"]
    """Number of steps at each of these times."""
    ring: Float[Array, " W"]
    """Returns of the latest episodes."""
    extremes: Float[Array, "2"]
    """Lowest and highest `recent` of all steps, and 0."""

    @property
    def reach(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the range of whole returns and of `recent`, the mirror image of the return to go; 0 is within it."""
        low = jnp.where(self.count > 0, jnp.minimum(self.low, self.extremes[0]), self.extremes[0])
        return low, jnp.where(self.count > 0, jnp.maximum(self.high, self.extremes[1]), self.extremes[1])

    @property
    def wanted_unit(self) -> Float[Array, ""]:
        """Return the scale of the latest returns, by their quantiles, so that a few catastrophes do not decide.

        Half the distance between the 10 % and 90 % quantiles. Where these returns hardly differ, and before there are
        enough of them, it is the standard deviation of all returns, or what keeps returns to go within `REACH` units.
        """
        known = jnp.minimum(self.count, len(self.ring))
        ordered = jnp.sort(jnp.where(jnp.arange(len(self.ring), dtype=jnp.float32) < known, self.ring, jnp.inf))
        low = ordered[jnp.floor(0.1 * known).astype(jnp.int32)]
        high = ordered[jnp.maximum(jnp.ceil(0.9 * known).astype(jnp.int32) - 1, 0)]
        enough = (known >= ENOUGH) & (high - low > 1e-3 * jnp.maximum(jnp.abs(low), jnp.abs(high)))
        return jnp.where(enough, 0.5 * (high - low), jnp.maximum(self.deviation, self.size / REACH))

    def clock(self, time: Int[Array, "*n"]) -> Float[Array, "*n"]:
        """Return a time as a fraction of the longest episode."""
        return jnp.minimum(time.astype(jnp.float32) / self.longest, 1.0)

    def add(
        self,
        reward: Float[Array, " E"],
        return_so_far: Float[Array, " E"],
        time: Int[Array, " E"],
        done: Bool[Array, " E"],
        observation: Shaped[Array, "E *obs"],
        action_mask: Bool[Array, "E *A"],
        discount: float | Array,
        fresh: bool | Bool[Array, ""] = True,
        cut: bool | Bool[Array, " E"] = False,
    ) -> "Episodes":
        """Return the statistics after one step of all environments; `observation` starts the next episode if `done`.

        As long as critics are `fresh`, without a gradient step, the unit follows immediately. An episode that is `cut`
        begins anew and does not count.
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
        rank = jnp.cumsum(done.astype(jnp.int32)) - 1
        width = len(self.ring)
        place = jnp.where(done & (rank < width), (self.count.astype(jnp.int32) + rank) % width, width)
        ring = self.ring.at[place].set(return_so_far, mode="drop")
        slot_of = jnp.clip((self.clock(time + 1) * PATH - 0.5).astype(jnp.int32), 0, PATH - 1)
        seen = jnp.zeros((PATH, 2)).at[slot_of].add(jnp.stack([jnp.ones_like(return_so_far), return_so_far], axis=1))
        came, sums = seen[:, 0], seen[:, 1]
        before = self.visits / (FADING + 1)
        path = jnp.where(came > 0, (before * self.path + sums) / jnp.maximum(before + came, 1.0), self.path)
        first_unit = jnp.maximum(deviation, size / REACH)
        same = done & (jnp.abs(return_so_far - self.latest) < SAME * self.unit)
        share = jnp.sum(same.astype(jnp.float32)) / jnp.maximum(new, 1.0)
        pace = jnp.where(self.count < EARLY, new / jnp.maximum(self.count + new, 1.0), 0.0)
        slots = self.first_observation.shape[0]
        slot = jnp.where(done & (rank < slots), (self.num_starts + rank) % slots, slots)  # beyond the ring: dropped
        return Episodes(
            self.count + new,
            self.mean + apart * (new / total),
            deviation,
            jnp.minimum(self.low, jnp.min(jnp.where(done, return_so_far, jnp.inf))),
            jnp.maximum(self.high, jnp.max(jnp.where(done, return_so_far, -jnp.inf))),
            jnp.where(done | cut, 0.0, recent),
            size,
            self.steps + 1.0,
            jnp.where(fresh & (first_unit > 0), first_unit, self.unit),
            self.first_observation.at[slot].set(observation, mode="drop"),
            self.first_action_mask.at[slot].set(action_mask, mode="drop"),
            self.num_starts + jnp.sum(done.astype(jnp.int32)),
            jnp.where(done, return_so_far, self.latest),
            self.repeats + pace * (share - self.repeats),
            jnp.maximum(self.longest, jnp.max(time + 1).astype(jnp.float32)),
            path,
            self.visits + came,
            ring,
            jnp.stack([jnp.minimum(self.extremes[0], recent.min()), jnp.maximum(self.extremes[1], recent.max())]),
        )


def no_episodes(
    observation: Shaped[Array, "E *obs"], action_mask: Bool[Array, "E *A"], limit: int | None = None
) -> Episodes:
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
        unit=jnp.ones(()),
        first_observation=observation[ring],
        first_action_mask=action_mask[ring],
        num_starts=jnp.zeros((), jnp.int32),
        latest=jnp.full((envs,), jnp.inf, jnp.float32),
        repeats=zero,
        longest=jnp.asarray(float(limit or 1), jnp.float32),
        path=jnp.zeros((PATH,)),
        visits=jnp.zeros((PATH,)),
        ring=jnp.zeros((WINDOW,)),
        extremes=jnp.zeros((2,)),
    )


def _norm(x: Float[Array, " D"]) -> Float[Array, ""]:
    """Return the Euclidean norm; squares of very large or small numbers would not be finite, or 0."""
    largest = jnp.max(jnp.abs(x))
    unit = jnp.where(largest > 0, largest, 1.0)
    return unit * jnp.sqrt(jnp.sum((x / unit) ** 2))


class Units(eqx.Module):
    """The unit of a critic and the range of returns, all in units of the return."""

    unit: Float[Array, ""]
    """The unit."""
    mean: Float[Array, ""]
    """The mean return."""
    low: Float[Array, ""]
    """The lowest return so far, at most `FAR_OFF` units below the mean; minus one unit before one is known."""
    high: Float[Array, ""]
    """The highest return so far, at most as far above the mean; one unit before."""
    path: Float[Array, " P"]
    """Mean return so far at equally spaced times of an episode."""

    def expected(self, clock: Float[Array, ""]) -> Float[Array, ""]:
        """Return the return still expected at a time, which is a fraction of the longest episode."""
        place = jnp.clip(clock * len(self.path) - 0.5, 0.0, len(self.path) - 1.0)
        below = jnp.minimum(place.astype(jnp.int32), len(self.path) - 2)
        so_far = self.path[below] + (place - below.astype(jnp.float32)) * (self.path[below + 1] - self.path[below])
        return self.mean - jnp.where(clock > 0, so_far, 0.0)

    @staticmethod
    def of(episodes: Episodes | None, unit: Float[Array, ""]) -> "Units":
        """Return the units that follow from the episodes."""
        if episodes is None:
            return Units(unit, jnp.zeros(()), -unit, unit, jnp.zeros((PATH,)))
        known, mean = episodes.count > 0, episodes.mean
        low = jnp.where(known, jnp.maximum(episodes.low, mean - FAR_OFF * unit), -unit)
        high = jnp.where(known, jnp.minimum(episodes.high, mean + FAR_OFF * unit), unit)
        # If no step falls into a part of the path, as in a short episode, it repeats the part before.
        filled = jax.lax.cummax(jnp.where(episodes.visits > 0, jnp.arange(PATH, dtype=jnp.int32), 0))
        return Units(unit, mean, low, high, episodes.path[filled])
