"""The entry point: version, help, and one line for every mistake."""

import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

import riskpath as rp
from riskpath.cli import commands
from riskpath.cli.commands import COMMANDS
from riskpath.cli.main import use_compilation_cache


def test_version(cli):
    assert cli("--version") == (0, f"riskpath {rp.__version__}\n", "")


@pytest.mark.parametrize("arguments", [("--help",), (), *((name, "--help") for name in COMMANDS)])
def test_help_is_printed(cli, arguments):
    status, out, _ = cli(*arguments)
    assert status == 0
    assert "usage: riskpath" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve"], "PROBLEM is missing"),
        (["push", "runs/x"], "TO is missing"),
        (["push"], "FOLDER and TO are missing"),
        (["push", "runs/x", "--titel", "x"], "unknown option --titel (did you mean --title?)"),
        (["fly"], "unknown command 'fly'; there are solve, frontier, demo, train"),
        (["--fast", "solve", "RiskyGrid"], "unknown option --fast"),
        (["reproduce", "chess"], "unknown experiment 'chess'; there are three-state, grid, mountain-car"),
        (["reproduce", "grid", "--only", "DQN"], "grid has no part 'DQN'; there are IQN; CVaR-DRL; "),
        (["reproduce", "three-state", "--only", "IQN"], "three-state has no part 'IQN'; there are none"),
        (["reproduce", "grid", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (
            ["train", "--agent", "dqn"],
            "unknown agent 'dqn' (did you mean QRDQN?); there are ",
        ),
        (["train", "--agent=dqn"], "unknown agent 'dqn'"),
        (["train", "--agent"], "--agent needs a value"),
        (["train", "--env", "Chess"], "unknown environment 'Chess'"),
        (["train", "--env", "x--config=y"], "unknown environment 'x--config=y'"),
        (["train", "--env", "CartPole-v9"], "unknown environment 'CartPole-v9'"),
        (["train", "--env", "no_such_module:X-v0"], "cannot import no_such_module: ModuleNotFoundError"),
        (["train", "--env", "CartPole-v1", "--agent", "iqtd3"], "IQTD3 needs continuous actions"),
        (["train", "--steps", "0"], "steps must be at least 1, got 0"),
        (["train", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["train", "--num-envs", "0"], "num_envs must be at least 1, got 0"),
        (["train", "--checkpoint-every", "0"], "checkpoint_every must be more than 0, got 0"),
        (["train", "--checkpoint-steps", "0"], "checkpoint_steps must be at least 1, got 0"),
        (["train", "--risk", "cvar:3"], "--risk: CVaR level must be in (0, 1], got 3"),
        (["train", "--agent", "cvar-drl", "--risk", "wang:-1"], "CVaRDRL optimises CVaR only, got wang:-1"),
        (
            ["train", "--agent.learning-rate", "fast"],
            "--agent.learning-rate: could not convert string to float: 'fast'",
        ),
        (["train", "--agent.learning-rate=-1"], "learning_rate must be at least 0, got -1"),
        (
            ["train", "--agent", "tql", "--agent.critic", "best"],
            "--agent.critic must be joint, trajectory or convolved, got 'best'",
        ),
        (["train", "--agent", "iqn", "--agent.critic", "joint"], "unknown option --agent.critic"),
        (["train", "--out", __file__], "test_main.py: Not a directory"),
        (["train", "--out", "/proc/nowhere"], "cannot write to /proc/nowhere: No such file or directory"),
        (["train", "--out", str(Path(__file__).parent)], "contains other files than a run; give a new folder"),
        (["train", "--config"], "--config needs a value"),
        (["solve", "RiskyMountainCar"], "RiskyMountainCar has no exact solution; AmericanPut, AutonomousVehicle, "),
        (["solve", "CartPole-v1"], "ThreeState, WindyCliff have one, and rp.solve accepts your own"),
        (
            ["solve", "Grid"],
            "unknown environment 'Grid' (did you mean RiskyGrid?); there are AmericanPut",
        ),
        (["solve", "RiskyGrid", "ThreeState"], "unexpected argument 'ThreeState'"),
        (["train", "RiskyGrid"], "unexpected argument 'RiskyGrid': give it by name, for example --env RiskyGrid"),
        (["solve", "RiskyGrid", "--risk", "cvar:2"], "CVaR level must be in (0, 1], got 2"),
        (["solve", "RiskyGrid", "--risk", "cvar"], "risk measure 'cvar' needs a level, for example cvar:0.5"),
        (["solve", "RiskyGrid", "--risk", "sharpe:1"], "unknown risk measure 'sharpe:1'; use mean, cvar:LEVEL"),
        (["solve", "RiskyGrid", "--discount", "much"], "--discount: could not convert string to float: 'much'"),
        (["solve", "RiskyGrid", "--discount", "0"], "discount must be in (0, 1], got 0"),
        (["solve", "RiskyGrid", "--fast"], "unknown option --fast"),
        (["solve", "RiskyGrid", "--set", "fork=3"], "RiskyGrid has no field 'fork' (did you mean forks?)"),
        (["solve", "RiskyGrid", "--set", "forks"], "cannot read 'forks': expected FIELD=VALUE"),
        (["solve", "RiskyGrid", "--set", "forks=many"], "cannot read 'forks=many': expected a number"),
        (["solve", "RiskyGrid", "--set", "forks=0"], "forks must be at least 1, got 0"),
        (["solve", "RiskyGrid", "--set", "p_yellow=2"], "p_yellow must be from 0 to 1, got 2"),
        (["evaluate", "nowhere"], "there is no saved run"),
        (["evaluate", str(Path(__file__).parent)], "is not a saved run: it has no header.json"),
        (["evaluate", "nowhere", "--episodes", "0"], "episodes must be at least 1"),
        (["evaluate", "nowhere", "--set", "forks=2"], "--set changes fields of an environment: give --env as well"),
        (["resume", "nowhere"], "there is no saved run"),
        (["resume", "nowhere", "--checkpoint-every", "-1"], "checkpoint_every must be more than 0, got -1"),
    ],
)
def test_a_mistake_is_answered_by_one_line_and_status_2(cli, unchecked, arguments, message):
    status, out, err = cli(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("riskpath: ")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize(("module", "extra"), [("matplotlib", "plot"), ("tyro", "cli"), ("rich", "cli")])
def test_a_missing_package_is_answered_by_the_extra_that_installs_it(cli, monkeypatch, module, extra):
    def fail():
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setitem(COMMANDS, "agents", fail)
    assert cli("agents") == (2, "", f"riskpath: {module} is not installed: pip install 'riskpath[{extra}]'\n")


def test_without_tyro_the_entry_point_says_what_to_install(cli, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("riskpath.cli.") and name != "riskpath.cli.main"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tyro", None)  # its import fails
    assert cli("agents") == (2, "", "riskpath: tyro is not installed: pip install 'riskpath[cli]'\n")


def test_the_command_line_sets_the_compilation_cache_unless_the_user_did(cli, monkeypatch):
    fake = SimpleNamespace(jax_compilation_cache_dir=None)
    fake.update = lambda name, value: setattr(fake, name, value)
    monkeypatch.setattr(jax, "config", fake)
    use_compilation_cache()
    assert fake.jax_compilation_cache_dir == str(Path.home() / ".cache" / "riskpath" / "xla")
    fake.jax_compilation_cache_dir = "/own"
    use_compilation_cache()
    assert fake.jax_compilation_cache_dir == "/own"


def test_commands_are_read_before_they_are_called(cli, monkeypatch):
    """An error inside of a command is not taken for a mistake in its arguments."""

    def fail() -> None:
        raise ValueError("a bug")

    monkeypatch.setitem(commands.COMMANDS, "agents", fail)
    with pytest.raises(ValueError, match="a bug"):
        cli("agents")
