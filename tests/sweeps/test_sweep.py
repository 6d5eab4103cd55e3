"""Sweeps: cells and blocks, stored results, retries and halves, tables, and one line for every mistake."""

import csv
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import riskpath as rp
from riskpath.mdp.policy_evaluation import TooManySituations
from riskpath.sweeps.axes import label
from riskpath.sweeps.result import COLUMNS, stored_plan
from riskpath.sweeps.store import difference
from riskpath.sweeps.sweep_cells import EVALUATION_SEED, SweepCell, evaluated
from riskpath.sweeps.sweep_plan import SweepPlan, unfinished
from riskpath.training import lane_memory
from tests.sweeps.tiny_sweep import TINY

AXES = {"risk.level": [0.1, 0.5], "discount": [0.9, 0.99, 1.0]}


def plan(over: dict[str, list[Any]] = AXES, seeds: int = 2, env: Any = "ThreeState", **others: Any) -> SweepPlan:
    how: dict[str, Any] = {"steps": 100, "num_envs": 1, "seed": 0, "evaluate_every": None, "episodes": None, **others}
    return SweepPlan(TINY, env, over, seeds=seeds, **how)


@pytest.mark.parametrize(
    ("over", "sizes"),
    [
        (AXES, [6]),
        ({"network.hidden": [(4,), (8,)], "risk.level": [0.1, 0.5]}, [2, 2]),
        ({"risk": ["cvar:0.1", "cvar:0.5", "wang:0.5", "mean"]}, [2, 1, 1]),
        ({"env.p_yellow": [0.8, 0.9], "discount": [0.9, 1]}, [4]),
        ({"env.forks": [3, 4]}, [1, 1]),
        ({"env": ["ThreeState", "RiskyGrid"]}, [1, 1]),
    ],
)
def test_combinations_that_differ_in_numbers_share_a_program(over, sizes):
    assert [len(group) for group in plan(over, env="RiskyGrid").groups()] == sizes


@pytest.mark.parametrize("seeds", [1, 5])
@pytest.mark.parametrize("width", [1, 3, 100])
@pytest.mark.parametrize("devices", [1, 2])
def test_every_lane_is_in_one_block_which_does_not_depend_on_the_devices(seeds, width, devices):
    def blocks(cell: SweepCell) -> list[list[Any]]:
        lanes, size = cell.lanes(), len(cell.lanes()) // cell.blocks
        return [lanes[start : start + size] for start in range(0, len(lanes), size)]

    alone, together = plan(seeds=seeds).cells(width), plan(seeds=seeds).cells(width, devices)
    assert sorted(lane for cell in alone for lane in cell.lanes()) == [(c, s) for c in range(6) for s in range(seeds)]
    assert [block for cell in together for block in blocks(cell)] == [cell.lanes() for cell in alone]
    assert all(len(cell.lanes()) <= width * cell.blocks and cell.blocks <= devices for cell in together)
    for cell in together:
        parts = cell.split()
        assert [lane for part in parts for lane in part.lanes()] == (cell.lanes() if cell.size > 1 else [])
        if cell.blocks > 1:  # blocks stay whole
            assert [block for part in parts for block in blocks(part)] == blocks(cell)
        half = set(parts[0].lanes()) if parts else set()
        assert unfinished(cell, half) == ([parts[1]] if parts else [cell])
        assert unfinished(cell, set(cell.lanes())) == []


def test_lanes_are_limited_by_memory(monkeypatch):
    agent, needed = TINY, lane_memory.lane_bytes(TINY, "ThreeState", 1)
    rows = agent.training.buffer_size * 4
    assert lane_memory.COPIES * rows * 8 < needed < lane_memory.COPIES * rows * 20 + lane_memory.ROOM
    for lanes in (1, 3, 1_000):
        monkeypatch.setattr(lane_memory, "memory", lambda lanes=lanes: needed * (lanes + 0.5) / lane_memory.SHARE)
        assert lane_memory.lanes_that_fit(agent, "ThreeState", 1, 12) == min(lanes, 12)
    assert plan().width(devices=1, machines=1) == 12
    assert plan().width(devices=4, machines=1) == 3
    assert plan().width(devices=1, machines=5) == 3
    assert plan(max_lanes=7).width(devices=4, machines=1) == 7


