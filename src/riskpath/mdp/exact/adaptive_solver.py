"""The best reward-adaptive policy: it sees time, state and return so far, and transitions may be random.

CVaR and mixtures of the mean with one CVaR are solved to the global optimum by the goal recursion (`goal_solver`), or
bracketed where rewards must be rounded; VaR and the probability to reach a target by the same recursion with a jump
(`reach_solver`). For entropic risk, EVaR, the worst and the best case, and for the mean, time and state suffice
(`timed_solver`). Expected utilities and certainty equivalents are solved in the graph of returns (`utility_solver`).
Any other measure is improved by utility iteration from many starts (`utility_iteration`); if all undominated
distributions can be listed (`attainable`), the result is compared with the best of them and is then proven optimal.

All policies here are deterministic. For some measures a randomised policy can be better (`randomised_solver`).
"""

import numpy as np

from riskpath.errors import RiskpathError
from riskpath.mdp.exact.attainable import attainable
from riskpath.mdp.exact.goal_recursion import TIE_WEIGHT
from riskpath.mdp.exact.goal_solver import TOLERANCE, solve_levels
from riskpath.mdp.exact.reach_solver import solve_reach
from riskpath.mdp.exact.return_graph import ReturnGraph
from riskpath.mdp.exact.timed_solver import is_timed, solve_timed
from riskpath.mdp.exact.utility_iteration import utility_iteration
from riskpath.mdp.exact.utility_solver import solve_equivalent, solve_utility
from riskpath.mdp.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import Policy
from riskpath.mdp.problem import Progress
from riskpath.mdp.solution import Solution, solution_of
from riskpath.risk.certainty_equivalents import CertaintyEquivalent
from riskpath.risk.compose import mean_and_cvar
from riskpath.risk.measures import RiskMeasure
from riskpath.risk.quantile_measures import VaR
from riskpath.risk.utility_measures import ReachProbability, Utility

PROOF_LIMIT = 4096
"""The largest number of distributions combined at one state; beyond it no proof is attempted."""


def solve_adaptive(
    mdp: FiniteMDP, risk: RiskMeasure, tolerance: float = TOLERANCE, progress: Progress | None = None
) -> Solution:
    """Return the best policy of (time, state, return so far), or the best known one where no proof is possible."""
    if (parts := mean_and_cvar(risk)) is not None:
        share, level = parts
        if (share == 0 or level == 1.0) and mdp.discount != 1.0:  # the mean, for which no return has to be rounded
            return solve_timed(mdp, risk, progress)
        return _solve_goal(mdp, risk, share, level, tolerance, progress)
    if is_timed(risk):
        return solve_timed(mdp, risk, progress)
    if isinstance(risk, VaR | ReachProbability):
        return solve_reach(mdp, risk, tolerance, progress)
    if isinstance(risk, Utility):
        return solve_utility(mdp, risk)
    if isinstance(risk, CertaintyEquivalent):
        return solve_equivalent(mdp, risk, progress)
    found = utility_iteration(ReturnGraph(mdp), risk, progress=progress)
    law, policy = found.law(), found.policy()
    proof = _prove(mdp, risk)
    if proof is None:
        report, details = "best known, not proven optimal", {}
    else:
        bound, bound_law, bound_policy = proof
        report, details = "proven optimal", {"utility_iteration": float(risk.value(law))}
        if bound > risk.value(law) + 1e-9 * max(1.0, abs(bound)):
            law, policy = bound_law, bound_policy
    return solution_of(mdp, risk, law, policy, proof is not None, report, details)


def _solve_goal(
    mdp: FiniteMDP, risk: RiskMeasure, share: float, level: float, tolerance: float, progress: Progress | None
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


def _prove(mdp: FiniteMDP, risk: RiskMeasure) -> tuple[float, Law, Policy] | None:
    """Return the best undominated attainable distribution, its value and policy; None if they cannot be listed."""
    try:
        laws = attainable(mdp, risk.order, PROOF_LIMIT)
    except RiskpathError:  # a distribution has too many atoms: the result is not proven
        return None
    if laws is None:
        return None
    values = [float(risk.value(law)) for law, _ in laws]
    index = int(np.argmax(values))
    return values[index], *laws[index]
