"""The result of per-step methods: the policy π(s) that is greedy in β of the return *to go* at every state.

It belongs to the fixed point of T*_β, which IQN learns. That policy is not the best Markov policy for the whole return;
a fixed point need not exist, and the iteration need not reach it. So the solver reports its outcome, and the value of
its policy is the risk of the whole return.

If no state can be visited twice in an episode, the fixed point exists and one sweep from the last states to the first
computes it. For the mean this is plain dynamic programming. Equal returns are merged exactly; distributions that still
have more than `MAX_ATOMS` atoms are coarsened, and the report says by how much.
"""

from collections import Counter

import numpy as np

from riskpath.mdp.law import Law, value_function
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.operators import TIE_TOLERANCE, Table, bellman, constant_table, first, greedy_actions
from riskpath.mdp.policies import MarkovPolicy
from riskpath.mdp.problem import Action, Progress, State, depth_first, successors
from riskpath.mdp.solution import Solution, solution_of
from riskpath.risk.measures import CVaR, Mean, RiskMeasure

MAX_ATOMS = 20_000
"""Distributions with more atoms are coarsened."""
MAX_TIES = 20
"""The number of ties that are examined for their effect on the whole return."""
TIE_PAIRS = 2_000
"""Ties are examined on problems with at most this number of (state, action) pairs."""


def solve_markov(mdp: FiniteMDP, risk: RiskMeasure, progress: Progress) -> Solution:
    """Return the per-step greedy policy."""
    order = _last_to_first(mdp)
    if order is None:
        return _iterate(mdp, risk, progress)
    sweep = _Sweep(mdp, risk)
    if isinstance(risk, Mean) or (isinstance(risk, CVaR) and float(risk.level) == 1.0):
        policy = _mean_policy(mdp, order)
        for state in reversed(_visited(mdp, policy)):
            sweep.to_go[state] = sweep.law(state, policy[state])
        ties = ""
    else:
        uses = Counter(after for state in order for after in _successors(mdp, state)) + Counter(mdp.start.keys())
        for done, state in enumerate(order):
            sweep.choose(state)
            for after in _successors(mdp, state):  # a distribution that nobody needs any more would fill the memory
                uses[after] -= 1
                if not uses[after]:
                    del sweep.to_go[after]
            progress(done + 1, len(order))
        policy = sweep.policy
        ties = _describe_tie(mdp, policy, sweep.ties, risk)
    law = Law.mix([sweep.to_go.get(state, Law.point(0.0)) for state in mdp.start], mdp.start.values())
    report = "per-step greedy, converged in one backward sweep"
    if sweep.moved:
        report += f"; distributions coarsened to {MAX_ATOMS:,} atoms, which moves returns by at most {sweep.moved:.2g}"
    if ties:
        report += f"; {ties}"
    details = {"converged": True, "cycle": [], "ties": ties}
    return solution_of(mdp, risk, law, MarkovPolicy(policy), False, report, details, policies="markov")


def _last_to_first(mdp: FiniteMDP) -> list[State] | None:
    """Return the states such that every state comes after its successors; None if an episode can return to a state."""
    if mdp.horizon is not None:
        last = mdp.layers[-1] if len(mdp.layers) else ()
        if any(state in mdp.outcomes for state in successors(mdp.outcomes, last)):
            return None  # the horizon cuts episodes off
    order, loop = depth_first(mdp.outcomes, mdp.start)
    if loop:
        return None
    left: dict[State, int] = {}
    for state in order:
        left[state] = 1 + max(map(left.__getitem__, _successors(mdp, state)), default=0)
    return sorted(order, key=left.__getitem__)  # by the steps that are left: few distributions are needed at a time


def _successors(mdp: FiniteMDP, state: State) -> list[State]:
    return [after for after in successors(mdp.outcomes, [state]) if after in mdp.outcomes]


class _Sweep:
    """The distributions of the return to go, and the greedy actions, of the states that were passed."""

    def __init__(self, mdp: FiniteMDP, risk: RiskMeasure):
        self.mdp, self.value = mdp, value_function(risk)
        self.to_go: dict[State, Law] = {}
        self.policy: dict[State, Action] = {}
        self.ties: dict[State, list[Action]] = {}
        """States with equally greedy actions whose distributions differ."""
        self.examines_ties = sum(map(len, mdp.outcomes.values())) <= TIE_PAIRS
        self.moved = 0.0
        """The largest change of a return by coarsening."""

    def law(self, state: State, action: Action) -> Law:
        """Return the distribution of the return to go of an action."""
        outcomes = self.mdp.outcomes[state][action]
        futures = [self.to_go.get(o.next) for o in outcomes]
        atoms = [
            np.array([o.reward]) if z is None else o.reward + self.mdp.discount * z.atoms
            for o, z in zip(outcomes, futures, strict=True)
        ]
        probs = [np.array([o.prob]) if z is None else o.prob * z.probs for o, z in zip(outcomes, futures, strict=True)]
        law = Law(np.concatenate(atoms), np.concatenate(probs))
        if len(law) > MAX_ATOMS:
            law, moved = law.coarsen(MAX_ATOMS)
            self.moved += moved
        return law

    def choose(self, state: State) -> None:
        """Choose the first greedy action of a state whose successors were passed."""
        laws = {action: self.law(state, action) for action in self.mdp.outcomes[state]}
        values = {action: self.value(law) for action, law in laws.items()}
        best = max(values.values())
        slack = TIE_TOLERANCE * max(1.0, abs(best))
        greedy = [action for action, value in values.items() if value >= best - slack]
        chosen = first(greedy)
        self.policy[state], self.to_go[state] = chosen, laws[chosen]
        others = [action for action in greedy[1:] if self.examines_ties and not laws[action].isclose(laws[chosen])]
        if others:
            self.ties[state] = [chosen, *others]