class Trained:
    """Stands in for training: notes which cells are trained, and fails where it is told to."""

    def __init__(self):
        self.cells: list[SweepCell] = []
        self.bad: set[Any] = set()
        """Lanes that fail always."""
        self.fail_first = 0
        self.widest = 100
        self.interrupt_after = 100

    def run(self, cell: SweepCell) -> dict[str, Any] | None:
        self.cells.append(cell)
        if len(self.cells) > self.interrupt_after:
            return None
        if len(self.cells) <= self.fail_first:
            raise OSError("the disk is full")
        if len(cell.lanes()) > self.widest:
            raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")
        if self.bad & set(cell.lanes()):
            raise rp.RiskpathError("the loss was not a finite number")
        return {"lanes": [self.lane(cell, *lane) for lane in cell.lanes()]}

    @staticmethod
    def lane(cell: SweepCell, number: int, seed: int) -> dict[str, Any]:
        one = next(one for one in cell.combinations if one.number == number)
        value = {"value": 10.0 * number + seed, "low": 0.0, "high": 0.0, "mean": 0.0, "estimate": 0.0}
        rest = {"episodes": None, "steps": 100, "seconds": 1.0, "curve": []}
        return {"combination": number, **one.settings, "seed": seed, **value, **rest}


@pytest.fixture
def trained(monkeypatch) -> Trained:
    stand_in = Trained()
    monkeypatch.setattr(SweepCell, "run", lambda self, report=None: stand_in.run(self))
    return stand_in


def sweep(**others: Any) -> rp.Sweep:
    return rp.sweep(TINY, "ThreeState", **{"over": AXES, "steps": 100, "seeds": 2, "max_lanes": 2, **others})


def test_an_interrupted_sweep_goes_on_where_it_was(trained, tmp_path):
    trained.interrupt_after = 2
    first = sweep(out=tmp_path)
    assert (len(first.lanes), first.missing, first.failed) == (4, 8, {})
    assert len(rp.load_sweep(tmp_path).lanes) == 4
    trained.interrupt_after = 100
    lines: list[str] = []
    whole = sweep(out=tmp_path, progress=lines.append)
    assert len(trained.cells) == 3 + 4  # the third was interrupted
    assert lines[0] == "2 of 6 cells done"
    assert lines[1].startswith(("3 of 6 cells done, about ", "3 of 6 cells done, at most "))
    assert [(lane["combination"], lane["seed"]) for lane in whole.lanes] == [(c, s) for c in range(6) for s in (0, 1)]
    assert rp.load_sweep(tmp_path).rows() == whole.rows() == sweep().rows()
    assert sweep(out=tmp_path).rows() == whole.rows()
    assert len(trained.cells) == 7 + 6
    assert stored_plan(tmp_path).configuration() == json.loads((tmp_path / "sweep.json").read_text())["configuration"]


def test_a_failing_cell_is_retried_then_halved_then_reported_while_the_rest_goes_on(trained, tmp_path):
    trained.fail_first = 1
    assert sweep(max_lanes=100).missing == 0
    assert len(trained.cells) == 2
    trained.bad = {(3, 1)}
    result = sweep(max_lanes=100, out=tmp_path)
    assert result.missing == 1
    assert result.failed == {"risk.level=0.5, discount=0.9, seed 1": "the loss was not a finite number"}
    assert rp.load_sweep(tmp_path).failed == result.failed
    trained.bad, before = set(), len(trained.cells)
    assert sweep(max_lanes=100, out=tmp_path).missing == 0  # the same call tries again
    assert [cell.lanes() for cell in trained.cells[before:]] == [[(3, 1)]]
    assert rp.load_sweep(tmp_path).failed == {}


