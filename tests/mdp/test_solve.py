"""Exact solvers against closed forms, and against brute force on random problems."""

import numpy as np
import pytest

import riskpath as rp
from riskpath.mdp.solve import PolicyClass
from tests.mdp.problems import all_return_policies, best_adaptive_value, best_sequence_value, random_mdp

MEASURES = ["mean", "cvar:0.1", "cvar:0.5", "wang:-0.75", "wang:0.75", "pow:-2", "pow:2", "cpw:0.71"]
GRID = rp.RiskyGrid()

# (problem, measure, discount, markov, history, adaptive): derived by hand or by full enumeration.
KNOWN = [
    (rp.ThreeState(), "cvar:0.1", 1.0, -10.0, 79.0, 79.0),
    (GRID, "cvar:0.05", 1.0, 48.0, 56.75, 56.75),
    (GRID, "cvar:0.1", 1.0, 48.0, 72.375, 79.875),
    (GRID, "cvar:0.25", 1.0, 48.0, 119.25, 119.25),
    (GRID, "cvar:0.5", 1.0, None, 153.625, 156.125),
    (GRID, "wang:-0.75", 1.0, None, 157.418, 157.418),
    (GRID, "pow:-2", 1.0, None, 150.962, 150.962),
    (GRID, "pow:-5", 1.0, None, 115.629, 115.699),
    (GRID, "cpw:0.71", 1.0, None, 211.423, 211.423),
    (GRID, "cvar:0.1", 0.99, 47.11, 70.08, 77.28),
    # A grid whose history optimum is not the mean's: sure rewards at every fork.
    (rp.RiskyGrid(p_yellow=0.8, blue=38.0), "cvar:0.1", 1.0, None, 102.0, None),
]


@pytest.mark.parametrize(("env", "risk", "discount", "markov", "history", "adaptive"), KNOWN)
def test_known_optima(env, risk, discount, markov, history, adaptive):
    mdp = env.mdp(discount)
    expectations: dict[PolicyClass, float | None] = {"markov": markov, "history": history, "adaptive": adaptive}
    for policies, expected in expectations.items():
        solution = rp.solve(mdp, risk, policies)
        assert expected is None or solution.value == pytest.approx(expected, abs=6e-3 if discount < 1 else 6e-4)
        assert rp.parse_risk(risk).value(mdp.evaluate(solution.policy)) == pytest.approx(solution.value, abs=1e-9)
        assert mdp.evaluate(solution.policy).isclose(solution.law)


@pytest.mark.parametrize(
    ("risk", "policies", "path"),
    [
        ("cvar:0.1", "markov", "BBB"),
        ("cvar:0.1", "history", "YYY"),
        ("cvar:0.1", "adaptive", "YY(Y|B)"),
        ("cvar:0.25", "adaptive", "YYY"),
        ("cvar:0.1", "nested", "BBB"),
        ("mean", "markov", "YYY"),
    ],
)
def test_known_grid_paths(risk, policies, path):
    assert GRID.path(rp.solve(GRID.mdp(), risk, policies).policy) == path


@pytest.mark.parametrize("risk", [*MEASURES, "cvar:0.05", "pow:-5", "wang:-2", "cpw:0.4", "0.5*mean+0.5*cvar:0.1"])
def test_adaptive_is_the_best_of_all_34_policies_of_the_grid(risk):
    # The grid without its oranges and without the moves that the border makes equal.
    outcomes = {}
    for fork in range(3):
        outcomes[fork, "Y"] = [(0.75, 96.0, fork + 1), (0.25, -4.0, fork + 1)]
        outcomes[fork, "B"] = [(1.0, 16.0, fork + 1)]
    mdp = rp.FiniteMDP.from_outcomes(outcomes, start=0)
    laws = list(all_return_policies(mdp))
    assert len(laws) == 34
    best = max(rp.parse_risk(risk).value(law) for law in laws)
    assert rp.solve(mdp, risk, "adaptive").value == pytest.approx(best, abs=1e-9)
    assert rp.solve(GRID.mdp(), risk, "adaptive").value == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("risk", MEASURES)
def test_history_equals_brute_force_on_random_problems(risk, unchecked):
    measure = rp.parse_risk(risk)
    for seed in range(200):
        mdp = random_mdp(seed, depth=2 + seed % 2, width=2, actions=2, starts=1 + (seed % 5 == 0))
        assert rp.solve(mdp, measure, "history").value == pytest.approx(best_sequence_value(mdp, measure), abs=1e-8), (
            seed
        )


