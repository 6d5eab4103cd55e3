"""Thresholds: the objective of measures that are a search over one threshold, such as VaR and P(Z ≥ b).

For a measure of `ThresholdFamily` the best policy maximises E[v(Z − b)] at the best threshold b. As with goals, what
matters is what is left of b,

    c_t = b − R_{0:t−1},     u_c(z) = v(z − c)

and one critic learns the policies of all thresholds: they do not depend on what the critic predicts, so none of them
is lost if its predictions are wrong for a while. The critic then tells which threshold is best for the measure, if the
measure does not tell it. On held-out episodes this one, others near it and some from the whole range are compared.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from riskpath.agents.adaptive.goals import encode_goal, normal
from riskpath.agents.adaptive.objective import Objective
from riskpath.agents.adaptive.utilities import interpolate
from riskpath.agents.episodes import Units
from riskpath.nn.context_network import NUMBER_WAVES
from riskpath.types import Key, Transition, power

OFFSETS = (0.0, *(sign / part for part in (32, 8, 2) for sign in (-1, 1)))
"""Thresholds that are compared on held-out episodes, in units from the critic's own, which is the first one."""
SPREAD = 6
"""Number of thresholds, equally spaced in the range of returns, that are compared as well."""
GRID = 101
"""Number of thresholds that the search for the best one compares."""
OWN, AROUND = 0.4, 0.25
"""Shares of trained thresholds close to the best one, and around it; the rest is from the whole range."""
CLOSE, FAR = 0.1, 0.7
"""How close, and how far around, in units."""
AROUND_KNOWN = 0.25
"""How far from a threshold that is known others are trained, as a fraction of the range of returns."""
BLUR = (0.5, 0.05)
"""Width over which a jump of v is spread, in units: before training, and once the learning rates have decayed."""
SCALE = 2.0
"""Utilities that are no amounts of money are scaled to differ by this many units over the range of returns."""
KNOTS = 1025
"""Number of points at which v is tabulated."""
TIE = 1e-4
"""Slope added to v, so that the mean decides between actions that are otherwise equal."""


class Thresholds(eqx.Module):
    """The plan: the first thresholds, which follow from the critic."""

    first: Float[Array, " M"]
    """The best one, and others that are compared with it."""
    weights: Float[Array, " M"]
    """The probability that an episode starts with each of them."""
    blur: Float[Array, ""]
    """Width over which a jump is spread, in units."""


class Left(eqx.Module):
    """The context of a step."""

    left: Float[Array, "*G"]
    """c_t, what is left of the threshold."""
    weight: Float[Array, "*G"]
    """γᵗ."""


