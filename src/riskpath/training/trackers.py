"""Callbacks for TensorBoard, Weights & Biases and MLflow, each with its own extra; nothing is sent unless you say so.

    with rp.MLflow("runs/mlflow") as tracker:
        run = rp.train(agent, env, steps=…, callbacks=[tracker])

They log the hyperparameters, and after every chunk what every callback receives, one curve for each lane. The end of
the block adds the report page and the policy of the first seed as artifacts, or marks a training that failed;
`tracker.close(run)` does so without a block.
"""

import abc
import contextlib
import dataclasses
import importlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from riskpath.errors import RiskpathError, did_you_mean, in_one_line, one_line
from riskpath.extras import EXTRAS, require_extra
from riskpath.files import as_path, disk_errors, require_space
from riskpath.training.callbacks import scalars
from riskpath.training.logged import LoggedEnvironment
from riskpath.training.run import Run

SPACE = 100_000
"""The bytes that W&B must find free."""


class Tracker(abc.ABC):
    """Logs a run to another program, as a callback of `train`."""

    _run: Run | None = None
    """The run that is logged."""
    _closed = False

    def __call__(self, run: Run | None, numbers: dict[str, Any]) -> None:
        """Log every number, including those of an evaluation; the hyperparameters at the first call."""
        with self._one_line():
            if self._run is None and run is not None:
                self._describe(hyperparameters(run))
                self._run = run
            values = scalars({key: value for key, value in numbers.items() if key != "step"})
            self._log(dict(values), int(numbers["step"]))

    def __enter__(self) -> Any:
        return self

    def __exit__(self, error: Any, *_: Any) -> None:
        with contextlib.suppress(RiskpathError) if error else contextlib.nullcontext():  # the first error is the cause
            self.close(None if error else self._run, failed=error is not None)

    def close(self, run: Run | None = None, failed: bool = False) -> None:
        """Add the report and the policy of a run, if one is given, and end; a second call does nothing."""
        if self._closed:
            return
        self._closed, status = True, "FAILED"
        with self._one_line(), tempfile.TemporaryDirectory() as folder:
            try:
                for path in artifacts(run, Path(folder)):
                    self._attach(path)
                if not failed:
                    status = "FINISHED" if run is None or run.finished else "KILLED"
            finally:
                self._end(status)

    @contextlib.contextmanager
    def _one_line(self) -> Iterator[None]:
        """Turn an error, for example a full disk, into one line, without the pages that the packages log about it."""
        logger = logging.getLogger("mlflow")
        before, logging.raiseExceptions = (logger.level, logging.raiseExceptions), False  # of W&B's own log file
        logger.setLevel(logging.CRITICAL)
        try:
            with in_one_line(f"{type(self).__name__} failed"):
                yield
        finally:
            level, logging.raiseExceptions = before
            logger.setLevel(level)

    @abc.abstractmethod
    def _describe(self, hyperparameters: dict[str, Any]) -> None:
        """Note the hyperparameters."""

    @abc.abstractmethod
    def _log(self, values: dict[str, float], step: int) -> None:
        """Log numbers."""

    @abc.abstractmethod
    def _attach(self, path: Path) -> None:
        """Add a file, which is deleted afterwards."""

    @abc.abstractmethod
    def _end(self, status: str) -> None:
        """End with a status: FINISHED, FAILED, or KILLED if the training was interrupted."""


