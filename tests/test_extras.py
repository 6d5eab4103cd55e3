"""The core works without optional packages, and a missing one is reported in one line that names its extra."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import riskpath as rp
from riskpath.extras import EXTRAS, needs_extra, require_extra

PACKAGES = [package for packages in EXTRAS.values() for package in packages]

CORE = """
import riskpath as rp

# tests/report/test_model_card.py trains the same.
training = rp.Training(
    learning_starts=0,
    target_update_interval=10,
    batch_size=4,
    num_quantiles=4,
    num_target_quantiles=4,
    num_action_quantiles=4,
)
agent = rp.IQN(rp.CVaR(0.1), network=rp.Network(head="table"), training=training)
run = rp.train(agent, "ThreeState", steps=50, seeds=2, progress=True)
solution = rp.solve(rp.ThreeState().mdp(), "cvar:0.1")
result = {"steps": run.steps, "value": solution.value, "episodes": run.evaluate(episodes=3).returns.shape[-1]}


def line(function):
    try:
        function()
    except rp.RiskpathError as error:
        return str(error)
    return "no error"


def command(*arguments):
    import contextlib, io
    from riskpath.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(list(arguments))
        except SystemExit as stop:
            return f"{stop.code} {err.getvalue()}"
    return f"0 {out.getvalue()}"


def draw():
    from riskpath.envs.rendering import Episode, picture

    return picture(rp.RiskyGrid(), Episode([0], []))


def gymnasium_env():
    from riskpath.envs.gymnasium_env import GymnasiumEnv


lines = {
    "Gymnasium id": line(lambda: rp.train(agent, "CartPole-v1", steps=20)),
    "GymnasiumEnv": line(gymnasium_env),
    "picture": line(draw),
    "figure": line(lambda: solution.law.plot()),
    "tensorboard": line(lambda: rp.TensorBoard("runs")),
    "command": command("solve", "ThreeState"),
    "version": command("--version"),
}
"""


@pytest.fixture(scope="module")
def without_extras() -> dict:
    """Return the results of a program in which no optional package can be imported."""
    blocked = f"import json, sys\nfor name in {PACKAGES}:\n    sys.modules[name] = None\n"
    program = blocked + CORE + "print(json.dumps([result, lines]))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert done.stderr == ""
    result, lines = json.loads(done.stdout)
    return {"result": result, **lines}


def test_the_core_trains_evaluates_and_solves_without_optional_packages(without_extras):
    exact = rp.solve(rp.ThreeState().mdp(), "cvar:0.1").value
    assert without_extras["result"] == {"steps": 50, "value": exact, "episodes": 3}


@pytest.mark.parametrize(
    ("what", "extra"),
    [
        ("Gymnasium id", "gymnasium"),
        ("GymnasiumEnv", "gymnasium"),
        ("picture", "plot"),
        ("figure", "plot"),
        ("tensorboard", "tensorboard"),
        ("command", "cli"),
    ],
)
def test_a_missing_extra_is_named_in_one_line(without_extras, what, extra):
    line = without_extras[what].removesuffix("\n")
    assert f"pip install 'riskpath[{extra}]'" in line
    assert "\n" not in line
    if what == "command":
        assert line.startswith("2 riskpath: ")


def test_the_version_is_printed_without_the_extra_of_the_command_line(without_extras):
    assert without_extras["version"] == f"0 riskpath {rp.__version__}\n"


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_packages_of_an_extra_are_those_of_the_project_file(extra):
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    names = {line.partition(">=")[0] for line in project["optional-dependencies"][extra]}
    assert {name for name in names if not name.startswith("riskpath[")} == set(EXTRAS[extra])


def test_a_module_of_an_installed_extra_is_returned():
    assert require_extra("rich.table", "cli", "a table").__name__ == "rich.table"


def test_the_message_names_the_feature_the_packages_and_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(rp.RiskpathError) as refused:
        require_extra("rich", "cli", "riskpath train")
    assert str(refused.value) == "riskpath train needs tyro and rich: pip install 'riskpath[cli]'"


def test_an_error_inside_an_installed_package_is_not_taken_for_a_missing_extra():
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), needs_extra("cli", "riskpath train"):
        importlib.import_module("no_such_module")


def test_gymnasium_imports_riskpath_and_that_imports_nothing_slow_and_optional():
    optional = ["matplotlib", "PIL", "tyro", "rich", "tensorboardX", "gymnax"]
    program = f"""
import sys
import gymnasium as g

made = g.make("riskpath:riskpath/RiskyGrid-v0", forks=5)
import riskpath.plot

print(made.unwrapped.env.forks, *{{name.partition(".")[0] for name in sys.modules}} & set({optional}))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("5", "")
