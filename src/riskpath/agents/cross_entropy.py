"""Cross-entropy sampling, the second part of CeSoR (Greenberg et al., 2022): episodes start under worse conditions.

A condition C with the statistics S(C) is drawn from p_0, the distribution of the environment, or, with probability κ,
from p_μ of the same family, whose statistics have the means μ. An episode i then counts with the weight

    w_i = p_0(C_i) / ((1 − κ) p_0(C_i) + κ p_μ(C_i))  ≤  1 / (1 − κ),

so weighted means estimate those under p_0 without bias. After every rollout p_μ is fitted to its worst episodes, which
minimises the cross-entropy from the conditions of the tail:

    μ ← Σ_i w_i 1{Z_i ≤ z} S(C_i) / Σ_i w_i 1{Z_i ≤ z},    z = max(VaR_η under p_0, VaR_β of the episodes drawn).

The published code draws a fixed share from p_0, and clips p_0/p_μ instead of dividing by the mixture.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from riskpath.agents.rollout_agent import value_at_risk
from riskpath.envs.environment import Conditioned
from riskpath.errors import RiskpathError
from riskpath.types import EnvSpec, Key

WORST = 0.2
"""β, the smallest share of the episodes that the distribution is fitted to."""


class Drawn(eqx.Module):
    """The condition of an episode."""

    means: Float[Array, "*n C"]
    """μ, of the distribution that the next condition is drawn from; NaN before the first update."""
    statistics: Float[Array, "*n C"]
    """S(C)."""
    weight: Float[Array, "*n"]
    """w."""


def nothing_drawn(spec: EnvSpec) -> Drawn:
    """Return the memory before the first update; refuse an environment that does not expose its conditions."""
    if not spec.conditions:
        raise RiskpathError(
            "cross_entropy needs an environment that exposes the conditions of its episodes, such as PatrolledMaze, "
            "Driving or Servers"
        )
    nothing = jnp.zeros((spec.conditions,))
    return Drawn(jnp.full_like(nothing, jnp.nan), nothing, jnp.ones(()))


def draw(env: Conditioned, drawn: Drawn, share: float | Array, *, key: Key) -> tuple[Shaped[Array, "*obs"], Any, Drawn]:
    """Start an episode under a condition from the mixture; return observation, state and what was drawn."""
    choice_key, draw_key, start_key = jax.random.split(key, 3)
    means = jnp.where(jnp.isnan(drawn.means), env.usual, drawn.means)
    shifted = jax.random.uniform(choice_key) < share
    condition, statistics = env.draw(jnp.where(shifted, means, env.usual), key=draw_key)
    log_ratio = env.log_density(statistics, means) - env.log_density(statistics, env.usual)
    weight = 1.0 / (1.0 - share + share * jnp.exp(log_ratio))
    return *env.start(condition, key=start_key), Drawn(drawn.means, statistics, weight)


def refitted(
    means: Float[Array, " C"], drawn: Drawn, returns: Float[Array, "T E"], ended: Bool[Array, "T E"], level: Any
) -> Float[Array, " C"]:
    """Return μ after a rollout; the same if no episode has ended."""
    usual, here = value_at_risk(returns, ended, level, drawn.weight), value_at_risk(returns, ended, WORST)
    weight = jnp.where(ended & (returns <= jnp.maximum(usual, here)), drawn.weight, 0.0)
    total = jnp.sum(weight)
    found = jnp.sum(weight[..., None] * drawn.statistics, axis=(0, 1)) / jnp.maximum(total, 1e-9)
    return jnp.where(total > 0, found, means)
