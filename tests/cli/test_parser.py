"""Unknown options, and refusals by tyro."""

import pytest
import tyro

import riskpath as rp
from riskpath.cli import parser
from riskpath.cli.options import agent_options
from riskpath.cli.parser import unknown_line

KNOWN = ["--env", "--steps", "--num-envs", *agent_options(rp.TQL())]


@pytest.mark.parametrize(
    ("unknown", "line"),
    [
        (["--env-name", "x"], "unknown option --env-name"),
        (["--agent.no-normalise"], "unknown option --agent.no-normalise"),
        (["--step", "5"], "unknown option --step (did you mean --steps?)"),
        (["--agent.learnin-rate", "1"], "unknown option --agent.learnin-rate (did you mean --agent.learning-rate?)"),
        (["--learning-rate", "1"], "unknown option --learning-rate (did you mean --agent.learning-rate?)"),
        (["5", "--zzz"], "unknown option --zzz"),
        (["5"], "unexpected argument '5'"),
    ],
)
def test_unknown_options_are_answered_with_the_option_that_was_meant(unknown, line):
    assert unknown_line(unknown, KNOWN).startswith(line)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--agent.learnin-rate", "1"], "unknown option --agent.learnin-rate (did you mean --agent.learning-rate?)"),
        (["--agent.head", "late"], "must be factored, deep or table, got 'late'"),
    ],
)
def test_unknown_options_and_values_are_refused_by_the_parser(unchecked, arguments, line):
    with pytest.raises(rp.RiskpathError) as error:
        parser.parse(["train", *arguments])
    assert line in str(error.value)


def test_without_the_hook_of_tyro_its_own_message_is_printed(capsys, monkeypatch, unchecked):
    monkeypatch.setattr(parser, "tyro_errors", None)
    with pytest.raises(SystemExit) as stop:
        parser.parse(["train", "--agent.learning-rate", "fast"])
    assert stop.value.code == 2
    assert "--agent.learning-rate" in capsys.readouterr().err


def test_a_refusal_of_an_unknown_kind_is_left_to_tyro():
    assert parser.tyro_errors is not None
    assert parser.refusal_line(tyro._errors.ParseErrorEvent(prog="riskpath")) is None
