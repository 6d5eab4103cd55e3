"""The undominated attainable laws, against the laws of all deterministic reward-adaptive policies."""

import pytest

import riskpath as rp
from riskpath.mdp.exact.attainable import attainable
from tests.mdp.problems import all_adaptive_laws, random_mdp


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.usefixtures("unchecked")
def test_every_policy_is_dominated_by_a_listed_one_whose_plan_has_its_law(order, seed):
    mdp = random_mdp(seed, depth=2, deterministic=False)
    listed = attainable(mdp, order, limit=4096)
    assert listed is not None
    for law, policy in listed:
        assert mdp.evaluate(policy).isclose(law)
    (start,) = mdp.start
    for plain in all_adaptive_laws(mdp, start):
        law = rp.Law(plain, plain.values())
        assert any(best.dominates(law, order) for best, _ in listed)


def test_start_states_are_mixed_and_the_limit_gives_none():
    mdp = random_mdp(1, starts=2)
    listed = attainable(mdp, 1, limit=4096)
    assert listed is not None
    assert len(listed) > 1
    assert all(mdp.evaluate(policy).isclose(law) for law, policy in listed)
    assert attainable(mdp, 1, limit=3) is None
