"""The betting game: its bets against an independent implementation, and the known values of its best policies."""

from typing import Any

import numpy as np
import pytest

import riskpath as rp
from riskpath.envs.betting_game import Purse

from .backward import assert_same_outcomes


def outcomes(state, action, bets=8, most=256, p_win=0.88):
    """Enumerate win and loss."""
    money, played = state
    bet = money * action / bets
    if money + bet > most:
        bet = most - money
    yield p_win, bet, (money + bet, played + 1)
    yield 1 - p_win, -bet, (money - bet, played + 1)


def test_every_action_has_the_outcomes_of_a_win_and_a_loss():
    mdp: Any = rp.BettingGame(rounds=4).mdp()
    assert_same_outcomes(mdp, outcomes, lambda _: range(9))
    for money, played in mdp.states:
        assert mdp.is_terminal((money, played)) == (money in (0, 256) or played == 4)


def test_other_fields_change_the_problem():
    game = rp.BettingGame(start_money=10.0, rounds=2, p_win=0.5, bets=2, max_money=25.0)
    assert_same_outcomes(game.mdp(), lambda s, a: outcomes(s, a, 2, 25, 0.5), lambda _: range(3))
    law = game.mdp().evaluate({Purse(10.0, 0): 2, Purse(20.0, 1): 2})
    assert law.atoms.tolist() == [-10.0, 5.0, 15.0]
    assert law.probs.tolist() == pytest.approx([0.5, 0.25, 0.25])


def test_known_values_of_the_best_policies(unchecked):
    """The money is the return so far: for a fixed goal, the best policy is a function of the state."""
    mdp: Any = rp.BettingGame().mdp()
    goals = np.array([*range(-16, 241, 8), 29.703125, 111.96875])  # the last two are the best ones
    number = {purse: place for place, purse in enumerate(mdp.states)}
    shortfall = np.minimum(np.array([purse.money for purse in mdp.states])[:, None] - 16 - goals, 0.0)  # at the end
    pairs = 0
    for purse in sorted(mdp.outcomes, key=lambda purse: -purse.round):
        options = list(mdp.outcomes[purse].values())
        probs, ends = np.array([(o.prob, number[o.next]) for listed in options for o in listed]).T
        first = np.cumsum([0, *map(len, options[:-1])])
        means = np.add.reduceat(probs[:, None] * shortfall[ends.astype(int)], first)
        shortfall[number[purse]] = means.max(axis=0)
        pairs += len(options)
    assert pairs == 39_951
    for level, best in ((0.25, 36.513083), (0.1, 16.118432)):
        assert (goals + shortfall[number[Purse(16.0, 0)]] / level).max() == pytest.approx(best, abs=1e-6)


def test_features_are_the_money_on_two_scales_and_the_round():
    features = rp.BettingGame(rounds=2).mdp().features
    assert features is not None
    assert features[Purse(16.0, 0)] == pytest.approx((-0.875, 2 * np.log(17) / np.log(257) - 1, -1.0))
    assert features[Purse(0.0, 1)] == (-1.0, -1.0, 0.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"bets": 1.5}, r"bets must be a whole number, got 1\.5"),
        ({"p_win": 2.0}, "p_win must be from 0 to 1, got 2"),
        ({"start_money": 256.0}, "start_money must be more than 0 and less than max_money 256, got 256"),
        ({"max_money": float("inf")}, "max_money must be a finite number, got inf"),
    ],
)
def test_a_wrong_field_is_refused_by_name(fields, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message):
        rp.BettingGame(**fields)


def test_a_purse_reads_well():
    assert str(Purse(13.5, 2)) == "13.5 after 2 rounds"
