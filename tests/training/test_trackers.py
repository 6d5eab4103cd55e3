"""Trackers hold what training has logged: each is tested with its own package, offline."""

import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import riskpath as rp
from riskpath.training.logged import LoggedEnvironment
from riskpath.training.trackers import TRACKERS, Tracker, hyperparameters
from tests.cli.conftest import cli as cli
from tests.training.fakes import fake_run

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
    plan = SimpleNamespace(goal=200)
    lanes = SimpleNamespace(steps=200)
    return fake_run(
        agents=[agent], seeds=2, environments=[None], report=written, policy=lambda: policy, plan=plan, lanes=lanes
    )


def test_hyperparameters_have_one_name_each(run):
    found = hyperparameters(run)
    assert (found["agent"], found["risk"], found["network.hidden"], found["seeds"]) == ("IQN", "cvar:0.1", "(7,)", 2)
    assert all(isinstance(value, int | float | str | None) for value in found.values())


class Notes(Tracker):
    """A tracker that notes what it is given."""

    def __init__(self) -> None:
        self.notes: list[Any] = []

    def _describe(self, hyperparameters):
        self.notes.append(hyperparameters["agent"])

    def _log(self, values, step):
        self.notes.append((step, len(values)))

    def _attach(self, path):
        self.notes.append(path.read_text() and path.name)

    def _end(self, status):
        self.notes.append(status)


def test_a_block_closes_its_tracker_once(run):
    files = ["report.html", "policy.zip"]
    with Notes() as whole:
        whole(run, NUMBERS)
        whole(run, {"step": 200})
    whole.close(run)
    assert whole.notes == ["IQN", (100, 4), (200, 0), *files, "FINISHED"]
    run.lanes.steps = 100
    with Notes() as interrupted:
        interrupted(run, NUMBERS)
    assert interrupted.notes[2:] == [*files, "KILLED"]
    run.environments = [object.__new__(LoggedEnvironment)]  # no report without an environment to play in
    with Notes() as logged:
        logged(run, NUMBERS)
    assert logged.notes[2:-1] == ["policy.zip"]


def test_a_training_that_fails_is_marked_and_adds_nothing(run):
    failing = Notes()
    failing(run, NUMBERS)
    with pytest.raises(ZeroDivisionError), failing:
        raise ZeroDivisionError
    assert failing.notes == ["IQN", (100, 4), "FAILED"]
    run.report = lambda path: 1 / 0
    with pytest.raises(rp.RiskpathError, match=r"^Notes failed: ZeroDivisionError"), Notes() as unwritten:
        unwritten(run, NUMBERS)
    assert unwritten.notes[2:] == ["FAILED"]


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
    with pytest.raises(ZeroDivisionError), rp.MLflow(tmp_path, experiment="risk") as failing:  # a second run
        raise ZeroDivisionError
    assert failing.client.get_run(failing.run_id).info.status == "FAILED"
    with rp.MLflow(tmp_path, experiment="risk", name="mine", resume_at=200) as again:
        again(run, {**NUMBERS, "step": 300})
        assert again.client.get_run(again.run_id).info.status == "RUNNING"
    assert (again.run_id, failing.run_id == again.run_id) == (tracker.run_id, False)
    assert [one.step for one in again.client.get_metric_history(again.run_id, "loss/lane_0")] == [100, 200, 300]
    assert again.client.get_run(again.run_id).info.status == "FINISHED"


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_hold_curves_and_hyperparameters_offline(run, tmp_path):
    pytest.importorskip("wandb")
    tracker = rp.WeightsAndBiases(tmp_path, project="risk")
    tracker(run, NUMBERS)
    assert {key: tracker.run.summary[key] for key in CURVES} == CURVES
    assert tracker.run.config["network.hidden"] == "(7,)"
    tracker.close(run)
    with rp.WeightsAndBiases(tmp_path, resume_at=100) as again:
        again(run, {**NUMBERS, "step": 200})
    assert again.run.id == tracker.run.id
    assert len(list(tmp_path.rglob(f"*-{again.run.id}.wandb"))) == 2