def test_a_cell_that_does_not_fit_into_memory_is_halved(trained):
    trained.widest = 3
    assert sweep(max_lanes=100, retries=0).missing == 0
    assert [len(cell.lanes()) for cell in trained.cells] == [12, 6, 6, 2, 4, 2, 4, 2, 2, 2, 2]
    trained.widest = 0
    assert all("RESOURCE_EXHAUSTED" in line for line in sweep().failed.values())


def test_tables(trained, tmp_path, monkeypatch):
    result = sweep()
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert result.best(at={"risk.level": 0.5}) == {
        "combination": 5,
        "risk.level": 0.5,
        "discount": 1.0,
        "seeds": 2,
        "value": 50.5,
        "least": 50.0,
        "most": 51.0,
    }
    with result.to_csv(tmp_path / "table.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [float(row["value"]) for row in read] == [row["value"] for row in result.rows()]
    assert list(read[0]) == list(result.rows()[0])
    assert repr(result) == "<Sweep over risk.level, discount: 12 lanes>"
    with pytest.raises(rp.RiskpathError, match=r"unknown column 'vale' \(did you mean value\?\)"):
        result.best("vale")
    with pytest.raises(rp.RiskpathError, match=r"values of different risk.level cannot be compared: give at={"):
        result.best()
    with pytest.raises(rp.RiskpathError, match=r"unknown axis 'discont' \(did you mean discount\?\)"):
        result.best(at={"discont": 1.0})
    with pytest.raises(rp.RiskpathError, match=r"has {'risk\.level': 0\.3}; there are risk\.level: 0\.1, 0\.5$"):
        result.best(at={"risk.level": 0.3})


@pytest.mark.parametrize("wide", [(16, 16), [16, 16], "16x16"])
def test_the_best_is_found_by_the_value_that_was_given(wide):
    hidden = enumerate(((16,), (16, 16)))
    lanes = [{**dict.fromkeys(COLUMNS, 1.0), "combination": i, "network.hidden": label(one)} for i, one in hidden]
    result = rp.Sweep(["network.hidden"], lanes)
    assert result.best(at={"network.hidden": wide})["network.hidden"] == "16x16"


def test_a_difference_names_the_field():
    before, now = ({"network": {"hidden": {"$tuple": [width]}}} for width in (16, 64))
    assert difference(before, now) == "hidden 16, not 64"


def test_the_table_is_a_data_frame_if_pandas_is_installed(trained, monkeypatch):
    result = sweep()
    monkeypatch.setattr("riskpath.sweeps.result.find_spec", lambda name: None)
    assert result.table() == result.rows()
    monkeypatch.undo()
    pandas = pytest.importorskip("pandas")
    assert isinstance(result.table(), pandas.DataFrame)
    assert result.table()["value"].tolist() == [row["value"] for row in result.rows()]


def damage(folder: Path, old: str, new: str, name: str = "") -> None:
    file = folder / name if name else min((folder / "cells").iterdir())
    file.write_text(file.read_text().replace(old, new))


MISTAKES: dict[str, Any] = {
    "another sweep": (lambda folder: None, {"steps": 200}, "holds another sweep (steps 100, not 200)"),
    "another agent": (lambda folder: None, {"over": {**AXES, "discount": [0.9]}}, "holds another sweep (discount"),
    "other files": (lambda folder: damage(folder, "", "", "sweep.json") or (folder / "sweep.json").rename(folder / "x"),
                    {}, "contains other files than a sweep"),
    "half a record": (lambda folder: damage(folder, "}]", ""), {}, "is damaged: remove it to train its lanes again"),
    "another number": (lambda folder: damage(folder, '"steps": 100', '"steps": 101'), {}, "is damaged: remove it"),
    "manifest": (lambda folder: damage(folder, "{", "", "sweep.json"), {}, "sweep.json is damaged"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_folder_that_is_not_of_this_sweep_is_refused_and_left_as_it_is(trained, tmp_path, mistake):
    change, others, message = MISTAKES[mistake]
    sweep(out=tmp_path)
    change(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(rp.RiskpathError) as refused:
        sweep(**others, out=tmp_path)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"over": {"risk.leve": [0.1]}}, r"unknown axis 'risk.leve' \(did you mean risk.level\?\)"),
        ({"env": "Chess"}, "unknown environment 'Chess'"),
        ({"env": "RiskyMountainCar"}, "IQN needs discrete actions"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"retries": -1}, "retries must be at least 0"),
        ({"max_lanes": 0}, "max_lanes must be at least 1"),
        ({"agent": rp.IQN}, r"give an agent, not its class: IQN\(…\)"),
        ({"ray": 3}, 'ray must be an address such as "auto"'),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_written(tmp_path, unchecked, others, message):
    arguments = {"agent": TINY, "env": "ThreeState", "over": AXES, "steps": 100, "out": tmp_path / "new", **others}
    with pytest.raises(rp.RiskpathError, match=message):
        rp.sweep(**arguments)
    assert not (tmp_path / "new").exists()
    with pytest.raises(rp.RiskpathError, match="there is no sweep in"):
        rp.load_sweep(tmp_path / "new")


@pytest.mark.parametrize("trained_too", [pytest.param(True, marks=pytest.mark.long), False])
def test_lanes_are_those_of_train(trained_too, unchecked, monkeypatch, request):
    if not trained_too:
        request.getfixturevalue("untrained")
    how: dict[str, Any] = {"steps": 100, "evaluate_every": 50}
    lines: list[str] = []
    result = rp.sweep(TINY, "RiskyGrid", {"discount": [0.9, 1]}, **how, seeds=2, max_lanes=2, progress=lines.append)
    assert len(lines) == 3
    run, lanes = None, []
    for number, discount in enumerate((0.9, 1.0)):
        run = rp.train(dataclasses.replace(TINY, discount=discount), "RiskyGrid", **how, seeds=2)
        lanes = [lane for lane in result.lanes if lane["combination"] == number]
        assert [lane["value"] for lane in lanes] == run.values()[0].tolist()
        assert [lane["estimate"] for lane in lanes] == run.estimates()[0].tolist()
        assert [lane["mean"] for lane in lanes] == [run.law(seed).risk("mean") for seed in (0, 1)]
        assert lanes[1]["curve"] == [[point["step"], point["values"][0][1]] for point in run.curve]
        assert {lane["steps"] for lane in lanes} == {run.steps}
    assert run is not None

    def refuse(*_: Any, **__: Any) -> None:
        raise TooManySituations("too many")

    monkeypatch.setattr(rp.Run, "law", refuse)  # values without an exact law have intervals
    sampled = evaluated(run.measure(200, EVALUATION_SEED, progress=False))[0][1]
    assert sampled["low"] - 1e-6 <= sampled["value"] <= sampled["mean"] + 1e-6
    assert sampled["episodes"] == 200
    assert sampled["mean"] == pytest.approx(lanes[1]["mean"], abs=30.0)


@pytest.mark.long
def test_a_lane_depends_on_its_own_seed_only(untrained, unchecked):
    whole, part = (
        rp.train(TINY, "RiskyGrid", steps=100, seeds=seeds, first_seed=first) for seeds, first in ((4, 0), (2, 2))
    )
    assert np.allclose(whole.estimates()[:, 2:], part.estimates(), rtol=1e-5)
    assert np.array_equal(whole.evaluate(5).returns[:, 2:], part.evaluate(5).returns)


def test_a_stored_sweep_names_the_class_that_is_missing(trained, tmp_path):
    sweep(out=tmp_path)
    configuration = json.loads((tmp_path / "sweep.json").read_text())["configuration"] | {
        "env": {"$class": "mine.Pond"}
    }
    with pytest.raises(rp.RiskpathError, match=r"needs a mine.Pond, which is not defined here: .* --env MODULE:NAME"):
        SweepPlan.from_configuration(configuration)
