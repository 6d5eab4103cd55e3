"""Axes: paths to fields, combinations of their values, and one line for what does not exist."""

import pytest

import riskpath as rp
from riskpath.cli.main import main
from riskpath.cli.sweep_commands import read_axes
from riskpath.sweeps.axes import as_axes, axes_of, combinations
from riskpath.sweeps.store import SweepFolder

IQN = rp.IQN(rp.CVaR(0.1))


def test_combinations_in_order_the_last_axis_fastest():
    found = combinations(IQN, "BettingGame", {"risk.level": [0.1, 1], "network.hidden": [[8], (8, 4)]})
    assert [one.number for one in found] == [0, 1, 2, 3]
    assert found[3].settings == {"risk.level": 1, "network.hidden": "8x4"}
    assert (found[3].agent.risk, found[3].agent.network.hidden) == (rp.CVaR(1.0), (8, 4))
    assert found[0].name == "risk.level=0.1, network.hidden=8"


def test_a_whole_measure_comes_before_its_level_and_an_environment_before_its_fields():
    axes = {"risk.level": [0.5], "risk": [rp.Wang(0.1)], "env.p_win": [0.5], "env": ["BettingGame"]}
    (one,) = combinations(IQN, "ThreeState", axes)
    assert one.agent.risk == rp.Wang(0.5)
    assert one.env == rp.BettingGame(p_win=0.5)


@pytest.mark.parametrize(("axis", "value", "made"), [("discount", 1, 1.0), ("training.batch_size", 8, 8)])
def test_whole_numbers_become_floats_where_lanes_may_differ(axis, value, made):
    (one,) = combinations(IQN, "ThreeState", {axis: [value]})
    assert isinstance(one.agent, rp.IQN)
    found = one.agent.discount if axis == "discount" else one.agent.training.batch_size
    assert (found, type(found)) == (made, type(made))


def test_every_axis_that_is_named_exists():
    for axis in axes_of(IQN, "BettingGame"):
        if axis not in ("env", "risk"):
            whole = IQN if not axis.startswith("env.") else rp.BettingGame()
            for name in axis.removeprefix("env.").split("."):
                whole = getattr(whole, name)
            assert len(combinations(IQN, "BettingGame", {axis: [whole]})) == 1


@pytest.mark.parametrize(
    ("over", "message"),
    [
        (
            {"training.learning_rat": [1.0]},
            "unknown axis 'training.learning_rat' (did you mean training.learning_rate?)",
        ),
        (
            {"learning_rate": [1.0]},
            "unknown axis 'learning_rate' (did you mean training.learning_rate?); there are risk",
        ),
        ({"env.p_wins": [0.5]}, "unknown axis 'env.p_wins' (did you mean env.p_win?)"),
        ({"risk.level.x": [0.5]}, "unknown axis 'risk.level.x'"),
        ({"risk.level": [2.0]}, "CVaR level must be in (0, 1], got 2"),
        ({"risk.level": 0.1}, "risk.level needs a list of values, got 0.1"),
        ({"risk": "cvar:0.1"}, "risk needs a list of values, got 'cvar:0.1'"),
        ({"risk.level": []}, "risk.level needs at least one value"),
        ({"risk.level": [0.1, 0.1]}, "risk.level has the value 0.1 twice"),
        ({3: [0.1]}, 'an axis is a text such as "risk.level", got 3'),
        ([0.1], 'over must be a dictionary such as {"risk.level": [0.1, 0.25]}, got [0.1]'),
    ],
)
def test_a_mistake_is_one_line(over, message, unchecked):
    with pytest.raises(rp.RiskpathError) as refused:
        combinations(IQN, "BettingGame", as_axes(over))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("risk.level=0.1,0.25", [0.1, 0.25]),
        ("network.hidden=[64],[64,64]", [[64], [64, 64]]),
        ("risk=mean,0.7*mean+0.3*cvar:0.1", ["mean", "0.7*mean+0.3*cvar:0.1"]),
        ("network.window=null,10", [None, 10]),
    ],
)
def test_axes_of_the_command_line(text, values):
    assert read_axes((text,)) == {text.partition("=")[0]: values}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "own:Pond-v0 has to be imported first: add --env own:Pond-v0"),
        (("--env", "CartPole-v1"), "holds a sweep on own:Pond-v0, not on CartPole-v1"),
        (("--env", "own:Pond-v0"), "cannot import own"),
        (("--risk", "mean"), "--env is missing"),
        (
            ("--env", "CartPole-v1", "--risk", "mean"),
            "holds another sweep",
        ),  # not that of the stored sweep: nothing is ignored
    ],
)
def test_a_stored_sweep_on_an_own_environment_asks_for_it(words, line, tmp_path, capsys):
    stored = {"agent": {"$class": "riskpath.agents.iqn.IQN"}, "env": "own:Pond-v0", "over": {"discount": [1.0]}}
    SweepFolder(tmp_path).begin({**stored, "seeds": 1}, lambda: 1)
    with pytest.raises(SystemExit) as end:
        main(["sweep", "--out", str(tmp_path), *words])
    assert end.value.code
    assert line in f"{end.value.code} {capsys.readouterr().err}"
