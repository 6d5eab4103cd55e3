"""`solve_grid` and `grid_frontier`: the risk of the whole return on a grid of a continuous state.

One backward pass over (state, x), with x the return so far minus the threshold b, solves CVaR at every level:

    CVaR*_η = max_b {b + V_0(s₀, −b)/η}.

The simulated return of the policy in the continuous problem is a lower bound, up to its interval. Rounding every return
up gives an upper bound if states and chance fall on the grid exactly; otherwise a second pass on a grid of half the
resolution gives an estimate of the limit. The range of returns is found by simulating the mean-optimal policy.
"""

from typing import Any, Literal, get_args

import numpy as np

from riskpath.errors import RiskpathError
from riskpath.mdp.frontier import LEVELS, Frontier, check_levels
from riskpath.mdp.grid_backward import Pass, Progress, backward, mean_tables
from riskpath.mdp.grid_greedy import greedy_tables, tie_width
from riskpath.mdp.grid_layout import Layout, layout
from riskpath.mdp.grid_memory import require_memory
from riskpath.mdp.grid_other_measures import improve_utility
from riskpath.mdp.grid_policy import GridPolicy
from riskpath.mdp.grid_problem import GridProblem
from riskpath.mdp.grid_solution import GridOptima, GridSolution, measured
from riskpath.mdp.grid_utility import SHORTFALL, KinkedUtility, ReturnAxis
from riskpath.risk.compose import as_risk, mean_and_cvar
from riskpath.risk.measures import RiskMeasure
from riskpath.validation import require_counts

GridPolicies = Literal["adaptive", "markov"]
EPISODES = 200_000
"""The number of simulated episodes behind a lower bound."""
SCOUTS = 20_000
"""The number of episodes of the mean-optimal policy that find the range of returns."""
ESTIMATE = "extrapolated estimate"
"""The kind of an upper value that is no bound: value + (value − value at half resolution)/3, at least the value."""
WIDER = 0.1
"""The share by which the range of returns is widened at both ends."""


