import math
from typing import Any

import numpy as np
import pytest

from riskpath import AdaptivePolicy, FiniteMDP, HistoryPolicy, Law, Lottery, MarkovPolicy, RiskpathError, ThreeState


def table(law: Law) -> dict[float, float]:
    return {round(x, 9): round(p, 12) for x, p in zip(law.atoms.tolist(), law.probs.tolist(), strict=True)}


def made(outcomes: Any = None, start: Any = "s", **settings: Any) -> FiniteMDP:
    """A problem from untyped input, by default of one step."""
    return FiniteMDP.from_outcomes(
        {("s", "a"): [(1.0, 0.0, "end")]} if outcomes is None else outcomes, start, **settings
    )


def wrong_type(thing: Any) -> Any:
    return thing


THREE = ThreeState().mdp()
SURE = {("s0", "stay"): [(1.0, 1.0, "s0")], ("s0", "go"): [(1.0, 5.0, "end")]}
# Chance decides whether the second choice is made rich or poor.
FORK = FiniteMDP.from_outcomes(
    {
        ("start", "spin"): [(0.25, 8.0, "rich"), (0.25, 4.0, "rich"), (0.5, 0.0, "poor")],
        ("start", "wait"): [(1.0, 1.0, "poor")],
        ("rich", "keep"): [(1.0, 0.0, "end")],
        ("rich", "bet"): [(0.5, 10.0, "end"), (0.5, -10.0, "end")],
        ("poor", "keep"): [(1.0, 0.0, "end")],
        ("poor", "bet"): [(0.5, 10.0, "end"), (0.5, -10.0, "end")],
    },
    start="start",
    discount=0.5,
)


