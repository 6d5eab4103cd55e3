"""The best policy under floors, against linear programs over an enumeration of all policies."""

from typing import Any

import numpy as np
import pytest
import scipy.optimize

import riskpath as rp
from tests.mdp.problems import all_adaptive_laws, random_mdp

GRID = rp.make("RiskyGrid").mdp()


class Enumerated:
    """All deterministic adaptive policies of a problem, as columns of probabilities."""

    def __init__(self, mdp):
        (start,) = mdp.start
        laws = all_adaptive_laws(mdp, start)
        self.z = np.array(sorted({x for law in laws for x in law}))
        self.probs = np.array([[law.get(x, 0.0) for x in self.z] for law in laws]).T

    def best(self, objective, margins):
        """Return the best mean utility of a mixture whose mean margins are at least 0."""
        rows, count = -np.array(margins) @ self.probs, self.probs.shape[1]
        options = {"primal_feasibility_tolerance": 1e-10}
        answer = scipy.optimize.linprog(
            -(objective @ self.probs), rows, np.zeros(len(margins)), np.ones((1, count)), [1.0], options=options
        )
        return -answer.fun if answer.status == 0 else -np.inf


@pytest.fixture(scope="module")
def grid():
    return Enumerated(GRID)


def agree(found, best, *floors):
    assert found.value == pytest.approx(best, abs=1e-6 * max(1, abs(best)))
    assert sum(part.prob for part in found.components) == pytest.approx(1)
    law = found.mdp.evaluate(found.policy)  # the policy can be played, and has the law of the solution
    assert law.isclose(found.law, 1e-9)
    for measure, floor in floors:
        assert law.risk(measure) >= floor - 1e-6 * max(1, abs(floor))


@pytest.mark.parametrize(("level", "floor"), [(0.1, 60.0), (0.1, 75.0), (0.1, 79.875), (0.5, 155.0), (0.25, 119.25)])
def test_the_best_mean_with_a_floor_under_cvar(grid, level, floor, unchecked):
    z = grid.z
    best = max(grid.best(z, [level * (b - floor) + np.minimum(z - b, 0.0)]) for b in z)
    found = rp.solve(GRID, "mean", subject_to={f"cvar:{level}": floor})
    agree(found, best, (f"cvar:{level}", floor))
    assert found.optimal
    assert found.bounds is not None
    assert found.bounds[1] >= best - 1e-7


def test_floors_that_are_linear_are_proven_together(grid):
    z = grid.z
    margins = [np.where(z >= 100, 1.0, 0.0) - 0.93, 1 - np.exp(-0.02 * (z - 120.0)), np.where(z >= 20, 1.0, 0.0) - 0.95]
    found = rp.solve(GRID, "mean", subject_to={"reach:100": 0.93, "entropic:0.02": 120.0, "var:0.05": 20.0})
    agree(found, grid.best(z, margins), ("reach:100", 0.93), ("entropic:0.02", 120.0), ("var:0.05", 20.0))
    assert found.optimal
    assert "draws one of" in found.report or len(found.components) == 1


@pytest.mark.parametrize("floor", [37.0])
def test_the_best_mean_with_a_floor_under_evar(grid, floor, unchecked):
    z = grid.z
    exponents = np.geomspace(0.1, 0.8, 60)[:, None] * -(z - floor)
    best = max(
        grid.best(z, [0.1 - np.exp(np.minimum(row, 18.0)) * (1 + np.maximum(row - 18.0, 0.0))]) for row in exponents
    )
    found = rp.solve(GRID, "mean", subject_to={"evar:0.1": floor})
    assert found.value >= best - 1e-6
    assert found.law.risk("evar:0.1") >= floor - 1e-4
    assert not found.optimal
    assert "best known" in found.report


def test_floors_under_random_transitions_and_other_objectives():
    mdp = random_mdp(2, deterministic=False, depth=3)
    every = Enumerated(mdp)
    z, mean = every.z, rp.solve(mdp, "mean").value
    floor = mean - 0.3
    expected = max(every.best((b + np.minimum(z - b, 0.0) / 0.2), [z - floor]) for b in z)
    agree(rp.solve(mdp, "cvar:0.2", subject_to={"mean": floor}), expected, ("mean", floor))
    expected = -np.log(-every.best(-np.exp(-0.5 * z), [z - floor])) / 0.5
    agree(rp.solve(mdp, "entropic:0.5", subject_to={"mean": floor}), expected, ("mean", floor))
    reached = [b for b in z if every.best(z, [z - floor, (z >= b) - 0.8]) > -np.inf]
    agree(rp.solve(mdp, "var:0.2", subject_to={"mean": floor}), max(reached), ("mean", floor))


def test_two_floors_with_thresholds_are_the_best_known(grid, unchecked):
    z, floors = grid.z, {"cvar:0.1": 72.0, "cvar:0.5": 154.0}
    best = max(
        grid.best(z, [0.1 * (a - 72.0) + np.minimum(z - a, 0.0), 0.5 * (b - 154.0) + np.minimum(z - b, 0.0)])
        for a in z
        for b in z
    )
    found = rp.solve(GRID, "mean", subject_to=floors)
    agree(found, best, *floors.items())
    assert not found.optimal


def test_a_floor_that_cannot_be_had_is_answered_with_the_best_that_can():
    found = rp.solve(GRID, "mean", subject_to={"cvar:0.1": 90.0})
    assert found.law.risk("cvar:0.1") == 79.875
    assert found.report == "no policy reaches cvar:0.1 ≥ 90; this one has the largest, 79.875"
    assert found.details["feasible"] is False
    both = rp.solve(GRID, "mean", subject_to={"cvar:0.1": 79.875, "mean": 213.0})
    assert "no policy is known that reaches all floors" in both.report


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"subject_to": {"cvar:0.1": float("nan")}}, "the floor of cvar:0.1 must be a finite number, got nan"),
        ({"subject_to": {"cvar:0.1": "50"}}, "the floor of cvar:0.1 must be a finite number, got '50'"),
        ({"subject_to": {"cvar:2": 50}}, r"CVaR level must be in \(0, 1\], got 2"),
        ({"subject_to": {}}, "subject_to must be a dict such as"),
        ({"subject_to": 50.0}, "subject_to must be a dict such as"),
        ({"subject_to": {"cvar:0.1": 1.0}, "policies": "markov"}, 'subject_to needs policies="adaptive"'),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_floors_are_answered_in_one_line(arguments: Any, line):
    with pytest.raises(rp.RiskpathError, match=line):
        rp.solve(GRID, "mean", **arguments)


def test_the_frontier_falls_from_the_best_mean_to_the_best_risk(unchecked):
    found = rp.frontier(GRID, risk="cvar:0.1", floors=5)
    assert found.means[0] == pytest.approx(213.0)
    assert found.values[-1] == pytest.approx(79.875)
    assert (np.diff(found.means) <= 1e-6).all()
    assert (found.values >= found.floors - 1e-6).all()
    assert found.to_json()["rows"][2]["floor"] == found.floors[2]
    ax = found.plot(floor=float(found.floors[2]))
    assert ax.get_xlabel() == "cvar:0.1 of the whole return"
    marked = [line for line in ax.lines if len(line.get_xdata()) == 1]
    assert marked[0].get_ydata()[0] == pytest.approx(found.means[2])
    for floors in (1, "x", [float("inf")]):
        with pytest.raises(rp.RiskpathError, match="floors"):
            rp.frontier(GRID, risk="cvar:0.1", floors=floors)
