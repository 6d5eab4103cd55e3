"""The best policy that sees states and actions but no rewards, under deterministic transitions.

Such a policy is a fixed sequence of actions from each start state, so the solver searches over sequences. A label
is (time, state, distribution of the return so far). Two rules drop labels without losing the optimum:

- dominance: another label of the same time and state has a distribution that dominates (see `attainable`);
- bound: the best continuation cannot beat a sequence that is already known. For measures that respect second-order
  dominance a continuation Y is worth at most its mean, β[X + Y] ≤ β[X + E[Y]], because X + Y has the mean of X + E[Y]
  and more spread; for others at most its largest value. Measures of order 0 have no bound.

With several start states the value is β of the mixture, and the sequences of one start state are compared by
dominance alone.
"""

from dataclasses import dataclass
from typing import Any

from riskpath.errors import RiskpathError
from riskpath.mdp.exact.attainable import undominated
from riskpath.mdp.law import Law, value_function
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import History, HistoryPolicy
from riskpath.mdp.problem import Action, Progress, State
from riskpath.mdp.solution import Solution, solution_of
from riskpath.risk.measures import Mean, RiskMeasure

MAX_LABEL_ATOMS = 2**26
"""The largest total number of atoms of all labels of one time."""
BEAM = 32
"""The number of labels of one time in the first, incomplete search, whose result bounds the complete search."""


@dataclass(frozen=True, slots=True, eq=False)
class _Label:
    """A partial sequence: its last state and return distribution, the label and action before, and an upper bound."""

    state: State
    law: Law
    previous: "tuple[_Label, Action] | None"
    bound: float

    def path(self) -> tuple[list[State], list[Action]]:
        """Return the states of the sequence and the actions between them."""
        states, actions, label = [self.state], [], self
        while label.previous is not None:
            label, action = label.previous
            states.append(label.state)
            actions.append(action)
        return states[::-1], actions[::-1]


class _Search:
    """The search over action sequences of one problem under one measure."""

    def __init__(self, mdp: FiniteMDP, risk: RiskMeasure, progress: Progress):
        self.mdp, self.risk, self.value, self.order = mdp, risk, value_function(risk), risk.order
        self.progress = progress
        expect = Mean().value if self.order == 2 else lambda values, _: max(values)
        self.to_go = [{s: max(q.values()) for s, q in table.items()} for table in mdp.backward(expect)]
        self.moves: dict[State, dict[Any, tuple[Action, Law, State]]] = {}
        """By state and outcomes: (action, reward distribution, next state), of equal actions the first."""
        for (state, action), law in mdp.reward_laws.items():
            outcomes = mdp.outcomes[state][action]
            self.moves.setdefault(state, {}).setdefault(frozenset(outcomes), (action, law, outcomes[0].next))
        self.labels = 0

    def run(self, start: State, floor: float | None, beam: int | None = None) -> tuple[list[_Label], bool]:
        """Return complete sequences, and whether the beam left any out.

        With a floor, only the best sequence with a value above it is returned; without, all undominated ones.
        """
        current = [_Label(start, Law.point(0.0), None, float("inf"))]
        ended = [label for label in current if self.mdp.is_terminal(start, 0)]
        truncated = False
        time = 0
        while current and not self.mdp.is_terminal(start, 0):
            scale = self.mdp.discount**time
            time += 1
            groups: dict[State, list[_Label]] = {}
            atoms = 0
            for label in current:
                for action, reward, following in self.moves[label.state].values():
                    law = label.law.convolve(reward.scale(scale))
                    if self.mdp.is_terminal(following, time):
                        final = _Label(following, law, (label, action), self.value(law))
                        if floor is None:
                            ended.append(final)
                        elif final.bound > floor:
                            floor, ended = final.bound, [final]
                    else:
                        bound = self._bound(law, time, following) if floor is not None else 0.0
                        if floor is None or bound > floor + 1e-10 * abs(bound):
                            groups.setdefault(following, []).append(_Label(following, law, (label, action), bound))
                            atoms += len(law)
                            _check_size(atoms)
            current = [group[i] for group in groups.values() for i in undominated([x.law for x in group], self.order)]
            self.labels += len(current)
            self.progress(time, len(self.mdp.layers))
            if beam is not None and len(current) > beam:
                current = sorted(current, key=lambda label: -label.bound)[:beam]
                truncated = True
        return ended, truncated

    def _bound(self, law: Law, time: int, state: State) -> float:
        """Return an upper bound of the risk of every continuation."""
        if self.order == 0:
            return float("inf")
        more = self.mdp.discount**time * self.to_go[time][state]
        return self.value(law) + more if self.risk.monetary else self.value(law.shift(more))


def _check_size(atoms: int) -> None:
    if atoms > MAX_LABEL_ATOMS:
        raise RiskpathError(
            f"the search over histories needs more than {MAX_LABEL_ATOMS:,} atoms; "
            "round the rewards, use discount 1 or shorten the problem"
        )


def solve_history(mdp: FiniteMDP, risk: RiskMeasure, progress: Progress) -> Solution:
    """Return the best action sequence from each start state."""
    if mdp.successor is None:
        raise RiskpathError(
            "history policies see no rewards and are solved for deterministic transitions only; "
            'this problem has random transitions: use policies="adaptive"'
        )
    search = _Search(mdp, risk, progress)
    if len(mdp.start) == 1:
        (start,) = mdp.start
        sequences, truncated = search.run(start, floor=-float("inf"), beam=BEAM)
        if truncated:
            better, _ = search.run(start, floor=sequences[0].bound)
            sequences = better or sequences
        best, law = [sequences[0]], sequences[0].law
    else:
        best, law = _best_mixture(search, risk)
    policy, details = HistoryPolicy(_table(best)), {"labels": search.labels}
    return solution_of(mdp, risk, law, policy, True, "optimal", details, policies="history")


def _best_mixture(search: _Search, risk: RiskMeasure) -> tuple[list[_Label], Law]:
    """Return one sequence for each start state and the distribution of their mixture, which is the best one.

    Start states are added one by one; after each, mixtures that another one dominates are dropped.
    """
    partial: list[tuple[list[_Label], Law]] = []
    mass = 0.0
    for start, prob in search.mdp.start.items():
        ended, _ = search.run(start, floor=None)
        ended = [ended[i] for i in undominated([label.law for label in ended], search.order)]
        if not partial:
            partial = [([label], label.law) for label in ended]
        else:
            weights = [mass / (mass + prob), prob / (mass + prob)]
            joined = [
                ([*labels, label], Law.mix([law, label.law], weights)) for labels, law in partial for label in ended
            ]
            partial = [joined[i] for i in undominated([law for _, law in joined], search.order)]
        mass += prob
    return max(partial, key=lambda pair: risk.value(pair[1]))


def _table(labels: list[_Label]) -> dict[History, Action]:
    """Return {history: action} for all prefixes of some sequences."""
    table: dict[History, Action] = {}
    for label in labels:
        states, actions = label.path()
        history: History = ()
        for state, action in zip(states, actions, strict=False):
            history = (*history, state)
            table[history] = action
            history = (*history, action)
    return table
