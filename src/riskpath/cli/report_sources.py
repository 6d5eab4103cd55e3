"""Find and read the sources of `riskpath report`: folders of runs, sweeps and benchmarks below the given paths.

A new kind of result is one more entry of `KINDS`.
"""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from riskpath.cli.run_folder import CONFIG, LOG, RESULT, SavedRun
from riskpath.errors import RiskpathError, in_one_line
from riskpath.experiments.bench import CELLS, Bench
from riskpath.experiments.bench import RESULT as BENCH
from riskpath.experiments.bench_scores import LEVELS, profile, shares_by_agent
from riskpath.experiments.bench_suite import known_optimum
from riskpath.report import BenchRecord, RunRecord, SweepRecord
from riskpath.report.gather_record import extended, gather
from riskpath.sweeps.result import load_sweep
from riskpath.sweeps.store import MANIFEST as SWEEP
from riskpath.sweeps.store import SweepFolder
from riskpath.training.atomic_dir import HEADER, find_folder

Record = RunRecord | BenchRecord | SweepRecord


class Kind(NamedTuple):
    """A kind of result on disk."""

    holds: Callable[[Path], bool]
    """Tells whether a path is of this kind."""
    stamp: Callable[[Path], Any]
    """Returns a value that changes whenever the result must be read again."""
    read: Callable[[Path, str, str | None], Record]
    """Reads a path, given its title and the environment that was named on the command line."""
    renew: Callable[[Path, Any], Any] = lambda path, record: record
    """Adds what changes often and is quick to read."""


class Source(NamedTuple):
    """A result that was found."""

    path: Path
    title: str
    kind: Kind


def find_sources(paths: Iterable[Path]) -> list[Source]:
    """Return all results at or below paths, in the order of their names."""
    found: dict[Path, tuple[Path, Kind]] = {}
    for root in paths:
        if not root.exists():
            raise RiskpathError(f"there is nothing at {root}")
        for path, kind in _walk(root):
            found.setdefault(path.resolve(), (path, kind))
    titles = [path.resolve().name if path.is_dir() else path.stem for path, _ in found.values()]
    return [
        Source(path, title if titles.count(title) == 1 else str(path), kind)
        for (path, kind), title in zip(found.values(), titles, strict=True)
    ]


def _walk(path: Path) -> Iterator[tuple[Path, Kind]]:
    """Yield results; a folder that is one is not searched further."""
    for kind in KINDS:
        if kind.holds(path):
            yield path, kind
            return
    if path.is_file():
        raise RiskpathError(f"{path} is not the result of a benchmark")
    try:
        inside = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise RiskpathError(f"cannot read {path}: {error.strerror}") from None
    for entry in inside:
        if not entry.is_symlink():
            yield from _walk(entry)


def _is_run(path: Path) -> bool:
    return path.is_dir() and ((path / HEADER).is_file() or SavedRun(path).from_command_line)


def _read_run(path: Path, title: str, env: str | None) -> RunRecord:
    saved = SavedRun(path)
    if env is not None and not saved.config:  # saved from Python, perhaps with an environment without an id
        run = saved.load_with(saved.make_environment(env))
    else:
        run = saved.load(saved.make_environment(env) if env is not None and saved.config["env"] == env else None)
    with in_one_line(f"{path} is damaged"):
        header = json.loads((find_folder(path) / HEADER).read_text())
        about = {"saved": str(header["created"]), **{key: str(text) for key, text in header["versions"].items()}}
    if saved.config:
        about |= {"environment": " ".join([saved.config["env"], *saved.config["set"]])}
    if (path / RESULT).is_file() and (path / CONFIG).is_file():
        with in_one_line(f"{path / RESULT} is damaged"):
            result = json.loads((path / RESULT).read_text())
            about |= {"trained on": str(result["device"]), "training took": f"{float(result['seconds']):,.0f} s"}
    with in_one_line(f"{path} cannot be evaluated"):
        return gather(run, title, about=about, lookup=known_optimum)


