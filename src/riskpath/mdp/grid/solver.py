"""`rp.solve` and `rp.frontier` for a continuous state on a grid.

One backward pass over (state, x), with x the return so far minus the threshold b, solves CVaR at every level:

    CVaR*_η = max_b {b + V_0(s₀, −b)/η}.

`lower` is the simulated return of the policy in the continuous problem. `upper` is a bound, or None: where a price
moves by chance alone and positions stay on a lattice, `market` bounds the mean, CVaR and their mixtures by an
information relaxation; where states and chance fall on the grid exactly, the value is exact or rounding every return
up bounds it.
"""

import time as clock
from dataclasses import replace
from typing import Any

import numpy as np

from riskpath.errors import RiskpathError
from riskpath.mdp.exact.frontier import LEVELS, Frontier, check_levels
from riskpath.mdp.exact.goal_solver import GoalOptima
from riskpath.mdp.grid.backward import Pass, backward, mean_tables
from riskpath.mdp.grid.detect import form_of, is_silent
from riskpath.mdp.grid.form import Form
from riskpath.mdp.grid.layout import Layout, layout, require_memory
from riskpath.mdp.grid.market import Settings, better_of, bracket_mean, bracket_tail
from riskpath.mdp.grid.market_policy import BROADCASTING
from riskpath.mdp.grid.other_measures import greedy_tables, improve_utility, tie_width
from riskpath.mdp.grid.policy import GridPolicy
from riskpath.mdp.grid.problem import GridProblem
from riskpath.mdp.grid.solution import GridSolution, measured, thinned
from riskpath.mdp.grid.utility import SHORTFALL, KinkedUtility, ReturnAxis
from riskpath.mdp.problem import Progress, silent
from riskpath.risk.compose import as_distortion, mean_and_cvar
from riskpath.risk.measures import DistortionMeasure, RiskMeasure
from riskpath.validation import require_counts, require_positive

GRID_POLICIES = ("adaptive", "markov")
"""The classes of policies that are known on a grid."""
SCOUTS = 20_000
"""The number of episodes of the mean-optimal policy that find the range of returns."""
PLAYED = 4096
"""The largest number of episodes with a control variate, which makes more of them needless."""
RELAXATION = "information relaxation"
"""The kind of an upper bound: a decision maker who knows the path of the price and pays a penalty for it."""
WIDER = 0.1
"""The share by which the range of returns is widened at both ends."""


def solve_grid(problem: GridProblem, risk: RiskMeasure, policies: str, settings: Settings) -> GridSolution:
    """Return the best policy of a class on a grid, with bounds of its value.

    - "adaptive": π(time, state, return so far); global for the mean, CVaR and mean–CVaR mixtures, best known otherwise;
    - "markov": π(time, state), at every step greedy in β of the return to go, like per-step methods.
    """
    if policies not in GRID_POLICIES:
        accepted = ", ".join(map(repr, GRID_POLICIES))
        raise RiskpathError(f"policies on a grid must be one of {accepted}, got {policies!r}")
    require_counts(2, episodes=settings.episodes)
    require_positive(time_limit=settings.time_limit)
    risk = as_distortion(risk, "a problem on a grid", "rp.solve accepts it for a finite problem")
    form, parts = form_of(problem), mean_and_cvar(risk)
    wants_mean = parts is not None and (parts[0] == 0 or parts[1] == 1)  # all classes agree on the mean
    if isinstance(form, Form) and parts is not None and (wants_mean or policies == "adaptive"):
        with BROADCASTING():
            return _solve_market(form, risk, parts, policies, settings)
    if isinstance(form, Form):
        problem = _widened(form)
    return _solve_plainly(problem, risk, policies, settings)


def _solve_market(
    form: Form, risk: DistortionMeasure, parts: tuple[float, float], policies: str, settings: Settings
) -> GridSolution:
    """Return the best policy where the price is exogenous and positions lie on a lattice."""
    until = clock.perf_counter() + settings.time_limit
    settings = settings._replace(episodes=min(settings.episodes, PLAYED))
    tail = parts[0] > 0 and parts[1] < 1
    found = bracket_mean(form, settings.episodes, settings.seed, bound=form.problem.all_actions and not tail)
    report = "mean-optimal"
    if tail:
        mean, mean_value, utility = found, float(risk.value(np.sort(found.played.returns))), _utility(*parts)
        found = bracket_tail(form, utility, mean, mean_value, settings, until)
        found = better_of(found, mean, utility, settings.episodes, settings.seed)
        report = "mean-optimal" if found.policy is mean.policy else "best threshold"
    if not form.problem.all_actions:
        report += ", no bound for actions between those of the grid"
    return GridSolution(
        problem=form.problem,
        risk=risk,
        policies=policies,
        value=found.lower,
        lower=found.lower,
        interval=_interval(found.lower, found.lower_error),
        upper=found.upper,
        upper_kind="none" if found.upper is None else RELAXATION,
        upper_interval=None if found.upper is None else _interval(found.upper, found.upper_error),
        law=thinned(np.sort(found.played.returns)),
        policy=found.policy,
        report=f"{report}; {found.needs}" if found.needs else report,
        cells=found.cells,
        memory_bytes=found.policy.memory_bytes,
        episodes=settings.episodes,
        touched=found.touched,
    )


