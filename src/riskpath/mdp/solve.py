"""`solve` and `frontier`: the best policies of a class, for one problem and one risk measure or all CVaR levels."""

from collections.abc import Mapping
from typing import Any, Literal, get_args, overload

from riskpath.errors import RiskpathError
from riskpath.mdp.exact.adaptive_solver import solve_adaptive
from riskpath.mdp.exact.constrained_solver import POINTS, RiskFrontier, risk_frontier, solve_constrained
from riskpath.mdp.exact.frontier import LEVELS, Frontier, check_levels, finite_frontier
from riskpath.mdp.exact.goal_solver import TOLERANCE
from riskpath.mdp.exact.history_solver import solve_history
from riskpath.mdp.exact.markov_solver import solve_markov
from riskpath.mdp.exact.randomised_solver import solve_randomised
from riskpath.mdp.exact.timed_solver import solve_nested
from riskpath.mdp.grid.market import Settings
from riskpath.mdp.grid.problem import GridProblem
from riskpath.mdp.grid.solution import GridSolution
from riskpath.mdp.grid.solver import grid_frontier, solve_grid
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.problem import Progress, require_exact_steps, silent
from riskpath.mdp.solution import Solution
from riskpath.risk.compose import parse_risk
from riskpath.risk.floors import read_floors
from riskpath.risk.measures import RiskMeasure
from riskpath.validation import given

PolicyClass = Literal["markov", "history", "adaptive", "nested"]


