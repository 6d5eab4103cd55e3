"""Options of `train`: short names, the classes of agents, and hyperparameters of every type."""

import dataclasses

import pytest

import riskpath as rp
from riskpath.cli.options import TrainOptions, agent_options
from riskpath.cli.parser import parse


def options(*arguments: str) -> TrainOptions:
    """Return the options that `train` is called with."""
    return parse(["train", *arguments]).args[0]  # pyright: ignore[reportFunctionMemberAccess]


@pytest.mark.parametrize(
    ("short", "full"),
    [
        (["--risk", "cvar:0.3"], ["--agent.risk", "cvar:0.3"]),
        (["--discount=0.9"], ["--agent.discount=0.9"]),
        (["--subject-to", "cvar:0.1=50"], ["--agent.subject-to", "cvar:0.1=50"]),
        (["--agent.window", "10"], ["--agent.network.window", "10"]),
        (["--agent.hidden", "16", "8"], ["--agent.network.hidden", "16", "8"]),
        (["--agent.batch-size=8"], ["--agent.training.batch-size=8"]),
        (["--agent.batch_size", "8"], ["--agent.training.batch_size", "8"]),
        (["--agent.learning-rate", "0.1"], ["--agent.training.learning-rate", "0.1"]),
        (["--agent.gradient-transformation=sgd"], ["--agent.training.gradient-transformation=sgd"]),
        (["--agent.no-normalize-observations"], ["--agent.network.no-normalize-observations"]),
        (["--num_envs", "4"], ["--num-envs", "4"]),
    ],
)
def test_short_options_equal_full_options(unchecked, short, full):
    assert options(*short) == options(*full) != options()


def test_a_boolean_option_can_be_switched_on_again_by_its_short_name(unchecked):
    on = ("--agent.no-normalize-observations", "--agent.normalize-observations")
    assert options(*on) == options()


def test_options_of_every_type_become_fields_of_the_agent(unchecked):
    words = ("--agent", "tql", "--agent.critic", "convolved", "--agent.convolved-taus", "8", "--agent.window", "None")
    more = ("--agent.hidden", "16", "8", "--agent.kappa", "0.5", "--risk", "0.5*mean+0.5*cvar:0.1", "--discount", "0.9")
    network, training = rp.Network(hidden=(16, 8)), rp.Training(kappa=0.5)
    risk = rp.parse_risk("0.5*mean+0.5*cvar:0.1")
    agent = rp.TQL(risk, 0.9, network, training, critic="convolved", convolved_taus=8)
    assert options(*words, *more).fields == agent


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("iqn", rp.IQN),
        ("IQN", rp.IQN),
        ("cvar-drl", rp.CVaRDRL),
        ("CVaRDRL", rp.CVaRDRL),
        ("qrsrm", rp.QRSRM),
        ("qr-srm", rp.QRSRM),
        ("tql", rp.TQL),
        ("iqtd3", rp.IQTD3),
        ("tql-continuous", rp.TQLContinuous),
        ("tql_continuous", rp.TQLContinuous),
    ],
)
def test_an_agent_is_found_by_its_class_name_without_regard_to_case_and_dashes(unchecked, name, kind):
    assert options("--agent", name).fields == kind()


def test_the_list_of_options_names_every_hyperparameter_once():
    names = agent_options(rp.TQL())
    assert len(names) == len(set(names))
    inner = [*dataclasses.fields(rp.Network), *dataclasses.fields(rp.Training)]
    assert {f"--agent.{field.name.replace('_', '-')}" for field in inner} <= set(names)
    assert {"--risk", "--discount", "--agent.critic"} <= set(names)
    assert not {"--agent.network", "--agent.training", "--agent.risk"} & set(names)


def test_help_describes_options_whose_default_a_subclass_changes(cli):
    """Agents with continuous actions change defaults of `Training`."""
    _, out, _ = cli("train", "--agent", "iqtd3", "--help")
    text = " ".join(out.replace("│", " ").split())
    assert "Learning rate at the end; small rates separate nearby quantiles. (default: 3e-05)" in text
    assert "--agent.actor.policy-delay INT" in text


def test_help_names_every_agent(cli):
    _, out, _ = cli("train", "--help")
    text = "".join(out.replace("│", " ").split())
    kinds = (rp.Adaptive, rp.TQL, rp.IQN, rp.CVaRDRL, rp.QRSRM, rp.AdaptiveContinuous, rp.TQLContinuous, rp.IQTD3)
    assert [kind.__name__ for kind in kinds if kind.__name__.lower() not in text.replace("-", "")] == []
