"""Aversions: the objective of entropic risk, and of EVaR, which is a search over its degree of aversion.

For a measure of `AversionFamily` the best policy maximises the entropic risk at the best aversion λ. What was earned
so far only scales the utility −e^{−λz}/λ, so a policy needs no more than the aversion to the return to go,

    λ_t = λ γᵗ,     a = argmax_a −log(Σ_i p_i e^{−λ_t θ_i})/λ_t

One critic learns the policies of all aversions, which do not depend on what the critic predicts. The critic then tells
which aversion is best for the measure, if the measure does not tell it. On held-out episodes this one, others near it
and some from the whole range are compared.

The squared error is that of E[e^{−λZ}] relative to its prediction: its minimum is the mean of e^{−λZ}, and it is in
units of the return in every state.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from riskpath.agents.adaptive.goals import normal
from riskpath.agents.adaptive.objective import Objective
from riskpath.agents.episodes import Units
from riskpath.nn.context_network import NUMBER_WAVES, encode_number
from riskpath.types import Key, Transition, power

FACTORS = (1.0, 0.7, 1.4, 0.5, 2.0, 0.25, 4.0)
"""Aversions that are compared on held-out episodes, relative to the critic's own, which is the first one."""
SPREAD = 6
"""Number of aversions, equally spaced on a logarithmic scale, that are compared as well."""
GRID = 101
"""Number of aversions that the search for the best one compares."""
OWN, AROUND = 0.4, 0.25
"""Shares of trained aversions close to the best one, and around it; the rest is from the whole range."""
CLOSE, FAR = 0.1, 0.7
"""How close, and how far around, as logarithms of a factor."""
NEAR, WIDE = 3.0, 9.0
"""Logarithms of aversions, in 1/unit, are encoded finely up to the first of these, coarsely up to the second."""
EXPONENT = 12.0
"""Exponents are cut here, beyond which the utility is linear."""


class Aversions(eqx.Module):
    """The plan: the first aversions, which follow from the critic."""

    first: Float[Array, " M"]
    """The best one, and others that are compared with it."""
    weights: Float[Array, " M"]
    """The probability that an episode starts with each of them."""


class Aversion(eqx.Module):
    """The context of a step."""

    aversion: Float[Array, "*G"]
    """λ_t."""


