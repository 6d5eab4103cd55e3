"""Three ways to the best CVaR policies: one pass on a lattice, a search over thresholds, a bracket by rounding."""

import functools

import numpy as np
import pytest

import riskpath as rp
from riskpath.mdp.exact.goal_solver import solve_levels
from riskpath.mdp.exact.layer_arrays import Lattice, find_unit, layer_arrays
from tests.mdp.problems import FORK, THREE, all_adaptive_laws, best_of, made, random_mdp

LEVELS = [0.05, 0.1, 0.25, 0.5, 0.8, 1.0]
WAYS = {
    "lattice": {},
    "search": {"MAX_CELLS": 0, "FEW_CELLS": 0},
    "bracket": {"find_unit": lambda layers, discount: None, "MAX_NODES": 0, "FEW_NODES": 0},
}


def solved(way: str, mdp: rp.FiniteMDP, monkeypatch, tolerance: float = 0.01):
    for name, value in WAYS[way].items():
        monkeypatch.setattr(f"riskpath.mdp.exact.goal_solver.{name}", value)
    answer = solve_levels(mdp, LEVELS, tolerance=tolerance)
    monkeypatch.undo()
    return answer


@functools.cache
def best_values(seed: int) -> dict[float, float]:
    """Return the best CVaR of every level over all policies of a random problem."""
    mdp = random_mdp(seed, deterministic=False, discount=1.0)
    (start,) = mdp.start
    laws = all_adaptive_laws(mdp, start)
    return {level: best_of(rp.CVaR(level), laws) for level in LEVELS}


@pytest.mark.parametrize("way", ["lattice", "search"])
def test_both_exact_ways_equal_brute_force_at_every_level(way, monkeypatch, unchecked):
    for seed in range(30):
        mdp = random_mdp(seed, deterministic=False, discount=1.0)
        answer = solved(way, mdp, monkeypatch)
        for level, value, goal, law in zip(
            LEVELS, answer.lower, answer.goals, answer.optima.laws(answer.goals), strict=True
        ):
            best = best_values(seed)[level]
            assert value == pytest.approx(best, abs=1e-6), (seed, level)
            assert law.risk(rp.CVaR(level)) == pytest.approx(best, abs=1e-8), (seed, level)
            assert mdp.evaluate(answer.optima.policy(goal)).isclose(law), (seed, level)


@pytest.mark.parametrize("discount", [1.0, 0.93])
def test_the_bracket_contains_the_optimum_and_its_policy_attains_the_lower_end(discount, monkeypatch, unchecked):
    for seed in range(4):
        mdp = random_mdp(seed, depth=4, deterministic=False, discount=discount)
        exact = solve_levels(mdp, LEVELS)
        answer = solved("bracket", mdp, monkeypatch)
        assert exact.exact
        assert not answer.exact
        assert (answer.lower <= exact.lower + 1e-6).all()
        assert (answer.upper >= exact.lower - 1e-6).all()
        assert (answer.upper - answer.lower).max() < 0.1
        for level, lower, goal in zip(LEVELS, answer.lower, answer.goals, strict=True):
            attained = mdp.evaluate(answer.optima.policy(goal)).risk(rp.CVaR(level))
            assert lower - 1e-6 <= attained <= lower + 0.1


def test_a_discounted_liquidation_is_bracketed_within_the_tolerance(unchecked):
    mdp = rp.make("Liquidation", lots=10, steps=7).mdp(0.99)
    solution = rp.solve(mdp, "cvar:0.25")
    plain = rp.solve(mdp, "mean", "markov").law.risk("cvar:0.25")
    assert solution.bounds is not None
    low, high = solution.bounds
    assert not solution.optimal
    assert "rewards rounded" in solution.report
    assert high - low <= 0.01 * (low - plain)
    assert low == solution.value <= mdp.evaluate(solution.policy).risk("cvar:0.25") + 1e-9


@pytest.mark.parametrize(
    ("mdp", "unit"),
    [
        (THREE, 5.0),
        (FORK, None),
        (made({("s", "a"): [(0.5, 0.3, "end"), (0.5, -1.2, "end")]}), 0.3),
        (made({("s", "a"): [(1.0, 0.0, "end")]}), 1.0),
        (made({("s", "a"): [(0.5, np.pi, "end"), (0.5, 1.0, "end")]}), None),
        (made({("s", "a"): [(0.5, 1e17, "end"), (0.5, 1.0, "end")]}), None),
        (made({("s", "a"): [(0.5, 1e17, "end"), (0.5, 3e17, "end")]}), 1e17),
        (made({("s", "a"): [(0.5, 0.1, "end"), (0.5, 1 / 3, "end")]}), 1 / 30),
    ],
    ids=["three", "discounted", "tenths", "zero", "pi", "inexact", "large", "thirds"],
)
def test_the_unit_of_rewards_is_the_largest(mdp, unit):
    assert find_unit(layer_arrays(mdp), mdp.discount) == (None if unit is None else pytest.approx(unit))


@pytest.mark.parametrize("policies", ["adaptive", "markov"])
@pytest.mark.parametrize("discount", [1.0, 0.9])
@pytest.mark.parametrize("risk", ["cvar:0.25", "var:0.25"])
def test_rewards_of_any_size_are_solved(policies, discount, risk, monkeypatch):
    table = {(step, a): [(0.5, a * step, step + 1), (0.5, -a, step + 2)] for step in range(6) for a in (1.0, 2.0)}
    monkeypatch.setattr("riskpath.mdp.exact.goal_solver.MAX_NODES", 0)  # rewards are rounded
    value = {}
    for scale in (1.0, 1e30):
        scaled = {pair: [(p, r * scale, after) for p, r, after in listed] for pair, listed in table.items()}
        value[scale] = rp.solve(rp.FiniteMDP.from_outcomes(scaled, 0, discount, terminal=[6, 7]), risk, policies).value
    assert value[1e30] == pytest.approx(1e30 * value[1.0], rel=0.02)


@pytest.mark.parametrize(("rounding", "expected"), [("exact", [2, -2, 3]), ("down", [1, -2, 3]), ("up", [2, -1, 3])])
def test_rounding_goes_in_one_direction(rounding, expected):
    rewards = np.array([1.7, -1.7, 3.0 - 1e-13])
    assert Lattice(1.0, 1.0, rounding).in_units(rewards, 0).tolist() == expected
    assert Lattice(1.0, 0.5, rounding).in_units(2 * rewards, 1).tolist() == expected


def test_a_start_in_a_terminal_state_counts_with_return_zero():
    mdp = made({("s", "bet"): [(0.5, 4.0, "end"), (0.5, -2.0, "end")]}, start={"s": 0.5, "end": 0.5})
    answer = solve_levels(mdp, [0.25, 1.0])
    assert answer.lower == pytest.approx([-2.0, 0.5], abs=1e-6)
    assert answer.optima.laws(answer.goals)[0].atoms.tolist() == [-2.0, 0.0, 4.0]
