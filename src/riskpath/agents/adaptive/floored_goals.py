"""Goals with a floor: the objective of the best mean whose CVaR, or mixture with CVaR, reaches a floor; and vice versa.

With the objective β and the measure ρ that has the floor x, candidates maximise the Lagrangian at several shares s,
which gives an upper bound:

    L_s = max_π (1 − s) β + s ρ,     best β with ρ ≥ x ≤ min_s (L_s − s x)/(1 − s)

The bound need not be attained, because CVaR is convex in draws: the best draw is between two policies of one goal,
which need not be the best goal of its share. So goals near it are candidates, too. The larger s, the safer the policy.

If β is the mean and ρ a CVaR (or their mixtures, with one CVaR between the two),
then (1 − s) β + s ρ = (1 − w) E[Z] + w CVaR_η, where w depends on s. That is a problem of goals (`goals.py`):

    L_s = max_b { w b + E[(1 − w) Z − w/η (b − Z)⁺] } = max_b { w b + (1 − w + w/η) E[u_{s,b}(Z)] },
    u_{s,c}(z) = (1 − k) z − k (c − z)⁺,     k = w/(w + η (1 − w))

so one critic that sees s beside the goal learns the policies of every floor. Only their choice depends on x.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from riskpath.agents.adaptive.goals import (
    NEARBY,
    TIE,
    advance_goal,
    draw_goals,
    encode_goal,
    goals_at,
    normal,
    parts,
    serves,
    useful,
)
from riskpath.agents.adaptive.objective import Objective
from riskpath.agents.adaptive.utilities import Floor
from riskpath.agents.episodes import Units
from riskpath.nn.context_network import NUMBER_WAVES
from riskpath.risk.compose import Mixture
from riskpath.risk.measures import CVaR, RiskMeasure
from riskpath.types import Key, Transition

SHARES = (0.0, 0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0)
"""The shares s. Neighbours give policies that draws between them join."""
OFFSETS = (0.0, -0.125, 0.125)
"""Goals that are compared for every share, in units from the critic's own."""
COARSE, FINE = 26, 51
"""Number of goals of every share among which the search looks for the best: over all returns, and over useful goals."""


class FlooredPlan(eqx.Module):
    """The first goals of all shares, which follow from the critic."""

    first: Float[Array, " M"]
    """The best first goal of every share, then those at the next offset."""
    weights: Float[Array, " M"]
    """The probability that an episode starts with each of them."""
    levels: Float[Array, "2"]
    """The lowest and the highest one of the best goals."""
    duals: Float[Array, " S"]
    """(L_s − s x)/(1 − s) by the critic, in units: upper bounds of β with this floor."""


class FlooredGoal(eqx.Module):
    """The context of a step."""

    goal: Float[Array, "*G"]
    """c_t."""
    share: Int[Array, "*G"]
    """The number of s."""


def serves_floor(risk: RiskMeasure, measure: RiskMeasure) -> bool:
    """Tell whether a measure and that of a floor are the mean, CVaR or mixtures of them, with one CVaR in all."""
    return serves(risk) and serves(measure) and not (_has_cvar(risk) and _has_cvar(measure))


