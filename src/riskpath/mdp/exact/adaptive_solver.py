"""The best reward-adaptive policy: it sees time, state and return so far, and transitions may be random.

CVaR and mixtures of the mean with one CVaR are solved to the global optimum by the goal recursion (`goal_solver`), or
bracketed where rewards must be rounded; VaR and the probability to reach a target by the same recursion with a jump
(`reach_solver`). For entropic risk, EVaR, the worst and the best case, and for the mean, time and state suffice
(`timed_solver`). The best expected utility is one backward pass in the graph of returns. A certainty equivalent is
sup_b {b + E[v(Z − b)]}: the supremum stands outside of the maximum over policies, and V(b) = max E[v(Z − b)] falls
in b, so `bounded_search` finds the best b. Any other measure is improved by utility iteration from many starts; if all
undominated distributions can be listed (`attainable`), the result is compared with the best of them and is then proven
optimal.

All policies here are deterministic. For some measures a randomised policy can be better (`randomised_solver`).
"""

import numpy as np

from riskpath.errors import RiskpathError
from riskpath.mdp.exact.attainable import attainable
from riskpath.mdp.exact.bounded_search import FIRST, search_intervals
from riskpath.mdp.exact.goal_recursion import TIE_WEIGHT
from riskpath.mdp.exact.goal_solver import TOLERANCE, solve_levels
from riskpath.mdp.exact.reach_solver import solve_reach
from riskpath.mdp.exact.return_graph import ReturnGraph, Utilities
from riskpath.mdp.exact.timed_solver import solve_timed
from riskpath.mdp.exact.utility_iteration import utility_iteration
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.problem import Progress, silent
from riskpath.mdp.solution import Solution, solution_of
from riskpath.risk.certainty_equivalents import CertaintyEquivalent
from riskpath.risk.compose import mean_and_cvar
from riskpath.risk.entropic import Entropic, EVaR
from riskpath.risk.measures import RiskMeasure
from riskpath.risk.quantile_measures import BestCase, VaR, WorstCase
from riskpath.risk.utility_measures import ReachProbability, Utility

PROOF_LIMIT = 4096
"""The largest number of distributions combined at one state; beyond it no proof is attempted."""
CLOSE = 1e-6
"""The search for a certainty equivalent ends at a bracket below this fraction of the range of returns."""


def solve_adaptive(
    mdp: FiniteMDP, risk: RiskMeasure, tolerance: float = TOLERANCE, progress: Progress = silent
) -> Solution:
    """Return the best policy of (time, state, return so far), or the best known one where no proof is possible."""
    if (parts := mean_and_cvar(risk)) is not None:
        share, level = parts
        if (share == 0 or level == 1.0) and mdp.discount != 1.0:  # the mean, for which no return has to be rounded
            return solve_timed(mdp, risk, progress)
        return _solve_goal(mdp, risk, share, level, tolerance, progress)
    if isinstance(risk, Entropic | EVaR | WorstCase | BestCase):
        return solve_timed(mdp, risk, progress)
    if isinstance(risk, VaR | ReachProbability):
        return solve_reach(mdp, risk, tolerance, progress)
    graph = ReturnGraph(mdp)
    if isinstance(risk, Utility):
        response = graph.best_response(np.asarray(risk.influence(graph.finals, None, None), np.float64)[:, None])
        return solution_of(mdp, risk, response.law(), response.policy(), True, "optimal")
    if isinstance(risk, CertaintyEquivalent):
        return _solve_equivalent(graph, risk, progress)
    return _solve_by_iteration(graph, risk, progress)


def _solve_goal(
    mdp: FiniteMDP, risk: RiskMeasure, share: float, level: float, tolerance: float, progress: Progress
) -> Solution:
    """Solve (1−w)·mean + w·CVaR_η = max_b {b + (w/η) E[λ(Z − b) + min(Z − b, 0)]} with λ = (1−w)η/w."""
    share, level = (share, level) if share > 0 else (1.0, 1.0)  # the mean is CVaR at level 1
    weight = max((1 - share) * level / share, TIE_WEIGHT)
    answer = solve_levels(mdp, [level / share], weight, tolerance, progress)
    law, policy = answer.optima.laws(answer.goals)[0], answer.optima.policy(float(answer.goals[0]))
    details = {**answer.optima.details, "goal": float(answer.goals[0])}
    if answer.exact:
        return solution_of(mdp, risk, law, policy, True, "optimal", details)
    value, upper = float(risk.value(law)), float(answer.upper[0])
    report = f"within {upper - value:.3g} of the optimum, which is at most {upper:.6g} (rewards rounded)"
    return solution_of(mdp, risk, law, policy, False, report, details, (value, upper))


def _solve_equivalent(graph: ReturnGraph, risk: CertaintyEquivalent, progress: Progress) -> Solution:
    """Return the policy with the best certainty equivalent."""
    finals = graph.finals
    span = max(float(np.ptp(finals)), 1e-12)

    def utilities(b: np.ndarray) -> Utilities:
        return np.asarray(risk.utility(finals[:, None] - b[None, :]), np.float64)

    tried, values, upper = search_intervals(
        np.linspace(finals[0], finals[-1], FIRST) if finals.size > 1 else finals,
        lambda b: graph.values(utilities(b)),
        rising=lambda b: b,
        middle=lambda low, high: (low + high) / 2,
        close=CLOSE * span,
        size=graph.size,
        progress=progress,
    )
    b = float(tried[(tried + values).argmax()])
    response = graph.best_response(utilities(np.array([b])))
    law = response.law()
    for _ in range(20):  # the best b of the policy, its best policy, and so on: neither step is worse
        b = float(risk.now(law.atoms, law.probs))
        better = graph.best_response(utilities(np.array([b])))
        if risk.value(better.law()) <= risk.value(law) + 1e-13 * span:
            break
        response, law = better, better.law()
    value = float(risk.value(law))
    gap = max(upper - value, 0.0)
    proven = gap <= 10 * CLOSE * span
    report = "optimal" if proven else f"within {gap:.3g} of the optimum, which is at most {upper:.6g}"
    details, bounds = {"now": b, "tried": tried.size}, (value, value + gap)
    return solution_of(graph.mdp, risk, law, response.policy(), proven, report, details, bounds)


def _solve_by_iteration(graph: ReturnGraph, risk: RiskMeasure, progress: Progress) -> Solution:
    """Return what utility iteration finds, or an undominated attainable distribution if one is better."""
    found = utility_iteration(graph, risk, progress=progress)
    law, policy = found.law(), found.policy()
    try:
        laws = attainable(graph.mdp, risk.order, PROOF_LIMIT)
    except RiskpathError:  # a distribution has too many atoms
        laws = None
    if laws is None:
        return solution_of(graph.mdp, risk, law, policy, False, "best known, not proven optimal")
    details = {"utility_iteration": float(risk.value(law))}
    values = [float(risk.value(law)) for law, _ in laws]
    bound = max(values)
    if bound > risk.value(law) + 1e-9 * max(1.0, abs(bound)):
        law, policy = laws[values.index(bound)]
    return solution_of(graph.mdp, risk, law, policy, True, "proven optimal", details)
