"""The largest mean that a floor under CVaR allows: an upper bound by Lagrange multipliers, without programs.

For every w in [0, 1) no policy that keeps CVaR ≥ x has a larger mean than (L(w) − w x)/(1 − w), where L(w) is the best
(1 − w)·mean + w·CVaR, which the goal recursion finds for all thresholds at once. The bound is smallest where the CVaR
of the best policy passes x. The thresholds of the policies on both sides are those to try first.
"""

from riskpath.mdp.exact.goal_solver import solve_levels
from riskpath.mdp.model import FiniteMDP
from riskpath.risk.measures import CVaR

HALVINGS = 24
"""The number of times that the interval of w is halved."""


def mean_bound(mdp: FiniteMDP, risk: CVaR, floor: float) -> tuple[float, list[float]]:
    """Return an upper bound of the mean of policies whose CVaR is at least the floor, and thresholds near the best."""
    level = float(risk.level)
    low, high, bound = 0.0, 1.0, float("inf")
    goals: dict[bool, float] = {}
    for _ in range(HALVINGS):
        share = (low + high) / 2
        answer = solve_levels(mdp, [level / share], (1 - share) * level / share)
        law = answer.optima.laws(answer.goals)[0]
        tail = law.risk(risk)
        best = (1 - share) * law.mean + share * tail
        if not answer.exact:
            return float("inf"), [float(answer.goals[0])]
        bound = min(bound, (best - share * floor) / (1 - share))
        goals[tail >= floor] = float(answer.goals[0])
        low, high = (low, share) if tail >= floor else (share, high)
    return bound, list(goals.values())
