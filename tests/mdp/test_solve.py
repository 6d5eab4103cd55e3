"""All solvers against closed forms, and the order of their values."""

import pytest

import riskpath as rp
from riskpath.mdp.solve import PolicyClass
from tests.mdp.problems import random_mdp, seeds

MEASURES = ["mean", "cvar:0.1", "cvar:0.5", "wang:-0.75", "wang:0.75", "pow:-2", "pow:2", "cpw:0.71"]
GRID = rp.RiskyGrid()

# (problem, measure, discount, markov, history, adaptive): derived by hand or by full enumeration.
KNOWN = [
    (rp.ThreeState(), "cvar:0.1", 1.0, -10.0, 79.0, 79.0),
    (GRID, "cvar:0.05", 1.0, 48.0, 56.75, 56.75),
    (GRID, "cvar:0.1", 1.0, 48.0, 72.375, 79.875),
    (GRID, "cvar:0.25", 1.0, 48.0, 119.25, 119.25),
    (GRID, "cvar:0.5", 1.0, None, 153.625, 156.125),
    (GRID, "wang:-0.75", 1.0, None, 157.418, 157.418),
    (GRID, "pow:-2", 1.0, None, 150.962, 150.962),
    (GRID, "pow:-5", 1.0, None, 115.629, 115.699),
    (GRID, "cpw:0.71", 1.0, None, 211.423, 211.423),
    (GRID, "cvar:0.1", 0.99, 47.11, 70.08, 77.28),
    # A grid whose best history policy differs from that of the mean: it takes the certain rewards.
    (rp.RiskyGrid(p_yellow=0.8, blue=38.0), "cvar:0.1", 1.0, None, 102.0, None),
]


@pytest.mark.parametrize(("env", "risk", "discount", "markov", "history", "adaptive"), KNOWN)
def test_known_optima(env, risk, discount, markov, history, adaptive):
    mdp = env.mdp(discount)
    expectations: dict[PolicyClass, float | None] = {"markov": markov, "history": history, "adaptive": adaptive}
    for policies, expected in expectations.items():
        solution = rp.solve(mdp, risk, policies)
        assert expected is None or solution.value == pytest.approx(expected, abs=6e-3 if discount < 1 else 6e-4)
        assert rp.parse_risk(risk).value(mdp.evaluate(solution.policy)) == pytest.approx(solution.value, abs=1e-9)
        assert mdp.evaluate(solution.policy).isclose(solution.law)


@pytest.mark.parametrize(
    ("risk", "policies", "path"),
    [
        ("cvar:0.1", "markov", "BBB"),
        ("cvar:0.1", "history", "YYY"),
        ("cvar:0.1", "adaptive", "YY(Y|B)"),
        ("cvar:0.25", "adaptive", "YYY"),
        ("cvar:0.1", "nested", "BBB"),
        ("mean", "markov", "YYY"),
    ],
)
def test_known_paths_on_the_grid(risk, policies, path):
    assert GRID.path(rp.solve(GRID.mdp(), risk, policies).policy) == path


@seeds(4, 11)
@pytest.mark.parametrize("risk", MEASURES)
def test_a_larger_policy_class_is_never_worse(risk, seeds, unchecked):
    first = 10 * MEASURES.index(risk)  # other problems for every measure
    for seed in {first + number for number in seeds} - {49}:  # whose many histories take 15 seconds
        mdp = random_mdp(seed, depth=3, width=2, starts=1 + seed % 2)
        markov, history, adaptive = (rp.solve(mdp, risk, c).value for c in ("markov", "history", "adaptive"))
        assert adaptive >= history - 1e-8, seed
        assert history >= markov - 1e-8, seed


@pytest.mark.parametrize("policies", ["markov", "history", "adaptive", "nested"])
def test_all_classes_agree_for_the_mean(policies, unchecked):
    for seed in range(12):
        mdp = random_mdp(seed, depth=3, width=3, starts=2)
        expected = sum(prob * _mean_value(mdp, state, 0) for state, prob in mdp.start.items())
        assert rp.solve(mdp, "mean", policies).value == pytest.approx(expected, abs=1e-9)


def _mean_value(mdp: rp.FiniteMDP, state, time: int) -> float:
    if mdp.is_terminal(state, time):
        return 0.0
    return max(
        sum(o.prob * (o.reward + mdp.discount * _mean_value(mdp, o.next, time + 1)) for o in listed)
        for listed in mdp.outcomes[state].values()
    )


def test_the_value_of_several_starts_is_the_risk_of_the_mixture():
    # A single start prefers the certain 0; in the mixture, the losses of one start hide the bets of the other.
    outcomes = {
        ("poor", "wait"): [(1.0, 0.0, "end")],
        ("poor", "bet"): [(0.9, 8.0, "end"), (0.1, -1.0, "end")],
        ("ruined", "accept"): [(1.0, -50.0, "end")],
    }
    mdp = rp.FiniteMDP.from_outcomes(outcomes, start={"poor": 0.75, "ruined": 0.25})
    solution = rp.solve(mdp, "cvar:0.25", "history")
    assert solution.value == pytest.approx(-50.0)
    assert rp.solve(mdp, "cvar:0.5", "history").value == pytest.approx(
        (-50 * 0.25 + 0.25 * (0.075 * -1 / 0.25 + 0.175 * 8 / 0.25)) / 0.5
    )


def test_a_wrong_argument_is_refused(unchecked):
    with pytest.raises(rp.RiskpathError, match="'markov', 'history', 'adaptive', 'nested', got 'best'"):
        rp.solve(GRID.mdp(), "mean", "best")  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(rp.RiskpathError, match="time_limit needs a problem on a grid"):
        rp.solve(GRID.mdp(), "mean", time_limit=5.0)


def test_too_large_problems_are_refused_in_one_line(monkeypatch):
    monkeypatch.setattr("riskpath.mdp.exact.return_graph.MAX_NODES", 50)
    with pytest.raises(rp.RiskpathError, match="more than 50 combinations of time, state and return so far"):
        rp.solve(GRID.mdp(), "wang:-0.75", "adaptive")
    monkeypatch.setattr("riskpath.mdp.exact.history_solver.MAX_LABEL_ATOMS", 10)
    with pytest.raises(rp.RiskpathError, match="the search over histories needs more than 10 atoms"):
        rp.solve(GRID.mdp(0.99), "cvar:0.1", "history")
