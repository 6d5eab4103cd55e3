"""The exact law of the return of a policy: known laws, and agreement with simulation."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from riskpath import AdaptivePolicy, FiniteMDP, HistoryPolicy, Law, Lottery, MarkovPolicy, RiskpathError, ThreeState
from tests.mdp.problems import FORK, SURE, THREE, made, table


def careful(state, memory, reward):
    """Bet until the first win. The memory is an array, which is not hashable."""
    won = np.zeros(1) if memory is None else memory + reward
    return ("safe" if won[0] > 0 else "risky"), won


def spin_then_bet_with_the_second_prize(state, memory, reward):
    if memory is None:
        return "spin", "spun"
    return ("bet" if reward == 4.0 else "keep"), memory


RISKY: Any = {"s0": "risky", "s1": "risky"}
CAREFUL = {95.0: 0.9, 90.0: 0.09, -20.0: 0.01}
# The return so far at (1, s1) is the first reward; the table lists it ascending.
CAREFUL_TABLE: Any = {(0, "s0"): (np.array([0.0]), ["risky"]), (1, "s1"): (np.array([-10.0, 100.0]), ["risky", "safe"])}


@pytest.mark.parametrize(
    ("mdp", "policy", "expected"),
    [
        (THREE, RISKY, {200.0: 0.81, 90.0: 0.18, -20.0: 0.01}),
        (THREE, MarkovPolicy(RISKY), {200.0: 0.81, 90.0: 0.18, -20.0: 0.01}),
        (THREE, ["risky", "risky"], {200.0: 0.81, 90.0: 0.18, -20.0: 0.01}),
        (THREE, ("risky", "safe", "never taken"), {95.0: 0.9, -15.0: 0.1}),
        (THREE, {"s0": "safe", "s1": "safe"}, {-10.0: 1.0}),
        (ThreeState().mdp(discount=0.5), ["risky", "safe"], {97.5: 0.9, -12.5: 0.1}),
        (ThreeState().mdp(discount=0.5), RISKY, {150.0: 0.81, 95.0: 0.09, 40.0: 0.09, -15.0: 0.01}),
        (
            THREE,
            {"s0": {"risky": 0.5, "safe": 0.5}, "s1": "safe"},
            {95.0: 0.45, -15.0: 0.05, -10.0: 0.5},
        ),
        (THREE, {"s0": "safe", "s1": {"risky": 0.25, "safe": 0.75}}, {95.0: 0.225, -15.0: 0.025, -10.0: 0.75}),
        (THREE, AdaptivePolicy(CAREFUL_TABLE, discount=1.0), CAREFUL),
        (THREE, careful, CAREFUL),
        (
            FORK,
            HistoryPolicy({("start",): "spin", ("start", "spin", "rich"): "bet", ("start", "spin", "poor"): "keep"}),
            {13.0: 0.125, 3.0: 0.125, 9.0: 0.125, -1.0: 0.125, 0.0: 0.5},
        ),
        (FORK, HistoryPolicy({("start",): "wait", ("start", "wait", "poor"): "bet"}), {6.0: 0.5, -4.0: 0.5}),
        (FORK, spin_then_bet_with_the_second_prize, {8.0: 0.25, 9.0: 0.125, -1.0: 0.125, 0.0: 0.5}),
        (
            FORK,
            lambda state, memory, reward: (
                Lottery(((0.5, "wait", 1), (0.5, "wait", 2)))
                if memory is None
                else (("keep" if memory == 1 else "bet"), None)
            ),
            {1.0: 0.5, 6.0: 0.25, -4.0: 0.25},
        ),
        (made(SURE, start="s0", horizon=3, discount=0.5), {"s0": "stay"}, {1.75: 1.0}),
        (made(SURE, start="s0", horizon=3, discount=0.5), ["stay", "stay", "go"], {2.75: 1.0}),
        (
            made(SURE, start="s0", horizon=3, discount=0.5),
            {"s0": {"stay": 0.5, "go": 0.5}},
            {5.0: 0.5, 3.5: 0.25, 2.75: 0.125, 1.75: 0.125},
        ),
        (made(start="end"), {}, {0.0: 1.0}),
    ],
)
def test_known_laws_of_the_return(mdp, policy, expected):
    assert table(mdp.evaluate(policy)) == pytest.approx(dict(sorted(expected.items())))


def test_the_law_of_the_return_includes_a_random_start():
    outcomes = {("s0", "a"): [(1.0, 1.0, "s1")], ("s1", "a"): [(0.5, 2.0, "end"), (0.5, 4.0, "end")]}
    mdp = FiniteMDP.from_outcomes(outcomes, start={"s0": 0.25, "s1": 0.5, "end": 0.25, "never": 0.0})
    assert mdp.start == {"s0": 0.25, "s1": 0.5, "end": 0.25}
    assert table(mdp.evaluate({"s0": "a", "s1": "a"})) == {0.0: 0.25, 2.0: 0.25, 3.0: 0.125, 4.0: 0.25, 5.0: 0.125}
    assert table(mdp.evaluate(["a", "a"])) == table(
        mdp.evaluate(HistoryPolicy({("s0",): "a", ("s1",): "a", ("s0", "a", "s1"): "a"}))
    )


def test_memories_with_equal_bytes_and_different_shapes_are_different():
    def policy(state, memory, reward):
        if memory is None:
            return Lottery(((0.5, "risky", np.zeros((1, 4))), (0.5, "risky", np.zeros((2, 2)))))
        return ("risky" if memory.shape == (1, 4) else "safe"), memory

    assert table(THREE.evaluate(policy)) == {-20.0: 0.005, -15.0: 0.05, 90.0: 0.09, 95.0: 0.45, 200.0: 0.405}


class Together:
    """A policy that answers many situations at once and records them."""

    def __init__(self, policy):
        self.policy, self.asked = policy, []

    def __call__(self, state, memory, reward):
        return self.policy(state, memory, reward)

    def answer_all(self, situations):
        self.asked.append([(state, str(memory), reward) for state, memory, reward in situations])
        return [self.policy(*situation) for situation in situations]


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("discount", [1.0, 0.9])
@pytest.mark.parametrize("name", ["constant", "alternates", "remembers_rewards", "draws_its_memory"])
def test_equal_situations_are_asked_once(name, discount, steps):
    policies = {"constant": lambda state, memory, reward: ("b", None), "alternates": alternates}
    policies |= {"remembers_rewards": remembers_rewards, "draws_its_memory": draws_its_memory}
    mdp = replace(looping_mdp(), discount=discount, horizon=steps)
    policy = Together(policies[name])
    law = mdp.evaluate(policy)
    for asked in policy.asked:
        assert len(set(asked)) == len(asked)

    def paths(state, memory, reward, time):
        """Return {return to go: probability} by going through all paths."""
        if mdp.is_terminal(state, time):
            return {0.0: 1.0}
        answer, found = policies[name](state, memory, reward), {}
        for share, action, kept in answer.choices if isinstance(answer, Lottery) else [(1.0, *answer)]:
            for prob, gained, after in mdp.outcomes[state][action]:
                for rest, chance in paths(after, kept, gained, time + 1).items():
                    total = gained + discount * rest
                    found[total] = found.get(total, 0.0) + share * prob * chance
        return found

    parts = [(prob, paths(state, None, 0.0, 0)) for state, prob in mdp.start.items()]
    expected = Law.mix([Law(part, part.values()) for _, part in parts], [prob for prob, _ in parts])
    assert law.isclose(expected)


# Simulation.


def looping_mdp() -> FiniteMDP:
    # With this seed the returns of the policies below change if their memory is lost.
    rng = np.random.default_rng(3)
    outcomes = {}
    for state in range(3):
        for action in "ab":
            probs = rng.dirichlet(np.ones(3))
            rewards = rng.integers(-3, 6, size=3).astype(float)
            nexts = rng.choice([0, 1, 2, "end"], size=3)
            outcomes[str(state), action] = list(zip(probs.tolist(), rewards.tolist(), map(str, nexts), strict=True))
    return FiniteMDP.from_outcomes(outcomes, start={"0": 0.5, "1": 0.3, "2": 0.2}, discount=0.9, horizon=4)


def remembers_rewards(state, memory, reward):
    total = np.zeros(2) if memory is None else memory + np.array([reward, 1.0])
    return ("a" if total[0] > 0 else "b"), total


def alternates(state, memory, reward):
    return ("b", None) if memory == "a" else ("a", "a")


def draws_its_memory(state, memory, reward):
    if memory is None:
        return Lottery(((0.3, "a", "a"), (0.7, "b", "b")))
    return memory, memory


def test_a_policy_with_too_many_situations_is_refused(monkeypatch):
    with pytest.raises(RiskpathError, match="distinguishes more than 3 situations at time 1"):
        looping_mdp().evaluate(remembers_rewards, max_situations=3)
    monkeypatch.setattr("riskpath.mdp.policy_evaluation.MAX_GROUPS", 2)
    with pytest.raises(RiskpathError, match="distinguishes more than 2 situations at time 0"):
        looping_mdp().evaluate(remembers_rewards)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param({"0": "a", "1": "b", "2": "a"}, id="markov", marks=pytest.mark.long),
        pytest.param({"0": {"a": 0.2, "b": 0.8}, "1": {"a": 0.5, "b": 0.5}, "2": "b"}, id="stochastic"),
        pytest.param(["a", "b", "b", "a"], id="list", marks=pytest.mark.long),
        pytest.param(remembers_rewards, id="array memory"),
        pytest.param(alternates, id="alternates", marks=pytest.mark.long),
        pytest.param(draws_its_memory, id="lottery"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_simulation_agrees_with_evaluation(policy):
    mdp, n = looping_mdp(), 20_000
    law = mdp.evaluate(policy)
    returns = mdp.simulate(policy, n, seed=1)
    assert returns.shape == (n,)
    assert abs(returns.mean() - law.mean) < 4 * law.std / math.sqrt(n)
    assert abs(returns.std() - law.std) < 0.05 * law.std
    assert Law.of_sample(returns).wasserstein(law) < 4 * law.std / math.sqrt(n)
    assert set(np.round(returns, 6)) <= set(np.round(law.atoms, 6))


def test_equal_seeds_repeat_episodes_and_other_seeds_do_not():
    first, again, other = (looping_mdp().simulate(alternates, 50, seed=seed) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()
