"""The nested risk, by backward induction."""

import pytest

import riskpath as rp


def test_the_nested_value_is_the_recursive_risk_and_the_value_is_the_static_one():
    mdp = rp.ThreeState().mdp()
    solution = rp.solve(mdp, "cvar:0.5", "nested")
    one_step = rp.CVaR(0.5).value([100.0, -10.0], [0.9, 0.1])
    assert solution.details["nested_value"] == pytest.approx(2 * one_step)
    assert solution.value > solution.details["nested_value"]
    assert solution.law.isclose(mdp.evaluate(["risky", "risky"]))


def test_the_policy_depends_on_time_if_the_horizon_matters():
    outcomes = {("s", "invest"): [(1.0, -1.0, "t")], ("s", "idle"): [(1.0, 0.0, "s")], ("t", "reap"): [(1.0, 3.0, "s")]}
    mdp = rp.FiniteMDP.from_outcomes(outcomes, "s", horizon=3)
    assert rp.solve(mdp, "mean", "nested").value == pytest.approx(2.0)
    assert rp.solve(mdp, "mean", "adaptive").value == pytest.approx(2.0)
    assert rp.solve(mdp, "mean", "history").value == pytest.approx(2.0)
