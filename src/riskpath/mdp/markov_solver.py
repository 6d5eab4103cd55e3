"""The result of per-step methods: the policy π(s) that is greedy in β of the return *to go* at every state.

It belongs to the fixed point of T*_β, which IQN learns. That policy is not the best Markov policy for the whole return;
a fixed point need not exist, and the iteration need not reach it. So the solver reports how the iteration ended, and
the value of its policy is the risk of the whole return.
"""

from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.operators import Table, bellman, constant_table, first, greedy_actions
from riskpath.mdp.policies import MarkovPolicy
from riskpath.mdp.problem import Action, State
from riskpath.mdp.solution import Solution
from riskpath.risk.measures import RiskMeasure


def solve_markov(mdp: FiniteMDP, risk: RiskMeasure) -> Solution:
    """Iterate T*_β from a certain 0, at most as often as an episode can have steps and once more."""
    table = constant_table(mdp)
    policy = _greedy_policy(mdp, table, risk)
    policies: list[dict[State, Action]] = []
    converged = False
    for _ in range(len(mdp.layers) + 1):
        following = bellman(mdp, table, policy)  # T*_β: the policy is greedy in the table
        converged = all(following[key].isclose(table[key], 1e-9) for key in table)
        table = following
        policy = _greedy_policy(mdp, table, risk)
        policies.append(policy)
        if converged:
            break
    law = mdp.evaluate(policy)
    ties = _describe_tie(mdp, table, policy, risk)
    cycle = [] if converged else [float(risk.value(mdp.evaluate(p))) for p in _repeating_policies(policies)]
    report = _report(converged, cycle, policies)
    if ties:
        report += f"; {ties}"
    details = {
        "iterations": len(policies),
        "converged": converged,
        "cycle": cycle,
        "ties": ties,
        "table": table,
    }
    return Solution(mdp, risk, "markov", float(risk.value(law)), law, MarkovPolicy(policy), False, report, details)


def _greedy_policy(mdp: FiniteMDP, table: Table, risk: RiskMeasure) -> dict[State, Action]:
    """Return the first greedy action of every state."""
    states = dict.fromkeys(state for state, _ in table)
    return {state: first(greedy_actions(mdp, table, state, state, risk)) for state in states}


def _repeating_policies(policies: list[dict[State, Action]]) -> list[dict[State, Action]]:
    """Return the cycle of policies that ends the list, or [] if there is no cycle of more than one."""
    for length in range(1, len(policies) // 2 + 1):
        if policies[-length:] == policies[-2 * length : -length]:
            return policies[-length:] if length > 1 else []
    return []


def _report(converged: bool, cycle: list[float], policies: list[dict[State, Action]]) -> str:
    """Return in one line how the iteration ended."""
    iterations = len(policies)
    if converged:
        return f"per-step greedy, converged after {iterations} iterations"
    if cycle:
        values = ", ".join(f"{value:.6g}" for value in cycle)
        return f"per-step greedy, cycles through {len(cycle)} policies of value {values}"
    if len(policies) > 1 and policies[-1] == policies[-2]:
        return f"per-step greedy, policy settled, laws still changing at the horizon ({iterations} iterations)"
    return f"per-step greedy, still changing at the horizon ({iterations} iterations)"


def _describe_tie(mdp: FiniteMDP, table: Table, policy: dict[State, Action], risk: RiskMeasure) -> str:
    """Return a text about a state with equally greedy actions of different value for the whole return, or ""."""
    for state, chosen in policy.items():
        values = {}
        for action in greedy_actions(mdp, table, state, state, risk):
            if action == chosen or not table[state, action].isclose(table[state, chosen]):
                values[action] = risk.value(mdp.evaluate({**policy, state: action}))
        if len(values) > 1 and max(values.values()) - min(values.values()) > 1e-9:
            choices = ", ".join(f"{action} {value:.6g}" for action, value in values.items())
            return f"a tie at {state} decides the whole return ({choices}), so T*_β need not converge"
    return ""
