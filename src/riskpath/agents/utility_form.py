"""Utilities: how `Adaptive` maximises any distortion measure.

Moving from the return law F to a law G changes β to first order by E_G[u] − E_F[u], where

    u(z) = ∫^z h′(F(x)) dx

so the policy maximises E[u(R_{0:t−1} + γᵗ Z)], and u is derived again from the law of the return that the critic
predicts for it. This can end in a local maximum. Several members start from different laws, share one critic and one
replay buffer, and are compared on held-out episodes; where h is not concave, a mixture of members may be best, drawn at
the start of an episode.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from riskpath.agents.episodes import Units
from riskpath.nn.law_critic import NUMBER_WAVES, describe
from riskpath.nn.losses import midpoints
from riskpath.risk.measures import DistortionMeasure
from riskpath.types import Key, Transition, power

NEAR, FAR = 4.0, 32.0
"""Returns so far are resolved finely up to 4 spreads from 0 and from the mean return, coarsely up to 32."""
MEMBERS = 6
"""One starts as if for the mean, four from narrow laws in the quarters of the range of returns, one from a law over the
whole range."""
ATOMS = 64
"""Atoms of a law."""
RATE, RAMP = 0.05, 0.5
"""How far a law follows the critic at an update of the target networks, once this share of the fall of learning rates
is done. The rate grows up to then: a member first learns the best policy for the law that it starts from."""


class Laws(eqx.Module):
    """The law of the whole return from which each member derives its utility."""

    atoms: Float[Array, "M K"]
    """Equally likely, in ascending order."""
    weights: Float[Array, " M"]
    """With which probability an episode is played by each member."""
    values: Float[Array, " M"]
    """β of the law that the critic predicts for each member, in spreads."""
    age: Float[Array, ""]
    """Number of updates."""


class Standing(eqx.Module):
    """The context of a step."""

    member: Int[Array, ""]
    so_far: Float[Array, ""]
    """R_{0:t−1}."""
    weight: Float[Array, ""]
    """γᵗ."""


class UtilityForm(eqx.Module):
    """The utility form of a measure."""

    risk: DistortionMeasure

    context_size: int = eqx.field(static=True, default=3 * NUMBER_WAVES + MEMBERS + 1)
    members: int = eqx.field(static=True, default=MEMBERS)

    def plan(self) -> Laws:
        """Return the plan before anything is known."""
        return Laws(jnp.zeros((MEMBERS, ATOMS)), jnp.eye(MEMBERS)[0], jnp.zeros(MEMBERS), jnp.zeros(()))

    def first(self, plan: Laws, member: Int[Array, ""]) -> Standing:
        """Return the context at the start of an episode."""
        return Standing(member, jnp.zeros(()), jnp.ones(()))

    def preferred(self, plan: Laws) -> Int[Array, ""]:
        """Return the member with the largest β of its predicted law."""
        return jnp.argmax(plan.values).astype(jnp.int32)

    def explore(self, plan: Laws, units: Units, draw: Float[Array, ""]) -> Standing:
        """Return the context of the member that plays a training episode, from a uniform draw."""
        return self.first(plan, jnp.floor(MEMBERS * draw).astype(jnp.int32))

    def advance(self, context: Standing, reward: Float[Array, ""], discount: Any) -> Standing:
        """Return the context after a reward."""
        return Standing(context.member, context.so_far + context.weight * reward, context.weight * discount)

    def describe(self, context: Standing, units: Units, expected: Float[Array, ""]) -> Float[Array, " F"]:
        """Return the features of a context, also relative to what is usual at this time."""
        usual = units.mean - expected
        x, centred = context.so_far / units.spread, (context.so_far - usual) / units.spread
        number = jnp.concatenate([describe(centred, NEAR), describe(x, NEAR), describe(x, FAR)])
        return jnp.concatenate([number, jax.nn.one_hot(context.member, MEMBERS), context.weight[None]])

    def relabel(
        self, step: Transition, count: int, plan: Laws, units: Units, discount: Any, *, key: Key
    ) -> tuple[Standing, Standing]:
        """Return the contexts of other members at a stored step, and those after it."""
        member = (jax.random.randint(key, (), 0, MEMBERS) + jnp.arange(count, dtype=jnp.int32)) % MEMBERS
        weight = power(discount, step.time)
        before = step.return_so_far - weight * step.reward
        now = jax.vmap(lambda m: Standing(m, before, weight))(member)
        return now, jax.vmap(lambda m: Standing(m, step.return_so_far, weight * discount))(member)

    def utility(self, context: Standing, returns: Float[Array, "N *A"], plan: Laws, units: Units) -> Any:
        """Return u(R_{0:t−1} + γᵗ Z) of returns to go, in spreads."""
        atoms = self._atoms(plan, units)[context.member] / units.spread
        whole = context.so_far / units.spread + context.weight * returns
        return piecewise(whole, atoms, slopes(self.risk, ATOMS)) / jnp.maximum(context.weight, 1e-6)

    def estimate(self, context: Standing, utility: Any, mean: Any, units: Units) -> None:
        """Return nothing: the estimate is β of the predicted law."""
        return

    def refresh(self, plan: Laws, root: Any, units: Units, progress: Float[Array, ""]) -> Laws:
        """Return laws that follow the critic: `root(context)` is its best law and utility at the start."""
        rate = RATE * jnp.minimum(progress / RAMP, 1.0)
        weights = jnp.diff(jnp.asarray(self.risk.weight(jnp.linspace(0.0, 1.0, ATOMS + 1))))

        def one(member: Int[Array, ""], atoms: Float[Array, " K"]) -> tuple[Float[Array, " K"], Float[Array, ""]]:
            law, _ = root(self.first(plan, member))
            return atoms + rate * (units.spread * law - atoms), jnp.sort(law) @ weights

        members = jnp.arange(MEMBERS, dtype=jnp.int32)
        atoms, values = jax.vmap(one)(members, self._atoms(plan, units))
        return Laws(atoms, plan.weights, values, plan.age + 1.0)

    def _atoms(self, plan: Laws, units: Units) -> Float[Array, "M K"]:
        """Return the laws; while nothing is known, laws in different parts of the range of returns.

        The first law has atoms below and above the range, none inside: there u has one slope, h′ at their border.
        """
        level = midpoints(ATOMS)[None, :]
        quarters = (jnp.arange(4, dtype=jnp.float32)[:, None] + level) / 4
        border = jnp.argmin(jnp.abs(jnp.log(jnp.maximum(slopes(self.risk, ATOMS), 1e-6))))  # a slope of about 1
        outside = jnp.where(jnp.arange(ATOMS)[None, :] < border, -1.0, 2.0)
        start = units.low + (units.high - units.low) * jnp.concatenate([outside, quarters, level])
        return jnp.where(plan.age > 0, plan.atoms, start)


def slopes(risk: DistortionMeasure, count: int) -> Float[Array, " K1"]:
    """Return h′ between the atoms of a law of `count` equally likely ones, and beyond the first and the last."""
    levels = jnp.concatenate([jnp.zeros(1), midpoints(count), jnp.ones(1)])
    return jnp.diff(jnp.asarray(risk.weight(levels))) / jnp.diff(levels)


def piecewise(z: Float[Array, "*N"], knots: Float[Array, " K"], slope: Float[Array, " K1"]) -> Float[Array, "*N"]:
    """Return the function with these slopes between the knots (ascending) that is 0 at the first one."""
    total = slope[0] * (z - knots[0])
    for knot, bend in zip(knots, jnp.diff(slope), strict=True):  # one loop over z is faster than an array of z × knots
        total = total + bend * jnp.maximum(z - knot, 0.0)
    return total
