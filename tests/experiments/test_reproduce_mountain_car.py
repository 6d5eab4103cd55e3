"""The mountain-car experiment: agents, groups of cells, records, and the comparison with the control."""

import json
from pathlib import Path

import pytest

import riskpath as rp
from riskpath.experiments import mountain_car_figures
from riskpath.experiments import reproduce_mountain_car as mountain_car

RESULTS = Path(__file__).parent.parent.parent / "results"


@pytest.mark.parametrize("name", mountain_car.AGENTS)
def test_learning_rates_are_constant_for_the_first_half_of_training(name):
    agent = mountain_car.agent_for(name, rp.CVaR(0.25))
    assert isinstance(agent.training, rp.Training)
    assert (agent.training.decay_starts, agent.training.decay_ends) == (0.5, 1.0)
    assert isinstance(agent, rp.TQLContinuous if "TQL" in name else rp.IQTD3)


def test_the_control_is_trained_once_for_each_weight():
    cells = [(0.1, "cvar:0.25"), (0.1, "pow:-2"), (0.5, "pow:-2")]
    assert mountain_car.cells_of("mean control", cells) == [(0.1, "mean"), (0.5, "mean")]
    assert mountain_car.cells_of("IQTD3", cells) == cells


@pytest.mark.parametrize("name", ["IQTD3", "TQL joint"])
def test_groups_contain_every_cell_once(name):
    cells = [(c, m) for c in mountain_car.WEIGHTS for m in mountain_car.MEASURES]
    groups = mountain_car._groups(name, cells, 6)
    assert [cell for group in groups for cell in group] == cells
    assert mountain_car._groups(name, [], 6) == []


def record(agent: str, c: float, risk: str, beta: float) -> dict:
    return {"agent": agent, "c": c, "risk": risk, "beta": beta, "seed": 0}


@pytest.mark.parametrize(
    ("tql", "cells", "hardly", "words"),
    [
        (0.9, 30, True, "in 30 of 30 cells"),
        (1.1, 30, True, "in 0 of 30 cells"),
        (3.0, 30, False, "between 2.00 and 2.00"),
        (0.9, 1, False, "in 1 of 1 cells"),
    ],
)
def test_the_verdict_says_how_much_risk_awareness_is_worth(tql, cells, hardly, words):
    pairs = [(c, risk) for c in mountain_car.WEIGHTS for risk in mountain_car.MEASURES][:cells]
    rows = [record("TQL convolved", *pair, tql) for pair in pairs] + [
        record("mean control", *pair, 1) for pair in pairs
    ]
    text = mountain_car.verdict({"records": rows})
    assert words in text
    assert ("hardly needs risk awareness" in text) == hardly


def test_there_is_no_verdict_without_results():
    assert mountain_car.verdict({"records": []}) == ""


def test_committed_tables_are_made_of_committed_results():
    result = json.loads((RESULTS / "mountain_car_run.json").read_text())
    assert mountain_car_figures.tables(result) == (RESULTS / "mountain_car.md").read_text()
    final = json.loads((RESULTS / "mountain_car.json").read_text())
    assert [{key: value for key, value in one.items() if key != "curve"} for one in result["records"]] == final


def test_groups_are_run_stored_and_not_run_again(tmp_path, monkeypatch):
    ran: list[tuple[str, int]] = []

    def run(self: mountain_car.CarGroup, report: object = None) -> dict:
        ran.append((self.agent, len(self.group)))
        rows = [
            {**record(self.agent, c, measure, 1.0), "trained_for": trained, "curve": []}
            for (c, trained), measures in zip(self.group, self.judged, strict=True)
            for measure in measures
        ]
        return {"records": rows, "seconds": 2.0, "device": "of a node"}

    monkeypatch.setattr(mountain_car.CarGroup, "run", run)
    cells = [(0.1, "cvar:0.25"), (0.1, "pow:-2"), (0.5, "pow:-2")]
    first = mountain_car.reproduce(tmp_path, only="control", cells=cells, show=lambda _: None)
    assert [(r["c"], r["risk"], r["trained_for"]) for r in first["records"]] == [(*cell, "mean") for cell in cells]
    whole = mountain_car.reproduce(tmp_path, cells=cells, show=lambda _: None)
    assert ran == [("mean control", 2), ("IQTD3", 3), ("TQL convolved", 3), ("TQL joint", 3)]
    assert [r["agent"] for r in whole["records"]] == [name for name in mountain_car.AGENTS for _ in cells]
    assert (whole["seconds"], whole["device"]) == (8.0, "of a node")
    assert mountain_car.reproduce(tmp_path, cells=cells)["records"] == whole["records"]
    assert len(ran) == 4
    group = mountain_car.CarGroup("IQTD3", tuple(cells), tuple((m,) for _, m in cells), 100, 1, True)
    assert [one for part in group.split() for one in part.group] == cells


def test_an_interruption_is_not_a_result(tmp_path, monkeypatch):
    monkeypatch.setattr(mountain_car.CarGroup, "run", lambda self, report=None: None)
    with pytest.raises(KeyboardInterrupt, match="interrupted: 3 runs are left; the same command continues with them"):
        mountain_car.reproduce(tmp_path, only="joint", seeds=3, quick=True, show=lambda _: None)
    assert [*tmp_path.iterdir()] == []
