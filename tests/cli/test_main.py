"""The command line as a user meets it."""

import json
import signal
from pathlib import Path
from unittest.mock import ANY

import equinox as eqx
import numpy as np
import pytest

import riskpath as rp
from riskpath.cli.main import COMMANDS, demo, main
from riskpath.cli.options import spelled_out
from riskpath.experiments import grid, report, three_state


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


@pytest.mark.parametrize("arguments", [("--help",), (), *((name, "--help") for name in COMMANDS)])
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


TABLE = rp.Network(head="table")
TINY = rp.Training(
    learning_starts=60, target_update_interval=20, batch_size=8, online_taus=8, target_taus=8, act_taus=8
)
TINY_OPTIONS = (
    *("--agent.network.head", "table", "--agent.training.start-steps", "60", "--agent.training.target-period", "20"),
    *("--agent.training.batch-size", "8", "--agent.training.act-taus", "8"),
    *("--agent.training.online-taus=8", "--agent.training.target-taus=8"),
)


def test_demo_shows_the_known_optima_and_what_agents_learned(capsys, monkeypatch, tmp_path, unchecked):
    monkeypatch.setattr(demo, "AGENTS", {"IQN": rp.IQN})
    monkeypatch.setattr(demo, "NETWORK", TABLE)
    monkeypatch.setattr(demo, "TRAINING", TINY)
    monkeypatch.setattr(demo, "STEPS", 300)
    monkeypatch.setattr(demo, "EVERY", 100)
    status, out, _ = run(capsys, "demo", "--out", str(tmp_path / "demo.png"))
    assert status == 0
    for figure in ("-10.000", "79.000", "48.000 BBB", "72.375 YYY", "79.875 YY(Y|B)", "211.423 YYY", "115.699"):
        assert figure in out
    twin = rp.train(rp.IQN(rp.CVaR(0.1), network=TABLE, training=TINY), "RiskyGrid", steps=300, seeds=4)
    median = np.median(twin.values()[0])
    for figure in (f"{median:.3f}", f"{median / 72.375:.0%}", f"{np.median(twin.estimates()[0]):.1f}"):
        assert figure in out[out.index("What they learned") :]
    assert (tmp_path / "demo.png").stat().st_size > 10_000


def test_train_does_what_python_does_and_writes_it_down(capsys, tmp_path, unchecked):
    sizes = ("--steps", "200", "--seeds", "2", "--seed", "3", "--out", str(tmp_path))
    fields = ("--risk", "cvar:0.2", "--discount=0.9", "--agent.training.learning_rate", "0.03", "--set", "p_win=0.8")
    status, out, _ = run(capsys, "train", "--env", "ThreeState", "--agent", "iqn", *sizes, *fields, *TINY_OPTIONS)
    assert status == 0
    training = eqx.tree_at(lambda t: t.lr, TINY, 0.03)
    twin = rp.train(
        rp.IQN(rp.CVaR(0.2), discount=0.9, network=TABLE, training=training),
        rp.ThreeState(p_win=0.8),
        steps=200,
        seeds=2,
        seed=3,
    )
    result = json.loads((tmp_path / "result.json").read_text())
    lanes = {key: [lane[key] for lane in result["lanes"]] for key in ("value", "discounted", "estimate", "does")}
    assert lanes["value"] == pytest.approx(twin.values()[0])
    assert lanes["discounted"] == pytest.approx(twin.values(0.9)[0])
    assert lanes["estimate"] == pytest.approx(twin.estimates()[0])
    for key in ("value", "discounted", "estimate"):
        assert all(f"{value:.4g}" in out for value in lanes[key])
    assert all("step 1, s0: " in words for words in lanes["does"])
    assert result["curve"][-1]["values"] == [pytest.approx(lanes["value"])]
    wanted = {"risk": "cvar:0.2", "discount": 0.9}
    config = result["config"]
    assert wanted.items() <= config["fields"].items()
    assert {"lr": 0.03, "batch_size": 8, "kappa": 1.0}.items() <= config["fields"]["training"].items()
    assert {"head": "table", "hidden": [64], "window": None}.items() <= config["fields"]["network"].items()
    assert {"env": "ThreeState", "set": ["p_win=0.8"], "steps": 200, "seeds": 2, "seed": 3}.items() <= config.items()


