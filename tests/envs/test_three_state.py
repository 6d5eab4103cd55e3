"""The three-state problem."""

import pytest

import riskpath as rp


@pytest.mark.parametrize(
    ("actions", "atoms", "probs"),
    [
        (["safe", "safe"], [-10], [1]),
        (["risky", "safe"], [-15, 95], [0.1, 0.9]),
        (["risky", "risky"], [-20, 90, 200], [0.01, 0.18, 0.81]),
    ],
)
def test_returns_have_the_law_of_two_bets(actions, atoms, probs):
    law = rp.ThreeState().mdp().evaluate(actions)
    assert law.atoms.tolist() == pytest.approx(atoms)
    assert law.probs.tolist() == pytest.approx(probs)
