"""`solve`, the lists, and `reproduce`."""

import json

import pytest

import riskpath as rp
from riskpath.envs import BY_NAME
from riskpath.experiments import report
from riskpath.experiments import reproduce_grid as grid
from riskpath.experiments import reproduce_three_state as three_state
from tests.cli.conftest import NETWORK, TRAINING


def test_solve_prints_all_classes_with_the_policy_in_words(cli):
    status, out, _ = cli("solve", "RiskyGrid", "--risk", "cvar:0.1")
    assert status == 0
    for word in ("markov", "48", "nested", "history", "72.375", "adaptive", "79.875", "start (0,0): down"):
        assert word in out


def test_solve_lists_the_first_decisions_of_a_long_policy(cli):
    status, out, _ = cli("solve", "RandomMDP", "--risk", "cvar:0.25", "--set", "depth=5", "width=5")
    assert status == 0
    assert "more decisions" in " ".join(out.replace("│", " ").split())


def test_solve_adds_randomised_policies(cli):
    status, out, _ = cli("solve", "ThreeState", "--risk", "wang:0.75", "--randomised", "--json")
    record = json.loads(out)
    assert status == 0
    assert record["randomised"]["value"] >= record["adaptive"]["value"]
    assert "gap" in record["randomised"]


def test_frontier_prints_every_level_and_draws_them(cli, tmp_path):
    picture = tmp_path / "frontier.png"
    status, out, _ = cli("frontier", "ThreeState", "--levels", "0.1", "0.5", "1", "--out", str(picture))
    assert status == 0
    assert [line.split("│")[1].strip() for line in out.splitlines() if "│" in line] == ["0.1", "0.5", "1"]
    assert " 79 " in out
    assert picture.read_bytes()[:4] == b"\x89PNG"
    _, out, _ = cli("frontier", "ThreeState", "--levels", "0.1", "--json")
    assert json.loads(out)["rows"][0]["cvar"] == 79.0
    _, out, _ = cli("frontier", "RiskyGrid", "--risk", "cvar:0.1", "--floors", "79", "75", "--json")
    assert [round(row["mean"], 4) for row in json.loads(out)["rows"]][1] == 193.3375


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("frontier", "ThreeState", "--levels", "1.5"), "a CVaR level must be in (0, 1], got 1.5"),
        (("frontier", "runs/none"), "there is no folder runs/none; give a saved run or the name of a problem"),
        (("frontier", "ThreeState", "--floors", "79"), "--floors needs --risk, the measure that has the floors"),
        (("frontier", "Inventory", "--env", "a:B-v0"), "--env is the environment of a saved run, and there is no"),
        (("frontier", "RiskyMountainCar"), "RiskyMountainCar has no exact solution; AmericanPut, AutonomousVehicle"),
        (("solve", "CartPole-v1"), "CartPole-v1 has no exact solution"),
    ],
)
def test_problems_without_an_exact_solution_are_one_line(cli, arguments, message):
    status, _, error = cli(*arguments)
    assert status == 2
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_solve_prints_json(cli):
    status, out, _ = cli("solve", "RiskyGrid", "--risk", "cvar:0.1", "--discount", "0.99", "--json")
    record = json.loads(out)
    assert status == 0
    assert record["history"]["value"] == pytest.approx(70.08, abs=0.01)
    assert record["adaptive"]["value"] == pytest.approx(77.28, abs=0.01)
    assert record["nested"]["nested_value"] == pytest.approx(47.11, abs=0.01)
    assert sum(record["history"]["law"]["probs"]) == pytest.approx(1.0)


def test_solve_takes_floors(cli):
    floors = ("--risk", "mean", "--subject-to", "cvar:0.1=79", "reach:0=0.9")
    status, out, _ = cli("solve", "RiskyGrid", *floors)
    assert status == 0
    assert "193.338 (draws one of 2 policies at the start; cvar:0.1 79" in " ".join(out.split())
    record = json.loads(cli("solve", "RiskyGrid", *floors, "--json")[1])
    assert record["subject_to"] == {"cvar:0.1": 79.0, "reach:0": 0.9}
    assert record["value"] == pytest.approx(193.3375)
    assert len(record["components"]) == 2
    for wrong in ("cvar:0.1", "cvar:0.1=x"):
        status, _, error = cli("solve", "RiskyGrid", "--subject-to", wrong)
        assert (status, len(error.strip().splitlines())) == (2, 1)
        assert f"--subject-to needs RISK=FLOOR, for example cvar:0.1=50, got {wrong!r}" in error


