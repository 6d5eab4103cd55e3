"""Pruning by dominance, against a comparison of all pairs."""

import numpy as np
import pytest

from riskpath import Law, parse_risk
from riskpath.mdp.exact.attainable import undominated


def random_laws(seed: int, count: int = 40) -> list[Law]:
    """Laws with a larger mean where the spread is larger, so that many of them are undominated."""
    rng = np.random.default_rng(seed)
    laws = []
    for size in rng.integers(2, 5, size=count):
        law = Law(rng.integers(-4, 5, size=size).astype(float), rng.dirichlet(np.ones(size)))
        laws.append(law.shift(0.3 * law.std - law.mean + rng.normal(scale=0.1)))
    return laws


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.usefixtures("unchecked")
def test_exactly_the_laws_that_no_other_law_dominates_are_kept(order, seed):
    laws = random_laws(seed)
    kept = undominated(laws, order)
    expected = {
        i for i, law in enumerate(laws) if not any(other.dominates(law, order) for other in laws if other is not law)
    }
    assert set(kept) == expected
    assert 1 < len(kept) < len(laws)
    assert (np.diff([laws[i].mean for i in kept]) <= 1e-12).all()


@pytest.mark.parametrize("order", [1, 2])
def test_one_of_several_equal_laws_is_kept(order):
    law = Law([0.0, 1.0], [0.5, 0.5])
    assert undominated([law, Law.point(-1.0), law, law], order) == [0]
    assert undominated([], order) == []


@pytest.mark.parametrize(("risk", "order"), [("cvar:0.1", 2), ("wang:-1", 2), ("wang:1", 1), ("cpw:0.71", 1)])
def test_averse_measures_are_pruned_by_second_order_dominance(risk, order):
    assert parse_risk(risk).order == order
