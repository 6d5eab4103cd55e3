"""The experiments by name, and what the command line says of their results."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from riskpath.cli.tables import table_of
from riskpath.experiments import grid, grid_figures, mountain_car, mountain_car_figures, three_state


def grid_report(result: dict[str, Any], out: Path) -> list[Table | str]:
    """Draws the figures; one row for each agent, measure and grid."""
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
    return [table_of("The risky grid: the whole return of the final policies", rows), *map(str, written)]


def three_state_report(result: dict[str, Any], out: Path) -> list[Table | str]:
    """The table of the first figure, and what each seed's policy does."""
    laws = [{**row, "cvar": f"{row['cvar']:g}"} for row in result["first_figure"]]
    policies = [
        {
            "agent": lane["agent"],
            "seed": lane["seed"],
            "does": ", ".join(lane["actions"]),
            "value": f"{lane['value']:g}",
        }
        for lane in result["policies"]
    ]
    return [
        table_of(f"The paper's first figure: laws and their {result['risk']}, from the operators", laws),
        table_of(f"Learned policies: exact {result['risk']} of the whole return", policies),
    ]


def mountain_car_report(result: dict[str, Any], out: Path) -> list[Table | str]:
    """Draws the 30 panels; one row for each cell, median over seeds (lowest to highest)."""
    rows = []
    for row in mountain_car.summary(result):
        shown = {"c": row["c"], "risk": row["risk"], "best known": f"{row['best known']:.2f}"}
        for name in mountain_car.AGENTS:
            shown[name] = "{:.2f} ({:.2f} to {:.2f})".format(*row[name]) if name in row else "–"
        rows.append(shown)
    drawn = mountain_car_figures.write(result, out)
    table = table_of("Risky mountain-car: discounted risk of the final policies", rows)
    return [table, mountain_car.verdict(result), *map(str, drawn)]


class Experiment(NamedTuple):
    """One of the paper's results."""

    reproduce: Callable[..., dict[str, Any]]
    """`reproduce(out, quick=, seeds=, show=)`, and `only=` if it has parts."""
    report: Callable[[dict[str, Any], Path], list[Table | str]]
    """What to print of its result, and the files drawn from it."""
    parts: Callable[[bool], list[str]]
    """What `only` chooses from."""
    seeds: int = 8
    """How many there are unless a user says otherwise."""


EXPERIMENTS = {
    "three-state": Experiment(three_state.reproduce, three_state_report, lambda quick: []),
    "grid": Experiment(grid.reproduce, grid_report, lambda quick: [part.name for part in grid.programs(quick)]),
    "mountain-car": Experiment(mountain_car.reproduce, mountain_car_report, lambda quick: [*mountain_car.AGENTS], 6),
}
