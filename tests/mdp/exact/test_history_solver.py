"""The best action sequence, against brute force."""

import numpy as np
import pytest

import riskpath as rp
from tests.mdp.problems import best_sequence_value, random_mdp, seeds

MEASURES = ["mean", "cvar:0.1", "cvar:0.5", "wang:-0.75", "wang:0.75", "pow:-2", "pow:2", "cpw:0.71"]


@seeds(10, 80)
@pytest.mark.parametrize("risk", MEASURES)
def test_the_solver_equals_brute_force_on_random_problems(risk, seeds, unchecked):
    measure = rp.parse_risk(risk)
    first = 80 * MEASURES.index(risk)  # other problems for every measure
    for seed in (first + number for number in seeds):
        mdp = random_mdp(seed, depth=2 + seed % 2, width=2, actions=2, starts=1 + (seed % 5 == 0))
        assert rp.solve(mdp, measure, "history").value == pytest.approx(best_sequence_value(mdp, measure), abs=1e-8), (
            seed
        )


def test_the_solver_equals_enumeration_on_a_larger_grid(unchecked):
    grid = rp.RiskyGrid(forks=6, p_yellow=0.6, blue=30.0)
    mdp = grid.mdp(0.97)
    for risk in (rp.CVaR(0.2), rp.Wang(-0.75), rp.CPW(0.71)):
        best = -np.inf
        for bits in range(2**6):
            forks = [bits >> i & 1 for i in range(6)]
            actions = [a for yellow in forks for a in (("down", "right") if yellow else ("right", "down"))]
            best = max(best, risk.value(mdp.evaluate(actions)))
        assert rp.solve(mdp, risk, "history").value == pytest.approx(best, abs=1e-8)


def test_random_transitions_are_refused_with_a_hint_at_adaptive():
    mdp = rp.FiniteMDP.from_outcomes(
        {("s", "go"): [(0.5, 1.0, "end"), (0.5, 0.0, "t")], ("t", "go"): [(1, 2, "end")]}, "s"
    )
    with pytest.raises(rp.RiskpathError, match='use policies="adaptive"'):
        rp.solve(mdp, "cvar:0.1", "history")
    assert rp.solve(mdp, "cvar:0.1", "adaptive").value == pytest.approx(1.0)
