"""The operators of the paper, and each of its theorems as a test on random problems."""

import numpy as np
import pytest

import riskpath as rp
from riskpath.mdp import operators as ops
from tests.mdp.problems import random_mdp, seeds

MEASURES = ["cvar:0.1", "cvar:0.5", "wang:-0.75", "wang:0.75", "pow:-2", "cpw:0.71"]


def numbers(seed: int) -> np.random.Generator:
    """Random numbers other than those that `random_mdp(seed)` draws."""
    return np.random.default_rng([seed, 1])


def random_law(rng: np.random.Generator) -> rp.Law:
    size = rng.integers(1, 4)
    return rp.Law(rng.normal(scale=5, size=size), rng.dirichlet(np.ones(size)))


def random_table(mdp: rp.FiniteMDP, rng: np.random.Generator) -> ops.Table:
    return {key: random_law(rng) for key in ops.constant_table(mdp)}


def random_history_policy(mdp: rp.FiniteMDP, rng: np.random.Generator) -> dict:
    return {h: mdp.actions(h[-1])[rng.integers(len(mdp.actions(h[-1])))] for h in ops.histories(mdp)}


def distance(first, second, measure) -> float:
    return max(abs(measure(first[key]) - measure(second[key])) for key in first)


def test_the_example_table_of_the_paper():
    mdp, risk = rp.ThreeState().mdp(), rp.CVaR(0.1)
    bet = mdp.reward_laws["s0", "risky"]
    table = {
        ("s0", "risky"): rp.Law.point(0.0),
        ("s0", "safe"): rp.Law.point(0.0),
        ("s1", "risky"): bet,
        ("s1", "safe"): rp.Law.point(-5.0),
    }
    updated = ops.risk_greedy_bellman(mdp, table, risk)
    assert updated["s0", "risky"].isclose(rp.Law([95.0, -15.0], [0.9, 0.1]))
    assert {key: round(float(risk.value(law)), 9) for key, law in updated.items()} == {
        ("s0", "risky"): -15.0,
        ("s0", "safe"): -10.0,
        ("s1", "risky"): -10.0,
        ("s1", "safe"): -5.0,
    }
    optimal = mdp.evaluate(["risky", "risky"])
    assert optimal.isclose(rp.Law([200.0, 90.0, -20.0], [0.81, 0.18, 0.01]))
    assert risk.value(optimal) == pytest.approx(79.0)  # the paper's figure prints 7.9


def test_bellman_converges_to_the_law_of_the_policy(unchecked):
    for seed in range(10):
        mdp = random_mdp(seed, deterministic=False)
        policy = {state: {a: 1 / len(mdp.actions(state)) for a in mdp.actions(state)} for state in mdp.outcomes}
        table = random_table(mdp, numbers(seed))
        for _ in mdp.layers:
            table = ops.bellman(mdp, table, policy)
        (start,) = mdp.start
        mixed = rp.Law.mix([table[start, a] for a in mdp.actions(start)], policy[start].values())
        assert mixed.isclose(mdp.evaluate(policy))


@seeds(4, 10)
@pytest.mark.parametrize("p", [1.0, 2.0, np.inf])
def test_bellman_is_a_contraction(p, seeds, unchecked):
    for seed in seeds:
        mdp, rng = random_mdp(seed, deterministic=False, discount=0.8), numbers(seed)
        policy = {state: mdp.actions(state)[-1] for state in mdp.outcomes}
        first, second = random_table(mdp, rng), random_table(mdp, rng)
        before = max(first[key].wasserstein(second[key], p) for key in first)
        new_first, new_second = ops.bellman(mdp, first, policy), ops.bellman(mdp, second, policy)
        assert max(new_first[key].wasserstein(new_second[key], p) for key in first) <= 0.8 * before + 1e-9


