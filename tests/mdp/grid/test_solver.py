"""The grid solver against the exact solvers on grids that lose nothing, and against simulation on others."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath import memory
from riskpath.mdp.grid.layout import layout
from riskpath.mdp.grid.other_measures import greedy_tables
from riskpath.mdp.grid.utility import ReturnAxis
from tests.mdp.problems import normal_sum

PROBS = (0.25, 0.5, 0.25)
STEPS = 3
PAYS = ((0.0, 0.0), (1.0, -1.0), (2.0, -3.0))
"""(reward of the decision, change of level) of the three actions."""


@functools.cache
def lottery(discount: float = 1.0) -> rp.GridProblem:
    """Return a problem of levels 0, …, 4: actions pay and lower the level, chance moves it and pays level × noise."""

    def decide(time, state, action):
        paid, change = action
        ends = (paid > 1.5) & (time == 1)  # the boldest action ends the episode at the second step
        return (jnp.clip(state[0] + change, 0.0, 4.0),), paid, ends

    def move(time, post, noise):
        return (jnp.clip(post[0] + noise, 0.0, 4.0),), post[0] * noise

    return rp.GridProblem(
        axes={"level": np.arange(5.0)},
        actions=PAYS,
        steps=STEPS,
        start={"level": 2.0},
        noise=rp.finite_noise([-1.0, 0.0, 1.0], PROBS),
        decide=decide,
        move=move,
        finish=lambda state: 2.0 * state[0],
        discount=discount,
        return_points=201,
        name="lottery",
    )


def lottery_mdp(discount: float = 1.0) -> rp.FiniteMDP:
    """Return the same problem as a table; the state is (time, level), and the end pays within the last step."""
    outcomes = {}
    for time in range(STEPS):
        for level in range(5):
            for number, (paid, change) in enumerate(PAYS):
                if number == 2 and time == 1:
                    outcomes[(time, level), number] = [(1.0, paid, "end")]
                    continue
                post = int(np.clip(level + change, 0, 4))
                listed = []
                for noise, prob in zip((-1, 0, 1), PROBS, strict=True):
                    after = int(np.clip(post + noise, 0, 4))
                    last = time == STEPS - 1
                    reward = paid + post * noise + (discount * 2.0 * after if last else 0.0)
                    listed.append((prob, reward, "end" if last else (time + 1, after)))
                outcomes[(time, level), number] = listed
    return rp.FiniteMDP.from_outcomes(outcomes, start=(0, 2), discount=discount)


@pytest.mark.parametrize(
    "risk",
    [
        *("cvar:0.25", "0.5*mean+0.5*cvar:0.2"),
        *(pytest.param(risk, marks=pytest.mark.long) for risk in ("cvar:0.05", "cvar:0.6", "mean", "cvar:1")),
    ],
)
def test_a_grid_that_loses_nothing_gives_the_exact_value(risk):
    exact = rp.solve(lottery_mdp(), risk)
    solution = rp.solve(lottery(), risk, episodes=4000)
    assert solution.value == pytest.approx(exact.value, abs=1e-5)
    assert (solution.upper_kind, solution.optimal) == ("exact grid", True)
    assert solution.interval[0] - 0.1 <= exact.value <= solution.interval[1] + 0.1
    assert lottery_mdp().evaluate(_in_table(solution.policy)).risk(risk) == pytest.approx(exact.value, abs=1e-5)


def _in_table(policy):
    """Return a policy of the grid as one of the table, whose states are (time, level)."""
    return lambda state, memory, reward: policy([float(state[1])], memory, reward)


@pytest.mark.parametrize("risk", ["cvar:0.1", "cvar:0.5", "wang:-0.75", "pow:-2", "cpw:0.71", "mean"])
def test_per_step_greedy_policies_agree_with_the_table(risk):
    solution = rp.solve(lottery(), risk, "markov", episodes=4000)
    exact = rp.solve(lottery_mdp(), risk, "markov")
    assert lottery_mdp().evaluate(_in_table(solution.policy)).risk(risk) == pytest.approx(exact.value, abs=1e-5)
    assert solution.report == ("mean-optimal" if risk == "mean" else "per-step greedy")
    assert (solution.upper is None) == (risk != "mean")


def test_rounding_up_bounds_the_optimum_where_rewards_have_no_common_unit():
    exact = rp.solve(lottery_mdp(0.93), "cvar:0.25").value
    solution = rp.solve(lottery(0.93), "cvar:0.25", episodes=4000)
    assert solution.upper_kind == "consistent rounding"
    assert solution.upper is not None
    assert exact <= solution.upper <= exact + 1.5
    assert solution.value == pytest.approx(exact, abs=0.05)


@pytest.mark.long
def test_utility_iteration_finds_the_best_known_value():
    exact = rp.solve(lottery_mdp(), "pow:-2").value
    solution = rp.solve(lottery(), "pow:-2", episodes=50_000)
    assert solution.report == "utility iteration, best known"
    assert lottery_mdp().evaluate(_in_table(solution.policy)).risk("pow:-2") == pytest.approx(exact, abs=0.15)


def test_all_levels_come_from_one_pass():
    calls = []
    levels = (1.0, 0.05, 0.25, 0.25)
    found = rp.frontier(lottery(), levels, progress=lambda step, total: calls.append((step, total)))
    assert calls == [(1, 3), (2, 3), (3, 3)]
    assert found.levels.tolist() == [0.05, 0.25, 1.0]
    assert not found.exact
    for level, upper, value in zip(found.levels, found.upper, found.values, strict=True):
        assert upper == pytest.approx(rp.solve(lottery_mdp(), rp.CVaR(float(level))).value, abs=1e-5)
        assert value == pytest.approx(upper, abs=0.4)
    assert set(found.rows()[0]) == {"level", "cvar", "mean", "goal", "value on the grid"}


def test_cvar_of_a_row_is_that_of_its_law():
    plan = layout(normal_sum())
    axis = ReturnAxis.over(-7.0, 7.0, 401)
    tables = greedy_tables(plan, axis, rp.CVaR(0.9))
    # the last step pays h (0.3 + N(0, 1)): its CVaR at 0.9 is h (0.3 − φ(z)/0.9)
    np.testing.assert_allclose(tables[1], np.linspace(0, 1, 11) * (0.3 - 0.17549833 / 0.9), atol=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"risk": "cvar:0"}, r"CVaR level must be in \(0, 1\], got 0"),
        ({"risk": "cvar:1.5"}, r"CVaR level must be in \(0, 1\], got 1\.5"),
        ({"policies": "history"}, "policies on a grid must be one of 'adaptive', 'markov', got 'history'"),
        ({"problem": lottery_mdp(), "episodes": 100}, "episodes needs a problem on a grid"),
        ({"episodes": 1}, "episodes must be at least 2, got 1"),
        ({"time_limit": 0}, "time_limit must be more than 0, got 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message):
        rp.solve(**({"problem": lottery(), "risk": "mean"} | arguments))


@pytest.mark.parametrize(
    ("levels", "message"), [((0.0,), "got 0"), ((0.5, 2.0), "got 2"), ((), "levels must be numbers in")]
)
def test_levels_outside_of_0_and_1_are_refused(levels, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message):
        rp.frontier(lottery(), levels)


def test_a_grid_that_does_not_fit_is_refused_before_it_is_filled(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 2_000_000)
    message = "500 level × 100,000 returns × 3 steps needs about 2.35 GB, and 2 MB are free: use .* 84 returns"
    with pytest.raises(rp.RiskpathError, match=message):
        rp.solve(lottery().on_grid({"level": np.linspace(0, 4, 500)}, 100_000), "mean")


def test_an_interrupt_in_progress_ends_the_solver():
    def stop(step: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rp.solve(lottery(), "cvar:0.5", progress=stop)


def test_a_solution_reports_itself():
    solution = rp.solve(lottery(), "cvar:0.25", episodes=4000)
    text = solution.describe()
    assert all(word in text for word in ("lower", "upper", "exact grid", "cells", "quantiles"))
    data = solution.to_json()
    assert (data["risk"], data["value"], data["goal"]) == ("cvar:0.25", solution.value, solution.goal)
    assert solution.law.risk("cvar:0.25") == pytest.approx(solution.lower, abs=0.02)
    assert solution.memory_bytes > 3 * 5 * 4
    assert len(solution.plot().lines) == 1
    with pytest.raises(rp.RiskpathError, match="an episode of lottery has 3 steps"):
        solution.policy([2.0], (2, 0.0), 0.0)