@pytest.mark.parametrize("risk", ["cvar:0.1", "cvar:0.3", "cvar:0.7", "0.5*mean+0.5*cvar:0.2", "mean"])
def test_adaptive_is_exact_for_mean_and_cvar(risk, unchecked):
    measure = rp.parse_risk(risk)
    for seed in range(100):
        mdp = random_mdp(seed, depth=3, width=2, deterministic=False)
        solution = rp.solve(mdp, measure, "adaptive")
        assert solution.optimal
        assert solution.value == pytest.approx(best_adaptive_value(mdp, measure), abs=1e-8), seed


@pytest.mark.parametrize(
    "risk", ["wang:-0.75", "wang:0.75", "pow:-2", "pow:2", "cpw:0.71", "0.5*cvar:0.1+0.5*cvar:0.5"]
)
@pytest.mark.parametrize("proof", [True, False])
def test_adaptive_is_never_above_and_nearly_always_equal_for_other_measures(risk, proof, monkeypatch, unchecked):
    if not proof:
        monkeypatch.setattr("riskpath.mdp.adaptive_solver.PROOF_LIMIT", 0)
    measure = rp.parse_risk(risk)
    equal = 0
    for seed in range(100):
        mdp = random_mdp(seed, depth=3, width=2, deterministic=False)
        solution, best = rp.solve(mdp, measure, "adaptive"), best_adaptive_value(mdp, measure)
        assert solution.value <= best + 1e-8, seed
        assert solution.optimal == proof
        equal += solution.value >= best - 1e-8
    assert equal == 100 if proof else equal >= 95


@pytest.mark.parametrize("risk", MEASURES)
def test_more_information_is_never_worse(risk, unchecked):
    for seed in range(40):
        mdp = random_mdp(seed, depth=3, width=2, starts=1 + seed % 2)
        markov, history, adaptive = (rp.solve(mdp, risk, c).value for c in ("markov", "history", "adaptive"))
        assert adaptive >= history - 1e-8, seed
        assert history >= markov - 1e-8, seed


@pytest.mark.parametrize("policies", ["markov", "history", "adaptive", "nested"])
def test_all_classes_agree_for_the_mean(policies):
    for seed in range(20):
        mdp = random_mdp(seed, depth=3, width=3, starts=2)
        expected = sum(prob * _mean_value(mdp, state, 0) for state, prob in mdp.start.items())
        assert rp.solve(mdp, "mean", policies).value == pytest.approx(expected, abs=1e-9)


def _mean_value(mdp: rp.FiniteMDP, state, time: int) -> float:
    if mdp.is_terminal(state, time):
        return 0.0
    return max(
        sum(o.prob * (o.reward + mdp.discount * _mean_value(mdp, o.next, time + 1)) for o in listed)
        for listed in mdp.outcomes[state].values()
    )


def test_a_larger_grid_equals_enumeration_of_its_fork_sequences(unchecked):
    grid = rp.RiskyGrid(forks=6, p_yellow=0.6, blue=30.0)
    mdp = grid.mdp(0.97)
    for risk in (rp.CVaR(0.2), rp.Wang(-0.75), rp.CPW(0.71)):
        best = -np.inf
        for bits in range(2**6):
            forks = [bits >> i & 1 for i in range(6)]
            actions = [a for yellow in forks for a in (("down", "right") if yellow else ("right", "down"))]
            best = max(best, risk.value(mdp.evaluate(actions)))
        assert rp.solve(mdp, risk, "history").value == pytest.approx(best, abs=1e-8)


def test_the_value_of_several_starts_is_the_risk_of_the_mixture():
    # Alone, each start prefers the sure 0; together the bets of one are covered by the other.
    outcomes = {
        ("poor", "wait"): [(1.0, 0.0, "end")],
        ("poor", "bet"): [(0.9, 8.0, "end"), (0.1, -1.0, "end")],
        ("ruined", "accept"): [(1.0, -50.0, "end")],
    }
    mdp = rp.FiniteMDP.from_outcomes(outcomes, start={"poor": 0.75, "ruined": 0.25})
    solution = rp.solve(mdp, "cvar:0.25", "history")
    assert solution.value == pytest.approx(-50.0)
    assert rp.solve(mdp, "cvar:0.5", "history").value == pytest.approx(
        (-50 * 0.25 + 0.25 * (0.075 * -1 / 0.25 + 0.175 * 8 / 0.25)) / 0.5
    )


def test_stochastic_transitions_are_refused_by_history_and_pointed_to_adaptive():
    mdp = rp.FiniteMDP.from_outcomes(
        {("s", "go"): [(0.5, 1.0, "end"), (0.5, 0.0, "t")], ("t", "go"): [(1, 2, "end")]}, "s"
    )
    with pytest.raises(rp.RiskpathError, match='use policies="adaptive"'):
        rp.solve(mdp, "cvar:0.1", "history")
    assert rp.solve(mdp, "cvar:0.1", "adaptive").value == pytest.approx(1.0)


