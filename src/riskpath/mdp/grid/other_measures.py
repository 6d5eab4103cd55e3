"""Utility iteration on a grid, for measures that are neither the mean nor CVaR nor mixtures of them.

Near a distribution F, moving to G changes β by about E_G[u] − E_F[u] with u(z) = ∫^z h′(F(x)) dx. The iteration
maximises the expected utility u by a backward pass, takes u again from the simulated distribution of the new policy,
and repeats. It starts from the optima of several CVaR levels and from the mean; measures that are not averse also start
from policies that maximise E[max(Z, b)]. The best policy that was visited is returned; it may be a local maximum.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from riskpath.mdp.grid.backward import backward
from riskpath.mdp.grid.form import size_class
from riskpath.mdp.grid.layout import Layout
from riskpath.mdp.grid.policy import GridPolicy
from riskpath.mdp.grid.solution import influence
from riskpath.mdp.grid.utility import SHORTFALL, KinkedUtility, ReturnAxis, TabulatedUtility
from riskpath.mdp.problem import Progress
from riskpath.risk.measures import DistortionMeasure

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
    progress: Progress | None = None,
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
            wide = _axis_of_totals(plan, axis, returns)
            utility = _tabulated(plan, wide, returns, risk)
            after = visit(GridPolicy(plan.problem, mean_policy.base, backward(plan, wide, utility, progress=progress)))
            if after <= value + 1e-4 * max(1e-6, float(np.ptp(returns))):
                break
            value, returns = after, visited[-1][1]
    return max(visited, key=lambda entry: entry[0])[2]


def _starts(
    plan: Layout, risk: DistortionMeasure, mean_policy: GridPolicy, axis: ReturnAxis, progress: Progress | None
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


def _axis_of_totals(plan: Layout, axis: ReturnAxis, returns: np.ndarray) -> ReturnAxis:
    """Return a grid of returns so far, which covers the returns and what later rewards can add to them."""
    low, high = float(returns[0]), float(returns[-1])
    reach_low, reach_high = axis.points[0], axis.points[-1]  # −(largest return to go), −(smallest)
    return ReturnAxis.over(min(low, reach_low + low), max(high, reach_high + high), plan.problem.return_points)


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
    return TabulatedUtility(jnp.asarray(rise, jnp.float32), axis.step, margin)