class AversionObjective(Objective):
    """The objective of a measure of `AversionFamily`."""

    risk: Any
    """β."""

    @property
    def context_size(self) -> int:
        return 2 * NUMBER_WAVES

    @property
    def candidates(self) -> int:
        return len(FACTORS) + SPREAD

    def plan(self) -> Aversions:
        return Aversions(jnp.ones(self.candidates), jnp.eye(self.candidates)[0])

    def first(self, plan: Aversions, candidate: Int[Array, ""]) -> Aversion:
        return Aversion(plan.first[candidate])

    def preferred(self, plan: Aversions) -> Int[Array, ""]:
        """Return the number of the best aversion according to the critic."""
        return jnp.zeros((), jnp.int32)

    def explore(self, plan: Aversions, units: Units, draw: Float[Array, ""]) -> Aversion:
        """Return an aversion from the whole range."""
        return Aversion(between(*self._range(units), draw))

    def near(self, plan: Aversions, units: Units, draws: Float[Array, "2"]) -> Aversion:
        """Return an aversion near the best one."""
        return Aversion(plan.first[0] * jnp.exp(CLOSE * normal(draws[1])))

    def advance(self, context: Aversion, reward: Float[Array, "*G"], discount: Any) -> Aversion:
        return Aversion(context.aversion * discount)

    def encode(self, context: Aversion, units: Units, expected: Float[Array, ""]) -> Float[Array, " F"]:
        x = jnp.log(context.aversion * units.unit)
        return jnp.concatenate([encode_number(x, NEAR), encode_number(x, WIDE)])

    def relabel(
        self, step: Transition, count: int, plan: Aversions, units: Units, discount: Any, *, key: Key
    ) -> tuple[Aversion, Aversion]:
        """Return contexts in which a stored step may have been taken, and those after it."""
        u, kind, shift = jax.random.uniform(key, (3, count))
        near = plan.first[0] * jnp.exp(jnp.where(kind < OWN, CLOSE, FAR) * normal(shift))
        wide = between(*self._range(units), (jnp.arange(count, dtype=jnp.float32) + u) / count)
        now = power(discount, step.time) * jnp.where(kind < OWN + AROUND, near, wide)
        return Aversion(now), Aversion(now * discount)

    def utility(
        self, context: Aversion, returns: Float[Array, "*N"], plan: Aversions, units: Units
    ) -> Float[Array, "*N"]:
        """Return (1 − e^{−λZ})/λ of returns to go, in units."""
        return exponential(returns, units.unit * context.aversion)

    def expected(
        self, context: Aversion, law: Float[Array, "N *A"], probs: Float[Array, " N"], plan: Aversions, units: Units
    ) -> Float[Array, "*A"]:
        """Return −log E[e^{−λZ}]/λ, in units."""
        return entropic(law, probs, units.unit * context.aversion)

    def error(
        self,
        context: Aversion,
        law: Float[Array, " N"],
        aim: Float[Array, " N"],
        probs: Float[Array, " N"],
        plan: Aversions,
        units: Units,
    ) -> Float[Array, ""]:
        aversion = units.unit * context.aversion
        around = jax.lax.stop_gradient(entropic(law, probs, aversion))
        return probs @ (exponential(law - around, aversion) - exponential(aim - around, aversion))

    def estimate(
        self, context: Aversion, atoms: Float[Array, "N A"], probs: Float[Array, " N"], units: Units
    ) -> Float[Array, " A"]:
        """Return β of the predicted returns to go."""
        return jax.vmap(lambda column: self.risk.of(units.unit * column, probs), in_axes=1)(atoms) / units.unit

    def refresh(self, plan: Aversions, root: Any, units: Units, progress: Float[Array, ""]) -> Aversions:
        """Return the best aversion according to the critic, and others."""
        ends, known = self._range(units), self.risk.known_aversion

        def value(aversion: Float[Array, ""]) -> Float[Array, ""]:
            _, utility = root(Aversion(aversion))
            each = jnp.full(utility.shape, 1.0 / utility.size)
            return self.risk.value_at(aversion, units.unit * entropic(utility, each, units.unit * aversion))

        listed = between(*ends, jnp.linspace(0.0, 1.0, GRID))
        best = listed[jnp.argmax(jax.vmap(value)(listed))] if known is None else jnp.asarray(known, jnp.float32)
        spread = between(*ends, (jnp.arange(SPREAD, dtype=jnp.float32) + 0.5) / SPREAD)
        return Aversions(jnp.concatenate([best * jnp.asarray(FACTORS), spread]), plan.weights)

    def _range(self, units: Units) -> tuple[Any, Any]:
        """Return the smallest and the largest aversion that is trained."""
        return self.risk.aversions(jnp.maximum(units.high - units.low, units.unit), units.unit)


def between(least: Any, most: Any, share: Float[Array, "*N"]) -> Float[Array, "*N"]:
    """Return a number between two others, equally spaced on a logarithmic scale."""
    return least * (most / least) ** share


def exponential(z: Float[Array, "*N"], aversion: Float[Array, ""]) -> Float[Array, "*N"]:
    """Return (1 − e^{−λz})/λ, linear where the exponent is large."""
    exponent = -aversion * z
    cut = jnp.minimum(exponent, EXPONENT)
    return -(jnp.expm1(cut) + jnp.exp(cut) * jnp.maximum(exponent - EXPONENT, 0.0)) / aversion


def entropic(law: Float[Array, "N *A"], probs: Float[Array, " N"], aversion: Float[Array, ""]) -> Float[Array, "*A"]:
    """Return −log(Σ_i p_i e^{−λ z_i})/λ, along the first axis."""
    weights = probs.reshape(-1, *[1] * (law.ndim - 1))
    return -jax.nn.logsumexp(-aversion * law, axis=0, b=weights) / aversion
