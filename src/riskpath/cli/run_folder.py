"""The folder of `riskpath train --out`: run/ (the checkpoint), config.json, log.jsonl and result.json."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from riskpath.cli.config_file import TYPES, assignments
from riskpath.cli.environments import is_gymnasium, make_environment
from riskpath.errors import RiskpathError
from riskpath.files import disk_errors, new_folders, write_json
from riskpath.training.atomic_dir import HEADER
from riskpath.training.run import Run, load
from riskpath.training.trackers import TRACKERS

RUN, CONFIG, LOG, RESULT = "run", "config.json", "log.jsonl", "result.json"


@contextlib.contextmanager
def prepared_folder(out: Path, config: dict[str, Any], overwrite: bool) -> Iterator[None]:
    """Write the configuration to a new folder; only a run is replaced, and only if `overwrite` is true.

    If no checkpoint is saved in this context, for example because the disk is full, the folder is as it was before.
    """
    _require_free(out, overwrite)
    before = _last_save(out)
    files = [*(out / name for name in (CONFIG, LOG, RESULT)), *out.glob("tensorboard/events.*")]
    with contextlib.ExitStack() as undo:
        with disk_errors(f"cannot write to {out}"):
            undo.enter_context(new_folders(out))
            undo.callback(_end, out, before, files)
            for file in files:
                if file.exists():
                    os.replace(file, _aside(file))
            write_json(out / CONFIG, config)
        yield


def _end(out: Path, before: Any, files: list[Path]) -> None:
    """Remove what was put aside; put it back if nothing was saved since."""
    nothing_saved = _last_save(out) == before
    with contextlib.suppress(OSError):
        for file in files:
            if nothing_saved:
                file.unlink(missing_ok=True)
            if _aside(file).exists():
                os.replace(_aside(file), file) if nothing_saved else _aside(file).unlink()


def _aside(file: Path) -> Path:
    return file.with_name(f".{file.name}.old")


def _last_save(out: Path) -> Any:
    """Return what tells one checkpoint from the next; None if there is none."""
    header = out / RUN / HEADER
    return (header.stat().st_ino, header.stat().st_mtime_ns) if header.is_file() else None


def _require_free(out: Path, overwrite: bool) -> None:
    holds_run = _holds_run(out)
    if holds_run and not overwrite:
        raise RiskpathError(f"there is a run in {out}: riskpath resume {out} continues it, --overwrite replaces it")
    if not holds_run and out.is_dir() and any(out.iterdir()) and not _was_only_prepared(out):
        if (out / HEADER).is_file():
            raise RiskpathError(f"{out} is a saved run: riskpath resume {out} continues it; give a new folder")
        raise RiskpathError(f"{out} contains other files than a run; give a new folder")


def _holds_run(folder: Path) -> bool:
    """Tell whether a folder holds a checkpoint, or the backup of one whose last save was interrupted."""
    return any((folder / name / HEADER).is_file() for name in (RUN, f".{RUN}.old"))


def _was_only_prepared(folder: Path) -> bool:
    """Tell whether a folder holds nothing but the configuration of a run that was killed before its first save."""
    if not {entry.name for entry in folder.iterdir()} <= {CONFIG, LOG, f".{RUN}.part", *TRACKERS}:
        return False
    try:
        return json.loads((folder / CONFIG).read_text()).keys() == TYPES.keys()
    except (OSError, ValueError, AttributeError):
        return False


class SavedRun:
    """A run on disk: the folder of `riskpath train --out`, or one of `run.save`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.from_command_line = not (folder / HEADER).is_file() and _holds_run(folder)
        """Whether `riskpath train` wrote it."""
        self.checkpoint = folder / RUN if self.from_command_line else folder
        """Where the run itself is."""
        self.config: dict[str, Any] = self._read_config() if self.from_command_line else {}
        """The configuration that `riskpath train` wrote; empty if it cannot be read."""

    @property
    def workers(self) -> str | None:
        """Return who stepped the environments; a file must not lead to a connection, so an address is given again."""
        workers = self.config.get("workers")
        if isinstance(workers, str) and ":" in workers:
            hint = f"give --workers {workers}, or --workers none for this process"
            raise RiskpathError(f"{self.folder} was trained with workers on {workers}: {hint}")
        return workers

    def load(self, environment: Any = None) -> Run:
        """Load the run; `environment` is needed if the run cannot be loaded without an import."""
        name = self.config.get("env", "")
        if environment is None and ":" in name:  # a file must not lead to an import
            raise RiskpathError(f"{self.folder} was trained on {name}, which has to be imported: give --env {name}")
        if environment is None and self.config and self.config["set"] and is_gymnasium(name):
            environment = self.make_environment(name)  # a checkpoint does not contain what --set changed
        try:
            return load(self.checkpoint, env=environment)
        except RiskpathError as error:
            raise RiskpathError(str(error).replace("load with env=…", "give --env MODULE:NAME")) from None

    def load_with(self, environment: Any) -> Run:
        """Load the run with its own environment, or with this one if its own cannot be made in this process."""
        try:
            return load(self.checkpoint)
        except RiskpathError:
            return load(self.checkpoint, env=environment)

    def make_environment(self, name: str, fields: tuple[str, ...] = ()) -> Any:
        """Make an environment; the one that was trained on gets the fields that training had changed."""
        if not fields and name == self.config.get("env"):
            fields = tuple(self.config["set"])
        return make_environment(name, assignments(fields))

    def named_environment(self, env: str | None, fields: tuple[str, ...]) -> Any:
        """Return the environment that was named on the command line, if any."""
        if env is None and fields:
            raise RiskpathError("--set changes fields of an environment: give --env as well")
        return None if env is None else self.make_environment(env, fields)

    def _read_config(self) -> dict[str, Any]:
        try:
            config = json.loads((self.folder / CONFIG).read_text())
            texts = [config["env"], *config["set"], *config.get("log", [])]
            valid = all(isinstance(text, str) for text in texts)
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return config if valid else {}
