"""What the command line shows of committed results."""

import json
from pathlib import Path

import pytest

from riskpath.experiments.report import EXPERIMENTS, Rows

RESULTS = Path(__file__).parent.parent.parent / "results"


@pytest.mark.parametrize(
    ("name", "file", "rows"),
    [("three-state", "three_state.json", 16), ("grid", "grid.json", 23), ("mountain-car", "mountain_car_run.json", 30)],
)
def test_report_of_committed_results(name, file, rows, tmp_path):
    result = json.loads((RESULTS / file).read_text())
    table, *rest = EXPERIMENTS[name].report(result, tmp_path)
    assert isinstance(table, Rows)
    assert len(table.rows) == rows
    assert all(row.keys() == table.rows[0].keys() for row in table.rows)
    files = [Path(line) for line in rest if isinstance(line, str) and line.startswith(str(tmp_path))]
    assert all(path.stat().st_size > 500 for path in files)
    assert len(files) == {"three-state": 0, "grid": 3, "mountain-car": 2}[name]