class TensorBoard(Tracker):
    """Writes event files for TensorBoard, and the artifacts beside them; needs the package tensorboardX."""

    def __init__(self, folder: str | Path, resume_at: int | None = None):
        """Open the folder.

        Args:
            folder: Where the event files go.
            resume_at: The step at which a run is continued; TensorBoard hides events of later steps.
        """
        self.folder = as_path(folder)
        files = require_extra("tensorboardX.event_file_writer", "tensorboard", "TensorBoard")
        self._summary, self._proto = importlib.import_module("tensorboardX.summary"), files.event_pb2
        with disk_errors(f"cannot write to {folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
            # Its `SummaryWriter` writes in a thread: where that fails, for example at a full disk, training would hang.
            self.writer = files.EventsWriter(str(self.folder / "events"))
            if resume_at is not None:
                session = self._proto.SessionLog(status=self._proto.SessionLog.START)
                self._write(resume_at + 1, session_log=session)

    def _write(self, step: int, **content: Any) -> None:
        self.writer.write_event(self._proto.Event(step=step, wall_time=time.time(), **content))

    def _describe(self, hyperparameters: dict[str, Any]) -> None:
        rows = [f"| {name} | {value} |" for name, value in hyperparameters.items()]
        self._write(0, summary=self._summary.text("hyperparameters", "\n".join(["| | |", "|---|---|", *rows])))

    def _log(self, values: dict[str, float], step: int) -> None:
        for name, one in values.items():
            self._write(step, summary=self._summary.scalar(name, one))
        self.writer.flush()

    def _attach(self, path: Path) -> None:
        shutil.copy(path, self.folder)

    def _end(self, status: str) -> None:
        self.writer.close()


class WeightsAndBiases(Tracker):
    """Logs to Weights & Biases; by default into a folder, which `wandb sync` sends later."""

    def __init__(
        self,
        folder: str | Path,
        project: str = "riskpath",
        mode: str = "offline",
        name: str | None = None,
        resume_at: int | None = None,
    ):
        """Begin a run of the tracker.

        Args:
            folder: Where its files go.
            project: The project.
            mode: "offline", or "online" to send everything at once.
            name: The name of the run.
            resume_at: The step at which a run is continued: the newest run of the folder goes on, offline in a second
                file with the same id.
        """
        if mode == "offline":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self._wandb = require_extra("wandb", "wandb", "Weights & Biases")
        self.folder = as_path(folder)
        with disk_errors(f"cannot write to {folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
            require_space(self.folder, SPACE)
        # run-20260131_120000-x1y2z3, or offline-run-… of the same form
        before = sorted(str(path).rpartition("run-")[2] for path in Path(folder).glob("wandb/*run-*"))
        again = before[-1].partition("-")[2] if before and resume_at is not None else None
        settings = self._wandb.Settings(silent=True, console="off")
        how = {"id": again, "resume": "allow"} if again and mode == "online" else {"id": again}
        try:
            self.run = self._wandb.init(
                dir=str(folder), project=project, mode=mode, name=name, settings=settings, **how
            )
        except Exception as error:  # of its own kinds
            raise RiskpathError(f"Weights & Biases could not start: {one_line(error)}") from None

    def _describe(self, hyperparameters: dict[str, Any]) -> None:
        self.run.config.update(hyperparameters)

    def _log(self, values: dict[str, float], step: int) -> None:
        require_space(self.folder, SPACE)  # another process writes, and says nothing if it cannot
        self.run.log(values, step=step, commit=True)

    def _attach(self, path: Path) -> None:
        require_space(self.folder, SPACE)
        artifact = self._wandb.Artifact(path.stem, type="policy" if path.suffix == ".zip" else "report")
        artifact.add_file(str(path))
        self.run.log_artifact(artifact)

    def _end(self, status: str) -> None:
        self.run.finish(exit_code=int(status == "FAILED"))


class MLflow(Tracker):
    """Logs to a store of MLflow in a folder, or to a server."""

    def __init__(
        self, store: str | Path, experiment: str = "riskpath", name: str | None = None, resume_at: int | None = None
    ):
        """Begin a run of the tracker.

        Args:
            store: A folder, which gets a database mlflow.db and the artifacts, or the address of a tracking server.
            experiment: The experiment.
            name: The name of the run.
            resume_at: The step at which a run is continued: the newest run of the experiment goes on, if a name is
                given the newest one of this name.
        """
        remote, folder = "://" in str(store), as_path(store).resolve()
        if not remote:
            os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        mlflow = require_extra("mlflow", "mlflow", "MLflow")
        self._entities = mlflow.entities
        try:
            if not remote:
                folder.mkdir(parents=True, exist_ok=True)
            self.client = mlflow.MlflowClient(tracking_uri=str(store) if remote else f"sqlite:///{folder}/mlflow.db")
            found = self.client.get_experiment_by_name(experiment)
            where = None if remote else (folder / "artifacts").as_uri()
            number = found.experiment_id if found else self.client.create_experiment(experiment, where)
            tags = {} if name is None else {"mlflow.runName": name}
            runs = (
                [] if resume_at is None else self.client.search_runs([number], order_by=["attributes.start_time DESC"])
            )
            before = next((one.info.run_id for one in runs if name in (None, one.info.run_name)), None)
            self.run_id = before or self.client.create_run(number, tags=tags).info.run_id
            self.client.update_run(self.run_id, status="RUNNING")
        except Exception as error:  # of its own kinds
            raise RiskpathError(f"MLflow could not start at {store}: {one_line(error)}") from None

    def _describe(self, hyperparameters: dict[str, Any]) -> None:
        settings = [self._entities.Param(key, str(value)[:500]) for key, value in hyperparameters.items()]
        self.client.log_batch(self.run_id, params=settings)

    def _log(self, values: dict[str, float], step: int) -> None:
        metrics = [self._entities.Metric(key, value, int(1000 * time.time()), step) for key, value in values.items()]
        self.client.log_batch(self.run_id, metrics=metrics)

    def _attach(self, path: Path) -> None:
        self.client.log_artifact(self.run_id, str(path))

    def _end(self, status: str) -> None:
        self.client.set_terminated(self.run_id, status)


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


@contextlib.contextmanager
def open_trackers(names: Sequence[str], folder: Path, resume_at: int | None = None) -> Iterator[list[Tracker]]:
    """Open trackers by their names on the command line, each in a folder of its own inside of a folder; close them."""
    with contextlib.ExitStack() as at_the_end:
        yield [at_the_end.enter_context(TRACKERS[name](folder / name, resume_at=resume_at)) for name in names]


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
    """Write the report and the policy of a run; return the files. Without an environment there is no report."""
    if run is None:
        return []
    played = not isinstance(run.environments[0], LoggedEnvironment)
    report = [run.report(folder / "report.html")] if played else []
    return [*report, run.policy().export(folder / "policy.zip")]