@pytest.mark.parametrize("risk", ["evar:0.1", "entropic:0.01", "var:0.1", "reach:100"])
def test_solve_takes_every_measure(cli, risk):
    status, out, _ = cli("solve", "RiskyGrid", "--risk", risk, "--json")
    assert status == 0
    assert json.loads(out)["adaptive"]["optimal"]


def test_solve_sets_fields_of_the_problem(cli):
    _, out, _ = cli("solve", "RiskyGrid", "--set", "p_yellow=0.8", "blue=38", "--json")
    assert json.loads(out)["history"]["value"] == pytest.approx(102.0)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("agents", ["CVaRDRL", "IQN", "IQTD3", "QRSRM", "TQL", "TQLContinuous"]),
        ("envs", [*BY_NAME, "any"]),
        (
            "risks",
            ["mean", "cvar:LEVEL", "wang:LEVEL", "evar:LEVEL", "worst", "spectral:TABLE", "0.7*mean+0.3*cvar:0.1"],
        ),
    ],
)
def test_a_list_has_one_line_for_each_entry(cli, command, names):
    status, out, _ = cli(command)
    assert status == 0
    first = [line.split()[0] for line in out.splitlines()]
    assert [name for name in first if name in names] == names
    assert all(20 < len(line) <= 120 for line in out.splitlines() if line.split()[0] in names)


def test_an_agent_of_the_users_own_is_listed(cli):
    class Daring(rp.IQN):
        """IQN with another name."""

    assert "Daring" in cli("agents")[1]
    assert "there are" not in cli("train", "--agent", "daring", "--steps", "0")[2]


def test_reproduce_trains_one_part_and_prints_and_draws_it(cli, monkeypatch, tmp_path, unchecked):
    agent = rp.IQN(rp.CVaR(0.1), network=NETWORK, training=TRAINING)
    parts = [grid.Program("IQN", [(agent, grid.GRID)], 80), grid.Program("TQL", [], 80)]
    monkeypatch.setattr(grid, "programs", lambda quick: parts)
    status, out, _ = cli("reproduce", "grid", "--seeds", "2", "--only", "IQN", "--out", str(tmp_path))
    assert status == 0
    assert "72.375" in out
    assert {"grid.json", "grid_curves.png", "grid_returns.png", "grid_paths.md"} <= {p.name for p in tmp_path.iterdir()}
    records = json.loads((tmp_path / "grid.json").read_text())["records"]
    assert [(r["agent"], r["seed"]) for r in records] == [("IQN", 0), ("IQN", 1)]


def test_reproduce_three_state_prints_the_first_figure_and_the_policies(cli, monkeypatch):
    lane = {"agent": "TQL", "seed": 3, "actions": ["risky", "safe"], "value": 46.5}
    result = {"risk": "cvar:0.1", "first_figure": three_state.first_figure(), "policies": [lane]}
    calls = []

    def fake(out, **options):
        calls.append((str(out), options["quick"], options["seeds"]))
        return {**result, "device": "cpu", "seconds": 1.0}

    entry = report.EXPERIMENTS["three-state"]._replace(reproduce=fake)
    monkeypatch.setitem(report.EXPERIMENTS, "three-state", entry)
    status, out, _ = cli("reproduce", "three-state")
    assert status == 0
    for words in ("Z*", "T*Z", "79", "risky, safe", "46.5", "results are in results"):
        assert words in out
    cli("reproduce", "three-state", "--quick")
    cli("reproduce", "three-state", "--seeds", "5")
    assert calls == [("results", False, 8), ("runs", True, 2), ("runs", False, 5)]
