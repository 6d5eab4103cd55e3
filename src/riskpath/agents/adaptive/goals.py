"""Goals: the objective of CVaR, at every level at once, and of mixtures of the mean and CVaR.

The goal c_t = (b − R_{0:t−1})/γᵗ is the return still needed to reach b. With V(s, c, a) = E[(c − Z)⁺], the expected
shortfall of the return to go,

    CVaR_η = max_b { b − V(s₀, b)/η },     V(s, c, a) = E[γ min_a′ V(s′, (c − r)/γ, a′)]

so one critic for all goals serves every level η: only the first goal b depends on it. One goal is chosen for all
starts, before the start is seen. Mixtures with the mean maximise λ E[Z] − V instead, λ = (1 − w) η/w for (1 − w)·mean +
w·CVaR_η.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from riskpath.agents.adaptive.objective import Objective
from riskpath.agents.episodes import Units
from riskpath.nn.context_network import NUMBER_WAVES, encode_number
from riskpath.risk.compose import Mixture
from riskpath.risk.measures import CVaR, Mean, RiskMeasure
from riskpath.types import Key, Transition, power

NEAR, FAR = 4.0, 32.0
"""Goals are encoded finely up to 4 units from 0 and from the mean return, coarsely up to 32."""
OFFSETS = (0.0, *(sign / part for part in (64, 32, 16, 8) for sign in (-1, 1)))
FACTORS = (0.7, 1.4, 0.5, 2.0)
"""First goals that are compared on held-out episodes: the critic's own for the level, others this many units from it,
and those for the level times these factors. A small error of V, divided by a small level, moves the best goal that far.
"""
LEVELS = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Goals of all levels from the first of these to 1 are trained."""
GRID = 101
"""Number of first goals that the search for the best one compares."""
TIE = 1e-4
"""Weight of the mean, which decides between actions that are otherwise equal."""
OWN, WIDE = 0.5, 0.125
"""Shares of relabelled goals near the first goal of the measure, and from the range of all returns; the rest is drawn
from the goals that are useful for some level."""
NEARBY = 0.1
"""How near, in units."""


class Goals(eqx.Module):
    """The plan: the first goals, which follow from the critic."""

    first: Float[Array, " M"]
    """The first goal of the measure, and others near it."""
    weights: Float[Array, " M"]
    """The probability that an episode starts with each of them."""
    levels: Float[Array, " L"]
    """The best first goals of `LEVELS`: the first one that of the lowest level, the last one that of the mean."""


class Goal(eqx.Module):
    """The context of a step."""

    goal: Float[Array, "*G"]
    """c_t."""


def serves(risk: RiskMeasure) -> bool:
    """Tell whether a measure is the mean, CVaR, or a mixture of the mean and one CVaR."""
    parts = risk.measures if isinstance(risk, Mixture) else (risk,)
    return all(isinstance(p, CVaR | Mean) for p in parts) and sum(isinstance(p, CVaR) for p in parts) <= 1


def parts(risk: RiskMeasure) -> tuple[Any, Any]:
    """Return w and η of the measure (1 − w)·mean + w·CVaR_η; they may be traced. The mean is CVaR₁."""
    if isinstance(risk, Mixture):
        for share, part in zip(risk.shares, risk.measures, strict=True):
            if isinstance(part, CVaR):
                return share, part.level
    return 1.0, risk.level if isinstance(risk, CVaR) else 1.0