# Making a problem.


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
        (lambda: made({("s", "a"): (1.0, 2.0, "end")}), r"outcomes of \('s', 'a'\): 1.0 is not a .* triple$"),
        (
            lambda: made({("s", "a"): [("half", 2.0, "end")]}),
            r"\('s', 'a'\): \('half', 2.0, 'end'\) is not a .* triple$",
        ),
        (lambda: made({("s", "a"): [(1.0, None, "end")]}), r"\('s', 'a'\): \(1.0, None, 'end'\) is not a .* triple$"),
        (
            lambda: made({("s", "a"): [(1.0, 2.0, ["end"])]}),
            r"\('s', 'a'\): \(1.0, 2.0, \['end'\]\) is not a .* triple$",
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
        (lambda: made(start="t"), r"start state 't' does not occur in the outcomes$"),
        (lambda: made(start={"s": 0.5, "t": 0.5}), r"start state 't' does not occur in the outcomes$"),
        (lambda: made(start={"s": 0.5}), r"start probabilities must be non-negative and sum to 1, got \{'s': 0.5\}$"),
        (lambda: made(start={"s": 1.5, "end": -0.5}), r"start probabilities must .*, got \{'s': 1.5, 'end': -0.5\}$"),
        (lambda: made(start={"s": math.nan}), r"start probabilities must .*, got \{'s': nan\}$"),
        (lambda: made(start={}), r"start probabilities must .*, got \{\}$"),
        (lambda: made({}), r"start state 's' does not occur in the outcomes$"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_problem_is_refused_in_one_line_that_names_the_place(call, message):
    with pytest.raises(RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_a_loop_that_no_episode_reaches_needs_no_horizon():
    away = {("s", "a"): [(1.0, 2.0, "end"), (0.0, 0.0, "t")], ("t", "a"): [(1.0, 0.0, "t")]}
    assert table(made(away).evaluate({"s": "a"})) == {2.0: 1.0}


def test_meeting_again_on_different_paths_is_no_loop():
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


def test_outcomes_that_are_equal_are_one():
    mdp = made({("s", "a"): [(0.25, 1.0, "end"), (0.25, 1.0, "end"), (0.5, 1.0, "other"), (0.0, 9.0, "never")]})
    assert mdp.outcomes["s"]["a"] == ((0.5, 1.0, "end"), (0.5, 1.0, "other"))


def test_what_a_problem_says_about_its_states():
    assert FORK.actions("start") == ("spin", "wait")
    assert FORK.actions("end") == FORK.actions("nowhere") == ()
    assert FORK.is_terminal("end")
    assert not FORK.is_terminal("rich", time=7)
    looping = made(SURE, start="s0", horizon=2)
    assert [looping.is_terminal("s0", time) for time in (0, 1, 2, 3)] == [False, False, True, True]


def test_layers_are_the_states_that_can_act_at_each_time():
    assert FORK.layers == (("start",), ("rich", "poor"))
    assert THREE.layers == (("s0",), ("s1",))
    assert made(SURE, start="s0", horizon=3).layers == (("s0",),) * 3
    late = FiniteMDP.from_outcomes(
        {("s", "a"): [(0.5, 0.0, "t"), (0.5, 0.0, "end")], ("t", "a"): [(1.0, 0.0, "end")]},
        start={"s": 0.5, "t": 0.25, "end": 0.25},
    )
    assert late.layers == (("s", "t"), ("t",))


def test_the_successor_is_known_only_where_chance_does_not_choose_it():
    assert FORK.successor is None
    assert THREE.successor == {(s, a): t for s, t in (("s0", "s1"), ("s1", "end")) for a in ("risky", "safe")}


def test_reward_laws_forget_the_next_state():
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


def test_another_discount_leaves_the_rest():
    half = THREE.with_discount(0.5)
    assert (half.discount, THREE.discount) == (0.5, 1.0)
    assert table(half.evaluate(["safe", "safe"])) == {-7.5: 1.0}


# The law of the return.


def careful(state, memory, reward):
    """Bets until it has won; keeps what it has won in an array, which cannot be hashed."""
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


def test_a_random_start_is_part_of_the_law():
    outcomes = {("s0", "a"): [(1.0, 1.0, "s1")], ("s1", "a"): [(0.5, 2.0, "end"), (0.5, 4.0, "end")]}
    mdp = FiniteMDP.from_outcomes(outcomes, start={"s0": 0.25, "s1": 0.5, "end": 0.25, "never": 0.0})
    assert mdp.start == {"s0": 0.25, "s1": 0.5, "end": 0.25}
    assert table(mdp.evaluate({"s0": "a", "s1": "a"})) == {0.0: 0.25, 2.0: 0.25, 3.0: 0.125, 4.0: 0.25, 5.0: 0.125}
    assert table(mdp.evaluate(["a", "a"])) == table(
        mdp.evaluate(HistoryPolicy({("s0",): "a", ("s1",): "a", ("s0", "a", "s1"): "a"}))
    )


def test_an_adaptive_policy_discounts_what_it_has_earned():
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
    # Earned before the last step: 0 or 2 after losing first, 4 or 8 after winning first.
    assert table(mdp.evaluate(policy)) == {
        0.0: 0.125,
        1.0: 0.125,
        2.0: 0.125,
        4.0: 0.25,
        5.0: 0.125,
        8.0: 0.125,
        10.0: 0.125,
    }


def test_a_policy_is_asked_with_no_memory_at_the_start_and_its_own_afterwards():
    seen = []

    def policy(state, memory, reward):
        seen.append((state, memory, reward))
        return "safe", {"steps": 1 + (memory or {"steps": 0})["steps"]}

    THREE.evaluate(policy)
    assert seen == [("s0", None, 0.0), ("s1", {"steps": 1}, -5.0)]


# Simulation.


def random_mdp() -> FiniteMDP:
    # With this seed the policies below earn differently from what they would if they forgot.
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


@pytest.mark.parametrize(
    "policy",
    [
        {"0": "a", "1": "b", "2": "a"},
        {"0": {"a": 0.2, "b": 0.8}, "1": {"a": 0.5, "b": 0.5}, "2": "b"},
        ["a", "b", "b", "a"],
        remembers_rewards,
        alternates,
        draws_its_memory,
    ],
    ids=["markov", "stochastic", "list", "array memory", "alternates", "lottery"],
)
@pytest.mark.usefixtures("unchecked")
def test_simulation_agrees_with_evaluation(policy):
    mdp, n = random_mdp(), 20_000
    law = mdp.evaluate(policy)
    returns = mdp.simulate(policy, n, seed=1)
    assert returns.shape == (n,)
    assert abs(returns.mean() - law.mean) < 4 * law.std / math.sqrt(n)
    assert abs(returns.std() - law.std) < 0.05 * law.std
    assert Law.of_sample(returns).wasserstein(law) < 4 * law.std / math.sqrt(n)
    assert set(np.round(returns, 6)) <= set(np.round(law.atoms, 6))


def test_a_seed_makes_episodes_repeat():
    first, again, other = (random_mdp().simulate(alternates, 50, seed=seed) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()


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
        (lambda: THREE.evaluate({"s0": {"safe": 0.5, "bold": 0.5}}), r"the policy chose 'bold' in state 's0'"),
        (
            lambda: THREE.evaluate({"s0": {"safe": 0.5}}),
            r"action probabilities of the policy in state 's0' must be non-negative and sum to 1$",
        ),
        (lambda: THREE.evaluate(["safe"]), r"the action sequence has 1 actions, the episode needs more$"),
        (lambda: THREE.evaluate([]), r"the action sequence has 0 actions, the episode needs more$"),
        (lambda: THREE.evaluate(HistoryPolicy({("s0",): "safe"})), r"no action for history \('s0', 'safe', 's1'\)$"),
        (lambda: THREE.evaluate(AdaptivePolicy({}, 1.0)), r"no action for \(time, state\) \(0, 's0'\)$"),
        (
            lambda: THREE.evaluate(wrong_type(3)),
            r"a policy must be a function, a dict .* or a list of actions, got int$",
        ),
        (lambda: THREE.evaluate("safe"), r"a policy must be a function, .* got str$"),
        (lambda: THREE.evaluate(wrong_type(None)), r"a policy must be a function, .* got NoneType$"),
        (lambda: THREE.simulate(["safe", "safe"], 0), r"episodes must be at least 1, got 0$"),
        (lambda: THREE.simulate(["safe", "safe"], -3), r"episodes must be at least 1, got -3$"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_policy_is_refused_in_one_line(call, message):
    with pytest.raises(RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_a_policy_with_too_many_situations_is_refused(monkeypatch):
    monkeypatch.setattr("riskpath.mdp.policy_evaluation.MAX_GROUPS", 3)
    with pytest.raises(RiskpathError, match="distinguishes more than 3 situations at time 1"):
        random_mdp().evaluate(remembers_rewards)


def test_memories_of_the_same_bytes_and_another_shape_are_different():
    def policy(state, memory, reward):
        if memory is None:
            return Lottery(((0.5, "risky", np.zeros((1, 4))), (0.5, "risky", np.zeros((2, 2)))))
        return ("risky" if memory.shape == (1, 4) else "safe"), memory

    assert table(THREE.evaluate(policy)) == {-20.0: 0.005, -15.0: 0.05, 90.0: 0.09, 95.0: 0.45, 200.0: 0.405}


def test_a_negative_action_probability_is_refused():
    with pytest.raises(RiskpathError, match="action probabilities of the policy in state 's0'"):
        THREE.simulate({"s0": {"risky": 1.5, "safe": -0.5}, "s1": "safe"}, 5)


def test_a_policy_that_returns_no_memory_is_refused():
    with pytest.raises(RiskpathError):
        THREE.evaluate(lambda state, memory, reward: "safe")


def test_action_probabilities_a_little_off_are_made_to_sum_to_one():
    law = THREE.evaluate({"s0": {"risky": 0.3333333, "safe": 0.6666666}, "s1": "safe"})
    assert law.probs.sum() == pytest.approx(1)


@pytest.mark.usefixtures("unchecked")
def test_the_horizon_may_be_a_whole_number_of_numpy():
    assert made(SURE, start="s0", horizon=np.int64(2)).layers == (("s0",), ("s0",))
