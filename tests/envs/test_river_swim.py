"""RiverSwim and the gambler's ruin: their steps against independent implementations, known values, wrong fields."""

import math

import pytest

import riskpath as rp
from riskpath.envs.betting_game import Purse
from riskpath.envs.river_swim import Swimmer

from .backward import assert_same_outcomes


def swim(state, action, last=5, steps=20):
    """Enumerate the outcomes of a step in the river."""
    place, step = state
    assert step < steps
    if action == "left":
        yield 1.0, 5.0 if place == 0 else 0.0, (max(place - 1, 0), step + 1)
    elif place == 0:
        yield from [(0.6, 0.0, (1, step + 1)), (0.4, 0.0, (0, step + 1))]
    elif place == last:
        yield from [(0.6, 10_000.0, (last, step + 1)), (0.4, 10_000.0, (last - 1, step + 1))]
    else:
        yield from [(p, 0.0, (place + move, step + 1)) for p, move in ((0.35, 1), (0.6, 0), (0.05, -1))]


def test_every_stroke_has_the_outcomes_of_the_river():
    assert_same_outcomes(rp.RiverSwim().mdp(), swim, lambda _: ["left", "right"])


def test_every_bet_is_won_or_lost():
    def bet(state, action):
        money, played = state
        yield 0.6, action, (money + action, played + 1)
        yield 0.4, -action, (money - action, played + 1)

    assert_same_outcomes(rp.GamblersRuin().mdp(), bet, lambda state: range(int(min(state.money, 10 - state.money)) + 1))
    assert all(rp.GamblersRuin().mdp().is_terminal(Purse(money, 3)) for money in (0.0, 10.0))


@pytest.mark.usefixtures("unchecked")
def test_known_values():
    # With fair coins the chance to double the money is a half, whatever the bets.
    fair = rp.GamblersRuin(p_win=0.5, rounds=30).mdp()
    assert rp.solve(fair, "mean").value == pytest.approx(0.0)
    assert rp.solve(fair, "reach:5").value == pytest.approx(0.5)
    # With bad coins bold play is best: from 5 of 10 one bet decides.
    assert rp.solve(rp.GamblersRuin(p_win=0.4, rounds=30).mdp(), "reach:5").value == pytest.approx(0.4)
    # With good coins timid play is best; without a limit of rounds it is the classical formula of the ruin.
    long = rp.solve(rp.GamblersRuin(p_win=0.6, rounds=120).mdp(), "reach:5").value
    ratio = 0.4 / 0.6
    assert long == pytest.approx((1 - ratio**5) / (1 - ratio**10), abs=1e-4)
    # Whoever stays at the bank gets 5 for every step but the first.
    assert rp.solve(rp.RiverSwim().mdp(), "worst").value == 95.0
    assert rp.solve(rp.RiverSwim(steps=1, start_place=5).mdp(0.9), "mean").value == 10_000.0


def test_features_are_the_place_or_the_money_and_the_step():
    river, ruin = rp.RiverSwim().mdp().features, rp.GamblersRuin().mdp().features
    assert river is not None
    assert ruin is not None
    assert river[Swimmer(5, 10)] == (1.0, 0.0)
    assert ruin[Purse(5.0, 0)] == (0.0, -1.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rp.RiverSwim(places=1), "places must be at least 2, got 1"),
        (lambda: rp.RiverSwim(p_right=0.8, p_back=0.3), "p_right and p_back must not exceed 1 together"),
        (lambda: rp.RiverSwim(start_place=6), "start_place must be less than places 6, got 6"),
        (lambda: rp.RiverSwim(large=math.inf), "large must be a finite number, got inf"),
        (lambda: rp.GamblersRuin(start_money=10), "start_money must be less than the target 10, got 10"),
        (lambda: rp.GamblersRuin(p_win=1.5), r"p_win must be from 0 to 1, got 1\.5"),
    ],
)
def test_a_wrong_field_is_refused_by_name(make, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message):
        make()


def test_states_read_well():
    assert str(Swimmer(3, 2)) == "place 3 after 2 steps"
