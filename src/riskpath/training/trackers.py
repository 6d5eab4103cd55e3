"""Callbacks for TensorBoard, Weights & Biases and MLflow, each with its own extra; nothing is sent unless you say so.

    tracker = rp.MLflow("runs/mlruns")
    run = rp.train(agent, env, steps=…, callbacks=[tracker])
    tracker.close(run)

After every chunk they log what every callback receives, one curve for each lane; the hyperparameters at the first one.
`close` adds the report page and the policy of the first seed as artifacts.
"""

import dataclasses
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from riskpath.errors import RiskpathError, did_you_mean, one_line
from riskpath.extras import EXTRAS, require_extra
from riskpath.training.callbacks import scalars
from riskpath.training.run import Run


class TensorBoard:
    """Writes event files for TensorBoard; needs the package tensorboardX."""

    def __init__(self, folder: str | Path, resume_at: int | None = None):
        """Open the folder.

        Args:
            folder: Where the event files go.
            resume_at: The step at which a run is continued; TensorBoard hides events of later steps.
        """
        self.folder = Path(folder)
        SummaryWriter = require_extra("tensorboardX", "tensorboard", "TensorBoard").SummaryWriter
        purge_step = None if resume_at is None else resume_at + 1
        # Its `flush` does not wait for queued events, so they are written every few seconds.
        self.writer = SummaryWriter(str(folder), flush_secs=5, purge_step=purge_step)
        self._described = False

    def __call__(self, run: Run | None, numbers: dict[str, Any]) -> None:
        """Write every number, including those of an evaluation."""
        if not self._described and run is not None:
            rows = [f"| {name} | {value} |" for name, value in hyperparameters(run).items()]
            self.writer.add_text("hyperparameters", "\n".join(["| | |", "|---|---|", *rows]))
            self._described = True
        for name, one in _values(numbers):
            self.writer.add_scalar(name, one, numbers["step"])

    def close(self, run: Run | None = None) -> None:
        """Write the report and the policy of a run, if one is given, beside the events, and close the files."""
        artifacts(run, self.folder)
        self.writer.close()


class WeightsAndBiases:
    """Logs to Weights & Biases; by default into a folder, which `wandb sync` sends later."""

    def __init__(self, folder: str | Path, project: str = "riskpath", mode: str = "offline", name: str | None = None):
        """Begin a run of the tracker.

        Args:
            folder: Where its files go.
            project: The project.
            mode: "offline", or "online" to send everything at once.
            name: The name of the run.
        """
        self._wandb = require_extra("wandb", "wandb", "Weights & Biases")
        Path(folder).mkdir(parents=True, exist_ok=True)
        settings = self._wandb.Settings(silent=True, console="off")
        try:
            self.run = self._wandb.init(dir=str(folder), project=project, mode=mode, name=name, settings=settings)
        except Exception as error:  # of its own kinds
            raise RiskpathError(f"Weights & Biases could not start: {one_line(error)}") from None
        self._described = False

    def __call__(self, run: Run | None, numbers: dict[str, Any]) -> None:
        """Log every number, including those of an evaluation."""
        if not self._described and run is not None:
            self.run.config.update(hyperparameters(run))
            self._described = True
        self.run.log(dict(_values(numbers)), step=int(numbers["step"]), commit=True)

    def close(self, run: Run | None = None) -> None:
        """Add the report and the policy of a run, if one is given, and end the run of the tracker."""
        with tempfile.TemporaryDirectory() as folder:
            for path in artifacts(run, Path(folder)):
                artifact = self._wandb.Artifact(path.stem, type="policy" if path.suffix == ".zip" else "report")
                artifact.add_file(str(path))
                self.run.log_artifact(artifact)
            self.run.finish()


class MLflow:
    """Logs to a store of MLflow in a folder, or to a server."""

    def __init__(self, store: str | Path, experiment: str = "riskpath", name: str | None = None):
        """Begin a run of the tracker.

        Args:
            store: A folder, which gets a database mlflow.db and the artifacts, or the address of a tracking server.
            experiment: The experiment.
            name: The name of the run.
        """
        mlflow = require_extra("mlflow", "mlflow", "MLflow")
        self._entities = mlflow.entities
        remote, folder = "://" in str(store), Path(store).resolve()
        try:
            if not remote:
                folder.mkdir(parents=True, exist_ok=True)
            self.client = mlflow.MlflowClient(tracking_uri=str(store) if remote else f"sqlite:///{folder}/mlflow.db")
            found = self.client.get_experiment_by_name(experiment)
            where = None if remote else (folder / "artifacts").as_uri()
            number = found.experiment_id if found else self.client.create_experiment(experiment, where)
            tags = {} if name is None else {"mlflow.runName": name}
            self.run_id = self.client.create_run(number, tags=tags).info.run_id
        except Exception as error:  # of its own kinds
            raise RiskpathError(f"MLflow could not start at {store}: {one_line(error)}") from None
        self._described = False

    def __call__(self, run: Run | None, numbers: dict[str, Any]) -> None:
        """Log every number, including those of an evaluation."""
        if not self._described and run is not None:
            settings = [self._entities.Param(key, str(value)[:500]) for key, value in hyperparameters(run).items()]
            self.client.log_batch(self.run_id, params=settings)
            self._described = True
        now, step = int(1000 * time.time()), int(numbers["step"])
        metrics = [self._entities.Metric(key, value, now, step) for key, value in _values(numbers)]
        self.client.log_batch(self.run_id, metrics=metrics)

    def close(self, run: Run | None = None) -> None:
        """Add the report and the policy of a run, if one is given, and end the run of the tracker."""
        with tempfile.TemporaryDirectory() as folder:
            for path in artifacts(run, Path(folder)):
                self.client.log_artifact(self.run_id, str(path))
        self.client.set_terminated(self.run_id)


TRACKERS: dict[str, Any] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases, "mlflow": MLflow}
"""What `riskpath train --log` accepts."""


def require_trackers(names: Sequence[str]) -> None:
    """Refuse names of trackers that do not exist or are not installed, before anything is written."""
    for name in names:
        if name not in TRACKERS:
            raise RiskpathError(
                f"--log must be some of {', '.join(TRACKERS)}, got {name!r}{did_you_mean(name, TRACKERS)}"
            )
        require_extra(EXTRAS[name][0], name, f"--log {name}")


def make_trackers(names: Sequence[str], folder: Path) -> list[Any]:
    """Return trackers by their names on the command line, each with a folder of its own inside of a folder."""
    return [TRACKERS[name](folder / name) for name in names]


def hyperparameters(run: Run) -> dict[str, Any]:
    """Return the hyperparameters of the first setting of a run, with dots between a part and its field."""
    agent = run.agents[0]
    about = {"agent": type(agent).__name__, "risk": str(agent.risk), "seeds": run.seeds, "settings": len(run.agents)}
    return {**about, "environment": type(run.environments[0]).__name__, **_fields(agent, "")}


def _fields(part: Any, prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if field.name == "risk":
            continue
        if dataclasses.is_dataclass(value):
            found |= _fields(value, f"{prefix}{field.name}.")
        else:
            found[f"{prefix}{field.name}"] = value if isinstance(value, int | float | str | None) else str(value)
    return found


def artifacts(run: Run | None, folder: Path) -> list[Path]:
    """Write the report and the policy of a run; return the files."""
    return [] if run is None else [run.report(folder / "report.html"), run.policy().export(folder / "policy.zip")]


def _values(numbers: dict[str, Any]) -> list[tuple[str, float]]:
    return list(scalars({key: value for key, value in numbers.items() if key != "step"}))
