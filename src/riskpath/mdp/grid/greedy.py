"""Per-step greedy policies on a grid: at every state the action whose β of the return *to go* is the largest.

The backward pass carries E_t(s, x) = E[min(x + Z_t(s), 0)] of the greedy policy. It determines the distribution of the
return to go Z_t(s): its slope at x is P(Z < −x), and CVaR_η[Z] = max_c {c + E(−c)/η}. All measures add constants, so
the reward of a decision is added to β of what follows.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from riskpath.mdp.grid.backward import Choices, choices, expectation, rise
from riskpath.mdp.grid.layout import Layout
from riskpath.mdp.grid.policy import first_best
from riskpath.mdp.grid.stencils import read, widen
from riskpath.mdp.grid.utility import SHORTFALL, ReturnAxis
from riskpath.mdp.problem import Progress
from riskpath.risk.measures import CVaR, DistortionMeasure


def greedy_tables(
    plan: Layout, axis: ReturnAxis, risk: DistortionMeasure, *, progress: Progress | None = None
) -> tuple[Float[Array, " N"], ...]:
    """Return β of the return to go after every decision, for every time, if every later decision is greedy in it."""
    problem, margin, value, tables = plan.problem, plan.margin(axis), None, []
    for time in reversed(range(problem.steps)):
        expected = expectation(plan, time, value, axis, SHORTFALL, margin)
        tables.append(_risk_of_rows(expected, axis, risk))
        if time:
            value = _follow(expected, tables[-1], choices(plan, time, problem.grid_states, axis), axis, margin)
            value.block_until_ready()
        if progress is not None:
            progress(problem.steps - time, problem.steps)
    return tuple(tables[::-1])


def tie_width(axis: ReturnAxis) -> Float[Array, ""]:
    """Return the largest difference of two risks by rounding; below it the first action is chosen, as in the tables."""
    return jnp.float32(1e-6 * axis.step * axis.count)


@partial(jax.jit, static_argnames=("margin",))
def _follow(expected: Array, risks: Array, options: Choices, axis: ReturnAxis, margin: int) -> Float[Array, "N X"]:
    """Return E_t of the greedy actions."""
    stencil = options.stencil
    later = (stencil.weight * risks[stencil.row]).sum(axis=-1)
    score = stencil.shift * axis.step + (later if options.ends is None else jnp.where(options.ends, 0.0, later))
    if options.refused is not None:
        score = jnp.where(options.refused, -jnp.inf, score)
    chosen = first_best(score, tie_width(axis))[None, :]
    row, weight = (jnp.take_along_axis(x, chosen[..., None], axis=0)[0] for x in (stencil.row, stencil.weight))
    shift = jnp.take_along_axis(stencil.shift, chosen, axis=0)[0]
    followed = read(widen(expected, margin, rise(axis, SHORTFALL)), margin, axis.count, row, weight, shift)
    if options.ends is None:
        return followed
    over = jnp.take_along_axis(options.ends, chosen, axis=0)[0]
    return jnp.where(over[:, None], SHORTFALL.rows(axis, shift * axis.step), followed)


@jax.jit
def _risk_of_rows(rows: Array, axis: ReturnAxis, risk: DistortionMeasure) -> Float[Array, " N"]:
    """Return β of the returns whose E[min(x + Z, 0)] are the rows."""
    if isinstance(risk, CVaR):
        return (rows / risk.level - axis.values[None, :]).max(axis=1)
    below = jnp.clip((rows[:, 1:] - rows[:, :-1]) / axis.step, 0.0, 1.0)[:, ::-1]
    cdf = jax.lax.cummax(jnp.concatenate([below, jnp.ones_like(below[:, :1])], axis=1), axis=1)
    h = risk.weight(cdf)
    mass = h - jnp.concatenate([jnp.zeros_like(h[:, :1]), h[:, :-1]], axis=1)
    return -(mass * axis.values[::-1][None, :]).sum(axis=1)
