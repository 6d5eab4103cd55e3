"""`solve`: the best policy of one of four policy classes, for one problem and one risk measure."""

from typing import Literal, get_args

from riskpath.errors import RiskpathError
from riskpath.mdp.adaptive_solver import solve_adaptive
from riskpath.mdp.history_solver import solve_history
from riskpath.mdp.markov_solver import solve_markov
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.nested_solver import solve_nested
from riskpath.mdp.problem import require_exact_steps
from riskpath.mdp.solution import Solution
from riskpath.risk.compose import as_risk
from riskpath.risk.measures import RiskMeasure

PolicyClass = Literal["markov", "history", "adaptive", "nested"]

_SOLVERS = {
    "markov": solve_markov,
    "history": solve_history,
    "adaptive": solve_adaptive,
    "nested": solve_nested,
}


def solve(mdp: FiniteMDP, risk: RiskMeasure | str, policies: PolicyClass = "adaptive") -> Solution:
    """Return the best policy of a class, with its value and its law.

    - "markov": π(s), at every step greedy in β of the return to go, like per-step methods;
    - "history": π(states and actions so far), the class of Trajectory Q-Learning, for deterministic transitions only;
    - "adaptive": π(time, state, return so far), for random transitions as well;
    - "nested": π(s), optimal for a different objective, the time-consistent risk β[R₀ + γβ[R₁ + …]].

    The risk may be a measure or a text such as "cvar:0.1".
    """
    if not isinstance(mdp, FiniteMDP):
        kind = mdp if isinstance(mdp, str) else type(mdp).__name__
        raise RiskpathError(f"solve needs a FiniteMDP, got {kind}; for a built-in problem use rp.make(name).mdp()")
    if policies not in _SOLVERS:
        accepted = ", ".join(map(repr, get_args(PolicyClass)))
        raise RiskpathError(f"policies must be one of {accepted}, got {policies!r}")
    risk = as_risk(risk)
    require_exact_steps(mdp.max_episode_steps)
    return _SOLVERS[policies](mdp, risk)
