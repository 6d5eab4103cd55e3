"""The line for agents that meet transitions they are not made for."""

import logging
import re

import equinox as eqx
import pytest

import riskpath as rp
from riskpath.risk import Tabulated
from riskpath.training.inputs import as_environment
from riskpath.training.lanes import start
from riskpath.training.notices import has_random_transitions, notice_random_transitions


@pytest.mark.parametrize(
    ("env", "random"),
    [
        ("ThreeState", False),
        ("RiskyGrid", False),
        ("Inventory", True),
        ("RandomMDP", True),
        ("MeanReversionTrading", True),
        ("RiskyMountainCar", True),  # it starts at a random place
    ],
)
def test_random_transitions_are_noticed(env, random):
    assert has_random_transitions(as_environment(env)) is random


@pytest.mark.parametrize(
    ("agent", "env", "expected"),
    [
        (rp.TQL("cvar:0.1"), "Inventory", "it maximises cvar:0.1 given each history, .*; use rp.Adaptive$"),
        (rp.TQL(Tabulated(rp.CVaR(0.1))), "Inventory", "it maximises its measure given each history, "),
        (rp.TQL("mean"), "Inventory", None),
        (rp.TQL("cvar:0.1"), "RiskyGrid", None),
        (rp.IQN("cvar:0.1"), "Inventory", None),
        (rp.Adaptive("cvar:0.1"), "Inventory", None),
    ],
)
def test_a_line_says_what_is_maximised_instead(agent, env, expected, caplog, unchecked):
    world = as_environment(env)
    with caplog.at_level(logging.WARNING, "riskpath"):
        notice_random_transitions(agent, world, None, on_host=False)  # pyright: ignore[reportArgumentType]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == (expected is not None)
    if expected:
        assert re.search(expected, lines[0])
        assert "\n" not in lines[0]


def test_environments_of_a_host_are_compared_by_their_first_observations(caplog):
    agent, world = rp.TQL("cvar:0.1", network=rp.Network(hidden=(4,), window=2)), as_environment("RiskyGrid")
    lanes = start([agent], [world], 2, 1, 0)
    for observation, lines in ((lanes.time_step.observation, 0), (lanes.time_step.observation.at[1].add(1), 1)):
        caplog.clear()
        notice_random_transitions(agent, world, _with(lanes, observation), on_host=True)
        assert len(caplog.records) == lines


def _with(lanes, observation):
    return eqx.tree_at(lambda s: s.time_step.observation, lanes, observation)
