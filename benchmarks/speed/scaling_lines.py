"""The growth that `scaling.py` measures: the line and the knee along every axis, and the picture of all of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.ticker import NullLocator

from riskpath import plot

COLUMNS = 3
AXES = {
    "lanes": "lanes",
    "width": "width of the network",
    "quantiles": "quantiles",
    "batch": "samples of a batch",
    "history": "observations in a history",
    "buffer": "transitions in a lane's replay buffer",
}
"""What can grow, and its label."""
COLOURS: dict[str, str] = dict(
    zip(
        ("IQN", "Adaptive", "TQL continuous", "TQL trajectory", "Adaptive continuous", "IQTD3"),
        plot.PALETTE,
        strict=False,
    )
)


class Line(NamedTuple):
    """time = fixed + slope · size, and the size at which both parts are equal."""

    fixed: float
    slope: float
    knee: float | None
    error: float
    """The largest relative error of the line at the measured sizes."""


def fit(sizes: Sequence[float], times: Sequence[float]) -> Line:
    """Fit a line with parts that are not negative, by least squares of the relative errors."""
    x, y = np.asarray(sizes, float), np.asarray(times, float)
    columns = np.stack([np.ones_like(x), x], axis=1) / y[:, None]
    candidates = [np.linalg.lstsq(columns, np.ones_like(y), rcond=None)[0]]
    for only in (0, 1):  # the best line with one part alone, where the other would be negative
        one = np.zeros(2)
        one[only] = columns[:, only].sum() / (columns[:, only] ** 2).sum()
        candidates.append(one)
    allowed = [line for line in candidates if (line >= 0).all()]
    fixed, slope = min(allowed, key=lambda line: float(((columns @ line - 1) ** 2).sum()))
    error = float(np.abs(columns @ np.array([fixed, slope]) - 1).max())
    return Line(float(fixed), float(slope), float(fixed / slope) if slope > 0 else None, error)


def held_bytes(row: dict[str, Any]) -> int:
    """Return what the program of a row holds: arguments, results and temporary arrays, shared ones once."""
    parts = row["bytes"]
    return parts["argument"] + parts["output"] + parts["temp"] - parts["alias"]


def series(rows: list[dict[str, Any]], listed: list[tuple[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the measured rows of every agent and axis, small sizes first; a row may belong to several axes."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for axis, point in listed:
        measured = [row for row in rows if point._asdict().items() <= row.items() and "failed" not in row]
        found.setdefault((point.agent, axis), []).extend(measured)
    return {key: line for key, line in found.items() if line}


def lines(rows: list[dict[str, Any]], listed: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of time and memory along every axis with at least three points."""
    found = []
    for (agent, axis), measured in series(rows, listed).items():
        if len(measured) > 2:
            sizes = [row[axis] for row in measured]
            times, memory = fit(sizes, [row["update_us"] for row in measured]), fit(sizes, [*map(held_bytes, measured)])
            found.append({"agent": agent, "axis": axis, "time_us": times._asdict(), "bytes": memory._asdict()})
    return found


def table(rows: list[dict[str, Any]], listed: list[tuple[str, Any]]) -> str:
    """Return the lines as a table in Markdown."""
    shown = ["| axis | agent | fixed | of each unit | knee | error of the line | memory of each unit |"]
    shown.append("|---|---|---:|---:|---:|---:|---:|")
    for line in sorted(lines(rows, listed), key=lambda line: [*AXES].index(line["axis"])):
        time, memory = line["time_us"], line["bytes"]
        knee = "–" if time["knee"] is None else f"{time['knee']:,.2g}" if time["knee"] < 100 else short(time["knee"])
        each = f"{time['slope']:,.0f}" if time["slope"] >= 100 else f"{time['slope']:.3g}"
        cells = f"{time['fixed']:,.0f} µs | {each} µs | {knee.strip()}"
        shown.append(
            f"| {line['axis']} | {line['agent']} | {cells} | {time['error']:.0%} | {short(memory['slope'])}B |"
        )
    return "\n".join(shown)


