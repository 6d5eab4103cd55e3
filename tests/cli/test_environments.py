"""Environments by name: those of the library, registered classes, and Gymnasium ids."""

import functools
import sys

import gymnasium
import pytest

import riskpath as rp
from riskpath.cli.environments import is_gymnasium, make_environment

pytestmark = pytest.mark.usefixtures("quick_compilation")

MODULE = """
import gymnasium
import riskpath as rp

class Grid(rp.RiskyGrid):
    "A compiled environment."

class Lake(gymnasium.Env):
    "A Gymnasium environment with two rounds and the sizes of FrozenLake-v1."
    observation_space = gymnasium.spaces.Discrete(16)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, prize=1.0):
        self.prize = prize

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.round = 0
        return 0, {}

    def step(self, action):
        self.round += 1
        return self.round, self.prize, self.round == 2, False, {}

gymnasium.register("Lake-v0", lambda **fields: Lake(**fields), max_episode_steps=4)
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """Return the name of a module in the current folder that registers environments when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_problems.py").write_text(MODULE)
    yield "own_problems"
    sys.modules.pop("own_problems", None)
    gymnasium.registry.pop("Lake-v0", None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("RiskyGrid", False), ("CartPole-v1", True), ("riskpath/RiskyGrid-v0", True), ("Grid", False), ("a:B-v0", True)],
)
def test_gymnasium_ids_are_recognised(name, expected):
    assert is_gymnasium(name) == expected


def test_environments_of_the_library_are_made_with_their_fields(unchecked):
    assert make_environment("RiskyGrid", {"forks": 2}) == rp.RiskyGrid(forks=2)


def test_a_gymnasium_id_without_fields_stays_an_id():
    assert make_environment("CartPole-v1", {}) == "CartPole-v1"


def test_a_gymnasium_id_with_fields_becomes_a_function_that_makes_it():
    factory = make_environment("FrozenLake-v1", {"is_slippery": False})
    assert isinstance(factory, functools.partial)
    assert factory().spec.kwargs["is_slippery"] is False


def test_a_module_is_imported_before_its_environments_are_looked_up(own_module, unchecked):
    grid = make_environment(f"{own_module}:Grid", {"p_yellow": 0.5})
    assert (type(grid).__name__, grid.p_yellow) == ("Grid", 0.5)
    assert make_environment(f"{own_module}:Lake-v0", {}) == f"{own_module}:Lake-v0"
    assert make_environment(f"{own_module}:Lake-v0", {"prize": 2.0})().unwrapped.prize == 2.0


def test_wrong_fields_of_an_own_class_are_answered_by_one_line(own_module, unchecked):
    with pytest.raises(rp.RiskpathError, match=f"cannot make {own_module}:Grid: TypeError"):
        make_environment(f"{own_module}:Grid", {"p_jello": 0.5})


def test_an_error_in_a_module_is_answered_by_one_line(own_module, tmp_path):
    (tmp_path / f"{own_module}.py").write_text("1 / 0")
    with pytest.raises(rp.RiskpathError, match=f"cannot import {own_module}: ZeroDivisionError"):
        make_environment(f"{own_module}:Grid", {})
