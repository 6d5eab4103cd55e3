"""`riskpath report`: what it finds, what it refuses without writing anything, and how it follows training."""

import dataclasses
import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import riskpath as rp
from riskpath.cli import report_command, report_sources
from riskpath.envs.finite import finite
from riskpath.report.run_record import CurveRecord
from riskpath.sweeps.store import SweepFolder
from riskpath.training.codec import encode
from riskpath.training.plan import Plan
from tests.cli.conftest import NETWORK, TRAINING
from tests.report.examples import run_record, setting_record

JUDGED = {"risk": "cvar:0.1", "values": [7.0, 8.0], "low": 7.0, "high": 8.0, "episodes": None}
MADE = {"seeds": 2, "steps": 80, "seconds": 1.0, "device": "cpu", "versions": {"riskpath": "0.3.0"}}
CELL = {
    "agent": "IQN",
    "problem": "probe grid",
    "results": [{**JUDGED, "mean_optimal": 5.0, "optimum": 9.0, "spread": 10.0}],
    **MADE,
}
BENCH = {"command": "riskpath bench suite", "missing": [], "failed": {}, "rows": [], "cells": [CELL]}


def data_of(page: Path) -> dict[str, Any]:
    """Return the data of a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), flags=re.DOTALL)
    assert found
    return json.loads(found[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a run, one below, a sweep and a benchmark; the runs have only explored."""
    place = tmp_path_factory.mktemp("results")
    training = dataclasses.replace(TRAINING, learning_starts=40)
    agent = rp.IQN("cvar:0.1", network=NETWORK, training=training)
    run = rp.train(agent, "RiskyGrid", steps=40, seeds=2, evaluate_every=20)
    run.save(place / "grid")
    shutil.copytree(place / "grid", place / "more" / "again")
    sweep = SweepFolder(place / "sweep")
    axis = "training.learning_rate"
    configuration = {"agent": {"$class": "riskpath.agents.iqn.IQN"}, "env": "RiskyGrid", "over": {axis: [0.1, 0.2]}}
    sweep.begin({**configuration, "seeds": 2}, lambda: 4)
    measured = {"value": 5.0, "low": 4.0, "high": 6.0, "mean": 7.0, "estimate": 5.0, "episodes": None}
    lanes = [
        {"combination": i, axis: rate, "seed": seed, **measured, "steps": 9, "seconds": 1.0, "curve": [[9, 5.0 + seed]]}
        for i, rate in enumerate((0.1, 0.2))
        for seed in range(2 - i)
    ]
    sweep.add("cell", {"lanes": lanes})
    (place / "bench").mkdir()
    (place / "bench" / "bench.json").write_text(json.dumps(BENCH))
    return place


@pytest.fixture
def evaluated(monkeypatch) -> list[str]:
    """Count which runs are evaluated."""
    seen = []
    original = report_command.find_sources

    def find_sources(paths: Any) -> Any:
        def counted(source: Any) -> Any:
            def read(path: Path, title: str, env: Any) -> Any:
                seen.append(title)
                return source.kind.read(path, title, env)

            return source._replace(kind=source.kind._replace(read=read))

        return [counted(source) for source in original(paths)]

    monkeypatch.setattr(report_command, "find_sources", find_sources)
    return seen


