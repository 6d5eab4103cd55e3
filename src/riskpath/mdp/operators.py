"""The operators of the Trajectory Q-Learning paper on tables of return distributions, as the paper writes them.

A table holds a distribution for every (state, action). A history table holds a distribution for every (history,
action), where a history (s₀, a₀, s₁, …, s_t) may start in any state. Equation numbers are those of the paper.

Two points that the proofs of the paper leave out:

- T^π_h bootstraps from Z({s_{t+1}}, ·), the single-state history. Its fixed point is therefore the return of π
  only if π depends on the current state alone; `history_values` is the true return.
- T*_{h,β} is non-expansive in β on tables with Z(h, a) = R_{0:t−1} + γᵗ Z({s_t}, a), an unstated
  assumption of its proof, but not on all tables. `trajectory_optimality` bootstraps from Z(h_{t+1}, ·) instead: it is
  non-expansive on all tables, and reaches the best history policy after one iteration per step of an episode.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from riskpath.errors import RiskpathError
from riskpath.mdp.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.policies import History
from riskpath.mdp.problem import Action, State, require_exact_steps
from riskpath.risk.compose import parse_risk
from riskpath.risk.measures import Mean, RiskMeasure

Table: TypeAlias = dict[tuple[Any, Any], Law]
"""{(state, action): distribution}."""
HistoryTable: TypeAlias = dict[tuple[Any, Any], Law]
"""{(history, action): distribution}."""
TieBreak: TypeAlias = Callable[[Sequence[Action]], Action]
"""Returns one of several actions of equal risk."""

MAX_HISTORIES = 200_000
"""The largest number of histories in a table."""
TIE_TOLERANCE = 1e-9
"""Risks are equal if they differ by less, relative to the larger one (at least 1)."""


def first(actions: Sequence[Action]) -> Action:
    """Return the first action: the default rule for ties."""
    return actions[0]


def constant_table(mdp: FiniteMDP, law: Law | None = None) -> Table:
    """Return a table with one distribution, by default a certain 0, for every reachable state and action."""
    states = dict.fromkeys(state for layer in mdp.layers.distinct for state in layer)
    return {(state, a): law or Law.point(0.0) for state in states for a in mdp.actions(state)}


def greedy_actions(
    mdp: FiniteMDP, table: Mapping, at: State | History, state: State, risk: RiskMeasure | str
) -> list[Any]:
    """Return all actions of `state` that maximise β[Z(at, ·)], in their order; `at` is the state or a history."""
    risk = parse_risk(risk)
    values = {action: risk.value(table[at, action]) for action in mdp.actions(state)}
    best = max(values.values())
    return [action for action, value in values.items() if value >= best - TIE_TOLERANCE * max(1.0, abs(best))]


def _back_up(mdp: FiniteMDP, table: Table, choose: Callable[[State], Mapping[Action, float]]) -> Table:
    """Return R(s, a) + γ Z(S′, A′) for every (s, a), with A′ drawn from `choose`; Z is 0 where an episode ends."""
    to_go = {}
    for state in dict.fromkeys(state for state, _ in table):
        chosen = choose(state)
        to_go[state] = Law.mix([table[state, action] for action in chosen], chosen.values())
    result: Table = {}
    for state, action in table:
        outcomes = mdp.outcomes[state][action]
        futures = [to_go.get(o.next, Law.point(0.0)).scale(mdp.discount).shift(o.reward) for o in outcomes]
        result[state, action] = Law.mix(futures, [o.prob for o in outcomes])
    return result


def bellman(mdp: FiniteMDP, table: Table, policy: Mapping[State, Action | Mapping[Action, float]]) -> Table:
    """Return T^π Z(s, a) := R(s, a) + γ Z(s′, a′), a′ ~ π(·|s′)   (Eq. 2)."""

    def choose(state: State) -> Mapping[Action, float]:
        choice = policy[state]
        return choice if isinstance(choice, Mapping) else {choice: 1.0}

    return _back_up(mdp, table, choose)


def bellman_optimality(mdp: FiniteMDP, table: Table) -> Table:
    """Return T* Z(s, a) := R(s, a) + γ Z(s′, argmax_a′ E[Z(s′, a′)])   (Eq. 3)."""
    return risk_greedy_bellman(mdp, table, Mean())


def risk_greedy_bellman(mdp: FiniteMDP, table: Table, risk: RiskMeasure | str, tie: TieBreak = first) -> Table:
    """Return T*_β Z(s, a) := R(s, a) + γ Z(s′, argmax_a′ β[Z(s′, a′)])   (Eq. 11), the operator of per-step methods."""
    risk = parse_risk(risk)
    return _back_up(mdp, table, lambda state: {tie(greedy_actions(mdp, table, state, state, risk)): 1.0})


def histories(mdp: FiniteMDP) -> list[History]:
    """Return all histories that end in a non-terminal state, starting in any reachable state."""
    if mdp.successor is None:
        raise RiskpathError("histories without rewards need deterministic transitions")
    require_exact_steps(mdp.max_episode_steps)
    listed: list[History] = []
    current: list[History] = [(state,) for state in dict.fromkeys(s for layer in mdp.layers.distinct for s in layer)]
    while current:
        listed.extend(current)
        if len(listed) > MAX_HISTORIES:
            raise RiskpathError(f"the problem has more than {MAX_HISTORIES:,} histories, too many for a table")
        current = [
            extended
            for history in current
            for action in mdp.actions(history[-1])
            if (extended := _extend(mdp, history, action)) is not None
        ]
    return listed


def past_law(mdp: FiniteMDP, taken: History) -> Law:
    """Return the distribution of R_{0:t} = Σ_{i≤t} γⁱ R(s_i, a_i), for `taken` = (s₀, a₀, …, s_t, a_t)."""
    law = Law.point(0.0)
    for time, pair in enumerate(zip(taken[::2], taken[1::2], strict=True)):
        law = law.convolve(mdp.reward_laws[pair].scale(mdp.discount**time))
    return law


def consistent_table(mdp: FiniteMDP, table: Table) -> HistoryTable:
    """Return Z(h_t, a) = R_{0:t−1} + γᵗ Z(s_t, a)   (Eq. 12) from a table of distributions of the return to go."""
    result: HistoryTable = {}
    for history in histories(mdp):
        past = past_law(mdp, history[:-1])
        for action in mdp.actions(history[-1]):
            future = table[history[-1], action].scale(mdp.discount ** (len(history) // 2))
            result[history, action] = past.convolve(future)
    return result


def history_bellman(mdp: FiniteMDP, table: HistoryTable, policy: Mapping[History, Action]) -> HistoryTable:
    """Return T^π_h Z(h_t, a) := R_{0:t} + γ^{t+1} Z({s_{t+1}}, π(h_{t+1}))   (Eq. 13)."""
    return _history_back_up(mdp, table, lambda history: policy[history], restart=True)


def history_optimality(
    mdp: FiniteMDP, table: HistoryTable, risk: RiskMeasure | str, tie: TieBreak = first
) -> HistoryTable:
    """Return T*_{h,β} Z(h_t, a) := R_{0:t} + γ^{t+1} Z({s_{t+1}}, argmax_a′ β[Z(h_{t+1}, a′)])   (Eq. 17)."""
    return _history_back_up(mdp, table, _greedy(mdp, table, risk, tie), restart=True)


def trajectory_optimality(
    mdp: FiniteMDP, table: HistoryTable, risk: RiskMeasure | str, tie: TieBreak = first
) -> HistoryTable:
    """Return Z(h_t, a) := Z(h_{t+1}, argmax_a′ β[Z(h_{t+1}, a′)]), and R_{0:T} at the end of an episode.

    Unlike `history_optimality` it bootstraps from the whole history, which makes it unbiased.
    """
    return _history_back_up(mdp, table, _greedy(mdp, table, risk, tie), restart=False)


def history_values(mdp: FiniteMDP, policy: Mapping[History, Action]) -> HistoryTable:
    """Return Z^π(h, a), the distribution of the whole return when a follows the history h, and then π."""
    result: HistoryTable = {}
    for history in reversed(histories(mdp)):  # from long histories to short ones
        for action in mdp.actions(history[-1]):
            extended = _extend(mdp, history, action)
            if extended is None:
                result[history, action] = past_law(mdp, (*history, action))
            else:
                result[history, action] = result[extended, policy[extended]]
    return result


def _greedy(mdp: FiniteMDP, table: HistoryTable, risk: RiskMeasure | str, tie: TieBreak) -> Callable[[History], Action]:
    """Return the greedy policy of a history table."""
    risk = parse_risk(risk)
    return lambda history: tie(greedy_actions(mdp, table, history, history[-1], risk))


def _history_back_up(
    mdp: FiniteMDP, table: HistoryTable, choose: Callable[[History], Action], restart: bool
) -> HistoryTable:
    """Return R_{0:t} + γ^{t+1} Z({s_{t+1}}, a′) if `restart`, else Z(h_{t+1}, a′), with a′ = `choose(h_{t+1})`."""
    result: HistoryTable = {}
    for history, action in table:
        extended = _extend(mdp, history, action)
        if extended is None:
            result[history, action] = past_law(mdp, (*history, action))
        elif restart:
            future = table[extended[-1:], choose(extended)]
            scale = mdp.discount ** (len(extended) // 2)
            result[history, action] = past_law(mdp, (*history, action)).convolve(future.scale(scale))
        else:
            result[history, action] = table[extended, choose(extended)]
    return result


def _extend(mdp: FiniteMDP, history: History, action: Action) -> History | None:
    """Return h_{t+1}, or None if the episode ends."""
    following = (mdp.successor or {})[history[-1], action]
    time = (len(history) + 1) // 2
    return None if mdp.is_terminal(following, time) else (*history, action, following)
