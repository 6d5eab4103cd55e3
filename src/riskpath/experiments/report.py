"""The experiments by name, and the tables and figures that the command line shows of their results."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from riskpath.experiments import grid_figures, mountain_car_figures, suite_figures, suite_optima
from riskpath.experiments import reproduce_grid as grid
from riskpath.experiments import reproduce_mountain_car as mountain_car
from riskpath.experiments import reproduce_three_state as three_state


class Rows(NamedTuple):
    """A table: rows with the same keys, which are the headings."""

    title: str
    rows: list[dict[str, Any]]


def grid_report(result: dict[str, Any], out: Path) -> list[Rows | str]:
    """Draw the figures; return one row for each agent, measure and grid."""
    rows = [
        {
            **{key: row[key] for key in ("agent", "risk", "grid", "paths")},
            "median value": f"{row['median']:.3f}",
            "history optimum": f"{row['history_optimum']:.3f}",
            "estimate off by": f"{row['estimate_error']:.1f}",
        }
        for row in grid.summary(result)
    ]
    written = grid_figures.write(result, out)
    return [Rows("The risky grid: the whole return of the final policies", rows), *map(str, written)]


def three_state_report(result: dict[str, Any], out: Path) -> list[Rows | str]:
    """Return the table of the first figure, and the actions of each seed's policy."""
    laws = [{**row, "cvar": f"{row['cvar']:g}"} for row in result["first_figure"]]
    policies = [
        {**lane, "actions": ", ".join(lane["actions"]), "value": f"{lane['value']:g}"} for lane in result["policies"]
    ]
    return [
        Rows(f"The paper's first figure: distributions and their {result['risk']}, from the operators", laws),
        Rows(f"Learned policies: exact {result['risk']} of the whole return", policies),
    ]


def mountain_car_report(result: dict[str, Any], out: Path) -> list[Rows | str]:
    """Draw the 30 panels; return one row for each cell, median over seeds (lowest to highest)."""
    rows = []
    for row in mountain_car.summary(result):
        shown = {"c": row["c"], "risk": row["risk"], "best known": f"{row['best known']:.2f}"}
        for name in mountain_car.AGENTS:
            shown[name] = "{:.2f} ({:.2f} to {:.2f})".format(*row[name]) if name in row else "–"
        rows.append(shown)
    drawn = mountain_car_figures.write(result, out)
    table = Rows("Risky mountain-car: discounted risk of the final policies", rows)
    return [table, mountain_car.verdict(result), *map(str, drawn)]


def suite_report(result: dict[str, Any], out: Path) -> list[Rows | str]:
    """Draw distributions and frontiers; return one table for each problem."""
    tables: list[Rows | str] = []
    for record in result["records"]:
        rows: dict[str, dict[str, Any]] = {}
        for cell in record["cells"]:
            value = f"{cell['value']:.5g}" if "value" in cell else "–"
            rows.setdefault(cell["risk"], {"measure": cell["risk"]})[cell["policies"]] = value
        columns = dict.fromkeys(key for row in rows.values() for key in row)
        tables.append(Rows(record["problem"], [{key: row.get(key, "") for key in columns} for row in rows.values()]))
    return [*tables, *map(str, suite_figures.write(result, out))]


class Experiment(NamedTuple):
    """One of the paper's results."""

    reproduce: Callable[..., dict[str, Any]]
    """Trains the agents: `reproduce(out, quick=, seeds=, show=)`, and `only=` if the experiment has parts."""
    report: Callable[[dict[str, Any], Path], list[Rows | str]]
    """Returns tables and lines to print, and draws the figures."""
    parts: Callable[[bool], list[str]]
    """Returns the names that `only` chooses from."""
    seeds: int = 8
    on_ray: bool = False
    """Whether it takes `ray=`, the address of a cluster."""


EXPERIMENTS = {
    "three-state": Experiment(three_state.reproduce, three_state_report, lambda quick: []),
    "grid": Experiment(grid.reproduce, grid_report, lambda quick: [part.name for part in grid.programs(quick)]),
    "mountain-car": Experiment(
        mountain_car.reproduce, mountain_car_report, lambda quick: [*mountain_car.AGENTS], 6, True
    ),
    "suite-optima": Experiment(suite_optima.reproduce, suite_report, suite_optima.parts, 1),
}
