"""The dynamic risk of the paper's appendix: β[R₀ + γ β[R₁ + γ β[R₂ + …]]], by backward induction.

The nested risk is time-consistent, but it is a different objective: it applies the measure at every step to numbers
that are already risks, so its value is not the risk of any return. The solution's `value` is the risk of the policy's
whole return; the nested risk is in `details["nested_value"]`.
"""

from riskpath.errors import RiskpathError
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import timed_policy
from riskpath.mdp.problem import Progress
from riskpath.mdp.solution import Solution, solution_of
from riskpath.risk.measures import RiskMeasure


def solve_nested(mdp: FiniteMDP, risk: RiskMeasure, progress: Progress | None = None) -> Solution:
    """Return the policy that attains V_t(s) = max_a β[R + γ V_{t+1}(S′)]."""
    if not risk.monetary:
        raise RiskpathError(f"nested risk adds rewards to values of the measure, and {risk} is not an amount of return")
    tables = mdp.backward(lambda values, probs: float(risk.value(values, probs)), progress)
    timed = {(t, state): max(q, key=q.__getitem__) for t, table in enumerate(tables) for state, q in table.items()}
    first_values = {state: max(q.values()) for state, q in tables[0].items()} if tables else {}
    nested = float(risk.value([first_values.get(state, 0.0) for state in mdp.start], list(mdp.start.values())))
    policy = timed_policy(timed)
    report, details = f"optimal for the nested risk, whose value is {nested:.6g}", {"nested_value": nested}
    return solution_of(mdp, risk, mdp.evaluate(policy), policy, False, report, details, policies="nested")
