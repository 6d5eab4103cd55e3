"""The inventory: its steps against an independent implementation, and the known values of three policies."""

import pytest

import riskpath as rp
from riskpath.envs.inventory import Stock

from .backward import assert_same_outcomes, best_cvars, cvar, greedy_law, mean

DEMAND = {0: 0.1, 2: 0.5, 3: 0.1, 4: 0.1, 5: 0.1, 30: 0.1}


def outcomes(state, order):
    """Enumerate the demand."""
    stock, step = state
    for demand, prob in DEMAND.items():
        offered = stock + order
        sold = demand if demand < offered else offered
        paid = 5 * order + (2 if order else 0)
        yield prob, 16 * sold - paid - 0.3 * (offered - sold), (offered - sold, step + 1)


def test_every_action_has_the_outcomes_of_the_enumerated_demand():
    mdp = rp.Inventory().mdp()
    assert len(mdp.outcomes) == 21 * 8
    assert_same_outcomes(mdp, outcomes, lambda state: [a for a in range(11) if state.units + a <= 20])
    assert mdp.max_episode_steps == 8


def test_known_values_of_the_mean_optimal_the_per_step_and_the_best_policy(unchecked):
    mdp = rp.Inventory().mdp()
    neutral = greedy_law(mdp, mean, 0.1)
    assert mean(neutral) / 10 == pytest.approx(258.856, abs=1e-3)
    assert cvar(neutral, 0.1) / 10 == pytest.approx(73.60, abs=5e-3)
    assert cvar(greedy_law(mdp, lambda law: cvar(law, 0.1), 0.1), 0.1) / 10 == pytest.approx(129.22, abs=5e-3)
    assert best_cvars(mdp, [0.1], -1000, 8000, 0.1)[0] / 10 == pytest.approx(137.19, abs=5e-3)


def test_other_fields_change_the_problem():
    shop = rp.Inventory(steps=1, capacity=3, max_order=2, start_stock=1, demand=(2,), demand_probs=(1.0,), price=10.0)
    law = shop.mdp().evaluate([2])
    assert law.atoms.tolist() == pytest.approx([20 - 10 - 2 - 0.3])
    assert shop.mdp().actions(Stock(2, 0)) == (0, 1)


def test_features_are_the_stock_and_the_step():
    features = rp.Inventory().mdp().features
    assert features is not None
    assert features[Stock(0, 0)] == (-1.0, -1.0)
    assert features[Stock(20, 4)] == (1.0, 0.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"start_stock": 21}, "start_stock must be at most the capacity 20, got 21"),
        ({"demand": (1, 2)}, "demand_probs must be 2 probabilities with sum 1, one for each demand; got "),
        ({"demand": (1,), "demand_probs": (0.5,)}, "demand_probs must be 1 probabilities with sum 1"),
        ({"demand": (-1,), "demand_probs": (1.0,)}, "demand must be at least 0, got -1"),
        ({"demand": 3}, r"demand must be a tuple of numbers, for example \(0, 2, 30\); got 3"),
        ({"price": float("nan")}, "price must be a finite number, got nan"),
    ],
)
def test_a_wrong_field_is_refused_by_name(fields, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message):
        rp.Inventory(**fields)


def test_lists_as_json_has_them_are_accepted(unchecked):
    assert rp.make("Inventory", demand=[0, 5], demand_probs=[0.5, 0.5]).spec.num_actions == 11


def test_a_stock_reads_well():
    assert str(Stock(3, 1)) == "3 in stock after 1 steps"