def solve_grid(
    problem: GridProblem,
    risk: RiskMeasure | str,
    policies: GridPolicies = "adaptive",
    *,
    episodes: int = EPISODES,
    bound: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> GridSolution:
    """Return the best policy of a class on a grid, with bounds of its value.

    - "adaptive": π(time, state, return so far); global for the mean, CVaR and mean–CVaR mixtures, best known otherwise;
    - "markov": π(time, state), at every step greedy in β of the return to go, like per-step methods.

    Args:
        problem: The problem and its grid, for example `rp.make("AmericanPut").grid_problem()`.
        risk: A measure or a text such as "cvar:0.1".
        policies: The class of policies.
        episodes: Simulated episodes behind `lower`.
        bound: Whether to compute `upper`, which needs a second pass.
        seed: Seed of the simulations.
        progress: Called as progress(step, total) after every step of a pass.
    """
    _require_problem(problem)
    if policies not in get_args(GridPolicies):
        accepted = ", ".join(map(repr, get_args(GridPolicies)))
        raise RiskpathError(f"policies on a grid must be one of {accepted}, got {policies!r}")
    require_counts(2, episodes=episodes)
    risk = as_risk(risk)
    require_memory(problem)
    plan = layout(problem)
    base, best_mean = mean_tables(plan)
    mean_policy = GridPolicy(problem, base)
    parts = mean_and_cvar(risk)
    value, upper, kind, details = None, None, "none", {}
    if parts is not None and (parts[0] == 0 or parts[1] == 1):  # per-step and adaptive policies agree on the mean
        policy, value, report = mean_policy, best_mean, "mean-optimal"
        axis = returns_axis(plan, mean_policy)
        if bound:
            upper, kind, details = _upper_mean(plan, axis, value)
    elif policies == "markov":
        axis = returns_axis(plan, mean_policy)
        policy = GridPolicy(problem, greedy_tables(plan, axis, risk, progress=progress), slack=tie_width(axis))
        report = "per-step greedy"
    elif parts is None:
        axis = returns_axis(plan, mean_policy)
        policy = improve_utility(plan, risk, mean_policy, axis, seed=seed, progress=progress)
        report = "utility iteration, best known"
    else:
        axis = returns_axis(plan, mean_policy)
        result = backward(plan, axis, _utility(*parts), progress=progress)
        value, goal = best_goal(plan, result)
        policy, report = GridPolicy(problem, base, result, goal), "best threshold on the grid"
        if bound:
            upper, kind, details = _upper_tail(plan, axis, parts, value, progress)
    simulated = measured(policy.simulate(episodes, seed + 1), risk)
    if upper is not None and kind == ESTIMATE:  # where sampling errors exceed those of the grid
        upper = max(upper, simulated.value)
    return GridSolution(
        problem=problem,
        risk=risk,
        policies=policies,
        value=simulated.value if value is None else value,
        lower=simulated.value,
        interval=simulated.interval,
        upper=upper,
        upper_kind=kind,
        law=simulated.law,
        policy=policy,
        report=report,
        cells=int(np.prod(problem.shape)) * axis.count,
        memory_bytes=policy.memory_bytes,
        episodes=episodes,
        details=details,
    )


def grid_frontier(
    problem: GridProblem, levels: Any = LEVELS, *, episodes: int = EPISODES, progress: Progress | None = None
) -> Frontier:
    """Return the best adaptive policies of all CVaR levels from one backward pass; laws are simulated when needed."""
    _require_problem(problem)
    require_counts(2, episodes=episodes)
    chosen = check_levels(levels)
    require_memory(problem)
    plan = layout(problem)
    base, best_mean = mean_tables(plan)
    result = backward(plan, returns_axis(plan, GridPolicy(problem, base)), SHORTFALL, progress=progress)
    found = [best_goal(plan, result, level) for level in chosen]
    policies = {goal: GridPolicy(problem, base, result, goal) for _, goal in found}
    values = np.array([value for value, _ in found])
    if chosen[-1] == 1:  # the mean needs no grid of returns
        values[-1], policies[found[-1][1]] = best_mean, GridPolicy(problem, base)
    goals = np.array([goal for _, goal in found])
    optima = GridOptima(policies, episodes)
    return Frontier(problem.name, np.array(chosen), goals, values, "value on the grid", optima)


def returns_axis(plan: Layout, mean_policy: GridPolicy) -> ReturnAxis:
    """Return the grid of x, from −(largest return to go) to −(smallest), as the mean-optimal policy finds them.

    If all rewards are multiples of one unit and their bounds fit, the grid is exact.
    """
    count = plan.problem.return_points
    if plan.unit is not None and (plan.bounds[1] - plan.bounds[0]) / plan.unit + 3 <= count:
        return ReturnAxis.over(-plan.bounds[1], -plan.bounds[0], count, plan.unit)
    path = mean_policy.simulate_totals(SCOUTS, 0)
    low, high = np.quantile(path[:, -1:] - path[:, :-1], [0.0005, 0.9995])
    low, high = min(low, 0.0), max(high, 0.0)
    wider = WIDER * (high - low)
    return ReturnAxis.over(-high - wider, -low + wider, count)


def best_goal(plan: Layout, result: Pass, level: float = 1.0) -> tuple[float, float]:
    """Return max_b {b + V_0(−b)/level} and the b that attains it; the smallest one if several do."""
    goals = plan.problem.start_potential - result.axis.points
    values = goals + result.root / level
    best = float(values.max())
    place = np.flatnonzero(values >= best - 1e-6 * max(1.0, abs(best)))[-1]
    return best, float(goals[place])


def _utility(weight: float, eta: float) -> KinkedUtility:
    """Return u for (1−w)·mean + w·CVaR_η = max_b {b + E[(1−w) x + (w/η) min(x, 0)]}, x = Z − b."""
    return KinkedUtility(1 - weight, weight / eta)


def _upper_tail(
    plan: Layout, axis: ReturnAxis, parts: tuple[float, float], value: float, progress: Progress | None
) -> tuple[float, str, dict[str, float]]:
    """Return an upper bound of the optimum, or an estimate, and how it was found."""
    utility = _utility(*parts)
    if plan.problem.noise.draw is None and not any(plan.decide_between + plan.move_between):
        if plan.unit is not None and abs(plan.unit / axis.step - round(plan.unit / axis.step)) < 1e-6:
            return value, "exact grid", {}
        rounded = backward(plan, axis, utility, round_up=True, progress=progress)
        # a threshold between two points is worth at most the upper one with the utility of the lower one
        return best_goal(plan, rounded)[0] + float(axis.step), "consistent rounding", {}
    coarse = layout(_half(plan))
    rough = ReturnAxis(axis.low, 2 * axis.step, -(-axis.count // 2))
    coarse_value, _ = best_goal(coarse, backward(coarse, rough, utility, progress=progress))
    return max(value, value + (value - coarse_value) / 3), ESTIMATE, {"coarse_value": coarse_value}


def _upper_mean(plan: Layout, axis: ReturnAxis, value: float) -> tuple[float, str, dict[str, float]]:
    """Return an upper bound or an estimate of the largest mean, which needs no grid of returns."""
    if plan.problem.noise.draw is None and not any(plan.decide_between + plan.move_between):
        return value, "exact grid", {}
    _, coarse_value = mean_tables(layout(_half(plan)))
    return max(value, value + (value - coarse_value) / 3), ESTIMATE, {"coarse_value": coarse_value}


def _half(plan: Layout) -> GridProblem:
    """Return the problem with every second point of the axes that are interpolated."""
    axes = {}
    for number, (name, points) in enumerate(plan.problem.axes.items()):
        between = plan.decide_between[number] or plan.move_between[number]
        halved = np.append(points[:-1:2], points[-1])
        axes[name] = halved if between and len(points) >= 5 else points
    return plan.problem.on_grid(axes)


def _require_problem(problem: GridProblem) -> None:
    if not isinstance(problem, GridProblem):
        raise RiskpathError(
            f"expected a GridProblem, got {type(problem).__name__}; environments that have one make it by "
            "env.grid_problem()"
        )