def _mean_policy(mdp: FiniteMDP, order: list[State]) -> dict[State, Action]:
    """Return the policy with the best mean, by dynamic programming on numbers."""
    best: dict[State, float] = {}
    policy: dict[State, Action] = {}
    for state in order:
        means = {
            action: sum(o.prob * (o.reward + mdp.discount * best.get(o.next, 0.0)) for o in outcomes)
            for action, outcomes in mdp.outcomes[state].items()
        }
        best[state] = max(means.values())
        slack = TIE_TOLERANCE * max(1.0, abs(best[state]))
        policy[state] = next(action for action, mean in means.items() if mean >= best[state] - slack)
    return policy


def _visited(mdp: FiniteMDP, policy: dict[State, Action]) -> list[State]:
    """Return the states that a policy visits, every state before its successors."""
    order: dict[State, None] = {}
    layer = [state for state in mdp.start if state in mdp.outcomes]
    while layer:
        for state in layer:
            order.pop(state, None)  # a state that is visited at several times comes after all that lead to it
            order[state] = None
        following = (o.next for state in layer for o in mdp.outcomes[state][policy[state]])
        layer = [state for state in dict.fromkeys(following) if state in mdp.outcomes]
    return list(order)


def _describe_tie(
    mdp: FiniteMDP, policy: dict[State, Action], ties: dict[State, list[Action]], risk: RiskMeasure
) -> str:
    """Return a text about a state with equally greedy actions of different value for the whole return, or ""."""
    for state, actions in list(ties.items())[:MAX_TIES]:
        values = {action: float(risk.value(mdp.evaluate({**policy, state: action}))) for action in actions}
        if max(values.values()) - min(values.values()) > 1e-9:
            choices = ", ".join(f"{action} {value:.6g}" for action, value in values.items())
            return f"a tie at {state} decides the whole return ({choices}), so T*_β need not converge"
    return ""


def _iterate(mdp: FiniteMDP, risk: RiskMeasure, progress: Progress) -> Solution:
    """Iterate T*_β from a certain 0, at most one time more than the largest number of steps."""
    table = constant_table(mdp)
    greedy = _greedy(mdp, table, risk)
    policies: list[dict[State, Action]] = []
    converged = False
    for number in range(len(mdp.layers) + 1):
        progress(number, len(mdp.layers) + 1)
        # T*_β: the policy is greedy in the table
        following = bellman(mdp, table, {state: first(actions) for state, actions in greedy.items()})
        converged = all(following[key].isclose(table[key], 1e-9) for key in table)
        table, greedy = following, _greedy(mdp, following, risk)
        policies.append({state: first(actions) for state, actions in greedy.items()})
        if converged:
            break
    policy = policies[-1]
    law = mdp.evaluate(policy)
    differing = {
        state: [chosen, *(a for a in others if not table[state, a].isclose(table[state, chosen]))]
        for state, (chosen, *others) in greedy.items()
    }
    ties = _describe_tie(mdp, policy, {state: tied for state, tied in differing.items() if len(tied) > 1}, risk)
    cycle = [] if converged else [float(risk.value(mdp.evaluate(p))) for p in _repeating_policies(policies)]
    report = _report(converged, cycle, policies)
    if ties:
        report += f"; {ties}"
    details = {"iterations": len(policies), "converged": converged, "cycle": cycle, "ties": ties}
    return solution_of(mdp, risk, law, MarkovPolicy(policy), False, report, details, policies="markov")


def _greedy(mdp: FiniteMDP, table: Table, risk: RiskMeasure) -> dict[State, list[Action]]:
    """Return the greedy actions of every state."""
    states = dict.fromkeys(state for state, _ in table)
    return {state: greedy_actions(mdp, table, state, state, risk) for state in states}


def _repeating_policies(policies: list[dict[State, Action]]) -> list[dict[State, Action]]:
    """Return the cycle of policies that ends the list, or [] if there is no cycle of more than one."""
    for length in range(1, len(policies) // 2 + 1):
        if policies[-length:] == policies[-2 * length : -length]:
            return policies[-length:] if length > 1 else []
    return []


def _report(converged: bool, cycle: list[float], policies: list[dict[State, Action]]) -> str:
    """Return the outcome of the iteration in one line."""
    iterations = len(policies)
    if converged:
        return f"per-step greedy, converged after {iterations} iterations"
    if cycle:
        values = ", ".join(f"{value:.6g}" for value in cycle)
        return f"per-step greedy, cycles through {len(cycle)} policies of value {values}"
    if len(policies) > 1 and policies[-1] == policies[-2]:
        return f"per-step greedy, policy settled, distributions still changing at the horizon ({iterations} iterations)"
    return f"per-step greedy, still changing at the horizon ({iterations} iterations)"
