"""Unknown and old options, and refusals by tyro."""

import pytest
import tyro

import riskpath as rp
from riskpath.cli import parser
from riskpath.cli.options import agent_options
from riskpath.cli.parser import unknown_line

pytestmark = pytest.mark.usefixtures("quick_compilation")

KNOWN = ["--env", "--steps", "--num-envs", *agent_options(rp.TQL())]


@pytest.mark.parametrize(
    ("unknown", "line"),
    [
        (["--agent.lr", "1"], "--agent.lr is now called --agent.learning-rate"),
        (["--agent.training.lr=1"], "--agent.training.lr is now called --agent.training.learning-rate"),
        (["--lr", "1"], "--lr is now called --agent.learning-rate"),
        (["--envs", "4"], "--envs is now called --num-envs"),
        (["--agent.memory", "4"], "--agent.memory is now called --agent.history-size"),
        (["--agent.network.channels", "4"], "--agent.network.channels is now called --agent.network.conv-channels"),
        (["--agent.target_period", "4"], "--agent.target-period is now called --agent.target-update-interval"),
        (["--agent.no-normalise"], "--agent.no-normalise is now called --agent.no-normalize-observations"),
        (["--agent.history", "lstm"], "--agent.history no longer exists: histories are read by a GRU"),
        (["--agent.quiet", "0.1"], "unknown option --agent.quiet"),  # TQL has no epsilon
        (["--watch", "x"], "unknown option --watch"),  # an argument of rp.train, not an option
        (["--step", "5"], "unknown option --step (did you mean --steps?)"),
        (["--agent.learnin-rate", "1"], "unknown option --agent.learnin-rate (did you mean --agent.learning-rate?)"),
        (["--learning-rate", "1"], "unknown option --learning-rate (did you mean --agent.learning-rate?)"),
        (["5", "--zzz"], "unknown option --zzz"),
        (["5"], "unexpected argument '5'"),
    ],
)
def test_unknown_options_are_answered_with_the_option_that_was_meant(unknown, line):
    assert unknown_line(unknown, KNOWN).startswith(line)


def test_the_new_meaning_of_an_old_option_is_explained():
    line = unknown_line(["--agent.training.lr-end", "1e-4"], KNOWN)
    assert line.startswith("--agent.training.lr-end is now called --agent.training.learning-rate-decay (the share of")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--agent.lr", "1"], "--agent.lr is now called --agent.learning-rate"),
        (["--agent.head", "late"], "must be factored, deep or table, got 'late' (late is now called factored)"),
        (["--agent", "iqtd3", "--agent.quiet", "1"], "--agent.quiet is now called --agent.epsilon (1 − quiet)"),
    ],
)
def test_old_options_are_refused_by_the_parser(unchecked, arguments, line):
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
