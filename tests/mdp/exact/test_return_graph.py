"""Backward induction over (time, state, return so far), against brute force for several utilities at once."""

import numpy as np
import pytest

from riskpath import FiniteMDP
from riskpath.mdp.exact.return_graph import ReturnGraph
from tests.mdp.problems import all_adaptive_laws, random_mdp

UTILITIES = [lambda z: z, lambda z: -np.exp(-0.3 * z), lambda z: np.minimum(z, 2.0), lambda z: (z > 1.0) * 1.0]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.usefixtures("unchecked")
def test_the_best_response_has_the_best_expected_utility(seed):
    mdp = random_mdp(seed, depth=2, deterministic=False)
    graph = ReturnGraph(mdp)
    response = graph.best_response(np.stack([utility(graph.finals) for utility in UTILITIES], axis=1))
    (start,) = mdp.start
    laws = [(np.array(list(law)), np.array(list(law.values()))) for law in all_adaptive_laws(mdp, start)]
    for column, utility in enumerate(UTILITIES):
        assert response.value[column] == pytest.approx(max(utility(z) @ p for z, p in laws), abs=1e-6)
        law = response.law(column)
        assert utility(law.atoms) @ law.probs == pytest.approx(response.value[column])
        assert mdp.evaluate(response.policy(column)).isclose(law)


def test_a_start_in_a_terminal_state_has_return_zero():
    mdp = FiniteMDP.from_outcomes({("s", "a"): [(1.0, 5.0, "end")]}, start={"s": 0.25, "end": 0.75})
    response = ReturnGraph(mdp).best_response(np.array([[0.0], [5.0]]))
    assert response.value == pytest.approx([1.25])
    assert dict(zip(response.law().atoms, response.law().probs, strict=True)) == {0.0: 0.75, 5.0: 0.25}