def test_everything_below_a_folder_is_on_the_page(cli, folder, tmp_path, unchecked):
    page = tmp_path / "report.html"
    status, out, _ = cli("report", str(folder), str(folder / "grid"), "--out", str(page), "--title", "mine")
    assert (status, out.split(":")[0]) == (0, "2 runs and 1 sweep and 1 benchmark")
    data = data_of(page)
    assert data["title"] == "mine"
    (sweep,) = data["sweeps"]
    assert (sweep["agent"], sweep["environment"], sweep["missing"]) == ("IQN", "RiskyGrid", 1)
    assert [(row["settings"]["training.learning_rate"], row["values"]) for row in sweep["rows"]] == [
        (0.1, [5.0, 5.0]),
        (0.2, [5.0]),
    ]
    assert sweep["rows"][0]["curves"] == [[[9.0, 5.0]], [[9.0, 6.0]]]
    assert [run["title"] for run in data["runs"]] == ["grid", "again"]
    run = rp.load(folder / "grid")
    (setting,) = data["runs"][0]["settings"]
    assert setting["values"] == pytest.approx(run.values()[0], rel=1e-5)
    assert setting["discounted"] == pytest.approx(run.values(0.99)[0], rel=1e-5)
    assert setting["estimates"] == pytest.approx(run.estimates()[0], rel=1e-5, abs=1e-9)
    assert setting["exact"]
    assert setting["optimum"]["value"] == pytest.approx(79.875)
    assert sum(setting["law"]["probs"]) == pytest.approx(1.0, abs=1e-4)
    assert setting["curve"]["steps"] == [point["step"] for point in run.curve]
    assert setting["curve"]["seeds"][1] == pytest.approx([point["values"][0][1] for point in run.curve], rel=1e-5)
    assert setting["hyperparameters"]["training.batch_size"] == "4"
    assert setting["quantiles"]["realised"][0] == sorted(setting["quantiles"]["realised"][0])
    for path in setting["grid"]["paths"]:  # six steps from the start to the goal
        assert sum(move[4] for move in path["moves"]) == pytest.approx(6.0, abs=0.01)
    assert sorted(seed for path in setting["grid"]["paths"] for seed in path["seeds"]) == [0, 1]
    (row,) = data["benches"][0]["rows"]
    assert (row["share"], row["gap"]) == (0.625, 1.5)
    assert data["refresh"] is None


def damaged_state(place: Path) -> str:
    state = place / "grid" / "state.eqx"
    state.write_bytes(state.read_bytes()[:-8])
    return r"grid.* the checksum of state\.eqx is wrong"


def damaged_header(place: Path) -> str:
    (place / "grid" / "header.json").write_text("{")
    return r"grid is not a saved run: its header\.json cannot be read"


def damaged_bench(place: Path) -> str:
    (place / "bench" / "bench.json").write_text('{"cells": [')
    return r"bench\.json is damaged: JSONDecodeError"


def other_bench(place: Path) -> str:
    (place / "bench" / "bench.json").write_text('{"cells": [{"agent": "IQN", "results": [{}]}]}')
    return r"bench is damaged: KeyError"


def damaged_cell(place: Path) -> str:
    (place / "bench" / "bench.json").unlink()
    (place / "bench" / "cells").mkdir()
    (place / "bench" / "cells" / "iqn.json").write_text("[]")
    return r"iqn\.json is damaged"


@pytest.mark.parametrize("damage", [damaged_state, damaged_header, damaged_bench, other_bench, damaged_cell])
def test_a_damaged_record_is_one_line_and_no_page(cli, folder, tmp_path, damage, unchecked):
    shutil.copytree(folder, tmp_path / "copy")
    expected = damage(tmp_path / "copy")
    page = tmp_path / "report.html"
    paths = [str(tmp_path / "copy" / name) for name in ("bench", "grid")]
    status, _, err = cli(
        "report", *(paths if "bench" in expected or "iqn" in expected else paths[1:]), "--out", str(page)
    )
    assert status == 2
    assert err.count("\n") == 1
    assert re.search(expected, err), err
    assert not page.exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "give at least one PATH: a run, a sweep, a benchmark, or a folder that contains some"),
        (("nowhere",), "there is nothing at nowhere"),
        (("empty",), "there are no runs, sweeps or benchmarks in empty"),
        (("notes.json",), "notes.json is not the result of a benchmark"),
        (("notes.txt",), "notes.txt is not the result of a benchmark"),
        (("empty", "--every", "0"), "every must be more than 0, got 0"),
        (("empty", "--out", "notes.txt"), "notes.txt is not a report of riskpath, so it is not overwritten"),
        (("empty", "--out", "empty"), "cannot write empty: it is a folder"),
    ],
)
def test_mistakes_are_one_line(cli, tmp_path, monkeypatch, words, expected, unchecked):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("notes.json").write_text("[]")
    Path("notes.txt").write_text("mine")
    status, _, err = cli("report", *words)
    assert (status, err.count("\n")) == (2, 1)
    assert expected in err
    assert not Path("report.html").exists()
    assert Path("notes.txt").read_text() == "mine"


