"""Assembles the page: style, data and scripts in one HTML file, which is replaced as a whole.

The data stands in a block of JSON that the scripts read. Nothing is loaded from anywhere else: the page's own security
policy forbids it.
"""

import dataclasses
import html
import json
import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from riskpath.errors import RiskpathError
from riskpath.files import as_path, disk_errors, write_file
from riskpath.plot.style import COLOURS, GREY, PALETTE
from riskpath.report.run_record import BenchRecord, RunRecord, SweepRecord
from riskpath.version import __version__

MARKER = "<!-- riskpath report -->"
"""The second line of every page: only a file that has it is replaced."""
SCRIPTS = ("elements.js", "charts.js", "pictures.js", "tables.js", "figures.js", "sweeps.js", "page.js")
"""The scripts in the order in which they run."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
DIGITS = 6
"""Significant digits of numbers in the data."""


def write_page(
    path: str | Path,
    runs: Sequence[RunRecord] = (),
    benches: Sequence[BenchRecord] = (),
    sweeps: Sequence[SweepRecord] = (),
    *,
    title: str = "Riskpath report",
    refresh: float | None = None,
) -> Path:
    """Write the page to a file and return its path; a file that is not such a page is never replaced.

    During training, an open page loads itself again after `refresh` seconds.
    """
    return write_file(require_page(path), make_page(runs, benches, sweeps, title, refresh))


def require_page(path: str | Path) -> Path:
    """Return the path of a page; refuse a folder, and a file that is something else."""
    place = as_path(path)
    if place.is_dir():
        raise RiskpathError(f"cannot write {path}: it is a folder; give a file such as {place / 'report.html'}")
    with disk_errors(f"cannot write {path}"):
        try:
            with place.open("rb") as file:
                start = file.read(200)
        except FileNotFoundError:
            return place
    if MARKER.encode() not in start:
        raise RiskpathError(f"{path} is not a report of riskpath, so it is not overwritten; give another --out")
    return place


def make_page(
    runs: Sequence[RunRecord],
    benches: Sequence[BenchRecord] = (),
    sweeps: Sequence[SweepRecord] = (),
    title: str = "Riskpath report",
    refresh: Any = None,
) -> str:
    """Return the HTML of the page."""
    data = {
        "title": title,
        "version": __version__,
        "refresh": refresh,
        "palette": list(PALETTE),
        "colours": {**COLOURS, "CVaRDRL": COLOURS["CVaR-DRL"], "QRSRM": COLOURS["QR-SRM"]},
        "grey": GREY,
        "runs": [dataclasses.asdict(run) for run in runs],
        "benches": [dataclasses.asdict(bench) for bench in benches],
        "sweeps": [dataclasses.asdict(sweep) for sweep in sweeps],
    }
    files = resources.files("riskpath.report")
    scripts = "\n".join(files.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    style = files.joinpath("page.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
{MARKER}
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="riskpath {__version__}">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{html.escape(title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<noscript>The tables and figures of this page are drawn by its own scripts: allow JavaScript.</noscript>
<main id="page"></main>
<script type="application/json" id="data">{as_json(data)}</script>
<script>
"use strict";
{scripts}</script>
</body>
</html>
"""


def as_json(data: Any) -> str:
    """Return data as JSON that cannot end the script element it stands in."""
    text = json.dumps(_plain(data), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _plain(value: Any) -> Any:
    """Return data with few digits; numbers that are not finite become null, because JSON has none."""
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):  # numbers are many, so they are shortened here
        short = lambda x: float(f"{x:.{DIGITS}g}") if math.isfinite(x) else None
        return [short(part) if type(part) is float else _plain(part) for part in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    return _plain(value.tolist()) if hasattr(value, "tolist") else _plain([float(value)])[0]
