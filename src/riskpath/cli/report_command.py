"""`riskpath report`: one HTML page for runs, sweeps and benchmarks, which can follow training while it runs."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from riskpath.cli.report_sources import Record, Source, find_sources
from riskpath.errors import RiskpathError
from riskpath.report import BenchRecord, RunRecord, SweepRecord, write_page
from riskpath.report.page import require_page
from riskpath.training.progress import working
from riskpath.validation import require_positive


def report(
    paths: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="PATH…")],
    out: Path = Path("report.html"),
    title: str = "Riskpath report",
    env: str | None = None,
    watch: bool = False,
    every: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 10.0,
) -> None:
    """Write one HTML page about runs, sweeps and benchmarks: figures, tables, settings; it opens without a server.

    Args:
        paths: Folders of runs (`riskpath train --out`, `run.save`), of sweeps (`riskpath sweep --out`), results of
            benchmarks (`riskpath bench suite --out`), or folders that contain several of them.
        out: The file; only a page that this command wrote before is replaced.
        title: The heading of the page.
        env: For runs on an environment of your own: MODULE:NAME imports the module that registers it.
        watch: Rewrite the page at intervals during training; an open page follows. Ctrl-C ends it.
        every: With --watch: the time between two pages.
    """
    require_positive(every=every)
    if not paths:
        raise RiskpathError("give at least one PATH: a run, a sweep, a benchmark, or a folder that contains some")
    require_page(out)  # before the work
    known: dict[Path, tuple[Any, Record]] = {}
    read = lambda: _read(find_sources(paths), env, known)
    console = Console()
    if watch:
        _watch(read, out, title, every, console)
        return
    records = read()
    if not records:
        raise RiskpathError(f"there are no runs, sweeps or benchmarks in {', '.join(map(str, paths))}")
    _write(out, records, title)
    console.print(f"{_counts(records)}: open {out}", highlight=False)


def _read(sources: list[Source], env: str | None, known: dict[Path, tuple[Any, Record]]) -> list[Record]:
    """Return the records of all sources; what has not changed since it became `known` is not evaluated again."""
    records = []
    for place, (path, title, kind) in enumerate(sources, 1):
        stamp = (title, kind.stamp(path))
        if path not in known or known[path][0] != stamp:
            with working(f"reading {path} ({place} of {len(sources)})"):
                known[path] = stamp, kind.read(path, title, env)
        records.append(kind.renew(path, known[path][1]))
    return records


def _watch(read: Callable[[], list[Record]], out: Path, title: str, every: float, console: Console) -> None:
    """Write pages until everything is finished, or until Ctrl-C; the last one does not load itself again."""
    records: list[Record] = []
    said = ""
    try:
        while True:
            try:
                records = read()
                line = f"{_counts(records)}: open {out}" if records else "waiting for the first run"
                unfinished = (not one.finished if isinstance(one, RunRecord) else one.missing for one in records)
                going_on = not records or any(unfinished)
                if records:
                    _write(out, records, title, every if going_on else None)
            except (RiskpathError, OSError) as error:  # for example a folder that is just being replaced
                if not records:
                    raise
                line, going_on = f"the page is kept as it was: {error}", True
            if line != said:
                console.print(line, highlight=False)
                said = line
            if not going_on:
                return
            time.sleep(every)
    except KeyboardInterrupt:
        if records:
            _write(out, records, title)


def _write(out: Path, records: list[Record], title: str, refresh: float | None = None) -> None:
    runs = [record for record in records if isinstance(record, RunRecord)]
    benches = [record for record in records if isinstance(record, BenchRecord)]
    sweeps = [record for record in records if isinstance(record, SweepRecord)]
    write_page(out, runs, benches, sweeps, title=title, refresh=refresh)


def _counts(records: list[Record]) -> str:
    kinds = {RunRecord: "run", SweepRecord: "sweep", BenchRecord: "benchmark"}
    counts = {name: sum(isinstance(record, kind) for record in records) for kind, name in kinds.items()}
    return " and ".join(f"{count} {name}{'s' * (count != 1)}" for name, count in counts.items() if count)