def test_an_unknown_policy_class_is_refused(unchecked):
    with pytest.raises(rp.RiskpathError, match="'markov', 'history', 'adaptive', 'nested', got 'best'"):
        rp.solve(GRID.mdp(), "mean", "best")  # pyright: ignore[reportArgumentType]


def test_markov_reports_a_cycle_and_what_its_policies_are_worth():
    # Whether T*_β plays on or cashes out alternates with its own last answer, for ever.
    outcomes = {
        ("a", "play"): [(0.3, -3.0, "a"), (0.7, 3.0, "a")],
        ("a", "cash"): [(0.5, -2.0, "end"), (0.5, 4.0, "end")],
    }
    mdp, risk = rp.FiniteMDP.from_outcomes(outcomes, "a", horizon=14), rp.CVaR(0.3)
    solution = rp.solve(mdp, risk, "markov")
    worth = {action: risk.value(mdp.evaluate({"a": action})) for action in ("play", "cash")}
    assert (
        solution.report == f"per-step greedy, cycles through 2 policies worth {worth['play']:.6g}, {worth['cash']:.6g}"
    )
    assert sorted(solution.details["cycle"]) == pytest.approx(sorted(worth.values()))
    assert not solution.details["converged"]
    assert solution.value == risk.value(solution.law)


def test_markov_reports_a_tie_that_decides_the_whole_return():
    solution = rp.solve(rp.ThreeState(safe=-10.0).mdp(), "cvar:0.1", "markov")
    assert "tie" in solution.report
    assert solution.details["converged"]


def test_nested_is_the_recursive_risk_and_shows_the_static_value_beside_it():
    mdp = rp.ThreeState().mdp()
    solution = rp.solve(mdp, "cvar:0.5", "nested")
    one_step = rp.CVaR(0.5).value([100.0, -10.0], [0.9, 0.1])
    assert solution.details["nested_value"] == pytest.approx(2 * one_step)
    assert solution.value > solution.details["nested_value"]
    assert solution.law.isclose(mdp.evaluate(["risky", "risky"]))


def test_nested_counts_the_steps_where_a_horizon_makes_that_matter():
    outcomes = {("s", "invest"): [(1.0, -1.0, "t")], ("s", "idle"): [(1.0, 0.0, "s")], ("t", "reap"): [(1.0, 3.0, "s")]}
    mdp = rp.FiniteMDP.from_outcomes(outcomes, "s", horizon=3)
    assert rp.solve(mdp, "mean", "nested").value == pytest.approx(2.0)
    assert rp.solve(mdp, "mean", "adaptive").value == pytest.approx(2.0)
    assert rp.solve(mdp, "mean", "history").value == pytest.approx(2.0)


def test_an_adaptive_policy_does_not_waste_what_is_left_once_it_is_safe():
    # After the jackpot the threshold of CVaR is passed and every action is optimal; the better mean is taken.
    outcomes = {
        ("s", "draw"): [(0.5, 100.0, "t"), (0.5, 0.0, "t")],
        ("t", "burn"): [(1.0, -50.0, "end")],
        ("t", "keep"): [(1.0, 0.0, "end")],
    }
    solution = rp.solve(rp.FiniteMDP.from_outcomes(outcomes, "s"), "cvar:0.1", "adaptive")
    assert solution.law.isclose(rp.Law([0.0, 100.0], [0.5, 0.5]))


def test_describe_says_what_to_do_in_words():
    solution = rp.solve(GRID.mdp(), "cvar:0.1", "adaptive")
    text = solution.describe()
    assert text.startswith("cvar:0.1 of the whole return, adaptive policies: 79.875 (optimal)")
    assert "step 5, free (2,2): down at return -8; right at return 92; down at return 192" in text
    assert solution.to_json()["policy"][0] == "step 1, start (0,0): down"


def test_too_large_problems_end_in_one_clear_line(monkeypatch):
    monkeypatch.setattr("riskpath.mdp.return_graph.MAX_NODES", 50)
    with pytest.raises(rp.RiskpathError, match="more than 50 combinations of time, state and return so far"):
        rp.solve(GRID.mdp(), "cvar:0.1", "adaptive")
    monkeypatch.setattr("riskpath.mdp.history_solver.MAX_LABEL_ATOMS", 10)
    with pytest.raises(rp.RiskpathError, match="the search over histories outgrew 10 atoms"):
        rp.solve(GRID.mdp(0.99), "cvar:0.1", "history")