def events(folder: Path) -> tuple[dict[str, list[float]], list[str]]:
    """Return the scalars by name and the texts in the event files of a folder."""
    Event = pytest.importorskip("tensorboardX.proto.event_pb2").Event
    scalars: dict[str, list[float]] = {}
    texts: list[str] = []
    for path in folder.glob("events.*"):
        content = path.read_bytes()
        while content:  # length, checksum, event, checksum
            length = int.from_bytes(content[:8], "little")
            for value in Event.FromString(content[12 : 12 + length]).summary.value:
                if value.tag.startswith("hyperparameters"):
                    texts += [text.decode() for text in value.tensor.string_val]
                else:
                    scalars.setdefault(value.tag, []).append(value.simple_value)
            content = content[16 + length :]
    return scalars, texts


def test_tensorboard_holds_curves_hyperparameters_and_artifacts(run, tmp_path):
    pytest.importorskip("tensorboardX")
    tracker = rp.TensorBoard(tmp_path)
    tracker(run, NUMBERS)
    tracker.close(run)
    scalars, (text,) = events(tmp_path)
    assert scalars == {name: [value] for name, value in CURVES.items()}
    assert "| network.hidden | (7,) |" in text
    assert {"policy.zip", "report.html"} <= {path.name for path in tmp_path.iterdir()}


def test_a_disk_that_is_full_is_one_line(run, tmp_path):
    pytest.importorskip("tensorboardX")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    tracker = rp.TensorBoard(tmp_path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(rp.RiskpathError, match=r"^TensorBoard failed: OSError: .* too large"):
            tracker(run, NUMBERS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    tracker.close()


@pytest.mark.filterwarnings("ignore")
def test_the_command_logs_a_training_to_all_trackers(cli, tmp_path, unchecked):
    for package in ("mlflow", "sqlalchemy", "tensorboardX", "wandb"):
        pytest.importorskip(package)
    agent = ["--agent", "IQN", "--risk", "cvar:0.1", "--agent.learning-starts", "50", "--agent.batch-size", "8"]
    out = tmp_path / "x"
    status, _, err = cli(
        "train", *agent, "--env", "ThreeState", "--steps", "200", "--seeds", "1", "--out", str(out), "--log", *TRACKERS
    )
    assert status == 0, err
    names = {"ep_rew_mean", "ep_rew_risk", "loss", "estimate", "evaluation/values"}
    assert names <= events(out / "tensorboard")[0].keys()
    client = rp.MLflow(out / "mlflow", "other").client
    (found,) = client.search_runs(["1"])
    assert found.info.status == "FINISHED"
    assert names <= found.data.metrics.keys()
    assert found.data.params["risk"] == "cvar:0.1"
    assert len(list((out / "mlflow").rglob("policy.zip"))) == len(list((out / "mlflow").rglob("report.html"))) == 1
    assert len(list((out / "wandb").rglob("*.wandb"))) == 1
    before = [one.step for one in client.get_metric_history(found.info.run_id, "estimate")]
    status, _, err = cli("resume", str(out), "--steps", "100")
    assert status == 0, err
    (again,) = client.search_runs(["1"])  # no second run
    steps = [one.step for one in client.get_metric_history(again.info.run_id, "estimate")]
    assert (steps[: len(before)], steps, again.info.status) == (before, sorted(set(steps)), "FINISHED")
    assert len(steps) > len(before)
    assert len(list(out.glob("tensorboard/events.*"))) == len(list((out / "wandb").rglob("*.wandb"))) == 2


def test_an_unknown_tracker_is_refused_before_anything_is_written(cli, tmp_path):
    status, _, err = cli("train", "--env", "ThreeState", "--out", str(tmp_path / "x"), "--log", "mlfow")
    line = "--log must be some of tensorboard, wandb, mlflow, got 'mlfow' (did you mean mlflow?)"
    assert (status, err) == (2, f"riskpath: {line}\n")
    assert not (tmp_path / "x").exists()
