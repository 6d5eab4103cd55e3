"""The grid experiment: records, continuing after an interruption, and committed results."""

import json
from pathlib import Path

import numpy as np
import pytest

import riskpath as rp
from riskpath.experiments import grid_figures
from riskpath.experiments import reproduce_grid as grid
from tests.cli.conftest import NETWORK, TRAINING

RESULTS = Path(__file__).parent.parent.parent / "results"


def tiny(level: float) -> rp.IQN:
    return rp.IQN(rp.CVaR(level), network=NETWORK, training=TRAINING)


@pytest.fixture
def trained(monkeypatch) -> list[list[str]]:
    """Replace the programs by tiny ones, and return the measures of each training that starts."""
    calls = []

    def train(agents, *rest, **options):
        if isinstance(agents, list):
            calls.append([str(agent.risk) for agent in agents])
        return rp.train(agents, *rest, **options)

    programs = [
        grid.Program("IQN", [(tiny(0.1), grid.GRID), (tiny(0.5), grid.PROBE)], 80),
        grid.Program("IQN, other", [(tiny(0.2), grid.GRID), (tiny(0.25), grid.GRID)], 80),
    ]
    monkeypatch.setattr(grid, "programs", lambda quick: programs)
    monkeypatch.setattr(grid, "train", train)
    return calls


@pytest.mark.long  # tests/sweeps and test_reproduce_three_state.py go on with interrupted work
def test_an_interrupted_experiment_is_continued(trained, tmp_path, unchecked):
    first = grid.reproduce(tmp_path, seeds=2, only="other", show=lambda _: None)
    assert trained == [["cvar:0.2", "cvar:0.25"]]
    whole = grid.reproduce(tmp_path, seeds=2, show=lambda _: None)
    assert trained[1:] == [["cvar:0.1", "cvar:0.5"]]
    assert json.loads((tmp_path / "grid.json").read_text()) == whole
    assert whole["records"][:4] == first["records"]
    again = grid.reproduce(tmp_path, seeds=2, show=lambda _: None)
    assert len(trained) == 2
    assert again == whole

    record = next(r for r in whole["records"] if r["risk"] == "cvar:0.5" and r["seed"] == 1)
    law = rp.Law(record["atoms"], record["probs"])
    assert record["grid"] == "probe"
    assert record["value"] == pytest.approx(rp.CVaR(0.5).value(law), abs=1e-4)
    assert record["curve"][-1][1:] == [round(record["value"], 3), record["path"]]
    rows = {(row["risk"], row["grid"]): row for row in grid.summary(whole)}
    assert rows["cvar:0.1", "paper"]["history_optimum"] == pytest.approx(72.375)
    values = [r["value"] for r in whole["records"] if r["risk"] == "cvar:0.1"]
    assert rows["cvar:0.1", "paper"]["median"] == pytest.approx(np.median(values))
    assert [path.name for path in grid_figures.write(whole, tmp_path)] == [
        "grid_curves.png",
        "grid_returns.png",
        "grid_paths.md",
    ]


def test_results_of_another_command_are_not_continued(tmp_path, monkeypatch):
    earlier = {"agent": "IQN", "risk": "mean", "grid": "paper"}
    content = {"command": "riskpath reproduce grid", "seconds": 1, "records": [earlier]}
    (tmp_path / "grid.json").write_text(json.dumps(content))
    monkeypatch.setattr(grid, "programs", lambda quick: [])
    assert grid.reproduce(tmp_path, seeds=1)["records"] == []
    assert grid.reproduce(tmp_path, seeds=8)["records"] == [earlier]


def test_programs_train_every_form_at_both_levels_and_on_the_probe():
    programs = {program.name: program for program in grid.programs(quick=False)}
    for name in ("IQN", "CVaR-DRL"):
        assert [str(agent.risk) for agent, _ in programs[name].settings] == ["cvar:0.1", "cvar:0.25"]
    for form in grid.FORMS:
        for name in (f"TQL {form}, fine", f"TQL {form}, table"):
            assert [setting[1] for setting in programs[name].settings] == [grid.PROBE]
    assert {program.steps for program in grid.programs(quick=True)} == {3_000, 4_000}


def test_hyperparameters_are_those_of_the_committed_results():
    """Learning rates fall to 1e-4 (default, with the length of training), 1e-5 (fine) and 1e-4 (table)."""
    ends = [(t.final_learning_rate, t.decay_ends) for t in (rp.Training(), grid.FINE_TRAINING, grid.TABLE_TRAINING)]
    assert ends == [(1e-4, 0.9), (1e-5, 1.0), (1e-4, 1.0)]


def test_paths_are_counted():
    assert grid.counted(["BBB", "YYY", "YYY"]) == "YYY 2/3, BBB 1/3"


def test_committed_table_is_made_of_committed_results():
    result = json.loads((RESULTS / "grid.json").read_text())
    assert grid_figures.paths_table(result) == (RESULTS / "grid_paths.md").read_text()
