"""The last hundred training episodes of every lane, for display during training.

Agents do not use these numbers. The episodes include exploration.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from riskpath.risk.measures import RiskMeasure

KEPT = 100
"""Episodes that are kept for each lane."""
RETURN, DISCOUNTED, LENGTH = range(3)
"""The columns of the ring."""


class RecentEpisodes(eqx.Module):
    """A ring of the latest finished training episodes of each lane."""

    ring: Float[Array, "L K 3"]
    """Return, discounted return (with the agent's own discount) and length of each."""
    count: Int[Array, " L"]
    """Number of episodes ever finished."""
    so_far: Float[Array, "L E"]
    """The undiscounted return of the episode that each environment is in."""

    def add(
        self,
        reward: Float[Array, "L E"],
        discounted: Float[Array, "L E"],
        time: Int[Array, "L E"],
        done: Bool[Array, "L E"],
        cut: bool | Bool[Array, "1 E"] = False,
    ) -> "RecentEpisodes":
        """Return the episodes after one step of all environments; `time` is that of the step, 0 for the first one.

        An episode that is `cut` is forgotten.
        """
        so_far = self.so_far + reward
        rank = jnp.cumsum(done.astype(jnp.int32), axis=1) - 1
        slot = jnp.where(done & (rank < KEPT), (self.count[:, None] + rank) % KEPT, KEPT)  # beyond the ring: dropped
        rows = jnp.stack([so_far, discounted, (time + 1).astype(jnp.float32)], axis=-1)
        lane = jnp.arange(len(slot))[:, None]
        return RecentEpisodes(
            self.ring.at[lane, slot].set(rows, mode="drop"),
            self.count + jnp.sum(done.astype(jnp.int32), axis=1),
            jnp.where(done | cut, 0.0, so_far),
        )

    def figures(self, risks: Sequence[RiskMeasure]) -> dict[str, np.ndarray]:
        """Return figures of the last hundred episodes of every lane; nothing until each lane has finished one.

        The names are those of Stable-Baselines3 where possible. `ep_rew_mean` is the mean of undiscounted returns,
        `ep_rew_risk` the lane's own measure (`risks`) of its own, discounted returns, `ep_len_mean` the mean length.
        """
        ring, counts = np.asarray(self.ring, np.float64), np.asarray(self.count)
        if not counts.all():
            return {}
        kept = [lane[: min(count, KEPT)] for lane, count in zip(ring, counts, strict=True)]
        return {
            "ep_rew_mean": np.array([lane[:, RETURN].mean() for lane in kept]),
            "ep_rew_risk": np.array([float(r.value(lane[:, DISCOUNTED])) for r, lane in zip(risks, kept, strict=True)]),
            "ep_len_mean": np.array([lane[:, LENGTH].mean() for lane in kept]),
        }


def no_recent_episodes(lanes: int, num_envs: int) -> RecentEpisodes:
    """Return the ring before training."""
    return RecentEpisodes(jnp.zeros((lanes, KEPT, 3)), jnp.zeros((lanes,), jnp.int32), jnp.zeros((lanes, num_envs)))