@seeds(5, 20)
def test_bellman_optimality_contracts_and_converges_for_the_mean(seeds, unchecked):
    for seed in seeds:
        mdp, rng = random_mdp(seed, deterministic=False, discount=0.8), numbers(seed)
        first, second = random_table(mdp, rng), random_table(mdp, rng)
        for _ in mdp.layers:
            before = distance(first, second, rp.Mean().value)
            first, second = ops.bellman_optimality(mdp, first), ops.bellman_optimality(mdp, second)
            assert distance(first, second, rp.Mean().value) <= 0.8 * before + 1e-9
        (start,) = mdp.start
        best = max(first[start, action].mean for action in mdp.actions(start))
        assert best == pytest.approx(rp.solve(mdp, "mean", "adaptive").value)


def test_risk_greedy_bellman_is_not_a_contraction():
    # The result for one table differs by 99 with how a tie at s1 is broken.
    mdp, risk = rp.ThreeState(safe=-10.0).mdp(), rp.CVaR(0.1)
    table = {key: mdp.reward_laws[key] for key in mdp.reward_laws}
    assert risk.value(table["s1", "risky"]) == pytest.approx(risk.value(table["s1", "safe"]))
    risky = ops.risk_greedy_bellman(mdp, table, risk, tie=lambda actions: actions[0])
    safe = ops.risk_greedy_bellman(mdp, table, risk, tie=lambda actions: actions[-1])
    assert risk.value(risky["s0", "risky"]) == pytest.approx(79.0)
    assert risk.value(safe["s0", "risky"]) == pytest.approx(-20.0)


def test_risk_greedy_bellman_can_end_far_below_the_optimum():
    mdp = rp.ThreeState().mdp()
    assert rp.solve(mdp, "cvar:0.1", "markov").value == pytest.approx(-10.0)
    assert rp.solve(mdp, "cvar:0.1", "history").value == pytest.approx(79.0)


@pytest.mark.parametrize("p", [1.0, 2.0, np.inf])
def test_history_bellman_is_a_contraction(p, unchecked):
    for seed in range(6):
        mdp, rng = random_mdp(seed, discount=0.8), numbers(seed)
        policy = random_history_policy(mdp, rng)
        first, second = ({key: random_law(rng) for key in ops.history_values(mdp, policy)} for _ in range(2))
        before = max(first[key].wasserstein(second[key], p) for key in first)
        new_first, new_second = ops.history_bellman(mdp, first, policy), ops.history_bellman(mdp, second, policy)
        assert max(new_first[key].wasserstein(new_second[key], p) for key in first) <= 0.8 * before + 1e-9


def test_history_bellman_converges_to_the_return_of_a_markov_policy():
    mdp, rng = random_mdp(3, depth=3), numbers(3)
    by_state = {state: mdp.actions(state)[rng.integers(len(mdp.actions(state)))] for state in mdp.outcomes}
    policy = {history: by_state[history[-1]] for history in ops.histories(mdp)}
    true = ops.history_values(mdp, policy)
    table = {key: random_law(rng) for key in true}
    for _ in mdp.layers:
        table = ops.history_bellman(mdp, table, policy)
    assert all(table[key].isclose(true[key]) for key in true)


def test_history_bellman_misses_the_return_of_a_policy_that_uses_the_history():
    # s0 → s1 → s2 → end. At s2 the policy bets only if the first action was a; T^π_h loses that after one step.
    outcomes = {(s, a): [(1.0, 0.0, t)] for s, t in (("s0", "s1"), ("s1", "s2")) for a in "ab"}
    outcomes |= {("s2", "bet"): [(1.0, 10.0, "end")], ("s2", "pass"): [(1.0, 0.0, "end")]}
    mdp = rp.FiniteMDP.from_outcomes(outcomes, "s0")
    policy = {h: "a" if h[-1] != "s2" else "bet" if h[:2] == ("s0", "a") else "pass" for h in ops.histories(mdp)}
    true = ops.history_values(mdp, policy)
    assert true[("s0",), "a"].mean == 10.0
    table = true
    for _ in range(5):
        table = ops.history_bellman(mdp, table, policy)
    assert table[("s0",), "a"].mean == 0.0