def test_watching_ends_when_training_does(cli, folder, tmp_path, monkeypatch, evaluated, unchecked):
    """A log that is newer than the checkpoint is shown; the page stops to load itself again at the end."""
    place, page = tmp_path / "runs" / "grid", tmp_path / "report.html"
    run = rp.load(folder / "grid")
    plan = run.plan
    pages: list[Any] = []

    def sleep(seconds: float) -> None:
        assert seconds == 3.0
        pages.append(data_of(page) if page.exists() else None)
        match len(pages):
            case 1:  # training begins
                run.plan = Plan(0, 120)
                run.save(place / "run")
                (place / "config.json").write_text(json.dumps({"env": "RiskyGrid", "set": []}))
            case 2:  # it goes on
                episodes = {"ep_rew_mean": [5.0, 6.0], "ep_rew_risk": [3.0, 4.0], "ep_len_mean": [6.0, 6.0]}
                lines = [{"step": 60, **episodes}, {"step": 80, "evaluation": {"values": [[1.0, 2.0]]}}]
                (place / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 9')
            case 3:  # something is wrong for a moment
                (place / "run" / "header.json").rename(place / "header.json")
                (place / "run" / "header.json").write_text("{")
            case 4:  # it ends
                (place / "header.json").rename(place / "run" / "header.json")
                run.plan = plan
                run.save(place / "run")
            case _:
                raise AssertionError

    def light(run: rp.Run, title: str, **_: Any) -> Any:
        setting = setting_record(seeds=2, points=1, curve=CurveRecord([40], [[0.0], [0.0]]))
        return run_record(title, seeds=2, steps=run.steps, finished=run.finished, settings=[setting])

    monkeypatch.setattr(report_sources, "gather", light)
    monkeypatch.setattr(time, "sleep", sleep)
    place.mkdir(parents=True)
    status, out, _ = cli("report", str(tmp_path / "runs"), "--out", str(page), "--watch", "--every", "3")
    assert status == 0, out
    assert pages[0] is None
    shown = [
        (one["refresh"], one["runs"][0]["steps"], one["runs"][0]["finished"]) for one in [*pages[1:], data_of(page)]
    ]
    assert shown == [(3, 40, False), (3, 80, False), (3, 80, False), (None, 40, True)]
    assert pages[2]["runs"][0]["settings"][0]["curve"]["steps"] == [40, 80]
    training = {"steps": [60], "returns": [[5.0], [6.0]], "risks": [[3.0], [4.0]], "lengths": [[6.0], [6.0]]}
    assert pages[2]["runs"][0]["settings"][0]["training"] == training
    assert "after 40 steps; training is at 80" in pages[2]["runs"][0]["notes"][0]
    assert evaluated == ["grid", "grid"]  # not while nothing but the log grows


def test_an_interrupted_watch_leaves_a_page_that_stays_as_it_is(cli, folder, tmp_path, monkeypatch, unchecked):
    page = tmp_path / "report.html"
    content = {**BENCH, "missing": ["TQL on probe grid, cvar"]}
    (tmp_path / "bench.json").write_text(json.dumps(content))

    def sleep(seconds: float) -> None:
        assert data_of(page)["refresh"] == 10
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    assert cli("report", str(tmp_path / "bench.json"), "--out", str(page), "--watch")[0] == 0
    assert data_of(page)["refresh"] is None
    assert data_of(page)["benches"][0]["missing"] == ["TQL on probe grid, cvar"]


def test_a_sweep_on_tables_has_the_name_of_the_problem(tmp_path):
    problem = rp.FiniteMDP.from_outcomes({("a", "go"): [(1.0, 1.0, "b")]}, start="a", name="v1.0 of one step")
    folder, small = tmp_path / "sweep", finite(problem)
    configuration = {"agent": {"$class": "riskpath.agents.iqn.IQN"}, "env": encode(small), "over": {"discount": [1.0]}}
    SweepFolder(folder).begin({**configuration, "seeds": 1}, lambda: 1)
    (source,) = report_sources.find_sources([folder])
    record: Any = source.kind.read(folder, "sweep", None)
    assert (record.agent, record.environment, record.missing) == ("IQN", "v1.0 of one step", 1)
