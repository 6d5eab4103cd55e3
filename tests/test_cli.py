"""The command line as a user meets it."""

import json

import pytest

import riskpath as rp
from riskpath.cli import main


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of one command."""
    try:
        main(list(arguments))
        status = 0
    except SystemExit as stop:
        status = stop.code or 0
    captured = capsys.readouterr()
    return int(status), captured.out, captured.err


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"riskpath {rp.__version__}\n", "")


@pytest.mark.parametrize("arguments", [("--help",), (), ("solve", "--help"), ("demo", "--help")])
def test_help_explains_itself(capsys, arguments):
    status, out, _ = run(capsys, *arguments)
    assert status == 0
    assert "usage: riskpath" in out


def test_solve_prints_all_classes_with_the_policy_in_words(capsys):
    status, out, _ = run(capsys, "solve", "RiskyGrid", "--risk", "cvar:0.1")
    assert status == 0
    for word in ("markov", "48", "nested", "history", "72.375", "adaptive", "79.875", "start (0,0): down"):
        assert word in out


def test_solve_json_is_for_machines(capsys):
    status, out, _ = run(capsys, "solve", "RiskyGrid", "--risk", "cvar:0.1", "--discount", "0.99", "--json")
    record = json.loads(out)
    assert status == 0
    assert record["history"]["value"] == pytest.approx(70.08, abs=0.01)
    assert record["adaptive"]["value"] == pytest.approx(77.28, abs=0.01)
    assert record["nested"]["nested_value"] == pytest.approx(47.11, abs=0.01)
    assert sum(record["history"]["law"]["probs"]) == pytest.approx(1.0)


def test_fields_of_the_problem_can_be_set(capsys):
    arguments = ("solve", "RiskyGrid", "--set", "p_yellow=0.8", "blue=38", "--json")
    assert json.loads(run(capsys, *arguments)[1])["history"]["value"] == pytest.approx(102.0)


def test_demo_shows_the_known_optima(capsys):
    status, out, _ = run(capsys, "demo")
    assert status == 0
    for figure in ("-10.000", "79.000", "48.000 BBB", "72.375 YYY", "79.875 YY(Y|B)", "211.423 YYY", "115.699"):
        assert figure in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve"], "PROBLEM"),
        (["fly"], "unknown command 'fly'; there are solve, demo, reproduce"),
        (["reproduce", "chess"], "unknown experiment 'chess'; there is grid"),
        (["reproduce", "grid", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["solve", "Grid"], "unknown environment 'Grid' (did you mean RiskyGrid?); there are ThreeState, RiskyGrid"),
        (["solve", "RiskyGrid", "--risk", "cvar:2"], "CVaR level must be in (0, 1], got 2"),
        (["solve", "RiskyGrid", "--risk", "cvar"], "risk measure 'cvar' needs a level, for example cvar:0.5"),
        (["solve", "RiskyGrid", "--risk", "sharpe:1"], "unknown risk measure 'sharpe:1'; use mean, cvar:LEVEL"),
        (["solve", "RiskyGrid", "--discount", "much"], "could not convert string to float: 'much'"),
        (["solve", "RiskyGrid", "--discount", "0"], "discount must be in (0, 1], got 0"),
        (["solve", "RiskyGrid", "--fast"], "--fast"),
        (["solve", "RiskyGrid", "--set", "fork=3"], "RiskyGrid has no field 'fork' (did you mean forks?)"),
        (["solve", "RiskyGrid", "--set", "forks"], "cannot read 'forks': expected FIELD=VALUE"),
        (["solve", "RiskyGrid", "--set", "forks=many"], "cannot read 'forks=many': expected a number"),
        (["solve", "RiskyGrid", "--set", "forks=0"], "forks must be a whole number, at least 1, got 0"),
        (["solve", "RiskyGrid", "--set", "p_yellow=2"], "p_yellow must be in [0, 1], got 2"),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(capsys, unchecked, arguments, message):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("riskpath: ")
    assert err.count("\n") == 1
    assert message in err
