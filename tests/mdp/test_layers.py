"""Layers of states, stored until they repeat; and long horizons, which must stay cheap or be refused at once."""

import time

import pytest

import riskpath as rp
from riskpath.mdp import operators
from riskpath.mdp.problem import MAX_STEPS
from tests.mdp.problems import SURE, made

MILLION = 10**6
# After the first step the layers alternate: (a, x) → (b, x) → (c, x) → (b, x) → …
ALTERNATING = {
    ("a", "go"): [(1.0, 0.0, "b")],
    ("b", "go"): [(0.5, 0.0, "c"), (0.5, 1.0, "end")],
    ("c", "go"): [(1.0, 0.0, "b")],
    ("x", "go"): [(1.0, 0.0, "x")],
}


def brute_layers(mdp: rp.FiniteMDP, steps: int) -> list[tuple]:
    layers, layer = [], [state for state in mdp.start if state in mdp.outcomes]
    for _ in range(steps):
        layers.append(tuple(layer))
        nexts = [o.next for state in layer for listed in mdp.outcomes[state].values() for o in listed]
        layer = [state for state in dict.fromkeys(nexts) if state in mdp.outcomes]
    return layers


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 7, 50])
def test_stored_layers_repeat_like_the_true_ones(horizon):
    mdp = made(ALTERNATING, start={"a": 0.5, "x": 0.5}, horizon=horizon)
    expected = brute_layers(mdp, horizon)
    layers = mdp.layers
    assert list(layers) == expected
    assert [layers[i] for i in range(horizon)] == expected
    assert [layers[-i - 1] for i in range(horizon)] == list(reversed(layers)) == expected[::-1]
    assert layers[1:-1:2] == tuple(expected[1:-1:2])
    assert len(layers) == mdp.max_episode_steps == horizon
    assert len(layers.distinct) == min(horizon, 3)
    with pytest.raises(IndexError):
        layers[horizon]


def test_layers_end_with_the_longest_episode():
    mdp = made({(i, "a"): [(0.5, 1.0, i + 1), (0.5, 1.0, i + 2)] for i in range(4)}, start=0, horizon=100)
    assert mdp.layers[:] == ((0,), (1, 2), (2, 3), (3,))


def test_a_problem_without_end_made_by_hand_is_refused_instead_of_looping():
    outcomes = made(SURE, start="s0", horizon=2).outcomes
    with pytest.raises(rp.RiskpathError, match="episodes of this problem need not end: give horizon=…"):
        len(rp.FiniteMDP(outcomes, {"s0": 1.0}).layers)


def test_a_problem_of_a_million_steps_is_cheap_to_inspect():
    mdp = made(ALTERNATING, start={"a": 0.5, "x": 0.5}, horizon=MILLION)
    started = time.process_time()
    assert (mdp.max_episode_steps, len(mdp.layers.distinct), len(mdp.states)) == (MILLION, 3, 5)
    assert mdp.layers[MILLION - 1] == ("b", "x")
    assert len(operators.constant_table(mdp)) == 4
    assert time.process_time() - started < 1


PLAY = {
    ("s", "play"): [(0.5, 1.0, "s"), (0.5, -1.0, "s")],
    ("s", "stop"): [(1.0, 5.0, "end")],
}
TOO_LONG = r"can have 1,000,000 steps, more than the limit of 10,000 for exact computations; choose a smaller horizon$"


@pytest.mark.parametrize(
    "call",
    [
        lambda mdp: rp.solve(mdp, "cvar:0.1", "markov"),
        lambda mdp: rp.solve(mdp, "cvar:0.1", "history"),
        lambda mdp: rp.solve(mdp, "cvar:0.1", "adaptive"),
        lambda mdp: rp.solve(mdp, "cvar:0.1", "nested"),
        lambda mdp: operators.histories(mdp),
        lambda mdp: mdp.backward(lambda values, probs: values[0]),
    ],
    ids=["markov", "history", "adaptive", "nested", "histories", "backward"],
)
def test_exact_computations_over_a_million_steps_are_refused_at_once(call):
    mdp = made(SURE, start="s0", horizon=MILLION)
    started = time.process_time()
    with pytest.raises(rp.RiskpathError, match=TOO_LONG):
        call(mdp)
    assert time.process_time() - started < 1


def test_evaluation_is_refused_only_if_the_policy_needs_too_many_steps(monkeypatch):
    mdp = made(PLAY, start="s", horizon=MILLION)
    assert mdp.evaluate(["play", "stop"]).isclose(rp.Law([4.0, 6.0], [0.5, 0.5]))
    monkeypatch.setattr("riskpath.mdp.problem.MAX_STEPS", 200)
    with pytest.raises(rp.RiskpathError, match="can have 1,000,000 steps, more than the limit of 200"):
        mdp.evaluate({"s": "play"})
    # Exactly the limit is accepted.
    assert len(made(PLAY, start="s", horizon=200).evaluate({"s": "play"})) == 201


@pytest.mark.usefixtures("unchecked")
def test_evaluation_ends_when_the_probability_of_going_on_underflows():
    outcomes = {("s", "a"): [(0.5, 0.0, "s"), (0.5, 1.0, "end")], ("s", "b"): [(0.5, 0.0, "s"), (0.5, 1.0, "end")]}
    mdp = made(outcomes, start="s", horizon=MILLION)
    for policy in ({"s": "a"}, {"s": {"a": 0.5, "b": 0.5}}):
        assert mdp.evaluate(policy).isclose(rp.Law.point(1.0))


@pytest.mark.usefixtures("unchecked")
def test_a_policy_with_too_long_episodes_is_refused_within_seconds():
    started = time.process_time()
    with pytest.raises(rp.RiskpathError, match=TOO_LONG):
        made(SURE, start="s0", horizon=MILLION).evaluate({"s0": "stay"})
    assert MAX_STEPS == 10_000
    assert time.process_time() - started < 10