def test_reproduce_trains_one_part_and_prints_and_draws_it(capsys, monkeypatch, tmp_path, unchecked):
    agent = rp.IQN(rp.CVaR(0.1), network=TABLE, training=TINY)
    parts = [grid.Program("IQN", [(agent, grid.GRID)], 200), grid.Program("TQL", [], 200)]
    monkeypatch.setattr(grid, "programs", lambda quick: parts)
    status, out, _ = run(capsys, "reproduce", "grid", "--seeds", "2", "--only", "IQN", "--out", str(tmp_path))
    assert status == 0
    assert "72.375" in out
    assert {"grid.json", "grid_curves.png", "grid_returns.png", "grid_paths.md"} <= {p.name for p in tmp_path.iterdir()}
    records = json.loads((tmp_path / "grid.json").read_text())["records"]
    assert [(r["agent"], r["seed"]) for r in records] == [("IQN", 0), ("IQN", 1)]


def test_reproduce_of_the_three_states_prints_the_first_figure_and_the_policies(capsys, monkeypatch):
    lane = {"agent": "TQL", "seed": 3, "actions": ["risky", "safe"], "value": 46.5}
    result = {"risk": "cvar:0.1", "first_figure": three_state.first_figure(), "policies": [lane]}
    asked = []

    def fake(out, **options):
        asked.append((str(out), options["quick"], options["seeds"]))
        return {**result, "device": "cpu", "seconds": 1.0}

    entry = report.EXPERIMENTS["three-state"]._replace(reproduce=fake)
    monkeypatch.setitem(report.EXPERIMENTS, "three-state", entry)
    status, out, _ = run(capsys, "reproduce", "three-state")
    assert status == 0
    for words in ("Z*", "T*Z", "79", "risky, safe", "46.5", "results are in results"):
        assert words in out
    run(capsys, "reproduce", "three-state", "--quick")
    run(capsys, "reproduce", "three-state", "--seeds", "5")
    assert asked == [("results", False, 8), ("runs", True, 2), ("runs", False, 5)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve"], "PROBLEM"),
        (["fly"], "unknown command 'fly'; there are solve, demo, train, evaluate"),
        (["reproduce", "chess"], "unknown experiment 'chess'; there are three-state, grid, mountain-car"),
        (["reproduce", "grid", "--only", "DQN"], "grid has no part 'DQN'; there are IQN; CVaR-DRL; "),
        (["reproduce", "three-state", "--only", "IQN"], "three-state has no part 'IQN'; there are none"),
        (["train", "--agent", "dqn"], "unknown agent 'dqn'; there are iqn, cvar-drl, tql, iqtd3, tql-continuous"),
        (["train", "--agent=dqn"], "unknown agent 'dqn'; there are iqn, cvar-drl, tql, iqtd3, tql-continuous"),
        (["train", "--agent"], "Missing value for argument '--agent'"),
        (["train", "--env", "Chess"], "unknown environment 'Chess'"),
        (["train", "--steps", "0"], "steps must be at least 1, got 0"),
        (["train", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["train", "--risk", "cvar:3"], "CVaR level must be in (0, 1], got 3"),
        (["train", "--agent", "cvar-drl", "--risk", "wang:-1"], "CVaRDRL optimises CVaR only, got wang:-1"),
        (
            ["train", "--agent.training.learning_rate", "fast"],
            "--agent.training.learning_rate: could not convert string to float: 'fast'",
        ),
        (["train", "--agent.training.lrr", "1"], "--agent.training.lrr"),
        (["train", "--lr", "1"], "--lr, 1 (did you mean --agent.lr?)"),
        (["train", "--agent", "iqn", "--agent.lrs", "1"], "--agent.lrs, 1 (did you mean --agent.lr?)"),
        (["train", "--agent", "iqn", "--agent.critic", "joint"], "--agent.critic"),
        (["train", "--out", __file__], "test_cli.py: Not a directory"),
        (["train", "--out", "/proc/nowhere"], "cannot write to /proc/nowhere: No such file or directory"),
        (["train", "--out", str(Path(__file__).parent)], "tests holds other things than a run; give a new folder"),
        (["solve", "RiskyMountainCar"], "RiskyMountainCar is no table of outcomes; ThreeState and RiskyGrid are"),
        (["solve", "CartPole-v1"], "CartPole-v1 is no table of outcomes; ThreeState and RiskyGrid are"),
        (["evaluate", str(Path(__file__).parent)], "tests is not a saved run: it has no header.json"),
        (["train", "--agent.critic", "best"], "invalid choice 'best' for argument '--agent.critic'"),
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
        (["solve", "RiskyGrid", "--set", "forks=0"], "forks must be at least 1, got 0"),
        (["solve", "RiskyGrid", "--set", "p_yellow=2"], "p_yellow must be in [0, 1], got 2"),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(capsys, unchecked, arguments, message):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("riskpath: ")
    assert err.count("\n") == 1
    assert message in err


SHORT = ("--steps", "80", "--seeds", "2", "--agent.training.start-steps", "40", "--agent.training.batch-size", "4")


def test_a_gymnasium_id_is_trained_evaluated_and_resumed_from_the_command_line(capsys, tmp_path, unchecked):
    folder = str(tmp_path / "x")
    status, out, _ = run(capsys, "train", "--env", "CartPole-v1", "--agent", "iqn", *SHORT, "--out", folder)
    assert status == 0
    assert "own estimate" in out
    lines = [json.loads(line) for line in (tmp_path / "x" / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] >= 80
    assert len(lines[-1]["loss"]) == 2
    status, out, _ = run(capsys, "evaluate", folder, "--episodes", "4", "--risk", "cvar:0.5", "--json")
    figures = json.loads(out)["figures"]
    quantiles = [f"{level} quantile" for level in ("5%", "25%", "50%", "75%", "95%")]
    assert [row["figure"] for row in figures] == ["mean", "cvar:0.5", *quantiles, "mean", "cvar:0.5"]
    assert [row["return"] for row in figures] == ["undiscounted"] * 7 + ["discounted"] * 2
    assert figures[0]["low"] <= figures[0]["estimate"] <= figures[0]["high"]
    seen = rp.load(tmp_path / "x" / "run").evaluate(4, seed=1)
    assert figures[2]["estimate"] == seen.quantiles([0.05])[0][0].estimate
    table = run(capsys, "evaluate", folder, "--episodes", "4")[1]
    assert all(name in table for name in quantiles)
    assert run(capsys, "resume", folder)[0] == 2
    status, out, _ = run(capsys, "resume", folder, "--steps", "20")
    assert status == 0
    assert "own estimate" in out
    steps = json.loads((tmp_path / "x" / "result.json").read_text())["steps"]
    assert rp.load(tmp_path / "x").steps == steps >= 100  # as the one inside


def test_what_is_in_a_folder_is_not_lost(capsys, tmp_path, unchecked):
    short = ("train", "--agent", "iqn", *SHORT, "--seeds", "1", "--out", str(tmp_path / "x"))
    assert run(capsys, *short)[0] == 0
    files = {path: path.read_bytes() for path in (tmp_path / "x").rglob("*.*")}
    status, out, err = run(capsys, *short)
    assert (status, out) == (2, "")
    assert f"riskpath resume {tmp_path / 'x'} goes on with it, --overwrite replaces it" in err
    assert {path: path.read_bytes() for path in (tmp_path / "x").rglob("*.*")} == files
    assert run(capsys, *short, "--overwrite")[0] == 0
    steps = [json.loads(line)["step"] for line in (tmp_path / "x" / "log.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps))  # one run's
    files = {path: path.read_bytes() for path in (tmp_path / "x").rglob("*.*")}
    assert run(capsys, *short, "--overwrite", "--env", "RiskyMountainCar") == (2, "", ANY)  # IQN cannot act there
    assert {path: path.read_bytes() for path in (tmp_path / "x").rglob("*.*")} == files
    assert run(capsys, *short[:-1], str(tmp_path / "z"), "--env", "Pendulum-v1") == (2, "", ANY)
    assert not (tmp_path / "z").exists()
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / "config.json").write_text("{}")
    assert run(capsys, *short[:-1], str(tmp_path / "y"), "--overwrite")[0] == 2
    assert (tmp_path / "y" / "config.json").read_text() == "{}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_interrupted_says_so_and_goes_on(number, capsys, tmp_path, monkeypatch, unchecked):
    write = rp.JSONLines.__call__

    def interrupting(self, lanes, numbers):
        write(self, lanes, numbers)
        if numbers["step"] >= 60:
            signal.raise_signal(number)

    folder, often = str(tmp_path / "x"), ("--agent.target-period", "10")
    with monkeypatch.context() as patch:
        patch.setattr(rp.JSONLines, "__call__", interrupting)
        status, out, err = run(capsys, "train", "--agent", "iqn", *SHORT, *often, "--out", folder)
    assert status == 130
    assert "own estimate" in out
    assert f"riskpath: stopped after 60 of 80 steps; riskpath resume {folder} goes on" in err
    assert run(capsys, "resume", folder)[0] == 0
    result = json.loads((tmp_path / "x" / "result.json").read_text())
    assert result["steps"] == 80
    assert result["curve"][-1]["step"] == 80


def test_what_was_set_of_a_gymnasium_environment_is_remembered(capsys, tmp_path, unchecked):
    folder = str(tmp_path / "x")
    arguments = ("--env", "FrozenLake-v1", "--set", "is_slippery=false", "--agent", "iqn", *SHORT, "--out", folder)
    assert run(capsys, "train", *arguments)[0] == 0
    assert run(capsys, "evaluate", folder, "--episodes", "2")[0] == 0
    assert run(capsys, "resume", folder, "--steps", "20")[0] == 0


def test_a_folder_of_a_plain_save_is_evaluated_and_resumed_in_place(capsys, tmp_path, unchecked):
    agents = [rp.IQN(rp.CVaR(level), network=TABLE, training=TINY) for level in (0.2, 0.8)]
    folder = tmp_path / "saved"
    rp.train(agents, "ThreeState", steps=80).save(folder)
    status, out, _ = run(capsys, "evaluate", str(folder), "--episodes", "3", "--json")
    figures = json.loads(out)["figures"]
    assert [(row["setting"], row["figure"]) for row in figures][1::9] == [(0, "cvar:0.2"), (1, "cvar:0.8")]
    status, _, _ = run(capsys, "resume", str(folder), "--steps", "20")
    assert status == 0
    assert rp.load(folder).steps == 100
    assert {file.name for file in folder.iterdir()} == {"header.json", "state.eqx", "curve.json"}
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


@pytest.mark.parametrize(
    ("short", "full"),
    [
        (["--risk", "mean"], ["--agent.risk", "mean"]),
        (["--discount=0.9"], ["--agent.discount=0.9"]),
        (["--agent.window", "10"], ["--agent.network.window", "10"]),
        (["--agent.batch-size=8"], ["--agent.training.batch-size=8"]),
        (["--agent.target_update_rate", "0.1"], ["--agent.training.soft-update", "0.1"]),
        (["--agent.no-normalise"], ["--agent.network.no-normalise"]),
        (
            ["--agent.critic", "joint", "--agent.training.learning_rate=1"],
            ["--agent.critic", "joint", "--agent.training.learning_rate=1"],
        ),
        (["--steps", "5", "agent.window"], ["--steps", "5", "agent.window"]),
    ],
)
def test_short_options_are_spelled_out(short, full):
    assert spelled_out(short) == full


def test_a_configuration_is_taken_up_and_the_command_line_counts_more(capsys, tmp_path, unchecked):
    first, second = tmp_path / "a", tmp_path / "b"
    arguments = ("--risk", "cvar:0.3", "--agent.network.hidden", "16", "8", "--agent.critic", "trajectory")
    assert run(capsys, "train", *SHORT, *arguments, "--set", "forks=2", "--out", str(first))[0] == 0
    config = str(first / "config.json")
    arguments = (f"--config={config}", "--risk", "cvar:0.6", "--out", str(second))
    assert run(capsys, "train", *arguments)[0] == 0
    old, new = (json.loads((folder / "config.json").read_text()) for folder in (first, second))
    assert new["fields"].pop("risk") == "cvar:0.6"
    assert old["fields"].pop("risk") == "cvar:0.3"
    assert old == new
    assert old["set"] == ["forks=2"]


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("agents", ["iqn", "cvar-drl", "tql", "iqtd3", "tql-continuous"]),
        ("envs", ["ThreeState", "RiskyGrid", "RiskyMountainCar", "any"]),
        ("risks", ["mean", "cvar:LEVEL", "wang:LEVEL", "cpw:LEVEL", "pow:LEVEL", "0.7*mean+0.3*cvar:0.1"]),
    ],
)
def test_what_there_is_is_listed_one_line_each(capsys, command, names):
    status, out, _ = run(capsys, command)
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == names
    assert all(len(line) <= 120 for line in out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "nowhere"), "there is no saved run"),
        (("resume", "nowhere"), "there is no saved run"),
        (("train", "--config", "nowhere.json"), "cannot read nowhere.json"),
        (("train", "--config"), "--config needs a file"),
        (("train", "--env", "x--config=y"), "unknown environment 'x--config=y'"),
        (("train", "--env", "CartPole-v9"), "unknown environment 'CartPole-v9'"),
        (("train", "--env", "CartPole-v1", "--agent", "iqtd3"), "acts with vectors"),
        (("evaluate", "x", "--episodes", "0"), "episodes must be at least 1"),
    ],
)
def test_saved_runs_and_foreign_environments_are_refused_in_one_line(capsys, arguments, message):
    status, _, err = run(capsys, *arguments)
    assert status == 2
    assert message in err
    assert err.count("\n") == 1
