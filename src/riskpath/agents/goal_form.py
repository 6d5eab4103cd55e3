"""Goals: how `Adaptive` maximises CVaR, at every level at once, and mixtures of the mean and CVaR.

The goal c_t = (b − R_{0:t−1})/γᵗ is what is still needed to reach b. With V(s, c, a) = E[(c − Z)⁺], what the return to
go is expected to fall short of it,

    CVaR_η = max_b { b − V(s₀, b)/η },     V(s, c, a) = E[γ min_a′ V(s′, (c − r)/γ, a′)]

so one critic for all goals serves every level η: only the first goal b depends on it. A goal is chosen before the start
is seen, one for all starts. Mixtures with the mean maximise λ E[Z] − V instead, λ = (1 − w) η/w for (1 − w)·mean +
w·CVaR_η.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from riskpath.agents.episodes import Units
from riskpath.nn.law_critic import NUMBER_WAVES, describe
from riskpath.risk.compose import Mixture
from riskpath.risk.measures import CVaR, Mean, RiskMeasure
from riskpath.types import Key, Transition, power

NEAR, FAR = 4.0, 32.0
"""Goals are resolved finely up to 4 spreads from 0 and from the mean return, coarsely up to 32."""
OFFSETS = (0.0, *(sign / part for part in (64, 32, 16, 8) for sign in (-1, 1)))
FACTORS = (0.7, 1.4, 0.5, 2.0)
"""First goals that are compared on held-out episodes: the critic's own for the level, others this many spreads from it,
and those for the level times these factors. A small error of V, divided by a small level, moves the best goal that far.
"""
MEMBERS = len(OFFSETS) + len(FACTORS)
LOWEST_LEVEL = 0.02
"""Goals of all levels from here to 1 are trained."""
GRID = 101
"""First goals among which the best one is searched."""
TIE = 1e-4
"""Weight of the mean where nothing else tells actions apart."""
OWN, WIDE = 0.5, 0.125
"""Shares of relabelled goals near the first goal of the measure, and from the range of all returns; the rest is drawn
from the goals that are useful for some level."""
NEARBY = 0.1
"""How near, in spreads."""


class Goals(eqx.Module):
    """What follows from the critic: the first goals."""

    first: Float[Array, " M"]
    """The first goal of the measure, and others near it."""
    weights: Float[Array, " M"]
    """With which probability an episode starts with each of them."""
    low: Float[Array, ""]
    """The best first goal of the lowest level."""
    high: Float[Array, ""]
    """The best first goal of the mean."""


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


class GoalForm(eqx.Module):
    """The goal form of a measure."""

    risk: RiskMeasure

    context_size: int = eqx.field(static=True, default=3 * NUMBER_WAVES)
    members: int = eqx.field(static=True, default=MEMBERS)

    def plan(self) -> Goals:
        """Return the plan before anything is known."""
        zero = jnp.zeros(())
        return Goals(jnp.zeros((MEMBERS,)), jnp.eye(MEMBERS)[0], zero, zero)

    def first(self, plan: Goals, member: Int[Array, ""]) -> Goal:
        """Return the context at the start of an episode."""
        return Goal(plan.first[member])

    def preferred(self, plan: Goals) -> Int[Array, ""]:
        """Return the number of the goal for the measure itself."""
        return jnp.zeros((), jnp.int32)

    def explore(self, plan: Goals, units: Units, draw: Float[Array, ""]) -> Goal:
        """Return the first goal of a training episode, one of the useful ones, from a uniform draw."""
        low, high = _useful(plan, units)
        return Goal(low + (high - low) * draw)

    def advance(self, context: Goal, reward: Float[Array, ""], discount: Any) -> Goal:
        """Return the goal after a reward."""
        return Goal((context.goal - reward) / discount)

    def describe(self, context: Goal, units: Units, expected: Float[Array, ""]) -> Float[Array, " F"]:
        """Return the features of a goal, also relative to what is still expected."""
        x, centred = context.goal / units.spread, (context.goal - expected) / units.spread
        return jnp.concatenate([describe(centred, NEAR), describe(x, NEAR), describe(x, FAR)])

    def relabel(
        self, step: Transition, count: int, plan: Goals, units: Units, discount: Any, *, key: Key
    ) -> tuple[Goal, Goal]:
        """Return contexts with which a stored step may have been taken, and those after it."""
        u, kind, near = jax.random.uniform(key, (3, count), minval=1e-6)  # above 0, whose normal is infinite
        u = (jnp.arange(count, dtype=jnp.float32) + u) / count
        low, high = _useful(plan, units)
        normal = math.sqrt(2.0) * jax.lax.erf_inv(2.0 * near - 1.0)
        own = plan.first[0] + NEARBY * units.spread * normal
        wide = units.low + (units.high - units.low) * u
        b = jnp.where(kind < WIDE, wide, jnp.where(kind < WIDE + OWN, own, low + (high - low) * u))
        following = (b - step.return_so_far) / power(discount, step.time + 1)
        return Goal(step.reward + discount * following), Goal(following)

    def utility(self, context: Goal, returns: Float[Array, "N *A"], plan: Goals, units: Units) -> Any:
        """Return λ Z − (c − Z)⁺ of returns to go, all in spreads."""
        w, level = parts(self.risk)
        mean = (1.0 - w) * level / w + TIE
        return mean * returns - jnp.maximum(context.goal / units.spread - returns, 0.0)

    def estimate(self, context: Goal, utility: Float[Array, " A"], mean: Float[Array, " A"], units: Units) -> Any:
        """Return w (c − V/η) + (1 − w) E[Z] from the expected utility and the mean, in spreads."""
        w, level = parts(self.risk)
        shortfall = ((1.0 - w) * level / w + TIE) * mean - utility
        return w * (context.goal / units.spread - shortfall / level) + (1.0 - w) * mean

    def refresh(self, plan: Goals, root: Any, units: Units, progress: Float[Array, ""]) -> Goals:
        """Return the plan that follows from the critic: `root(context)` is its best law and utility at the start."""
        low, high = _useful(plan, units)
        lowest, highest = units.low, units.high
        line = jnp.linspace(0.0, 1.0, GRID)
        b = jnp.concatenate([lowest + (highest - lowest) * line, low + (high - low) * line])
        _, utility = jax.vmap(lambda goal: root(Goal(goal)))(b)
        level = parts(self.risk)[1]
        best = lambda eta: b[jnp.argmax(b / units.spread + utility / eta)]  # noqa: E731
        near = best(level) + units.spread * jnp.asarray(OFFSETS)
        others = jax.vmap(best)(jnp.clip(level * jnp.asarray(FACTORS), LOWEST_LEVEL / 4, 1.0))
        return Goals(jnp.concatenate([near, others]), plan.weights, best(LOWEST_LEVEL), best(1.0))


def _useful(plan: Goals, units: Units) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the range of goals that some level uses, with a margin; all returns while nothing is known."""
    lowest, highest = units.low, units.high
    margin = 0.1 * jnp.maximum(plan.high - plan.low, 0.2 * units.spread)
    known = plan.high > plan.low
    return jnp.where(known, plan.low - margin, lowest), jnp.where(known, plan.high + margin, highest)
