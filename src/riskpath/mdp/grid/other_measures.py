"""Policies on a grid that are not optimal for the mean or CVaR: utility iteration, and per-step greedy policies.

Utility iteration is for measures that are neither the mean nor CVaR nor mixtures of them.
Near a distribution F, moving to G changes β by about E_G[u] − E_F[u] with u(z) = ∫^z h′(F(x)) dx. The iteration
maximises the expected utility u by a backward pass, takes u again from the simulated distribution of the new policy,
and repeats. It starts from the optima of several CVaR levels and from the mean; measures that are not averse also start
from policies that maximise E[max(Z, b)]. The best policy that was visited is returned; it may be a local maximum.

A per-step greedy policy takes at every state the action whose β of the return *to go* is the largest. The backward pass
carries E_t(s, x) = E[min(x + Z_t(s), 0)] of that policy. It determines the distribution of the return to go Z_t(s): its
slope at x is P(Z < −x), and CVaR_η[Z] = max_c {c + E(−c)/η}. All measures add constants, so the reward of a decision is
added to β of what follows.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from riskpath.mdp.grid.backward import Choices, backward, choices, expectation, rise
from riskpath.mdp.grid.form import size_class
from riskpath.mdp.grid.layout import Layout
from riskpath.mdp.grid.policy import GridPolicy, first_best
from riskpath.mdp.grid.solution import influence
from riskpath.mdp.grid.stencils import read, widen
from riskpath.mdp.grid.utility import SHORTFALL, KinkedUtility, ReturnAxis, TabulatedUtility
from riskpath.mdp.problem import Progress, silent
from riskpath.risk.measures import CVaR, DistortionMeasure

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75)
"""The levels of CVaR whose optima are starts."""
STARTS, ROUNDS = 2, 4
"""The number of best starts that are iterated, and the largest number of iterations."""
EPISODES = 50_000
"""The number of episodes behind a distribution."""


def improve_utility(
    plan: Layout,
    risk: DistortionMeasure,
    mean_policy: GridPolicy,
    axis: ReturnAxis,
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> GridPolicy:
    """Return the best policy that utility iteration visits, judged by simulated episodes."""
    visited: list[tuple[float, np.ndarray, GridPolicy]] = []

    def visit(policy: GridPolicy) -> float:
        returns = np.sort(policy.simulate(EPISODES, seed))
        visited.append((float(risk.value(returns)), returns, policy))
        return visited[-1][0]

    for policy in [mean_policy, *_starts(plan, risk, mean_policy, axis, progress)]:
        visit(policy)
    for value, returns, _ in sorted(visited, key=lambda entry: -entry[0])[:STARTS]:
        for _ in range(ROUNDS):
            low, high = float(returns[0]), float(returns[-1])  # returns so far, and what later rewards can add to them
            ends = min(low, axis.points[0] + low), max(high, axis.points[-1] + high)
            wide = ReturnAxis.over(*ends, plan.problem.return_points)
            utility = _tabulated(plan, wide, returns, risk)
            after = visit(GridPolicy(plan.problem, mean_policy.base, backward(plan, wide, utility, progress=progress)))
            if after <= value + 1e-4 * max(1e-6, float(np.ptp(returns))):
                break
            value, returns = after, visited[-1][1]
    return max(visited, key=lambda entry: entry[0])[2]


def _starts(
    plan: Layout, risk: DistortionMeasure, mean_policy: GridPolicy, axis: ReturnAxis, progress: Progress
) -> list[GridPolicy]:
    """Return the optima of CVaR levels and, if β is not averse, policies that want a return above a threshold."""
    capped = backward(plan, axis, SHORTFALL, progress=progress)
    thresholds = plan.problem.start_potential - axis.points
    goals = [float(thresholds[(thresholds + capped.root / level).argmax()]) for level in LEVELS]
    starts = [GridPolicy(plan.problem, mean_policy.base, capped, goal) for goal in dict.fromkeys(goals)]
    if not risk.concave:
        floored = backward(plan, axis, KinkedUtility(1.0, -1.0), progress=progress)
        returns = mean_policy.simulate(EPISODES, 0)
        for goal in np.quantile(returns, [0.5, 0.75, 0.9]):
            starts.append(GridPolicy(plan.problem, mean_policy.base, floored, float(goal)))
    return starts


def _tabulated(
    plan: Layout, axis: ReturnAxis, returns: Float[np.ndarray, " n"], risk: DistortionMeasure
) -> TabulatedUtility:
    """Return u of a sample on the grid, with its last slopes beyond the smallest and the largest return."""
    chosen = returns[np.linspace(0, len(returns) - 1, min(len(returns), 4001)).astype(int)]
    heights = influence(chosen, risk)
    tail = 0.01
    low, high = float(risk.weight(tail)) / tail, (1 - float(risk.weight(1 - tail))) / tail
    x, places = axis.points, np.clip(axis.points, chosen[0], chosen[-1])
    rise = np.interp(places, chosen, heights) + np.where(x < chosen[0], low, high) * (x - places)
    margin = size_class(plan.margin(axis) + int(np.ceil(max(map(abs, plan.bounds)) / axis.step)))
    return TabulatedUtility(jnp.asarray(rise, jnp.float32), axis, margin)


def greedy_tables(
    plan: Layout, axis: ReturnAxis, risk: DistortionMeasure, *, progress: Progress = silent
) -> tuple[Float[Array, " N"], ...]:
    """Return β of the return to go after every decision, for every time, if every later decision is greedy in it."""
    problem, margin, value, tables = plan.problem, plan.margin(axis), None, []
    for time in reversed(range(problem.steps)):
        expected = expectation(plan, time, value, axis, SHORTFALL, margin)
        tables.append(_risk_of_rows(expected, axis, risk))
        if time:
            value = _follow(expected, tables[-1], choices(plan, time, problem.grid_states, axis), axis, margin)
            value.block_until_ready()
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