class GoalObjective(Objective):
    """The objective of the mean, of CVaR and of their mixtures."""

    risk: RiskMeasure
    """β."""
    offsets: tuple[float, ...] = eqx.field(static=True, default=OFFSETS)
    """Candidates near the best first goal, in units from it; the first one is the goal itself."""

    @property
    def context_size(self) -> int:
        return 3 * NUMBER_WAVES

    @property
    def candidates(self) -> int:
        """Return the number of first goals that are compared."""
        return len(self.offsets) + len(FACTORS)

    def plan(self) -> Goals:
        return Goals(jnp.zeros((self.candidates,)), jnp.eye(self.candidates)[0], jnp.zeros((len(LEVELS),)))

    def first(self, plan: Goals, candidate: Int[Array, ""]) -> Goal:
        return Goal(plan.first[candidate])

    def preferred(self, plan: Goals) -> Int[Array, ""]:
        """Return the number of the goal for the measure itself."""
        return jnp.zeros((), jnp.int32)

    def explore(self, plan: Goals, units: Units, draw: Float[Array, ""]) -> Goal:
        """Return the first goal of a training episode, one of the useful ones, from a uniform draw."""
        low, high = useful(plan.levels, units)
        return Goal(low + (high - low) * draw)

    def near(self, plan: Goals, units: Units, draws: Float[Array, "2"]) -> Goal:
        """Return a goal near the best first goal of one of `LEVELS`, or of the measure, twice as often."""
        best = jnp.concatenate([plan.first[:1], plan.first[:1], plan.levels])
        chosen = best[jnp.floor(len(best) * draws[0]).astype(jnp.int32)]
        return Goal(chosen + NEARBY * units.unit * normal(draws[1]))

    def advance(self, context: Goal, reward: Float[Array, "*G"], discount: Any) -> Goal:
        return Goal(advance_goal(context.goal, reward, discount))

    def encode(self, context: Goal, units: Units, expected: Float[Array, ""]) -> Float[Array, " F"]:
        return encode_goal(context.goal, units, expected)

    def relabel(
        self, step: Transition, count: int, plan: Goals, units: Units, discount: Any, *, key: Key
    ) -> tuple[Goal, Goal]:
        """Return contexts with which a stored step may have been taken, and those after it."""
        now, following = goals_at(step, draw_goals(plan.first[0], plan.levels, units, count, key=key), discount)
        return Goal(now), Goal(following)

    def utility(self, context: Goal, returns: Float[Array, "*N"], plan: Goals, units: Units) -> Float[Array, "*N"]:
        """Return λ Z − (c − Z)⁺ of returns to go, all in units."""
        return self.mean_weight * returns - jnp.maximum(context.goal / units.unit - returns, 0.0)

    def expected(
        self, context: Goal, law: Float[Array, "N *A"], probs: Float[Array, " N"], plan: Goals, units: Units
    ) -> Float[Array, "*A"]:
        return jnp.tensordot(probs, self.utility(context, law, plan, units), axes=1)

    def error(
        self,
        context: Goal,
        law: Float[Array, " N"],
        aim: Float[Array, " N"],
        probs: Float[Array, " N"],
        plan: Goals,
        units: Units,
    ) -> Float[Array, ""]:
        return self.expected(context, law, probs, plan, units) - self.expected(context, aim, probs, plan, units)

    @property
    def mean_weight(self) -> Any:
        """Return λ, at least a small number so that the mean decides between otherwise equal actions."""
        w, level = parts(self.risk)
        return (1.0 - w) * level / w + TIE

    def estimate(
        self, context: Goal, atoms: Float[Array, "N A"], probs: Float[Array, " N"], units: Units
    ) -> Float[Array, " A"]:
        """Return w (c − V/η) + (1 − w) E[Z], in units."""
        w, level = parts(self.risk)
        goal, mean = context.goal / units.unit, probs @ atoms
        return w * (goal - probs @ jnp.maximum(goal - atoms, 0.0) / level) + (1.0 - w) * mean

    def value(self, context: Goal, utility: Float[Array, "*N"], plan: Goals, units: Units) -> Float[Array, "*N"]:
        """Return w (c − V/η) + (1 − w) E[Z] = w (c + E[λ Z − (c − Z)⁺]/η), in units, from the expected utility."""
        w, level = parts(self.risk)
        return w * (context.goal / units.unit + utility / level)

    def refresh(self, plan: Goals, root: Any, units: Units, progress: Float[Array, ""]) -> Goals:
        """Return the best goals according to the critic."""
        low, high = useful(plan.levels, units)
        lowest, highest = units.low, units.high
        line = jnp.linspace(0.0, 1.0, GRID)
        b = jnp.concatenate([lowest + (highest - lowest) * line, low + (high - low) * line])
        utility = jax.vmap(lambda goal: jnp.mean(root(Goal(goal))[1]))(b)
        level = parts(self.risk)[1]
        best = lambda eta: b[jnp.argmax(b / units.unit + utility / eta)]
        near = best(level) + units.unit * jnp.asarray(self.offsets)
        others = jax.vmap(best)(jnp.clip(level * jnp.asarray(FACTORS), LEVELS[0] / 4, 1.0))
        return Goals(jnp.concatenate([near, others]), plan.weights, jax.vmap(best)(jnp.asarray(LEVELS)))


def useful(levels: Float[Array, " L"], units: Units) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the range of goals that some level uses, with a margin; all returns while nothing is known."""
    low, high = levels[0], levels[-1]
    margin, known = 0.1 * jnp.maximum(high - low, 0.2 * units.unit), high > low
    return jnp.where(known, low - margin, units.low), jnp.where(known, high + margin, units.high)


def advance_goal(goal: Float[Array, "*G"], reward: Float[Array, "*G"], discount: Any) -> Float[Array, "*G"]:
    """Return c′ = (c − r)/γ."""
    return (goal - reward) / discount


def encode_goal(goal: Float[Array, ""], units: Units, expected: Float[Array, ""]) -> Float[Array, " F"]:
    """Return the features of a goal, also relative to what is still expected."""
    x, centred = goal / units.unit, (goal - expected) / units.unit
    return jnp.concatenate([encode_number(centred, NEAR), encode_number(x, NEAR), encode_number(x, FAR)])


def draw_goals(
    own: Float[Array, "*n"], levels: Float[Array, " L"], units: Units, count: int, *, key: Key
) -> Float[Array, " n"]:
    """Draw first goals for stored steps: near the best one, from the range of all returns, and useful ones."""
    u, kind, near = jax.random.uniform(key, (3, count), minval=1e-6)  # above 0, whose normal is infinite
    u = (jnp.arange(count, dtype=jnp.float32) + u) / count
    low, high = useful(levels, units)
    own = own + NEARBY * units.unit * normal(near)
    wide = units.low + (units.high - units.low) * u
    return jnp.where(kind < WIDE, wide, jnp.where(kind < WIDE + OWN, own, low + (high - low) * u))


def goals_at(
    step: Transition, first: Float[Array, "*n"], discount: Any
) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """Return the goals before and after a stored step, of episodes with these first goals."""
    following = (first - step.return_so_far) / power(discount, step.time + 1)
    return step.reward + discount * following, following


def normal(draw: Float[Array, "*N"]) -> Float[Array, "*N"]:
    """Return the normal quantile of a uniform draw."""
    return math.sqrt(2.0) * jax.lax.erf_inv(2.0 * jnp.clip(draw, 1e-6, 1.0 - 1e-6) - 1.0)
