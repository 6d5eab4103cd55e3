"""The per-step greedy policy: cycles and ties are reported."""

import pytest

import riskpath as rp


def test_the_report_of_a_cycle_has_the_values_of_its_policies():
    # The greedy action of T*_β alternates between play and cash with every iteration.
    outcomes = {
        ("a", "play"): [(0.3, -3.0, "a"), (0.7, 3.0, "a")],
        ("a", "cash"): [(0.5, -2.0, "end"), (0.5, 4.0, "end")],
    }
    mdp, risk = rp.FiniteMDP.from_outcomes(outcomes, "a", horizon=14), rp.CVaR(0.3)
    solution = rp.solve(mdp, risk, "markov")
    values = {action: risk.value(mdp.evaluate({"a": action})) for action in ("play", "cash")}
    assert (
        solution.report
        == f"per-step greedy, cycles through 2 policies of value {values['play']:.6g}, {values['cash']:.6g}"
    )
    assert sorted(solution.details["cycle"]) == pytest.approx(sorted(values.values()))
    assert not solution.details["converged"]
    assert solution.value == risk.value(solution.law)


def test_the_report_names_a_tie_that_decides_the_whole_return():
    solution = rp.solve(rp.ThreeState(safe=-10.0).mdp(), "cvar:0.1", "markov")
    assert solution.report == (
        "per-step greedy, converged in one backward sweep; "
        "a tie at s1 decides the whole return (risky 79, safe -20), so T*_β need not converge"
    )
    assert solution.details["converged"]