def _renew_run(path: Path, record: RunRecord) -> RunRecord:
    """Add training episodes, and evaluations after the last checkpoint; a killed run may have left half a line."""
    logged: list[dict[str, Any]] = []
    try:
        lines = (path / LOG).read_text(errors="replace").splitlines()
    except OSError:
        return record
    for line in lines:
        with contextlib.suppress(ValueError, LookupError, TypeError):
            entry = json.loads(line)
            logged.append({**entry, "step": int(entry["step"])})
    with in_one_line(f"{path / LOG} is damaged"):
        return extended(record, logged)


def _read_sweep(path: Path, title: str, env: str | None) -> SweepRecord:
    sweep, configuration = load_sweep(path), SweepFolder(path).configuration()
    with in_one_line(f"{path} is damaged"):
        agent = str(configuration["agent"]["$class"]).rpartition(".")[2]
        given = configuration["env"]
        if isinstance(given, str) or "$finite" in given:
            name = str(given if isinstance(given, str) else given["$finite"])
        else:
            name = str(given.get("$class") or given["$object"]).rpartition(".")[2]
        rows: dict[int, dict[str, Any]] = {}
        for lane in sweep.lanes:
            settings = {axis: _setting(lane[axis]) for axis in sweep.axes}
            row = rows.setdefault(lane["combination"], {"settings": settings, "values": [], "means": [], "curves": []})
            row["values"].append(float(lane["value"]))
            row["means"].append(float(lane["mean"]))
            row["curves"].append([[float(step), float(value)] for step, value in lane.get("curve") or []])
    return SweepRecord(title, agent, name, sweep.axes, list(rows.values()), sweep.missing, sweep.failed)


def _setting(value: Any) -> Any:
    """Return the value of an axis as a number, a text, or a list of such."""
    if isinstance(value, list | tuple):
        return [_setting(part) for part in value]
    return value if isinstance(value, int | float | str) else str(value)


def _is_bench(path: Path) -> bool:
    """Tell whether a path is the folder of a benchmark, or the file with its result."""
    if path.is_file():
        return path.suffix == ".json"
    return (path / BENCH).is_file() or (path / CELLS).is_dir()


def _bench_files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [path / BENCH, *sorted((path / CELLS).glob("*.json"))]


def _read_bench(path: Path, title: str, env: str | None) -> BenchRecord:
    """Read the result of a benchmark; that of an unfinished one from its cells."""
    file = path if path.is_file() else path / BENCH
    with in_one_line(f"{file} is damaged"):
        content = json.loads(file.read_text()) if file.exists() else {}
        if not isinstance(content, dict) or (content and not isinstance(content.get("cells"), list)):
            raise RiskpathError(f"{file} is not the result of a benchmark")
        missing, failed = content.get("missing", []), content.get("failed", {})
        bench = Bench(content.get("cells", []), list(missing), dict(failed), str(content.get("command", "")))
    if path.is_dir() and (not content or missing):
        bench = dataclasses.replace(bench, cells=[_read_cell(cell) for cell in sorted((path / CELLS).glob("*.json"))])
    with in_one_line(f"{path} is damaged"):
        rows = bench.table()
        profiles = []
        for agent, shares in shares_by_agent(bench.cells).items():
            part, (low, high) = profile(shares)
            kept = slice(None, None, 4)
            numbers = {"levels": LEVELS[kept], "part": part[kept], "low": low[kept], "high": high[kept]}
            profiles.append({"label": agent, **{key: value.tolist() for key, value in numbers.items()}})
    missing = bench.missing if content else ["the cells that are still being trained"]
    return BenchRecord(title, bench.command, rows, profiles, missing, bench.failed)


def _read_cell(path: Path) -> dict[str, Any]:
    with in_one_line(f"{path} is damaged"):
        cell = json.loads(path.read_text())
        _ = cell["agent"], cell["problem"], cell["results"][0]["values"]
        return cell


def _times(files: Iterable[Path]) -> list[tuple[str, int]]:
    """Return names and times of the files that exist."""
    return [(file.name, file.stat().st_mtime_ns) for file in files if file.exists()]


KINDS = (
    Kind(_is_run, lambda path: _times([find_folder(path) / HEADER]), _read_run, _renew_run),
    Kind(lambda path: (path / SWEEP).is_file(), lambda path: _times(sorted(path.rglob("*.json"))), _read_sweep),
    Kind(_is_bench, lambda path: _times(_bench_files(path)), _read_bench),
)
"""The kinds of results, in the order in which a path is tried."""
