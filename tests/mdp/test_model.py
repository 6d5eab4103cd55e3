"""Finite problems: checks of the input, and what a problem derives from it."""

import math
from typing import Any

import numpy as np
import pytest

from riskpath import FiniteMDP, RiskpathError
from tests.mdp.problems import FORK, SURE, THREE, made, table

WORD: Any = "low"
LIST: Any = ["s"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: made({("s", "a"): [(0.5, 1.0, "end"), (0.4, 0.0, "end")]}),
            r"outcomes of \('s', 'a'\): probabilities must sum to 1, their sum is 0.9$",
        ),
        (lambda: made({("s", "a"): []}), r"outcomes of \('s', 'a'\): probabilities must sum to 1, their sum is 0$"),
        (
            lambda: made({("s", "a"): [(1.5, 1.0, "end"), (-0.5, 2.0, "end")]}),
            r"outcomes of \('s', 'a'\): probability must be in \[0, 1\], got 1.5 in \(1.5, 1.0, 'end'\)$",
        ),
        (
            lambda: made({("s", "a"): [(-0.5, 2.0, "end"), (1.5, 1.0, "end")]}),
            r"outcomes of \('s', 'a'\): probability must be in \[0, 1\], got -0.5 in \(-0.5, 2.0, 'end'\)$",
        ),
        (lambda: made({("s", "a"): [(math.nan, 2.0, "end")]}), r"\('s', 'a'\): probability must be .*, got nan in"),
        (
            lambda: made({("s", "a"): [(1.0, math.nan, "end")]}),
            r"outcomes of \('s', 'a'\): reward must be a finite number, got nan in \(1.0, nan, 'end'\)$",
        ),
        (
            lambda: made({("s", "a"): [(1.0, -math.inf, "end")]}),
            r"outcomes of \('s', 'a'\): reward must be a finite number, got -inf in \(1.0, -inf, 'end'\)$",
        ),
        (
            lambda: made({("s", "a"): [(1.0, 2.0)]}),
            r"outcomes of \('s', 'a'\): \(1.0, 2.0\) is not a \(probability, reward, next state\) triple$",
        ),
        (lambda: made({("s", "a"): [(1, 10**400, "end")]}), "reward must be a finite number, got inf in "),
        (
            lambda: made({("s", "a"): [(1, -1e200, "end")]}),
            r"reward must be at most 3.4e\+38 in size, got -1e\+200 in ",
        ),
        (lambda: made({("s", "a"): (1.0, 2.0, "end")}), r"outcomes of \('s', 'a'\): 1.0 is not a .* triple$"),
        (
            lambda: made({("s", "a"): [("half", 2.0, "end")]}),
            r"\('s', 'a'\): \('half', 2.0, 'end'\) is not a .* triple$",
        ),
        (lambda: made({("s", "a"): [(1.0, None, "end")]}), r"\('s', 'a'\): \(1.0, None, 'end'\) is not a .* triple$"),
        (
            lambda: made({("s", "a"): [(1.0, 2.0, ["end"])]}),
            r"outcomes of \('s', 'a'\): a state must be hashable, for example .*; got \['end'\]$",
        ),
        (lambda: made({"s": [(1.0, 2.0, "end")]}), r"keys of outcomes must be \(state, action\) pairs, got 's'$"),
        (lambda: made({"sa": [(1.0, 2.0, "end")]}), r"keys of outcomes must be \(state, action\) pairs, got 'sa'$"),
        (lambda: made({("s", "a", 0): [(1.0, 2.0, "end")]}), r"keys of outcomes .*, got \('s', 'a', 0\)$"),
        (
            lambda: made({("s", "a"): [(1.0, 0.0, "ende")]}, terminal=["end"]),
            r"outcomes of \('s', 'a'\): next state 'ende' has no action and is not listed as terminal$",
        ),
        (
            lambda: made({("s", "a"): [(1.0, 0.0, "end")], ("end", "b"): [(1.0, 0.0, "s")]}, terminal=["end"]),
            r"state 'end' is listed as terminal but has actions \['b'\]$",
        ),
        (
            lambda: made(
                {
                    ("s", "a"): [(1.0, 0.0, "t")],
                    ("t", "a"): [(0.5, 0.0, "u"), (0.5, 0.0, "end")],
                    ("u", "a"): [(1.0, 0.0, "t")],
                }
            ),
            r"episodes of this problem need not end \(t → u → t\): give horizon=…$",
        ),
        (lambda: made({("s", "a"): [(1.0, 0.0, "s")]}), r"need not end \(s → s\): give horizon=…$"),
        (lambda: made(discount=0.0), r"discount must be in \(0, 1\], got 0.0$"),
        (lambda: made(discount=1.5), r"discount must be in \(0, 1\], got 1.5$"),
        (lambda: made(discount=math.nan), r"discount must be in \(0, 1\], got nan$"),
        (lambda: made().with_discount(-0.5), r"discount must be in \(0, 1\], got -0.5$"),
        (lambda: made(horizon=0), r"horizon must be at least 1, got 0$"),
        (lambda: made(horizon=2.5), r"horizon must be a whole number, got 2.5$"),
        (lambda: made(horizon="long"), r"horizon must be a whole number, got 'long'$"),
        (lambda: made(horizon=True), r"horizon must be a whole number, got True$"),
        (lambda: made(discount="low"), r"discount must be a number in \(0, 1\], got 'low'$"),
        (lambda: made(discount=None), r"discount must be a number in \(0, 1\], got None$"),
        (lambda: made().with_discount(WORD), r"discount must be a number in \(0, 1\], got 'low'$"),
        (lambda: made([("s", "a")]), r"outcomes must be a dict \{\(state, action\): .*\}, got \[\('s', 'a'\)\]$"),
        (lambda: made(terminal="end"), r"terminal must be a list of states, got 'end'; write \['end'\] for one state$"),
        (lambda: made(terminal=3), r"terminal must be a list of states, got 3$"),
        (lambda: made(terminal=[["end"]]), r"a terminal state must be hashable, for example .*; got \['end'\]$"),
        (lambda: made(start=["s"]), r"start must be one state or a dict \{state: probability\}; .*; got \['s'\]$"),
        (lambda: made(start={"s"}), r"start must be one state or a dict .*; got \{'s'\}$"),
        (lambda: made(start=np.zeros((60, 60))), r"start must be one state or a dict .*; got array\(.*…$"),
        (lambda: made(start={"s": "often"}), r"start probabilities must be numbers, got \{'s': 'often'\}$"),
        (lambda: made(start=None), r"start state None does not occur in the outcomes$"),
        (lambda: made().actions(LIST), r"unknown state \['s'\]; the states are 's', 'end'$"),
        (
            lambda: FORK.actions("ritch"),
            r"unknown state 'ritch' \(did you mean rich\?\); .* 'start', 'rich', 'poor', … \(1 more\)$",
        ),
        (lambda: made(start="t"), r"start state 't' does not occur in the outcomes$"),
        (lambda: made(start={"s": 0.5, "t": 0.5}), r"start state 't' does not occur in the outcomes$"),
        (lambda: made(start={"s": 0.5}), r"start probabilities must be non-negative and sum to 1, got \{'s': 0.5\}$"),
        (lambda: made(start={"s": 1.5, "end": -0.5}), r"start probabilities must .*, got \{'s': 1.5, 'end': -0.5\}$"),
        (lambda: made(start={"s": math.nan}), r"start probabilities must .*, got \{'s': nan\}$"),
        (lambda: made(start={}), r"start probabilities must .*, got \{\}$"),
        (lambda: made({}), r"start state 's' does not occur in the outcomes$"),
        (lambda: made(features=[1]), r"features must be a dict \{state: vector\}, got \[1\]$"),
        (lambda: made(features={"s": [1]}), r"features must have a vector for every state; state 'end' has none$"),
        (
            lambda: made(features={"s": [1], "end": [1, 2]}),
            r"features of state 'end': all vectors must have the same length, got 2 instead of 1 numbers$",
        ),
        (
            lambda: made(features={"s": [1.0, math.inf], "end": [1, 2]}),
            r"features of state 's' must be a vector of finite numbers, got \[1.0, inf\]$",
        ),
        (lambda: made(features={"s": 3, "end": [1]}), r"features of state 's' must be a vector .*, got 3$"),
        (lambda: made(features={"s": [], "end": []}), r"features of state 's' must be a vector .*, got \[\]$"),
        (lambda: made(features={"s": "12", "end": [1, 2]}), r"features of state 's' must be a vector .*, got '12'$"),
        (lambda: made(features={"s": [[1]], "end": [[1]]}), r"features of state 's' must be .*, got \[\[1\]\]$"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_problem_is_refused_in_one_line_that_names_the_entry(call, message):
    with pytest.raises(RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_features_are_kept_as_tuples_of_floats_with_every_discount():
    mdp = made(features={"s": np.array([1, 2]), "end": (0, 0.5), "elsewhere": "ignored"})
    assert mdp.features == mdp.with_discount(0.5).features == {"s": (1.0, 2.0), "end": (0.0, 0.5)}
    assert made().features is None


@pytest.mark.usefixtures("unchecked")
def test_the_horizon_may_be_a_numpy_integer():
    assert made(SURE, start="s0", horizon=np.int64(2)).layers[:] == (("s0",), ("s0",))


def test_an_unreachable_loop_needs_no_horizon():
    away = {("s", "a"): [(1.0, 2.0, "end"), (0.0, 0.0, "t")], ("t", "a"): [(1.0, 0.0, "t")]}
    assert table(made(away).evaluate({"s": "a"})) == {2.0: 1.0}


def test_two_paths_to_the_same_state_are_not_a_loop():
    diamond = {
        ("s", "a"): [(0.5, 0.0, "up"), (0.5, 0.0, "down")],
        ("up", "a"): [(1.0, 1.0, "last")],
        ("down", "a"): [(1.0, 2.0, "last")],
        ("last", "a"): [(1.0, 0.0, "end")],
    }
    assert table(made(diamond).evaluate(["a", "a", "a"])) == {1.0: 0.5, 2.0: 0.5}


def test_a_problem_may_be_deeper_than_the_recursion_limit():
    chain = made({(i, "a"): [(1.0, 1.0, i + 1)] for i in range(3000)}, start=0)
    assert len(chain.layers) == 3000


def test_equal_outcomes_are_merged_and_impossible_ones_dropped():
    mdp = made({("s", "a"): [(0.25, 1.0, "end"), (0.25, 1.0, "end"), (0.5, 1.0, "other"), (0.0, 9.0, "never")]})
    assert mdp.outcomes["s"]["a"] == ((0.5, 1.0, "end"), (0.5, 1.0, "other"))


def test_actions_and_terminal_states():
    assert FORK.actions("start") == ("spin", "wait")
    assert FORK.actions("end") == ()
    assert FORK.is_terminal("end")
    assert not FORK.is_terminal("rich", time=7)
    looping = made(SURE, start="s0", horizon=2)
    assert [looping.is_terminal("s0", time) for time in (0, 1, 2, 3)] == [False, False, True, True]


def test_states_are_listed_in_order_of_first_appearance_with_terminal_and_unreachable_ones():
    assert FORK.states == ("start", "rich", "poor", "end")
    outcomes = {
        ("lost", "a"): [(1.0, 0.0, "nowhere")],
        ("s", "a"): [(0.5, 0.0, "end"), (0.5, 0.0, "t")],
        ("t", "a"): [(1.0, 0.0, "s")],
    }
    mdp = made(outcomes, start={"t": 0.5, "s": 0.5}, horizon=1)
    assert mdp.reachable_states == ("t", "s", "end")
    assert mdp.states == ("t", "s", "end", "lost", "nowhere")
    assert [mdp.actions(state) for state in mdp.states] == [("a",), ("a",), (), ("a",), ()]


def test_a_state_that_occurs_only_at_the_horizon_is_reachable():
    chain = made({(i, "a"): [(1.0, 1.0, i + 1)] for i in range(9)}, start=0, horizon=2)
    assert chain.reachable_states == (0, 1, 2)
    assert chain.max_episode_steps == 2


@pytest.mark.parametrize(
    ("mdp", "text"),
    [
        (FORK, "<FiniteMDP: 4 states, 4 actions, no horizon, discount 0.5, start 'start'>"),
        (THREE, "<FiniteMDP 'ThreeState': 3 states, 2 actions, no horizon, discount 1, start 's0'>"),
        (
            made(SURE, start="s0", horizon=10**6, discount=0.9),
            "<FiniteMDP: 2 states, 2 actions, horizon 1,000,000, discount 0.9, start 's0'>",
        ),
        (
            made(
                {(i, "a"): [(1.0, 1.0, i + 1)] for i in range(5000)}, start=dict.fromkeys(range(10), 0.1), name="chain"
            ),
            "<FiniteMDP 'chain': 5,001 states, 1 action, no horizon, discount 1, start 0, 1, 2, … (7 more)>",
        ),
    ],
)
def test_the_text_of_a_problem_is_short(mdp, text):
    assert repr(mdp) == str(mdp) == text


def test_layers_are_the_non_terminal_states_at_each_time():
    assert FORK.layers[:] == (("start",), ("rich", "poor"))
    assert THREE.layers[:] == (("s0",), ("s1",))
    assert made(SURE, start="s0", horizon=3).layers[:] == (("s0",),) * 3
    late = FiniteMDP.from_outcomes(
        {("s", "a"): [(0.5, 0.0, "t"), (0.5, 0.0, "end")], ("t", "a"): [(1.0, 0.0, "end")]},
        start={"s": 0.5, "t": 0.25, "end": 0.25},
    )
    assert late.layers[:] == (("s", "t"), ("t",))


def test_successor_exists_only_for_deterministic_transitions():
    assert FORK.successor is None
    assert THREE.successor == {(s, a): t for s, t in (("s0", "s1"), ("s1", "end")) for a in ("risky", "safe")}


def test_reward_laws_are_marginal_in_the_next_state():
    assert {key: table(law) for key, law in FORK.reward_laws.items()} == {
        ("start", "spin"): {0.0: 0.5, 4.0: 0.25, 8.0: 0.25},
        ("start", "wait"): {1.0: 1.0},
        ("rich", "keep"): {0.0: 1.0},
        ("rich", "bet"): {-10.0: 0.5, 10.0: 0.5},
        ("poor", "keep"): {0.0: 1.0},
        ("poor", "bet"): {-10.0: 0.5, 10.0: 0.5},
    }
    split = made({("s", "a"): [(0.25, 1.0, "end"), (0.75, 1.0, "other")]})
    assert table(split.reward_laws["s", "a"]) == {1.0: 1.0}


def test_backward_induction_gives_the_best_mean():
    tables = FORK.backward(lambda values, probs: float(np.dot(values, probs)))
    assert tables == [
        {"start": {"spin": 3.0, "wait": 1.0}},
        {"rich": {"keep": 0.0, "bet": 0.0}, "poor": {"keep": 0.0, "bet": 0.0}},
    ]
    looping = made(SURE, start="s0", horizon=3, discount=0.5)
    assert looping.backward(lambda values, probs: float(np.dot(values, probs)))[0] == {"s0": {"stay": 3.5, "go": 5.0}}


def test_with_discount_changes_the_discount_only():
    half = THREE.with_discount(0.5)
    assert (half.discount, THREE.discount) == (0.5, 1.0)
    assert table(half.evaluate(["safe", "safe"])) == {-7.5: 1.0}