class FlooredGoals(Objective):
    """The objective of the mean, of CVaR and of their mixtures, with a floor under another one of them."""

    risk: RiskMeasure
    """β."""
    floor: Floor
    """ρ and x."""
    offsets: tuple[float, ...] = eqx.field(static=True, default=OFFSETS)
    """Candidates near the best first goal of every share, in units from it; the first one is the goal itself."""

    @property
    def context_size(self) -> int:
        return 3 * NUMBER_WAVES + len(SHARES)

    @property
    def candidates(self) -> int:
        return len(SHARES) * len(self.offsets)

    def plan(self) -> FlooredPlan:
        count = self.candidates
        return FlooredPlan(jnp.zeros(count), jnp.eye(count)[0], jnp.zeros(2), jnp.zeros(len(SHARES)))

    def first(self, plan: FlooredPlan, candidate: Int[Array, ""]) -> FlooredGoal:
        return FlooredGoal(plan.first[candidate], candidate % len(SHARES))

    def preferred(self, plan: FlooredPlan) -> Int[Array, ""]:
        """Return the share whose Lagrangian gives the lowest upper bound, with the critic's own goal."""
        return jnp.argmin(plan.duals).astype(jnp.int32)

    def explore(self, plan: FlooredPlan, units: Units, draw: Float[Array, ""]) -> FlooredGoal:
        """Return the context of a training episode: a share, with its best goal half of the time, else a useful one."""
        share, draw = _pick_share(draw)
        low, high = useful(plan.levels, units)
        goal = jnp.where(draw < 0.5, plan.first[share], low + (high - low) * (2.0 * draw - 1.0))
        return FlooredGoal(goal, share)

    def near(self, plan: FlooredPlan, units: Units, draws: Float[Array, "2"]) -> FlooredGoal:
        """Return a goal near the best first goal of a share."""
        share, _ = _pick_share(draws[0])
        return FlooredGoal(plan.first[share] + NEARBY * units.unit * normal(draws[1]), share)

    def advance(self, context: FlooredGoal, reward: Float[Array, "*G"], discount: Any) -> FlooredGoal:
        return FlooredGoal(advance_goal(context.goal, reward, discount), context.share)

    def encode(self, context: FlooredGoal, units: Units, expected: Float[Array, ""]) -> Float[Array, " F"]:
        share = jax.nn.one_hot(context.share, len(SHARES))
        return jnp.concatenate([encode_goal(context.goal, units, expected), share])

    def relabel(
        self, step: Transition, count: int, plan: FlooredPlan, units: Units, discount: Any, *, key: Key
    ) -> tuple[FlooredGoal, FlooredGoal]:
        """Return contexts with which a stored step may have been taken, and those after it."""
        goal_key, share_key = jax.random.split(key)
        share = jax.random.randint(share_key, (count,), 0, len(SHARES))
        b = draw_goals(plan.first[share], plan.levels, units, count, key=goal_key)
        now, following = goals_at(step, b, discount)
        return FlooredGoal(now, share), FlooredGoal(following, share)

    def utility(
        self, context: FlooredGoal, returns: Float[Array, "*N"], plan: FlooredPlan, units: Units
    ) -> Float[Array, "*N"]:
        """Return u_{s,c}(Z) of returns to go, all in units."""
        weight, level = self._tail()
        k = (weight / (weight + level * (1.0 - weight)))[context.share]
        return (1.0 - k + TIE) * returns - k * jnp.maximum(context.goal / units.unit - returns, 0.0)

    def expected(
        self,
        context: FlooredGoal,
        law: Float[Array, "N *A"],
        probs: Float[Array, " N"],
        plan: FlooredPlan,
        units: Units,
    ) -> Float[Array, "*A"]:
        return jnp.tensordot(probs, self.utility(context, law, plan, units), axes=1)

    def error(
        self,
        context: FlooredGoal,
        law: Float[Array, " N"],
        aim: Float[Array, " N"],
        probs: Float[Array, " N"],
        plan: FlooredPlan,
        units: Units,
    ) -> Float[Array, ""]:
        return self.expected(context, law, probs, plan, units) - self.expected(context, aim, probs, plan, units)

    def estimate(
        self, context: FlooredGoal, atoms: Float[Array, "N A"], probs: Float[Array, " N"], units: Units
    ) -> Float[Array, " A"]:
        """Return β, with the goal as the threshold of a CVaR, in units."""
        (w, level), goal = _parts(self.risk), context.goal / units.unit
        return w * (goal - probs @ jnp.maximum(goal - atoms, 0.0) / level) + (1.0 - w) * (probs @ atoms)

    def value(
        self, context: FlooredGoal, utility: Float[Array, "*N"], plan: FlooredPlan, units: Units
    ) -> Float[Array, "*N"]:
        """Return w c + (1 − w + w/η) E[u_{s,c}], in units: (1 − s) β + s ρ with the goal as the threshold of CVaR."""
        weight, level = self._tail()
        w = weight[context.share]
        return w * context.goal / units.unit + (1.0 - w + w / level) * utility

    def refresh(self, plan: FlooredPlan, root: Any, units: Units, progress: Float[Array, ""]) -> FlooredPlan:
        """Return the best goals of all shares, and the bounds for the floor, according to the critic."""
        low, high = useful(plan.levels, units)
        wide = units.low + (units.high - units.low) * jnp.linspace(0.0, 1.0, COARSE)
        b = jnp.concatenate([wide, low + (high - low) * jnp.linspace(0.0, 1.0, FINE)])

        def of_share(share: Int[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
            contexts = FlooredGoal(b, jnp.full(b.shape, share))
            value = lambda context: self.value(context, jnp.mean(root(context)[1]), plan, units)
            values = jax.vmap(value)(contexts)
            return b[jnp.argmax(values)], jnp.max(values)

        best, lagrangian = jax.vmap(of_share)(jnp.arange(len(SHARES), dtype=jnp.int32))
        matters = self._tail()[0] > 0  # the mean has no goal
        ends = jnp.min(jnp.where(matters, best, jnp.inf)), jnp.max(jnp.where(matters, best, -jnp.inf))
        levels = jnp.where(jnp.any(matters), jnp.stack(ends), 0.0)
        first = jnp.clip(best, *levels)[None] + units.unit * jnp.asarray(self.offsets)[:, None]
        s, x = jnp.asarray(SHARES), self.floor.least / units.unit
        reached = jnp.where(lagrangian < x, -jnp.inf, jnp.inf)  # at s = 1 there is only the floor
        duals = jnp.where(s < 1.0, (lagrangian - s * x) / jnp.maximum(1.0 - s, 1e-6), reached)
        return FlooredPlan(first.ravel(), plan.weights, levels, duals)

    def _tail(self) -> tuple[Float[Array, " S"], Any]:
        """Return w of every share, and η."""
        (own, level), (floored, other) = _parts(self.risk), _parts(self.floor.measure)
        s = jnp.asarray(SHARES)
        return (1.0 - s) * own + s * floored, other if _has_cvar(self.floor.measure) else level


def _parts(risk: RiskMeasure) -> tuple[Any, Any]:
    """Return the weight and the level of the CVaR in a measure; 0 and 1 for the mean."""
    return parts(risk) if _has_cvar(risk) else (0.0, 1.0)


def _has_cvar(risk: RiskMeasure) -> bool:
    return any(isinstance(part, CVaR) for part in (risk.measures if isinstance(risk, Mixture) else (risk,)))


def _pick_share(draw: Float[Array, ""]) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """Return the number of a share and another uniform draw."""
    share = jnp.minimum((len(SHARES) * draw).astype(jnp.int32), len(SHARES) - 1)
    return share, len(SHARES) * draw - share.astype(jnp.float32)
