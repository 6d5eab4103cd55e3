"""Returns of the latest training episodes of every candidate.

A critic that predicts only an expected utility does not tell the distribution from which the utility of a measure
follows (`utilities.py`). The returns of the episodes that a candidate played do.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from riskpath.agents.agent import AgentState
from riskpath.agents.episodes import ENOUGH, WINDOW
from riskpath.types import Transition


class PlayedReturns(eqx.Module):
    """A ring of returns for each candidate."""

    returns: Float[Array, "M W"]
    count: Int[Array, " M"]
    """Number of episodes that each candidate ever finished."""

    @staticmethod
    def none(candidates: int) -> "PlayedReturns":
        """Return the rings before training."""
        return PlayedReturns(jnp.zeros((candidates, WINDOW)), jnp.zeros((candidates,), jnp.int32))

    @property
    def known(self) -> Bool[Array, ""]:
        """Return whether every candidate has finished enough episodes for quantiles."""
        return jnp.all(self.count >= ENOUGH)

    def add(
        self, candidate: Int[Array, "*N"], returns: Float[Array, "*N"], finished: Bool[Array, "*N"]
    ) -> "PlayedReturns":
        """Return the rings after some steps, given who played, the return so far, and whether the episode is over."""

        def one(ring: Float[Array, " W"], count: Int[Array, ""], number: Int[Array, ""]) -> Any:
            own = (finished & (candidate == number)).ravel()
            order = jnp.cumsum(own.astype(jnp.int32))
            kept = own & (order > order[-1] - len(ring))  # the latest, if there are more than places
            place = jnp.where(kept, (count + order - 1) % len(ring), len(ring))
            return ring.at[place].set(returns.ravel(), mode="drop"), count + order[-1]

        return PlayedReturns(*jax.vmap(one)(self.returns, self.count, jnp.arange(len(self.count), dtype=jnp.int32)))

    def quantiles(self, candidate: Int[Array, ""], levels: Float[Array, " K"]) -> Float[Array, " K"]:
        """Return quantiles of the latest returns of a candidate, between which the quantile function is linear."""
        ring, number = self.returns[candidate], jnp.minimum(self.count[candidate], self.returns.shape[1])
        places = jnp.arange(len(ring), dtype=jnp.int32)
        ordered = jnp.sort(jnp.where(places < number, ring, jnp.inf))
        last = jnp.maximum(number - 1, 0)
        ordered = ordered[jnp.minimum(places, last)]  # nothing infinite
        return jnp.interp(levels * number.astype(jnp.float32) - 0.5, places.astype(jnp.float32), ordered)


def with_played(state: AgentState, steps: Transition) -> AgentState:
    """Return the state with the returns of the episodes that finished in a rollout, where it keeps them."""
    episodes, played = state.episodes, state.params.played
    if episodes is None or not isinstance(played, PlayedReturns):
        return state
    _, _, context = steps.extras
    late = (steps.time + 1).astype(jnp.float32) >= episodes.longest  # a first episode is cut before
    played = played.add(context.candidate, steps.return_so_far, steps.terminated | (steps.truncated & late))
    return eqx.tree_at(lambda s: s.params.played, state, played)
