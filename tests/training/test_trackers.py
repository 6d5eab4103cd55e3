"""Trackers hold what training has logged: each is tested with its own package, offline."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import riskpath as rp
from riskpath.training.trackers import hyperparameters
from tests.cli.conftest import cli as cli

NUMBERS = {"step": 100, "loss": np.array([0.5, 0.25]), "evaluation": {"values": [[1.0, 2.0]], "path": "BBB"}}
CURVES = {"loss/lane_0": 0.5, "loss/lane_1": 0.25, "evaluation/values/lane_0": 1.0, "evaluation/values/lane_1": 2.0}


def written(path: Path) -> Path:
    path.write_text("content")
    return path


@pytest.fixture
def run() -> Any:
    """What trackers need of a run."""
    agent = rp.IQN(rp.CVaR(0.1), network=rp.Network(hidden=(7,)))
    policy = SimpleNamespace(export=written)
    return SimpleNamespace(agents=[agent], seeds=2, environments=[None], report=written, policy=lambda: policy)


def test_hyperparameters_have_one_name_each(run):
    found = hyperparameters(run)
    assert (found["agent"], found["risk"], found["network.hidden"], found["seeds"]) == ("IQN", "cvar:0.1", "(7,)", 2)
    assert all(isinstance(value, int | float | str | None) for value in found.values())


@pytest.mark.filterwarnings("ignore")
def test_mlflow_holds_curves_hyperparameters_and_artifacts(run, tmp_path):
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    tracker = rp.MLflow(tmp_path, experiment="risk", name="mine")
    tracker(run, NUMBERS)
    tracker(run, {**NUMBERS, "step": 200})
    tracker.close(run)
    found = tracker.client.get_run(tracker.run_id)
    assert found.data.metrics == CURVES
    assert found.data.params["network.hidden"] == "(7,)"
    assert [one.step for one in tracker.client.get_metric_history(tracker.run_id, "loss/lane_0")] == [100, 200]
    assert {one.path for one in tracker.client.list_artifacts(tracker.run_id)} == {"policy.zip", "report.html"}
    assert found.info.status == "FINISHED"
    again = rp.MLflow(tmp_path, experiment="risk")  # a second run of the same experiment
    assert again.run_id != tracker.run_id


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_hold_curves_and_hyperparameters_offline(run, tmp_path):
    pytest.importorskip("wandb")
    tracker = rp.WeightsAndBiases(tmp_path, project="risk")
    tracker(run, NUMBERS)
    assert {key: tracker.run.summary[key] for key in CURVES} == CURVES
    assert tracker.run.config["network.hidden"] == "(7,)"
    tracker.close(run)
    assert len(list(tmp_path.rglob("*.wandb"))) == 1


def test_an_unknown_tracker_is_refused_before_anything_is_written(cli, tmp_path):
    status, _, err = cli("train", "--env", "ThreeState", "--out", str(tmp_path / "x"), "--log", "mlfow")
    line = "--log must be some of tensorboard, wandb, mlflow, got 'mlfow' (did you mean mlflow?)"
    assert (status, err) == (2, f"riskpath: {line}\n")
    assert not (tmp_path / "x").exists()
