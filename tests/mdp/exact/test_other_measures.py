"""Exact solutions for entropic risk, EVaR, VaR, utilities and others, against enumerations of all policies."""

from typing import cast

import numpy as np
import pytest

import riskpath as rp
from riskpath.mdp.exact.layer_arrays import layer_arrays
from riskpath.mdp.exact.reach_solver import _bracket
from riskpath.mdp.exact.return_laws import timed_law
from riskpath.mdp.problem import silent
from tests.mdp.problems import FORK, THREE, all_adaptive_laws, all_sequence_laws, random_mdp, seeds

PROVEN = ["entropic:0.05", "entropic:2", "evar:0.1", "evar:0.6", "evar:1", "var:0.1", "var:0.4", "reach:3", "worst"]
PROVEN += ["best", "mmv:0.05", "mmv:1"]
OTHERS = ["semidev:0.7", "spectral:0.1=0.5,0.5=0.5", "0.5*mean+0.5*evar:0.1"]
OWN = [
    rp.Utility(lambda z: np.tanh(z / 3), name="tanh"),
    rp.OCE(lambda x: np.minimum(x, 0.0) * 2 + np.maximum(x, 0.0) * 0.5),
]
MEASURES = [*map(rp.parse_risk, [*PROVEN, *OTHERS]), *OWN]


def best_of(risk, laws):
    """Return the best value of many plain laws {return: probability}, by the definition of the measure alone."""
    return max(float(risk.value(np.array(list(law)), np.array(list(law.values())))) for law in laws)


def check(mdp, laws):
    for risk in MEASURES:
        found, best = rp.solve(mdp, risk), best_of(risk, laws)
        assert found.value == pytest.approx(best, abs=1e-6 * max(1, abs(best))), risk
        assert found.optimal, (risk, found.report)
        assert risk.value(mdp.evaluate(found.policy)) == pytest.approx(found.value, abs=1e-6 * max(1, abs(best)))


@pytest.mark.parametrize("mdp", [FORK, THREE], ids=["fork", "three-state"])
@pytest.mark.usefixtures("unchecked")
def test_no_adaptive_policy_is_better(mdp):
    (start,) = mdp.start
    check(mdp, all_adaptive_laws(mdp, start))


@seeds(2, 12)
@pytest.mark.usefixtures("unchecked")
def test_no_adaptive_policy_of_a_random_problem_is_better(seeds):
    for seed in seeds:
        discount = 0.9 if seed % 2 else None
        mdp = random_mdp(seed, deterministic=False, depth=2, discount=discount)
        (start,) = mdp.start
        check(mdp, all_adaptive_laws(mdp, start))


@seeds(1, 8)
@pytest.mark.usefixtures("unchecked")
def test_no_sequence_of_actions_is_better_than_the_history_optimum(seeds):
    for seed in seeds:
        mdp = random_mdp(seed, depth=3)
        (start,) = mdp.start
        for risk in MEASURES:
            best = best_of(risk, all_sequence_laws(mdp, start))
            assert rp.solve(mdp, risk, "history").value == pytest.approx(best, abs=1e-6 * max(1, abs(best))), risk


def test_several_starts_are_one_distribution():
    outcomes = {(s, a): [(0.5, r, "end"), (0.5, -1.0, "end")] for s, r in (("a", 5.0), ("b", 3.0)) for a in ("x", "y")}
    outcomes |= {("a", "y"): [(1.0, 1.0, "end")], ("b", "y"): [(1.0, 0.5, "end")]}
    mdp = rp.FiniteMDP.from_outcomes(outcomes, {"a": 0.4, "b": 0.6})
    for text in PROVEN:
        risk = rp.parse_risk(text)
        laws = [
            rp.Law.mix([rp.Law(*first), rp.Law(*second)], [0.4, 0.6])
            for first in ([[5.0, -1.0], [0.5, 0.5]], [[1.0], [1.0]])
            for second in ([[3.0, -1.0], [0.5, 0.5]], [[0.5], [1.0]])
        ]
        assert rp.solve(mdp, risk).value == pytest.approx(max(law.risk(risk) for law in laws), abs=1e-6), text


def test_where_a_deterministic_policy_suffices_randomising_gains_nothing():
    for text in ("evar:0.1", "var:0.4", "reach:3", "mmv:0.05"):
        assert rp.solve(FORK, text, randomised=True).value == pytest.approx(rp.solve(FORK, text).value)
    found = rp.solve(FORK, "semidev:1", randomised=True)
    assert found.value >= rp.solve(FORK, "semidev:1").value - 1e-9
    assert found.law.risk("semidev:1") == pytest.approx(found.value)


def test_measures_that_are_no_amount_of_return_cannot_be_nested():
    with pytest.raises(rp.RiskpathError, match="nested risk adds rewards to values of the measure, and reach:3 is not"):
        rp.solve(FORK, "reach:3", "nested")
    assert rp.solve(FORK, "evar:0.3", "nested").details["nested_value"] <= rp.solve(FORK, "evar:0.3").value + 1e-9


@pytest.mark.parametrize("text", ["var:0.3", "reach:2"])
def test_rounded_rewards_bracket_the_exact_value(text):
    mdp, risk = random_mdp(3, deterministic=False, depth=4, discount=0.9), cast("rp.VaR", rp.parse_risk(text))
    exact = rp.solve(mdp, risk)
    assert exact.optimal
    found = _bracket(mdp, layer_arrays(mdp), risk, 0.01, silent)
    assert found.bounds is not None
    assert found.bounds[0] - 1e-9 <= exact.value <= found.bounds[1] + 1e-9
    assert found.bounds[1] - found.bounds[0] <= 0.02 * max(1.0, float(np.ptp(exact.law.atoms)))


def test_a_law_on_a_grid_keeps_the_mean_and_is_close(monkeypatch):
    mdp = random_mdp(1, deterministic=False, depth=4, discount=0.9)
    layers = layer_arrays(mdp)
    pairs = [layer.first_pair[:-1] for layer in layers]
    exact, moved = timed_law(mdp, layers, pairs)
    assert moved == 0.0
    monkeypatch.setattr("riskpath.mdp.exact.return_laws.FEW_ATOMS", 1)
    rounded, moved = timed_law(mdp, layers, pairs)
    assert 0 < moved < 2e-2
    assert rounded.mean == pytest.approx(exact.mean)
    assert rounded.wasserstein(exact) <= moved
    assert rounded.std**2 <= exact.std**2 + moved**2 + 1e-12
