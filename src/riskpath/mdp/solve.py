"""`solve`: one problem, one measure, four notions of a best policy."""

from typing import Literal, get_args

from riskpath.errors import RiskpathError
from riskpath.mdp.adaptive_solver import solve_adaptive
from riskpath.mdp.history_solver import solve_history
from riskpath.mdp.markov_solver import solve_markov
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.nested_solver import solve_nested
from riskpath.mdp.solution import Solution
from riskpath.risk.compose import parse_risk
from riskpath.risk.measures import RiskMeasure

PolicyClass = Literal["markov", "history", "adaptive", "nested"]

_SOLVERS = {
    "markov": solve_markov,
    "history": solve_history,
    "adaptive": solve_adaptive,
    "nested": solve_nested,
}


def solve(mdp: FiniteMDP, risk: RiskMeasure | str, policies: PolicyClass = "adaptive") -> Solution:
    """The best policy of a class, with its value, law and a readable `describe()`.

    - "markov": π(s), greedy at every step in β of the return to go, as per-step methods are;
    - "history": π(states and actions so far), the class of Trajectory Q-Learning; deterministic transitions only;
    - "adaptive": π(time, state, return so far); the only class that makes sense under random transitions;
    - "nested": π(s), optimal for the time-consistent risk β[R₀ + γβ[R₁ + …]], another objective altogether.
    """
    if not isinstance(mdp, FiniteMDP):
        kind = mdp if isinstance(mdp, str) else type(mdp).__name__
        raise RiskpathError(f"solve takes a FiniteMDP, got {kind}; of a problem by name it is rp.make(name).mdp()")
    if policies not in _SOLVERS:
        accepted = ", ".join(map(repr, get_args(PolicyClass)))
        raise RiskpathError(f"policies must be one of {accepted}, got {policies!r}")
    return _SOLVERS[policies](mdp, parse_risk(risk))
