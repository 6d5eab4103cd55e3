"""A part of an agent's hyperparameters that is given in part keeps the agent's own defaults."""

import dataclasses

import jax
import pytest

import riskpath as rp

OWN = rp.Adaptive().training


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (rp.Adaptive(training=rp.Training(decay_steps=1e4)), dataclasses.replace(OWN, decay_steps=1e4)),
        (rp.Adaptive(training=rp.Training(batch_size=32)), dataclasses.replace(OWN, batch_size=32)),
        (rp.Adaptive(training=rp.Training()), OWN),
        (rp.Adaptive(training=rp.Training(0.5)), dataclasses.replace(OWN, learning_rate=0.5)),
        (rp.Adaptive(training=dataclasses.replace(rp.Training(), batch_size=2)), rp.Training(batch_size=2)),
        (dataclasses.replace(rp.Adaptive(training=rp.Training(batch_size=2)), discount=0.5), (2, 0.02)),
        (rp.IQN(training=rp.Training(batch_size=2)), rp.Training(batch_size=2)),
    ],
)
def test_what_is_not_given_stays_as_the_agent_has_it(agent, expected):
    if isinstance(expected, tuple):
        assert (agent.training.batch_size, agent.training.learning_rate_decay) == expected
    else:
        assert agent.training == expected


def test_networks_are_completed_as_well_and_one_given_part_serves_several_agents():
    network = rp.Network(window=4)
    assert rp.Adaptive(network=network).network == rp.Network(hidden=(128, 128), window=4)
    assert rp.IQN(network=network).network == rp.Network(window=4)


@pytest.mark.parametrize("agent", [rp.Adaptive(training=rp.Training(batch_size=2)), rp.IQN()])
def test_an_agent_has_the_same_structure_as_a_copy(agent):
    assert jax.tree.structure(agent) == jax.tree.structure(jax.tree.map(lambda x: x, agent))


def test_what_jax_has_copied_is_complete():
    copied = jax.tree.map(lambda x: x, rp.Training(batch_size=2))
    assert rp.Adaptive(training=copied).training == rp.Training(batch_size=2)
