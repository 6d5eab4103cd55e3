"""How policies are called, and how wrong ones are refused."""

from typing import Any

import numpy as np
import pytest

from riskpath import AdaptivePolicy, FiniteMDP, HistoryPolicy, RiskpathError
from tests.mdp.problems import THREE, table

NUMBER: Any = 3
WORD: Any = "many"
NOTHING: Any = None


def test_a_policy_gets_no_memory_at_the_start_and_its_own_memory_afterwards():
    calls = []

    def policy(state, memory, reward):
        calls.append((state, memory, reward))
        return "safe", {"steps": 1 + (memory or {"steps": 0})["steps"]}

    THREE.evaluate(policy)
    assert calls == [("s0", None, 0.0), ("s1", {"steps": 1}, -5.0)]


def test_an_adaptive_policy_discounts_the_return_so_far():
    chain = {
        (i, a): [(0.5, reward, i + 1), (0.5, 0.0, i + 1)] for i in range(3) for a, reward in (("x", 4.0), ("y", 8.0))
    }
    mdp = FiniteMDP.from_outcomes(chain, start=0, discount=0.5)
    policy = AdaptivePolicy(
        {
            (0, 0): (np.array([0.0]), ["x"]),
            (1, 1): (np.array([0.0, 4.0]), ["x", "y"]),
            (2, 2): (np.array([0.0, 2.0, 4.0, 8.0]), ["x", "y", "x", "y"]),
        },
        discount=0.5,
    )
    # The return so far before the last step: 0 or 2 after losing first, 4 or 8 after winning first.
    assert table(mdp.evaluate(policy)) == {
        0.0: 0.125,
        1.0: 0.125,
        2.0: 0.125,
        4.0: 0.25,
        5.0: 0.125,
        8.0: 0.125,
        10.0: 0.125,
    }


def test_rounding_errors_in_action_probabilities_are_normalised_away():
    law = THREE.evaluate({"s0": {"risky": 0.3333333, "safe": 0.6666666}, "s1": "safe"})
    assert law.probs.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: THREE.evaluate({"s0": "risky"}), r"the policy has no action for state 's1'$"),
        (lambda: THREE.simulate({"s0": "risky"}, 5), r"the policy has no action for state 's1'$"),
        (
            lambda: THREE.evaluate({"s0": "bold"}),
            r"the policy chose 'bold' in state 's0', whose actions are 'risky', 'safe'$",
        ),
        (lambda: THREE.simulate(["bold"], 5), r"the policy chose 'bold' in state 's0', whose actions are"),
        (
            lambda: THREE.evaluate(lambda state, memory, reward: (["safe"], None)),
            r"the policy chose \['safe'\] in state 's0', whose actions are 'risky', 'safe'$",
        ),
        (
            lambda: THREE.simulate(lambda state, memory, reward: (np.zeros((90, 90)), None), 5),
            r"the policy chose array\(.*… in state 's0', whose actions are 'risky', 'safe'$",
        ),
        (lambda: THREE.evaluate({"s0": {"safe": 0.5, "bold": 0.5}}), r"the policy chose 'bold' in state 's0'"),
        (
            lambda: THREE.evaluate({"s0": {"safe": 0.5}}),
            r"action probabilities of the policy in state 's0' must be non-negative and sum to 1$",
        ),
        (
            lambda: THREE.simulate({"s0": {"risky": 1.5, "safe": -0.5}, "s1": "safe"}, 5),
            r"action probabilities of the policy in state 's0' must be non-negative and sum to 1$",
        ),
        (
            lambda: THREE.evaluate(lambda state, memory, reward: "safe"),
            r"a policy must return \(action, memory\) or a Lottery, got 'safe' in state 's0'$",
        ),
        (lambda: THREE.evaluate(["safe"]), r"the action sequence has 1 actions, the episode needs more$"),
        (lambda: THREE.evaluate([]), r"the action sequence has 0 actions, the episode needs more$"),
        (lambda: THREE.evaluate(HistoryPolicy({("s0",): "safe"})), r"no action for history \('s0', 'safe', 's1'\)$"),
        (lambda: THREE.evaluate(AdaptivePolicy({}, 1.0)), r"no action for \(time, state\) \(0, 's0'\)$"),
        (
            lambda: THREE.evaluate(NUMBER),
            r"a policy must be a function, a dict .* or a list of actions, got int$",
        ),
        (lambda: THREE.evaluate("safe"), r"a policy must be a function, .* got str$"),
        (lambda: THREE.evaluate(NOTHING), r"a policy must be a function, .* got NoneType$"),
        (lambda: THREE.simulate(["safe", "safe"], 0), r"episodes must be at least 1, got 0$"),
        (lambda: THREE.simulate(["safe", "safe"], WORD), r"episodes must be a whole number, got 'many'$"),
        (
            lambda: THREE.simulate(["safe", "safe"], 1, seed=WORD),
            r"seed must be a whole number or a NumPy generator, got 'many': TypeError: .*$",
        ),
        (lambda: THREE.simulate(["safe", "safe"], 1, seed=-1), r"seed must be a whole number .*, got -1: ValueError"),
        (lambda: THREE.simulate(["safe", "safe"], -3), r"episodes must be at least 1, got -3$"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_policy_is_refused_in_one_line(call, message):
    with pytest.raises(RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
