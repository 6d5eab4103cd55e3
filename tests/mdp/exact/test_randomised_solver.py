"""Randomised optima against an independent convex optimisation over all deterministic laws."""

import numpy as np
import pytest
import scipy.optimize

import riskpath as rp
from riskpath.mdp.exact.randomised_solver import is_convex
from riskpath.risk.compose import as_distortion
from tests.mdp.problems import all_return_policies, made, random_mdp


def two_arms(prize: float, prob: float) -> rp.FiniteMDP:
    """A sure 1, or a prize."""
    return made({("s", "sure"): [(1.0, 1.0, "end")], ("s", "bet"): [(prob, prize, "end"), (1 - prob, 0.0, "end")]})


@pytest.mark.parametrize(
    ("mdp", "risk", "alone", "value", "proven"),
    [
        (two_arms(5.393, 0.05), "wang:0.75", 1.0, 1.28926, True),
        (two_arms(1.156, 0.8), "cpw:0.71", 1.0, 1.00729, False),
        (two_arms(5.393, 0.05), "wang:-0.75", 1.0, 1.0, True),
    ],
)
def test_a_coin_between_two_arms(mdp, risk, alone, value, proven):
    assert rp.solve(mdp, risk).value == pytest.approx(alone, abs=2e-3)
    solution = rp.solve(mdp, risk, randomised=True)
    assert solution.value == pytest.approx(value, abs=2e-5)
    assert solution.optimal == proven
    assert mdp.evaluate(solution.policy).isclose(solution.law)
    assert sum(part.prob for part in solution.components) == pytest.approx(1.0)
    assert rp.Law.mix([p.law for p in solution.components], [p.prob for p in solution.components]).isclose(solution.law)
    for part in solution.components:
        assert mdp.evaluate(part.policy).isclose(part.law)


def best_mixture(mdp: rp.FiniteMDP, risk: rp.RiskMeasure) -> float:
    """β of the best mixture of all deterministic laws, by a general optimiser."""
    laws = list(all_return_policies(mdp))
    atoms = np.unique(np.concatenate([law.atoms for law in laws]).round(9))
    probs = np.array([[law.probs[np.abs(law.atoms - z) < 1e-7].sum() for z in atoms] for law in laws])
    cdfs, gaps = probs.cumsum(axis=1)[:, :-1], np.diff(atoms)

    def loss(weights):
        return float(np.asarray(as_distortion(risk).weight(np.clip(weights @ cdfs, 0, 1))) @ gaps)

    count = len(laws)
    best = np.inf
    for start in (np.full(count, 1 / count), np.eye(count)[int(np.argmin([loss(row) for row in np.eye(count)]))]):
        found = scipy.optimize.minimize(
            loss,
            0.9 * start + 0.1 / count,
            bounds=[(0, 1)] * count,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
            options={"maxiter": 300, "ftol": 1e-12},
        )
        best = min(best, loss(np.clip(found.x, 0, None) / np.clip(found.x, 0, None).sum()))
    return float(atoms[-1] - best)


@pytest.mark.parametrize("risk", ["wang:0.75", "pow:2"])
def test_the_mixture_is_the_best_of_an_independent_optimisation(risk, unchecked):
    measure = rp.parse_risk(risk)
    better = 0
    for seed in range(8):
        mdp = random_mdp(seed, depth=2, deterministic=False, discount=1.0)
        solution = rp.solve(mdp, measure, randomised=True)
        assert solution.value >= best_mixture(mdp, measure) - 1e-5, seed
        assert solution.bounds is not None
        assert solution.bounds[1] >= best_mixture(mdp, measure) - 1e-6, seed  # the gap is a proof
        assert solution.bounds[1] - solution.value < 1e-3, seed
        better += solution.value > rp.solve(mdp, measure).value + 1e-6
    assert better >= 1


def test_a_randomised_cpw_policy_is_never_worse_than_a_deterministic_one(unchecked):
    for seed in range(8):
        mdp = random_mdp(seed, depth=2, deterministic=False, discount=1.0)
        assert rp.solve(mdp, "cpw:0.71", randomised=True).value >= rp.solve(mdp, "cpw:0.71").value - 1e-9


@pytest.mark.parametrize(
    ("risk", "convex"),
    [
        ("mean", True),
        ("wang:0.75", True),
        ("pow:2", True),
        ("wang:-0.75", False),
        ("cvar:0.1", False),
        ("cpw:0.71", False),
    ],
)
def test_convex_measures_are_recognised(risk, convex):
    assert is_convex(as_distortion(risk)) == convex


def test_the_description_names_the_parts():
    text = rp.solve(two_arms(5.393, 0.05), "wang:0.75", randomised=True).describe()
    assert "draws one of 2 policies at the start" in text
    assert "with probability 0.5217" in text