class ThresholdObjective(Objective):
    """The objective of a measure of `ThresholdFamily`."""

    risk: Any
    """β."""

    @property
    def context_size(self) -> int:
        return 3 * NUMBER_WAVES + 1

    @property
    def candidates(self) -> int:
        return len(OFFSETS) + SPREAD

    def plan(self) -> Thresholds:
        return Thresholds(jnp.zeros(self.candidates), jnp.eye(self.candidates)[0], jnp.asarray(BLUR[0]))

    def first(self, plan: Thresholds, candidate: Int[Array, ""]) -> Left:
        return Left(plan.first[candidate], jnp.ones(()))

    def preferred(self, plan: Thresholds) -> Int[Array, ""]:
        """Return the number of the best threshold according to the critic."""
        return jnp.zeros((), jnp.int32)

    def explore(self, plan: Thresholds, units: Units, draw: Float[Array, ""]) -> Left:
        """Return a threshold from the whole range."""
        low, high = self._range(units)
        return Left(low + (high - low) * draw, jnp.ones(()))

    def near(self, plan: Thresholds, units: Units, draws: Float[Array, "2"]) -> Left:
        """Return a threshold near the best one."""
        return Left(plan.first[0] + CLOSE * units.unit * normal(draws[1]), jnp.ones(()))

    def advance(self, context: Left, reward: Float[Array, "*G"], discount: Any) -> Left:
        return Left(context.left - context.weight * reward, context.weight * discount)

    def encode(self, context: Left, units: Units, expected: Float[Array, ""]) -> Float[Array, " F"]:
        """Return the features of a context, also relative to what is still expected."""
        left = context.left / jnp.maximum(context.weight, 1e-6)
        return jnp.concatenate([encode_goal(left, units, expected), context.weight[None]])

    def relabel(
        self, step: Transition, count: int, plan: Thresholds, units: Units, discount: Any, *, key: Key
    ) -> tuple[Left, Left]:
        """Return contexts in which a stored step may have been taken, and those after it."""
        u, kind, shift = jax.random.uniform(key, (3, count))
        near = plan.first[0] + jnp.where(kind < OWN, CLOSE, FAR) * units.unit * normal(shift)
        low, high = self._range(units)
        wide = low + (high - low) * (jnp.arange(count, dtype=jnp.float32) + u) / count
        left = jnp.where(kind < OWN + AROUND, near, wide) - step.return_so_far
        weight = power(discount, step.time)
        now, following = (jnp.full(count, w) for w in (weight, weight * discount))
        return Left(left + weight * step.reward, now), Left(left, following)

    def utility(self, context: Left, returns: Float[Array, "*N"], plan: Thresholds, units: Units) -> Float[Array, "*N"]:
        """Return v(γᵗ Z − c)/γᵗ of returns to go, in units."""
        knots, table = self._table(plan, units)
        x = context.weight * returns - context.left / units.unit
        utility = interpolate(x, knots / units.unit, table) + TIE * context.weight * returns
        return utility / jnp.maximum(context.weight, 1e-6)

    def expected(
        self, context: Left, law: Float[Array, "N *A"], probs: Float[Array, " N"], plan: Thresholds, units: Units
    ) -> Float[Array, "*A"]:
        return jnp.tensordot(probs, self.utility(context, law, plan, units), axes=1)

    def error(
        self,
        context: Left,
        law: Float[Array, " N"],
        aim: Float[Array, " N"],
        probs: Float[Array, " N"],
        plan: Thresholds,
        units: Units,
    ) -> Float[Array, ""]:
        return self.expected(context, law, probs, plan, units) - self.expected(context, aim, probs, plan, units)

    def estimate(
        self, context: Left, atoms: Float[Array, "N A"], probs: Float[Array, " N"], units: Units
    ) -> Float[Array, " A"]:
        """Return β of the predicted returns to go."""
        return jax.vmap(lambda column: self.risk.of(units.unit * column, probs), in_axes=1)(atoms) / units.unit

    def refresh(self, plan: Thresholds, root: Any, units: Units, progress: Float[Array, ""]) -> Thresholds:
        """Return the best threshold according to the critic, and others."""
        low, high = self._range(units)
        b = low + (high - low) * jnp.linspace(0.0, 1.0, GRID)

        def value(threshold: Float[Array, ""]) -> Float[Array, ""]:
            """Return β_b. The utility of the table is v, up to the scale and its lowest value."""
            _, utility = root(Left(threshold, jnp.ones(())))
            return self.risk.value_at(threshold, jnp.mean(utility) * units.unit, units.unit)

        known = self.risk.threshold
        best = b[jnp.argmax(jax.vmap(value)(b))] if known is None else jnp.asarray(known, jnp.float32)
        near = best + units.unit * jnp.asarray(OFFSETS)
        spread = low + (high - low) * (jnp.arange(SPREAD, dtype=jnp.float32) + 0.5) / SPREAD
        blur = BLUR[0] + (BLUR[1] - BLUR[0]) * jnp.minimum(progress, 1.0)
        return Thresholds(jnp.concatenate([near, spread]), plan.weights, blur)

    def _range(self, units: Units) -> tuple[Any, Any]:
        """Return the smallest and the largest threshold that is trained: around the known one, or of all returns."""
        if (known := self.risk.threshold) is None:
            return units.low, units.high
        around = AROUND_KNOWN * _spread(units)
        return known - around, known + around

    def _table(self, plan: Thresholds, units: Units) -> tuple[Float[Array, " T"], Float[Array, " T"]]:
        """Return equally spaced differences between return and threshold, and v there, in units."""
        low, high = self._range(units)
        margin = 0.05 * _spread(units)
        knots = jnp.linspace(units.low - high - margin, units.high - low + margin, KNOTS)
        v = self.risk.gain(knots, units.unit, plan.blur)
        worst = jnp.min(jnp.where(jnp.isfinite(v), v, jnp.inf))
        v = jnp.where(jnp.isfinite(v), v, worst)  # where a utility is not defined
        if self.risk.monetary:
            return knots, v / units.unit
        varies = jnp.ptp(v) / SCALE
        return knots, (v - worst) / jnp.where(varies > 0, varies, 1.0)


def _spread(units: Units) -> Float[Array, ""]:
    """Return the width of the range of returns, one unit where all episodes so far had the same return."""
    return jnp.where(units.high > units.low, units.high - units.low, units.unit)
