"""What per-step methods find: the policy π(s) that is greedy in β of the return *to go*, at every state.

It is the fixed point of T*_β (IQN learns it), which is not the best Markov policy for the whole return, may not
exist, and need not be reached. So this solver reports what happened, and what its policy is really worth.
"""

from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.operators import Table, constant_table, first, greedy_actions, risk_greedy_bellman
from riskpath.mdp.policies import MarkovPolicy
from riskpath.mdp.problem import Action, State
from riskpath.mdp.solution import Solution
from riskpath.risk.measures import RiskMeasure


def solve_markov(mdp: FiniteMDP, risk: RiskMeasure) -> Solution:
    """Iterates T*_β from the sure 0, as many times as an episode can have steps."""
    table = constant_table(mdp)
    visited: list[dict[State, Action]] = []
    converged = False
    for _ in range(len(mdp.layers) + 1):
        following = risk_greedy_bellman(mdp, table, risk)
        converged = all(following[key].isclose(table[key], 1e-9) for key in table)
        table = following
        visited.append(_greedy_policy(mdp, table, risk))
        if converged:
            break
    policy = visited[-1]
    law = mdp.evaluate(policy)
    ties = _ties(mdp, table, policy, risk)
    cycle = [] if converged else [float(risk.value(mdp.evaluate(p))) for p in _period(visited)]
    report = _report(converged, len(visited), cycle, visited)
    if ties:
        report += f"; {ties}"
    details = {
        "iterations": len(visited),
        "converged": converged,
        "cycle": cycle,
        "ties": ties,
        "table": table,
    }
    return Solution(mdp, risk, "markov", float(risk.value(law)), law, MarkovPolicy(policy), False, report, details)


def _greedy_policy(mdp: FiniteMDP, table: Table, risk: RiskMeasure) -> dict[State, Action]:
    return {state: first(greedy_actions(mdp, table, state, state, risk)) for state, _ in table}


def _period(visited: list[dict[State, Action]]) -> list[dict[State, Action]]:
    """The policies that the end of the sequence repeats, if it repeats more than one."""
    for length in range(1, len(visited) // 2 + 1):
        if visited[-length:] == visited[-2 * length : -length]:
            return visited[-length:] if length > 1 else []
    return []


def _report(converged: bool, iterations: int, cycle: list[float], visited: list[dict[State, Action]]) -> str:
    if converged:
        return f"per-step greedy, converged after {iterations} iterations"
    if cycle:
        values = ", ".join(f"{value:.6g}" for value in cycle)
        return f"per-step greedy, cycles through {len(cycle)} policies worth {values}"
    if len(visited) > 1 and visited[-1] == visited[-2]:
        return f"per-step greedy, policy settled, laws still moving at the horizon ({iterations} iterations)"
    return f"per-step greedy, still changing at the horizon ({iterations} iterations)"


def _ties(mdp: FiniteMDP, table: Table, policy: dict[State, Action], risk: RiskMeasure) -> str:
    """Where T*_β does not say what to do, although it matters for the whole return."""
    for state, chosen in policy.items():
        values = {}
        for action in greedy_actions(mdp, table, state, state, risk):
            if action == chosen or not table[state, action].isclose(table[state, chosen]):
                values[action] = risk.value(mdp.evaluate({**policy, state: action}))
        if len(values) > 1 and max(values.values()) - min(values.values()) > 1e-9:
            choices = ", ".join(f"{action} {value:.6g}" for action, value in values.items())
            return f"a tie at {state} decides the whole return ({choices}), so T*_β need not converge"
    return ""
