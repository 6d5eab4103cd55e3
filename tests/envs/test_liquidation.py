"""The liquidation: its steps against an independent implementation, and the known values of three policies."""

from typing import Any

import pytest

import riskpath as rp
from riskpath.envs.liquidation import Position

from .backward import assert_same_outcomes, best_cvars, cvar, greedy_law, mean


def outcomes(state, sale, lots=10, steps=5, p_up=0.5):
    """Enumerate the move of the price."""
    left, level, step = state
    for prob, following in ((p_up, level + 1), (1 - p_up, level - 1)):
        earned = sale * (level - 0.1 * (lots - left) - 0.25 * sale)
        rest = left - sale
        if step == steps - 1:
            earned += rest * (following - 0.1 * (lots - rest) - 0.75 * rest)
        yield prob, earned, (rest, following, step + 1)


@pytest.mark.parametrize("fields", [{}, {"lots": 3, "steps": 7, "p_up": 0.25}])
def test_every_action_has_the_outcomes_of_the_enumerated_moves(fields):
    mdp = rp.Liquidation(**fields).mdp()
    assert_same_outcomes(mdp, lambda s, a: outcomes(s, a, **fields), lambda state: range(min(4, state.left) + 1))
    assert mdp.max_episode_steps == fields.get("steps", 5)


@pytest.mark.parametrize(
    ("level", "neutral", "greedy", "best"), [(0.25, -23.0, -20.2, -19.6), (0.5, -18, -17.6, -16.2)]
)
def test_known_values_of_the_mean_optimal_the_per_step_and_the_best_policy(level, neutral, greedy, best, unchecked):
    mdp, unit = rp.Liquidation().mdp(), 0.05
    law = greedy_law(mdp, mean, unit)
    assert mean(law) * unit == pytest.approx(-9.0)
    assert cvar(law, level) * unit == pytest.approx(neutral)
    assert cvar(greedy_law(mdp, lambda law: cvar(law, level), unit), level) * unit == pytest.approx(greedy)
    assert best_cvars(mdp, [level], -4000, 3000, unit)[0] * unit == pytest.approx(best)
    assert rp.solve(mdp, rp.CVaR(level), "adaptive").value == pytest.approx(best)


def test_a_larger_problem_has_a_state_for_every_level_and_number_of_lots():
    mdp: Any = rp.Liquidation(lots=12, steps=9).mdp()
    last = [state for state in mdp.states if state[-1] == 9]
    assert len(last) == 13 * 10


def test_features_are_the_lots_the_level_and_the_step():
    features = rp.Liquidation().mdp().features
    assert features is not None
    assert features[Position(10, 0, 0)] == (1.0, 0.0, -1.0)
    assert features[Position(0, -5, 5)] == (-1.0, -1.0, 1.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lots": 0}, "lots must be at least 1, got 0"),
        ({"steps": 2.5}, r"steps must be a whole number, got 2\.5"),
        ({"p_up": -0.1}, r"p_up must be from 0 to 1, got -0\.1"),
        ({"tick": float("inf")}, "tick must be a finite number, got inf"),
    ],
)
def test_a_wrong_field_is_refused_by_name(fields, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message):
        rp.Liquidation(**fields)


def test_a_position_reads_well():
    assert str(Position(7, -1, 2)) == "7 left at level -1 after 2 steps"