def _interval(value: float, error: float) -> tuple[float, float]:
    return value - 1.96 * error, value + 1.96 * error


def _widened(form: Form) -> GridProblem:
    """Return the problem with positions as wide as the mean-optimal policy needs, for the plain solver."""
    problem = form.problem
    if form.position is not None and problem.endless:
        with BROADCASTING():
            positions = bracket_mean(form, SCOUTS, Settings().seed, bound=False).played.positions
        first, last = (int(x) for x in np.quantile(positions, [0.0005, 0.9995]))
        name = list(problem.axes)[form.position]
        first, last = min(first, form.start - 1), max(last, form.start + 1)
        problem = problem.on_grid({**problem.axes, name: form.lattice[first : last + 1]})
    bare = replace(problem, potential=None)
    return bare if is_silent(bare) else problem  # moves that pay nothing are a matrix product


def _solve_plainly(problem: GridProblem, risk: DistortionMeasure, policies: str, settings: Settings) -> GridSolution:
    """Return the best policy by a pass over one grid; `upper` only where nothing is interpolated."""
    require_memory(problem)
    plan = layout(problem)
    base, best_mean = mean_tables(plan)
    mean_policy = GridPolicy(problem, base)
    parts = mean_and_cvar(risk)
    value, upper, kind = None, None, "none"
    axis = returns_axis(plan, mean_policy)
    if parts is not None and (parts[0] == 0 or parts[1] == 1):  # per-step and adaptive policies agree on the mean
        policy, value, report = mean_policy, best_mean, "mean-optimal"
        if _on_points(plan):
            upper, kind = value, "exact grid"
    elif policies == "markov":
        policy = GridPolicy(problem, greedy_tables(plan, axis, risk, progress=settings.progress), slack=tie_width(axis))
        report = "per-step greedy"
    elif parts is None:
        policy = improve_utility(plan, risk, mean_policy, axis, seed=settings.seed, progress=settings.progress)
        report = "utility iteration, best known"
    else:
        result = backward(plan, axis, _utility(*parts), progress=settings.progress)
        value, goal = best_goal(plan, result)
        policy, report = GridPolicy(problem, base, result, goal), "best threshold on the grid"
        if _on_points(plan):
            upper, kind = _upper_on_points(plan, axis, parts, value, settings.progress)
    returns = policy.simulate(settings.episodes, settings.seed + 1)
    lower, interval = measured(returns, risk)
    return GridSolution(
        problem=problem,
        risk=risk,
        policies=policies,
        value=lower if value is None or upper is None else value,
        lower=lower,
        interval=interval,
        upper=upper,
        upper_kind=kind,
        law=thinned(np.sort(returns)),
        policy=policy,
        report=report,
        estimate=value if upper is None else None,
        cells=int(np.prod(problem.shape)) * axis.count,
        memory_bytes=policy.memory_bytes,
        episodes=settings.episodes,
    )


def grid_frontier(problem: GridProblem, levels: Any = LEVELS, *, progress: Progress = silent) -> Frontier:
    """Return the best adaptive policies of all CVaR levels from one backward pass; simulate distributions on demand."""
    chosen = check_levels(levels)
    form = form_of(problem)
    if isinstance(form, Form):
        problem = _widened(form)
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
    episodes = Settings().episodes
    optima = GoalOptima(
        {"method": "goal recursion on a grid", "episodes": episodes},
        lambda goals: [thinned(np.sort(policies[float(goal)].simulate(episodes, 1))) for goal in goals],
        policies.__getitem__,
    )
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


def _on_points(plan: Layout) -> bool:
    """Tell whether all states and all chance fall on points of the grid."""
    return plan.problem.noise.draw is None and not any(plan.decide_between + plan.move_between)


def _upper_on_points(
    plan: Layout, axis: ReturnAxis, parts: tuple[float, float], value: float, progress: Progress
) -> tuple[float, str]:
    """Return an upper bound of the optimum where nothing but returns is rounded, and how it was found."""
    if plan.unit is not None and abs(plan.unit / axis.step - round(plan.unit / axis.step)) < 1e-6:
        return value, "exact grid"
    rounded = backward(plan, axis, _utility(*parts), round_up=True, progress=progress)
    # a threshold between two points is worth at most the upper one with the utility of the lower one
    return best_goal(plan, rounded)[0] + float(axis.step), "consistent rounding"