def label(machine: dict[str, Any]) -> str:
    """Return the name of a device; of a CPU also the number of cores."""
    if machine["device"] != "cpu":
        return machine["device"]
    return f"{machine['processor'] or 'CPU'}, {machine['cores_allowed']} core{'s' * (machine['cores_allowed'] > 1)}"


def short(number: float) -> str:
    """Return a number with two digits and a unit: 1.3 M."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:,.3g} {unit}"
    return f"{number:.3g} "


def draw(rows: list[dict[str, Any]], listed: list[tuple[str, Any]], device: str, path: Path) -> Path:
    """Draw time and memory against every axis: measured points, fitted lines, and a diamond at each knee."""
    known, fitted = series(rows, listed), {(line["agent"], line["axis"]): line for line in lines(rows, listed)}
    axes_shown = [axis for axis in AXES if any(axis == at for _, at in known)]
    blocks = -(-len(axes_shown) // COLUMNS)
    figure, grid = plot.panels(2 * blocks, min(COLUMNS, len(axes_shown)), 3.1, 2.2)
    names: dict[str, Any] = {}
    for number, axis in enumerate(axes_shown):
        block, column = divmod(number, COLUMNS)
        above, below = grid[2 * block, column], grid[2 * block + 1, column]
        for (agent, _), measured in ((key, line) for key, line in known.items() if key[1] == axis):
            sizes, colour = np.array([row[axis] for row in measured]), COLOURS[agent]
            lanes = sizes if axis == "lanes" else measured[0]["lanes"]
            for panel, part, values, unit in (
                (above, "time_us", [row["update_us"] for row in measured], lanes),
                (below, "bytes", [held_bytes(row) for row in measured], 1e6),
            ):
                (names[agent],) = panel.plot(sizes, np.array(values) / unit, "o", color=colour, markersize=4)
                if line := fitted.get((agent, axis)):
                    fixed, slope, knee, _ = line[part].values()
                    x = np.geomspace(sizes[0], sizes[-1], 100)
                    per = (x if axis == "lanes" else unit) if part == "time_us" else unit
                    panel.plot(x, (fixed + slope * x) / per, color=colour, linewidth=1.2)
                    if part == "time_us" and knee is not None and sizes[0] <= knee <= sizes[-1]:
                        at = 2 * fixed / (knee if axis == "lanes" else unit)
                        panel.plot([knee], [at], "D", color=colour, markerfacecolor="white", markersize=7, zorder=3)
        for panel in (above, below):
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.grid(alpha=0.25, linewidth=0.6)
            ticks = sorted({row[axis] for (_, at), measured in known.items() if at == axis for row in measured})
            panel.set_xticks(ticks, [short(tick).replace(" ", "") for tick in ticks])
            panel.xaxis.set_minor_locator(NullLocator())
            panel.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        below.set_xlabel(AXES[axis], fontsize=9)
        if column == 0:
            above.set_ylabel("µs, one update\nof one lane", fontsize=9)
            below.set_ylabel("MB that the\nprogram holds", fontsize=9)
    for row, panels in enumerate(grid):  # the same range, so that heights can be compared
        ranges = [panel.get_ylim() for panel in grid[row % 2 :: 2].ravel() if panel.lines]
        for panel in panels:
            panel.set_ylim(min(low for low, _ in ranges), max(high for _, high in ranges))
    for panel in grid[2 * blocks - 2 :, (len(axes_shown) - 1) % COLUMNS + 1 :].ravel():
        panel.set_visible(False)
    knee = grid[0, 0].plot([], [], "D", color="0.3", markerfacecolor="white", markersize=7)[0]
    handles = {**names, "knee": knee}
    figure.suptitle(device, fontsize=10)
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False
    )
    return plot.save(figure, path)
