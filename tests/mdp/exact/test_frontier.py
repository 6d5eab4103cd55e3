"""The frontier: every CVaR level from one pass."""

import json

import numpy as np
import pytest

import riskpath as rp

INVENTORY = rp.make("Inventory").mdp()


def test_every_level_is_the_optimum_of_that_level(unchecked):
    found = rp.frontier(INVENTORY, [0.1, 1.0, 0.25])
    assert found.levels.tolist() == [0.1, 0.25, 1.0]
    assert found.exact
    assert found.values == pytest.approx([137.19073, 158.72785, 258.85614], abs=1e-4)
    solution = rp.solve(INVENTORY, "cvar:0.25")
    assert found.law(0.25).isclose(solution.law)
    assert solution.details["goal"] == pytest.approx(found.goals[1])
    assert found.means[-1] == found.means.max()
    assert found.law(0.1).risk("cvar:0.1") == found.values[0]
    policy = found.policy(0.25)
    assert INVENTORY.evaluate(policy).isclose(found.law(0.25))


def test_the_betting_game_is_solved_where_returns_have_no_unit(unchecked):
    mdp = rp.make("BettingGame", rounds=3).mdp(0.99)
    found = rp.frontier(mdp, [0.1, 0.25, 0.5, 1.0])
    assert found.optima.details["method"] == "search over thresholds"
    for level, value in zip(found.levels, found.values, strict=True):
        assert value == pytest.approx(rp.solve(mdp, rp.CVaR(float(level))).value)


def test_cvar_grows_with_the_level_and_the_frontier_is_data():
    found = rp.frontier(rp.ThreeState())
    assert (np.diff(found.values) >= -1e-9).all()
    data = json.loads(json.dumps(found.to_json()))
    assert data["problem"] == "ThreeState"
    assert [row["level"] for row in data["rows"]] == found.levels.tolist()
    assert set(data["rows"][0]) == {"level", "cvar", "mean", "goal"}
    assert "22 levels" in repr(found)


def test_the_plot_shows_every_level():
    pytest.importorskip("matplotlib")
    found = rp.frontier(rp.ThreeState(), [0.05, 0.1, 1.0])
    ax = found.plot(label="three")
    (line,) = ax.get_lines()
    assert line.get_ydata() == pytest.approx(found.values)
    assert line.get_xdata() == pytest.approx(found.means)
    assert [text.get_text() for text in ax.texts] == ["0.05", "0.1", "1"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rp.frontier(INVENTORY, [0.1, 0.0]), r"a CVaR level must be in \(0, 1\], got 0.0"),
        (lambda: rp.frontier(INVENTORY, [1.5]), r"a CVaR level must be in \(0, 1\], got 1.5"),
        (lambda: rp.frontier(INVENTORY, [10**400]), r"a CVaR level must be in \(0, 1\], got 1000"),
        (lambda: rp.frontier(INVENTORY, []), r"levels must be numbers in \(0, 1\], got \[\]"),
        (lambda: rp.frontier(INVENTORY, "0.1"), r"levels must be numbers in \(0, 1\], got '0.1'"),
        (lambda: rp.frontier(INVENTORY, [True]), r"a CVaR level must be in \(0, 1\], got True"),
        (lambda: rp.frontier("Inventory"), "needs a FiniteMDP, or an environment with a finite problem"),
        (lambda: rp.frontier(rp.ThreeState(), [0.1]).policy(0.2), "has no level 0.2; its levels are 0.1"),
        (lambda: rp.solve(INVENTORY, "cvar:0.1", tolerance=0.0), r"tolerance must be a number in \(0, 1\), got 0.0"),
        (
            lambda: rp.solve(INVENTORY, "cvar:0.1", "markov", randomised=True),
            'True needs policies="adaptive"',
        ),
    ],
)
def test_mistakes_are_one_line(call, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_progress_is_reported_step_by_step():
    seen = []
    rp.frontier(INVENTORY, [0.1], progress=lambda done, total: seen.append((done, total)))
    assert seen == [(step, 8) for step in range(1, 9)]
