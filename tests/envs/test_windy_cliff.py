"""The windy cliff: its moves against an independent implementation, and the known values of three policies."""

from typing import Any

import numpy as np
import pytest

import riskpath as rp
from riskpath.envs.windy_cliff import Place

from .backward import assert_same_outcomes, best_cvars, cvar, greedy_law, mean

ACTIONS = ["up", "right", "down", "left"]


def outcomes(state, action, width=8, height=4, horizon=20, p_wind=0.5):
    """Enumerate the wind: none, or one of four moves."""
    x, y, step = state
    for wind in (None, *ACTIONS):
        blown = np.array([x, y]) + {"up": (0, 1), "right": (1, 0), "down": (0, -1), "left": (-1, 0)}[wind or action]
        column, row = np.clip(blown, 0, [width - 1, height - 1]).tolist()
        reward = 0.0
        if (column, row) == (width - 1, 0):
            reward = 10.0
        elif row == 0 and column > 0 and step + 1 < horizon:
            reward = -1.0
        yield (1 - p_wind if wind is None else p_wind / 4), reward, (column, row, step + 1)


@pytest.mark.parametrize("fields", [{}, {"width": 3, "height": 2, "horizon": 4, "p_wind": 0.2}, {"p_wind": 0.0}])
def test_every_action_has_the_outcomes_of_the_enumerated_wind(fields):
    mdp: Any = rp.WindyCliff(**fields).mdp()
    assert_same_outcomes(mdp, lambda state, action: outcomes(state, action, **fields), lambda _: ACTIONS)
    width, horizon = fields.get("width", 8), fields.get("horizon", 20)
    for state in mdp.states:
        over = state[:2] == (width - 1, 0) or state[2] == horizon
        assert mdp.is_terminal(state) == over


def test_known_values_of_the_mean_optimal_the_per_step_and_the_best_policy(unchecked):
    mdp = rp.WindyCliff().mdp()
    neutral = greedy_law(mdp, mean)
    assert mean(neutral) == pytest.approx(4.807, abs=1e-3)
    assert cvar(neutral, 0.1) == pytest.approx(-4.70, abs=5e-3)
    assert cvar(greedy_law(mdp, lambda law: cvar(law, 0.1)), 0.1) == pytest.approx(-2.65, abs=5e-3)
    assert best_cvars(mdp, [0.1], -25, 15) == pytest.approx([-2.06], abs=5e-3)
    assert rp.solve(mdp, "cvar:0.1", "adaptive").value == pytest.approx(-2.06, abs=5e-3)


def test_features_are_the_cell_and_the_step():
    features = rp.WindyCliff().mdp().features
    assert features is not None
    assert features[Place(0, 0, 0)] == (-1.0, -1.0, -1.0)
    assert features[Place(7, 0, 20)] == (1.0, -1.0, 1.0)
    assert features[Place(0, 3, 10)] == (-1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"width": 1}, "width must be at least 2, got 1"),
        ({"horizon": 0}, "horizon must be at least 1, got 0"),
        ({"p_wind": 1.5}, "p_wind must be from 0 to 1, got 1.5"),
        ({"goal": float("inf")}, "goal must be a finite number, got inf"),
        ({"cliff": "x"}, "cliff must be a number, got 'x'"),
    ],
)
def test_a_wrong_field_is_refused_by_name(fields, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message):
        rp.WindyCliff(**fields)


def test_a_place_reads_well():
    assert str(Place(3, 1, 5)) == "(3,1) after 5 steps"
