"""Configuration files: what is written is read again, and mistakes in them are answered by one line."""

import dataclasses
import json

import pytest

import riskpath as rp
from riskpath.cli.config_file import TYPES, read_config, write_options
from riskpath.cli.options import TrainOptions
from riskpath.cli.parser import parse


def read(tmp_path, config, *arguments: str) -> TrainOptions:
    """Return the options of `train --config` with this content."""
    file = tmp_path / "config.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    return parse(["train", f"--config={file}", *arguments]).args[0]  # pyright: ignore[reportFunctionMemberAccess]


def test_a_configuration_contains_every_option_that_says_what_a_run_is():
    names = {field.name for field in dataclasses.fields(TrainOptions)}
    assert names - set(TYPES) == {"out", "overwrite", "config"}
    assert set(TYPES) <= names


def test_what_is_written_is_read_again(tmp_path, unchecked):
    agent = rp.TQL("wang:-0.75", 0.9, rp.Network(hidden=(16, 8), window=3), rp.Training(kappa=0.5), critic="trajectory")
    first = ("ThreeState", "TQL", agent, 100, 2, 4, 5, "processes")
    options = TrainOptions(*first, set=("p_win=0.8",), checkpoint_every=10.0, checkpoint_steps=50)
    again = read(tmp_path, write_options(options))
    assert dataclasses.replace(again, config=None) == options
    assert write_options(again) == write_options(options)


def test_the_command_line_takes_precedence(tmp_path, unchecked):
    config = {"agent": "cvar-drl", "steps": 70, "fields": {"risk": "cvar:0.3", "training": {"kappa": 2}}}
    found = read(tmp_path, config, "--risk", "cvar:0.6", "--steps", "80")
    assert found.fields == rp.CVaRDRL("cvar:0.6", training=rp.Training(kappa=2.0))
    assert isinstance(found.fields.training, rp.Training)
    assert isinstance(found.fields.training.kappa, float)  # a whole number would be compiled into the program
    assert found.steps == 80
    assert read(tmp_path, config, "--agent", "iqn").fields == rp.IQN("cvar:0.3", training=rp.Training(kappa=2.0))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "is not a configuration: see config.json in the folder of a run"),
        ("[1]", "is not a configuration"),
        ({"num_env": 4}, "unknown name 'num_env' (did you mean num_envs?)"),
        ({"stesp": 4}, "unknown name 'stesp' (did you mean steps?)"),
        ({"out": "x"}, "unknown name 'out'"),
        ({"fields": {"training": {"learning": 0.1}}}, "unknown name 'learning'"),
        ({"fields": {"network": {"head": "late"}}}, "head must be factored or deep or table, got 'late'"),
        ({"agent": "iqn", "fields": {"critic": "joint"}}, "unknown name 'critic'"),
        ({"agent": "dqn"}, "unknown agent 'dqn'"),
        ({"steps": "many"}, "steps must be a whole number, got 'many'"),
        ({"steps": True}, "steps must be a whole number, got True"),
        ({"env": 1}, "env must be text, got 1"),
        ({"set": "forks=2"}, "set must be a list, got 'forks=2'"),
        ({"checkpoint_every": "often"}, "checkpoint_every must be a whole number or a number, got 'often'"),
        ({"fields": {"risk": 3}}, "expected a risk measure"),
        ({"fields": {"discount": "x"}}, "discount must be a number, got 'x'"),
        ({"fields": {"training": 5}}, "training of Adaptive must be a Training"),
        ({"fields": {"training": {"learning_rate": "fast"}}}, "learning_rate must be a number, got 'fast'"),
    ],
)
def test_mistakes_in_a_configuration_are_answered_by_one_line(tmp_path, unchecked, config, message):
    with pytest.raises(rp.RiskpathError) as error:
        read(tmp_path, config)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_configuration_that_is_not_there_is_named():
    with pytest.raises(rp.RiskpathError, match=r"cannot read nowhere.json: No such file"):
        read_config("nowhere.json")
