"""Utilities: the objective of any risk measure.

Moving from the return distribution F to G changes β to first order by E_G[u] − E_F[u], where u is the influence
function of β at F, for a distortion

    u(z) = ∫^z h′(F(x)) dx

so the policy maximises E[u(R_{0:t−1} + γᵗ Z)], and u is recomputed from the return distribution that the critic
predicts for this policy. The iteration can end in a local maximum. So several candidates start from different
distributions, share one critic and one replay buffer, and are compared on held-out episodes. Where a mixture of
policies may be better than each of them, a mixture is tried; its policy is drawn at the start of an episode. For an
expected utility u does not depend on F, so there is one candidate.

With a floor under another measure ρ, candidates maximise (1 − s)·β + s·ρ for several weights s. So one training yields
policies from the best one without a floor to the safest one, and serves every floor.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from riskpath.agents.adaptive.objective import Objective
from riskpath.agents.episodes import Units
from riskpath.nn.context_network import NUMBER_WAVES, encode_number
from riskpath.nn.losses import midpoints
from riskpath.risk.compose import WeightedSum
from riskpath.risk.entropic import Entropic
from riskpath.risk.measures import DistortionMeasure
from riskpath.risk.risk_measure import RiskMeasure
from riskpath.risk.utility_measures import ReachProbability, Utility
from riskpath.types import Key, Transition, power

NEAR, FAR = 4.0, 32.0
"""Returns so far are encoded finely up to 4 units from 0 and from the mean return, coarsely up to 32."""
CANDIDATES = 6
"""One starts as if for the mean, four from narrow distributions in the quarters of the range of returns, one from a
distribution over the whole range."""
ATOMS = 64
"""Number of atoms of a distribution."""
RATE, RAMP = 0.05, 0.5
"""The rate at which a distribution follows the critic per target update, and the progress of the learning-rate decay at
which it gets there. The rate grows until then: a candidate first learns the best policy for its first distribution."""
FLOOR_SHARES = (0.0, 0.15, 0.35, 0.55, 0.75, 0.9)
"""Weights s of the measure with a floor. For each s two candidates start from different distributions."""
KNOTS = 1025
"""Number of returns at which an influence function is tabulated; between them it is linear, so a jump becomes steep."""
FEW = 2
"""For so few returns a product compiles faster than a loop over the knots that is unrolled."""
TIE = 1e-4
"""Slope added to u, so that the mean decides between actions that are otherwise equal."""


class Floor(eqx.Module):
    """A measure that must reach a floor."""

    measure: RiskMeasure
    """ρ."""
    least: float = eqx.field(static=True)
    """The floor, in units of the return."""


class Laws(eqx.Module):
    """The distribution of the whole return from which each candidate derives its utility."""

    atoms: Float[Array, "M K"]
    """Equally likely, in ascending order."""
    weights: Float[Array, " M"]
    """The probability that each candidate plays an episode."""
    values: Float[Array, " M"]
    """β of the distribution that the critic predicts for each candidate, in units."""
    age: Float[Array, ""]
    """Number of updates."""


class Standing(eqx.Module):
    """The context of a step."""

    candidate: Int[Array, ""]
    so_far: Float[Array, ""]
    """R_{0:t−1}."""
    weight: Float[Array, ""]
    """γᵗ."""


class UtilityObjective(Objective):
    """The objective of a measure, by its influence function."""

    risk: RiskMeasure
    """β."""
    floor: Floor | None = None
    """A measure with its floor."""

    @property
    def context_size(self) -> int:
        return 3 * NUMBER_WAVES + self.candidates + 1

    @property
    def candidates(self) -> int:
        """Return the number of distributions from which utilities start."""
        if self.floor is not None:
            return 2 * len(FLOOR_SHARES)
        return 1 if is_expected_utility(self.risk) else CANDIDATES

    def plan(self) -> Laws:
        count = self.candidates
        return Laws(jnp.zeros((count, ATOMS)), jnp.eye(count)[0], jnp.zeros(count), jnp.zeros(()))

    def first(self, plan: Laws, candidate: Int[Array, ""]) -> Standing:
        return Standing(candidate, jnp.zeros(()), jnp.ones(()))

    def preferred(self, plan: Laws) -> Int[Array, ""]:
        """Return the candidate with the largest β of its predicted distribution."""
        return jnp.argmax(plan.values).astype(jnp.int32)

    def explore(self, plan: Laws, units: Units, draw: Float[Array, ""]) -> Standing:
        """Return the context of the candidate that plays a training episode, from a uniform draw."""
        return self.first(plan, jnp.floor(self.candidates * draw).astype(jnp.int32))

    def near(self, plan: Laws, units: Units, draws: Float[Array, "2"]) -> Standing:
        """Return the context of a candidate; there are no others."""
        return self.explore(plan, units, draws[0])

    def advance(self, context: Standing, reward: Float[Array, ""], discount: Any) -> Standing:
        return Standing(context.candidate, context.so_far + context.weight * reward, context.weight * discount)

    def encode(self, context: Standing, units: Units, expected: Float[Array, ""]) -> Float[Array, " F"]:
        """Return the features of a context, also relative to what is usual at this time."""
        usual = units.mean - expected
        x, centred = context.so_far / units.unit, (context.so_far - usual) / units.unit
        number = jnp.concatenate([encode_number(centred, NEAR), encode_number(x, NEAR), encode_number(x, FAR)])
        return jnp.concatenate([number, jax.nn.one_hot(context.candidate, self.candidates), context.weight[None]])

    def relabel(
        self, step: Transition, count: int, plan: Laws, units: Units, discount: Any, *, key: Key
    ) -> tuple[Standing, Standing]:
        """Return the contexts of other candidates at a stored step, and those after it."""
        candidate = (
            jax.random.randint(key, (), 0, self.candidates) + jnp.arange(count, dtype=jnp.int32)
        ) % self.candidates
        weight = power(discount, step.time)
        before = step.return_so_far - weight * step.reward
        now = jax.vmap(lambda m: Standing(m, before, weight))(candidate)
        return now, jax.vmap(lambda m: Standing(m, step.return_so_far, weight * discount))(candidate)

    def utility(self, context: Standing, returns: Float[Array, "*N"], plan: Laws, units: Units) -> Float[Array, "*N"]:
        """Return u(R_{0:t−1} + γᵗ Z)/γᵗ of returns to go, in units."""
        slope = self._slope
        laws, whole = self._atoms(plan, units, slope), context.so_far / units.unit + context.weight * returns
        if isinstance(self.risk, DistortionMeasure) and self.floor is None:
            utility = piecewise(whole, laws[context.candidate] / units.unit, slope)
        else:  # for all candidates, so that it is computed once for all samples of a batch
            knots, tables = self._tables(laws, units)
            utility = interpolate(whole, knots / units.unit, tables[context.candidate])
        return (utility + TIE * whole) / jnp.maximum(context.weight, 1e-6)

    def expected(
        self, context: Standing, law: Float[Array, "N *A"], probs: Float[Array, " N"], plan: Laws, units: Units
    ) -> Float[Array, "*A"]:
        return jnp.tensordot(probs, self.utility(context, law, plan, units), axes=1)

    def error(
        self,
        context: Standing,
        law: Float[Array, " N"],
        aim: Float[Array, " N"],
        probs: Float[Array, " N"],
        plan: Laws,
        units: Units,
    ) -> Float[Array, ""]:
        error = self.expected(context, law, probs, plan, units) - self.expected(context, aim, probs, plan, units)
        return error / jnp.maximum((units.high - units.low) / units.unit, 1.0)

    def estimate(
        self, context: Standing, atoms: Float[Array, "N A"], probs: Float[Array, " N"], units: Units
    ) -> Float[Array, " A"]:
        """Return β of the predicted returns to go."""
        return jax.vmap(lambda column: self.risk.of(units.unit * column, probs), in_axes=1)(atoms) / units.unit

    def value(self, context: Standing, utility: Float[Array, ""], plan: Laws, units: Units) -> Float[Array, ""]:
        """Return β as it was last predicted for the candidate, less what was earned so far, in units."""
        earned = context.so_far / units.unit if self.risk.monetary else 0.0
        return (plan.values[context.candidate] - earned) / jnp.maximum(context.weight, 1e-6)

    def refresh(self, plan: Laws, root: Any, units: Units, progress: Float[Array, ""]) -> Laws:
        """Move each candidate's distribution towards the critic's prediction; for an expected utility, replace it."""
        settled = is_expected_utility(self.risk) and self.floor is None
        rate = 1.0 if settled else RATE * jnp.minimum(progress / RAMP, 1.0)
        probs = jnp.full(ATOMS, 1.0 / ATOMS)

        def one(candidate: Int[Array, ""], atoms: Float[Array, " K"]) -> tuple[Float[Array, " K"], Float[Array, ""]]:
            law = units.unit * root(self.first(plan, candidate))[0]
            value = self.risk.of(law, probs) / units.unit
            if self.floor is not None:  # what is missing counts more than any objective
                missing = jnp.maximum(self.floor.least - self.floor.measure.of(law, probs), 0.0) / units.unit
                value = jnp.where(missing > 0, -1e6 * (1.0 + missing), value)
            return atoms + rate * (law - atoms), value

        candidates = jnp.arange(self.candidates, dtype=jnp.int32)
        atoms, values = jax.vmap(one)(candidates, self._atoms(plan, units, self._slope))
        return Laws(atoms, plan.weights, values, plan.age + 1.0)

    def _tables(self, laws: Float[Array, "M K"], units: Units) -> tuple[Float[Array, " T"], Float[Array, "M T"]]:
        """Return equally spaced returns, and u of each candidate there, in units."""
        spread = units.high - units.low
        margin = jnp.where(spread > 0, 0.05 * spread, units.unit)  # all episodes may have had the same return
        knots = jnp.linspace(units.low - margin, units.high + margin, KNOTS)
        tables = lambda risk: jax.vmap(lambda atoms: influence_table(risk, knots, atoms, units))(laws)
        if self.floor is None:
            return knots, tables(self.risk)
        shares = jnp.asarray(FLOOR_SHARES * 2)[:, None]
        return knots, (1.0 - shares) * tables(self.risk) + shares * tables(self.floor.measure)

    @property
    def _slope(self) -> Float[Array, " K1"]:
        """Return h′ between the atoms; a measure without h has slopes that are 1 in the middle."""
        if isinstance(self.risk, DistortionMeasure):
            return slopes(self.risk, ATOMS)
        return 1.0 + jnp.abs(jnp.linspace(-1.0, 1.0, ATOMS + 1))

    def _atoms(self, plan: Laws, units: Units, slope: Float[Array, " K1"]) -> Float[Array, "M K"]:
        """Return the atoms of the distributions; before training these lie in different parts of the range of returns.

        The first distribution has atoms below and above the range, none inside: there u has one slope, h′ at their
        border.
        """
        level = midpoints(ATOMS)[None, :]
        quarters = (jnp.arange(4, dtype=jnp.float32)[:, None] + level) / 4
        border = jnp.argmin(jnp.abs(jnp.log(jnp.maximum(slope, 1e-6))))  # a slope of about 1
        outside = jnp.where(jnp.arange(ATOMS)[None, :] < border, -1.0, 2.0)
        shares = jnp.concatenate([outside, quarters, level])[-self.candidates :]
        if self.floor is not None:
            shares = jnp.repeat(jnp.concatenate([outside, level]), len(FLOOR_SHARES), axis=0)
        start = units.low + (units.high - units.low) * shares
        return jnp.where(plan.age > 0, plan.atoms, start)


def is_expected_utility(risk: RiskMeasure) -> bool:
    """Tell whether a measure has the same influence function at every distribution, up to scale."""
    return isinstance(risk, Entropic | Utility | ReachProbability)


def influence_at(risk: RiskMeasure, z: Float[Array, " T"], atoms: Float[Array, " K"]) -> Float[Array, " T"]:
    """Return the influence of returns at a distribution of equally likely atoms."""
    if isinstance(risk, WeightedSum):
        parts = [s * influence_at(part, z, atoms) for s, part in zip(risk.shares, risk.measures, strict=True)]
        return sum(parts[1:], parts[0])
    if isinstance(risk, DistortionMeasure):
        slope = slopes(risk, len(atoms))  # as a product: a loop that is unrolled for every part compiles slowly
        return slope[0] * (z - atoms[0]) + jnp.maximum(z[:, None] - atoms[None, :], 0.0) @ jnp.diff(slope)
    return risk.influence(z, atoms, jnp.full(len(atoms), 1.0 / len(atoms)))


def influence_table(
    risk: RiskMeasure, knots: Float[Array, " T"], atoms: Float[Array, " K"], units: Units
) -> Float[Array, " T"]:
    """Return the influence at equally spaced returns, in units.

    A measure with a unit of its own, such as a probability, is scaled: u varies by some units over a distribution.
    """
    u = influence_at(risk, knots, atoms)
    worst = jnp.min(jnp.where(jnp.isfinite(u), u, jnp.inf))
    u = jnp.where(jnp.isfinite(u), u, worst)  # where a utility is not defined
    if risk.monetary:
        return u / units.unit
    varies = jnp.maximum(jnp.ptp(jnp.interp(atoms, knots, u)), 0.1 * jnp.ptp(u)) / 4.0
    return (u - worst) / jnp.where(varies > 0, varies, 1.0)


def interpolate(z: Float[Array, "*N"], knots: Float[Array, " T"], values: Float[Array, " T"]) -> Float[Array, "*N"]:
    """Return the function that is linear between equally spaced knots, and goes on with the slope at its ends."""
    place = (z - knots[0]) / (knots[-1] - knots[0]) * (len(knots) - 1)
    below = jnp.clip(place.astype(jnp.int32), 0, len(knots) - 2)
    return values[below] + (place - below.astype(jnp.float32)) * (values[below + 1] - values[below])


def slopes(risk: DistortionMeasure, count: int) -> Float[Array, " K1"]:
    """Return h′ between the atoms of a distribution of `count` equally likely ones, and beyond the first and the last.

    Where h jumps, as for VaR and the worst case, the jump is spread over the atoms on both sides of it.
    """
    levels, widths = jnp.linspace(0.0, 1.0, count + 1)[None, :], jnp.array([[0.5], [1.0]]) / count
    low, high = jnp.maximum(levels - widths, 0.0), jnp.minimum(levels + widths, 1.0)
    # h is many operations for some measures, so it is called once.
    below, above = jnp.split(jnp.asarray(risk.weight(jnp.concatenate([low, high]).ravel())), 2)
    exact, spread = (above - below).reshape(low.shape) / (high - low)
    return jnp.where(jnp.max(exact) >= 0.999 * count, spread, exact)


def piecewise(z: Float[Array, "*N"], knots: Float[Array, " K"], slope: Float[Array, " K1"]) -> Float[Array, "*N"]:
    """Return the function with these slopes between the knots (ascending) that is 0 at the first one."""
    total = slope[0] * (z - knots[0])
    if z.size <= FEW:
        return total + jnp.maximum(z[..., None] - knots[(None,) * z.ndim], 0.0) @ jnp.diff(slope)
    for knot, bend in zip(knots, jnp.diff(slope), strict=True):  # one loop over z is faster than an array of z × knots
        total = total + bend * jnp.maximum(z - knot, 0.0)
    return total