@overload
def solve(
    problem: FiniteMDP,
    risk: RiskMeasure | str,
    policies: PolicyClass = "adaptive",
    *,
    randomised: bool = False,
    subject_to: Mapping[Any, float] | None = None,
    tolerance: float = TOLERANCE,
    progress: Progress | None = None,
) -> Solution: ...
@overload
def solve(
    problem: GridProblem,
    risk: RiskMeasure | str,
    policies: PolicyClass = "adaptive",
    *,
    tolerance: float = TOLERANCE,
    episodes: int | None = None,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> GridSolution: ...
@overload
def solve(
    problem: Any,
    risk: RiskMeasure | str,
    policies: PolicyClass = "adaptive",
    *,
    randomised: bool = False,
    subject_to: Mapping[Any, float] | None = None,
    tolerance: float = TOLERANCE,
    episodes: int | None = None,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> Any: ...
def solve(
    problem: Any,
    risk: RiskMeasure | str,
    policies: PolicyClass = "adaptive",
    *,
    randomised: bool = False,
    subject_to: Mapping[Any, float] | None = None,
    tolerance: float = TOLERANCE,
    episodes: int | None = None,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> Any:
    """Return the best policy of a class, its value and return distribution: a `Solution`, on a grid a `GridSolution`.

    - "markov": π(s), at every step greedy in β of the return to go, like per-step methods;
    - "history": π(states and actions so far), the class of Trajectory Q-Learning, for deterministic transitions only;
    - "adaptive": π(time, state, return so far), for random transitions as well;
    - "nested": π(s), optimal for a different objective, the time-consistent risk β[R₀ + γβ[R₁ + …]].

    On a grid `lower` is the simulated value of the policy in the continuous problem, and `interval` its 95% interval.
    `upper` bounds every policy, or is None where no bound is known. Where decisions do not influence a price and move a
    position on a lattice (MeanReversionTrading, OptionHedging, AmericanPut), the solver chooses the axes of prices,
    positions and returns itself, from simulated episodes, and refines them until the bracket is narrow or the time is
    over. `touched` says for each axis how often the policy reaches an end, and the value at stake there.

    Args:
        problem: A `FiniteMDP`, a `GridProblem`, or an environment that has one: `rp.make("Inventory")`.
        risk: A measure, or a text such as "cvar:0.1".
        policies: The class of policies.
        randomised: Let adaptive policies draw one of several policies at the start of an episode, which is better for
            some measures whose h is not concave.
        subject_to: Floors under measures of the whole return, `{"cvar:0.1": 50.0}`. The best adaptive policy that
            reaches them may draw one of several policies at the start.
        tolerance: Where the optimum can only be bracketed, the accepted width of the bracket as a fraction of the
            difference between the best and the mean-optimal policy.
        episodes: On a grid, simulated episodes behind `lower`; 200,000 by default, fewer where a control variate
            removes nearly all of their variance.
        time_limit: On a grid, begin no refinement that would end after this many seconds; 60 by default.
        progress: A function of the number of steps done and of all steps.
    """
    if policies not in get_args(PolicyClass):
        accepted = ", ".join(map(repr, get_args(PolicyClass)))
        raise RiskpathError(f"policies must be one of {accepted}, got {policies!r}")
    if randomised and policies != "adaptive":
        raise RiskpathError(f'randomised=True needs policies="adaptive", got {policies!r}')
    check_tolerance(tolerance)
    risk, progress = parse_risk(risk), progress or silent
    floors = None if subject_to is None else read_floors(subject_to)
    if floors is not None and policies != "adaptive":
        raise RiskpathError(f'subject_to needs policies="adaptive", got {policies!r}')
    if (grid := as_grid_problem(problem)) is not None:
        if randomised or floors is not None:
            raise RiskpathError(f"{'subject_to' if floors is not None else 'randomised=True'} needs a finite problem")
        chosen = given(episodes=episodes, time_limit=time_limit)
        return solve_grid(grid, risk, policies, Settings(tolerance=tolerance, progress=progress, **chosen))
    mdp = as_finite_mdp(problem)
    if given(episodes=episodes, time_limit=time_limit):
        name = "episodes" if time_limit is None else "time_limit"
        raise RiskpathError(f"{name} needs a problem on a grid; finite problems are solved in one pass")
    require_exact_steps(mdp.max_episode_steps)
    if floors is not None:
        return solve_constrained(mdp, risk, floors, progress)
    if policies == "adaptive" and not randomised:
        return solve_adaptive(mdp, risk, tolerance, progress)
    solver = {"markov": solve_markov, "history": solve_history, "nested": solve_nested, "adaptive": solve_randomised}
    return solver[policies](mdp, risk, progress)


@overload
def frontier(
    problem: Any, levels: Any = LEVELS, *, tolerance: float = TOLERANCE, progress: Progress | None = None
) -> Frontier: ...
@overload
def frontier(
    problem: Any, *, risk: RiskMeasure | str, floors: Any = POINTS, progress: Progress | None = None
) -> RiskFrontier: ...
def frontier(
    problem: Any,
    levels: Any = LEVELS,
    *,
    risk: RiskMeasure | str | None = None,
    floors: Any = POINTS,
    tolerance: float = TOLERANCE,
    progress: Progress | None = None,
) -> Frontier | RiskFrontier:
    """Return the best policy of every CVaR level from one backward pass, with mean, goal and distribution.

    With `risk`, return instead the best mean for every floor under this measure.

    Args:
        problem: A `FiniteMDP`, a `GridProblem`, or an environment that has one: `rp.make("Inventory")`.
        levels: CVaR levels in (0, 1]; level 1 is the mean.
        risk: A measure for floors.
        floors: The floors, or their number.
        tolerance: As in `solve`.
        progress: As in `solve`.
    """
    check_tolerance(tolerance)
    progress = progress or silent
    if risk is not None:
        if as_grid_problem(problem) is not None:
            raise RiskpathError("a frontier of floors needs a finite problem")
        mdp = as_finite_mdp(problem)
        require_exact_steps(mdp.max_episode_steps)
        return risk_frontier(mdp, parse_risk(risk), floors, progress)
    if (grid := as_grid_problem(problem)) is not None:
        return grid_frontier(grid, levels, progress=progress)
    return finite_frontier(as_finite_mdp(problem), check_levels(levels), tolerance, progress)


def as_grid_problem(problem: Any) -> GridProblem | None:
    """Return a `GridProblem`, or that of an environment; None if there is none."""
    if isinstance(problem, GridProblem):
        return problem
    has_one = callable(getattr(problem, "grid_problem", None)) and not isinstance(problem, type)
    return problem.grid_problem() if has_one else None


def as_finite_mdp(problem: Any) -> FiniteMDP:
    """Return a `FiniteMDP`, or that of an environment; refuse anything else."""
    if isinstance(problem, FiniteMDP):
        return problem
    if callable(getattr(problem, "mdp", None)) and not isinstance(problem, type):
        return problem.mdp()
    kind = problem if isinstance(problem, str) else type(problem).__name__
    needs = "a FiniteMDP, or an environment with a finite problem or a grid, such as rp.make(name)"
    raise RiskpathError(f"solve needs {needs}; got {kind}")


def check_tolerance(tolerance: Any) -> None:
    """Refuse a tolerance that is not a positive number."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 < tolerance < 1:
        raise RiskpathError(f"tolerance must be a number in (0, 1), got {tolerance!r}")
