"""`riskpath bench suite`: its options, its tables, and one line for an interruption or a mistake."""

import pytest

from riskpath.cli import sweep_commands
from riskpath.experiments.bench import Bench
from tests.experiments.test_bench import CELLS


@pytest.fixture
def calls(monkeypatch) -> list[dict]:
    """Replace the benchmark by stored cells, and return the arguments of each call."""
    made = []

    def fake(**arguments):
        made.append(arguments)
        return Bench(CELLS, command=arguments["command"])

    monkeypatch.setattr(sweep_commands, "run_bench", fake)
    return made


def test_both_tables_are_printed_and_stored(cli, calls, tmp_path):
    status, out, _ = cli("bench", "suite", "--agents", "iqn", "adaptive", "--seeds", "2", "--out", str(tmp_path))
    assert status == 0
    for words in ("Share of the optimum's advantage", "Gap to the optimum", "probe grid", "mean control", "1.00"):
        assert words in out
    (arguments,) = calls
    assert arguments["agents"] == ("iqn", "adaptive")
    assert arguments["command"] == "riskpath bench suite --agents iqn adaptive --seeds 2"
    assert {"bench.json", "bench.md", "bench_heat_map.png"} <= {path.name for path in tmp_path.iterdir()}
    assert Bench.load(tmp_path).command == arguments["command"]


@pytest.mark.parametrize(
    ("options", "folder"),
    [
        ([], "results/bench"),
        (["--quick"], "runs/bench-quick"),
        (["--problems", "probe grid"], "runs/bench"),
        (["--quantiles", "64"], "runs/bench"),
        (["--only", "IQN"], "results/bench"),
    ],
)
def test_the_folder_follows_from_the_options(cli, calls, tmp_path, monkeypatch, options, folder):
    monkeypatch.chdir(tmp_path)
    assert cli("bench", "suite", *options)[0] == 0
    assert (tmp_path / folder / "bench.json").exists()


@pytest.mark.parametrize("cells", [[], CELLS])
def test_an_interruption_is_one_line(cli, monkeypatch, tmp_path, cells):
    message = "interrupted: 1 cells are left; the same command continues with them"
    monkeypatch.setattr(sweep_commands, "run_bench", lambda **arguments: Bench(cells, ["TQL on probe grid, cvar"]))
    status, _, err = cli("bench", "suite", "--out", str(tmp_path))
    assert (status, err) == (130, f"riskpath: {message}\n")
    assert not list(tmp_path.iterdir())  # drawing would take seconds


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["games"], "unknown benchmark 'games'; there is suite"),
        (["suite", "--agents", "dqn"], "unknown agent 'dqn' (did you mean IQN?)"),
        (["suite", "--problems", "Chess"], "unknown problem 'Chess'"),
        (["suite", "--risks", "cvar:2"], "CVaR level must be in (0, 1], got 2"),
        (["suite", "--seed", "2"], "unknown option --seed"),
        (["suite", "--steps", "0"], "steps must be at least 1, got 0"),
        (["suite", "--quantiles", "0"], "quantiles must be at least 1, got 0"),
    ],
)
def test_a_mistake_is_one_line(cli, unchecked, arguments, message):
    status, out, err = cli("bench", *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("cells", "start"), [([], "all cells failed"), (CELLS, "1 cells failed")])
def test_a_failed_cell_is_one_line_after_the_others(cli, monkeypatch, tmp_path, cells, start):
    failed = {"TQL on probe grid, cvar": "the loss was not a finite number"}
    monkeypatch.setattr(sweep_commands, "run_bench", lambda **arguments: Bench(cells, list(failed), failed))
    status, _, err = cli("bench", "suite", "--out", str(tmp_path))
    assert status == 2
    assert err == f"riskpath: {start}; TQL on probe grid, cvar: the loss was not a finite number\n"
