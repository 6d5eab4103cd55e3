"""The best reward-adaptive policy, against brute force."""

import functools

import pytest

import riskpath as rp
from tests.mdp.problems import PlainLaw, all_adaptive_laws, all_return_policies, best_of, random_mdp, seeds

GRID = rp.RiskyGrid()
MEASURES = ["mean", "cvar:0.1", "cvar:0.5", "wang:-0.75", "wang:0.75", "pow:-2", "pow:2", "cpw:0.71"]


@functools.cache
def problem(seed: int) -> tuple[rp.FiniteMDP, list[PlainLaw]]:
    """Return a random problem and the law of each of its policies, for all measures alike."""
    mdp = random_mdp(seed, depth=3, width=2, deterministic=False)
    (start,) = mdp.start
    return mdp, all_adaptive_laws(mdp, start)


@functools.cache
def best_value(seed: int, risk: str) -> float:
    return best_of(rp.parse_risk(risk), problem(seed)[1])


@functools.cache
def grid_without_detours() -> tuple[rp.FiniteMDP, list[rp.Law]]:
    """Return the grid without its orange cells and without moves that end in the same cell, and all of its laws."""
    outcomes = {}
    for fork in range(3):
        outcomes[fork, "Y"] = [(0.75, 96.0, fork + 1), (0.25, -4.0, fork + 1)]
        outcomes[fork, "B"] = [(1.0, 16.0, fork + 1)]
    mdp = rp.FiniteMDP.from_outcomes(outcomes, start=0)
    return mdp, list(all_return_policies(mdp))


@pytest.mark.parametrize("risk", [*MEASURES, "cvar:0.05", "pow:-5", "wang:-2", "cpw:0.4", "0.5*mean+0.5*cvar:0.1"])
def test_the_optimum_of_the_grid_is_the_best_of_all_34_policies(risk, unchecked):
    mdp, laws = grid_without_detours()
    assert len(laws) == 34
    best = max(rp.parse_risk(risk).value(law) for law in laws)
    assert rp.solve(mdp, risk, "adaptive").value == pytest.approx(best, abs=1e-9)
    assert rp.solve(GRID.mdp(), risk, "adaptive").value == pytest.approx(best, abs=1e-9)


@seeds(30, 100)
@pytest.mark.parametrize("risk", ["cvar:0.1", "cvar:0.3", "cvar:0.7", "0.5*mean+0.5*cvar:0.2", "mean"])
def test_the_solver_is_exact_for_mean_and_cvar(risk, seeds, unchecked):
    for seed in seeds:
        solution = rp.solve(problem(seed)[0], risk, "adaptive")
        assert solution.optimal
        assert solution.value == pytest.approx(best_value(seed, risk), abs=1e-8), seed


@pytest.mark.parametrize(
    "risk", ["wang:-0.75", "wang:0.75", "pow:-2", "pow:2", "cpw:0.71", "0.5*cvar:0.1+0.5*cvar:0.5"]
)
@pytest.mark.parametrize("proof", [True, False])
@seeds(12, 100)
def test_the_solver_is_exact_with_proof_and_nearly_exact_without_for_other_measures(
    risk, proof, seeds, monkeypatch, unchecked
):
    if not proof:
        monkeypatch.setattr("riskpath.mdp.exact.adaptive_solver.PROOF_LIMIT", 0)
    equal = 0
    for seed in seeds:
        solution, best = rp.solve(problem(seed)[0], risk, "adaptive"), best_value(seed, risk)
        assert solution.value <= best + 1e-8, seed
        assert solution.optimal == proof
        equal += solution.value >= best - 1e-8
    assert equal >= len(seeds) - (0 if proof else 1)


def test_among_equally_good_actions_the_better_mean_is_taken():
    # After a reward of 100 the return exceeds the threshold of CVaR and every action is optimal.
    outcomes = {
        ("s", "draw"): [(0.5, 100.0, "t"), (0.5, 0.0, "t")],
        ("t", "burn"): [(1.0, -50.0, "end")],
        ("t", "keep"): [(1.0, 0.0, "end")],
    }
    solution = rp.solve(rp.FiniteMDP.from_outcomes(outcomes, "s"), "cvar:0.1", "adaptive")
    assert solution.law.isclose(rp.Law([0.0, 100.0], [0.5, 0.5]))


@pytest.mark.parametrize(("risk", "randomised"), [("wang:-0.75", False), ("pow:-2", False), ("wang:0.75", True)])
def test_progress_is_reported_for_other_measures(risk, randomised, unchecked):
    seen = []
    problem = rp.RandomMDP(1).mdp()
    rp.solve(problem, risk, randomised=randomised, progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, 40)
    assert all(done < total == 40 for done, total in seen[:2])