@seeds(2, 8)
@pytest.mark.parametrize("risk", MEASURES)
def test_greedy_improvement_never_lowers_the_risk_in_any_history(risk, seeds, unchecked):
    measure = rp.parse_risk(risk)
    for seed in seeds:
        mdp, rng = random_mdp(seed), numbers(seed)
        policy = random_history_policy(mdp, rng)
        for _ in range(4):
            before = ops.history_values(mdp, policy)
            greedy = {h: ops.greedy_actions(mdp, before, h, h[-1], measure)[0] for h in policy}
            after = ops.history_values(mdp, greedy)
            for h in policy:
                assert measure.value(after[h, greedy[h]]) >= measure.value(before[h, policy[h]]) - 1e-9
            policy = greedy
        (start,) = mdp.start
        reached = measure.value(ops.history_values(mdp, policy)[(start,), policy[start,]])
        assert reached == pytest.approx(rp.solve(mdp, measure, "history").value)


@seeds(2, 8)
@pytest.mark.parametrize("risk", MEASURES)
def test_history_optimality_is_nonexpansive_on_consistent_tables(risk, seeds, unchecked):
    measure = rp.parse_risk(risk)
    for seed in seeds:
        mdp, rng = random_mdp(seed), numbers(seed)
        first, second = (ops.consistent_table(mdp, random_table(mdp, rng)) for _ in range(2))
        before = distance(first, second, measure.value)
        first, second = (ops.history_optimality(mdp, table, measure) for table in (first, second))
        assert distance(first, second, measure.value) <= before + 1e-9


def test_history_optimality_expands_on_some_other_tables():
    # The risks of the two tables are equal everywhere (distance 0), but the laws at {s1} differ.
    mdp, risk = rp.ThreeState().mdp(), rp.CVaR(0.1)
    bet = mdp.reward_laws["s1", "risky"]
    keys = ops.history_values(mdp, dict.fromkeys(ops.histories(mdp), "risky"))
    first = {key: rp.Law.point(-10.0) for key in keys}
    second = {key: bet if key[0] == ("s1",) else rp.Law.point(-10.0) for key in keys}
    assert distance(first, second, risk.value) < 1e-9
    first, second = (ops.history_optimality(mdp, table, risk) for table in (first, second))
    assert distance(first, second, risk.value) == pytest.approx(99.0)


@seeds(2, 8)
@pytest.mark.parametrize("risk", MEASURES)
def test_trajectory_optimality_is_nonexpansive_on_all_tables_and_reaches_the_optimum(risk, seeds, unchecked):
    measure = rp.parse_risk(risk)
    for seed in seeds:
        mdp, rng = random_mdp(seed), numbers(seed)
        keys = ops.history_values(mdp, random_history_policy(mdp, rng))
        first, second = ({key: random_law(rng) for key in keys} for _ in range(2))
        for _ in mdp.layers:
            before = distance(first, second, measure.value)
            first, second = (ops.trajectory_optimality(mdp, table, measure) for table in (first, second))
            assert distance(first, second, measure.value) <= before + 1e-9
        (start,) = mdp.start
        best = max(measure.value(first[(start,), action]) for action in mdp.actions(start))
        assert best == pytest.approx(rp.solve(mdp, measure, "history").value)


@pytest.mark.parametrize("operator", [ops.risk_greedy_bellman, ops.history_optimality, ops.trajectory_optimality])
def test_operators_accept_the_text_of_a_measure(operator):
    mdp = random_mdp(0)
    policy = random_history_policy(mdp, numbers(0))
    table = ops.constant_table(mdp) if operator is ops.risk_greedy_bellman else ops.history_values(mdp, policy)
    by_text, by_measure = operator(mdp, table, "cvar:0.3"), operator(mdp, table, rp.CVaR(0.3))
    assert distance(by_text, by_measure, rp.Wang(0.5).value) == 0.0


def test_histories_need_deterministic_transitions_and_a_bounded_number(monkeypatch):
    with pytest.raises(rp.RiskpathError, match="need deterministic transitions"):
        ops.histories(rp.FiniteMDP.from_outcomes({("s", "go"): [(0.5, 1.0, "end"), (0.5, 1.0, "else")]}, "s"))
    monkeypatch.setattr(ops, "MAX_HISTORIES", 3)
    with pytest.raises(rp.RiskpathError, match="more than 3 histories"):
        ops.histories(rp.ThreeState().mdp())
