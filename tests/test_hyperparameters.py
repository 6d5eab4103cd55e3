"""A part of an agent's hyperparameters that is given in part keeps the agent's own defaults."""

import copy
import dataclasses
import pickle

import jax
import pytest

import riskpath as rp

OWN = rp.Adaptive().training


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (rp.Adaptive(training=rp.Training(decay_ends=1.0)), dataclasses.replace(OWN, decay_ends=1.0)),
        (rp.Adaptive(training=rp.Training(batch_size=32)), dataclasses.replace(OWN, batch_size=32)),
        (rp.Adaptive(training=rp.Training()), OWN),
        (rp.Adaptive(training=rp.Training(0.5)), dataclasses.replace(OWN, learning_rate=0.5)),
        (rp.Adaptive(training=dataclasses.replace(rp.Training(), batch_size=2)), rp.Training(batch_size=2)),
        (dataclasses.replace(rp.Adaptive(training=rp.Training(batch_size=2)), discount=0.5), (2, 2e-5)),
        (rp.IQN(training=rp.Training(batch_size=2)), rp.Training(batch_size=2)),
    ],
)
def test_what_is_not_given_stays_as_the_agent_has_it(agent, expected):
    if isinstance(expected, tuple):
        assert (agent.training.batch_size, agent.training.final_learning_rate) == expected
    else:
        assert agent.training == expected


def test_networks_are_completed_as_well_and_one_given_part_serves_several_agents():
    network = rp.Network(window=4)
    assert rp.Adaptive(network=network).network == rp.Network(hidden=(128, 128), window=4)
    assert rp.IQN(network=network).network == rp.Network(window=4)


@pytest.mark.parametrize("agent", [rp.Adaptive(training=rp.Training(batch_size=2)), rp.IQN()])
def test_an_agent_has_the_same_structure_as_a_copy(agent):
    assert jax.tree.structure(agent) == jax.tree.structure(jax.tree.map(lambda x: x, agent))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda part: pickle.loads(pickle.dumps(part))])
def test_a_copy_knows_which_fields_were_given(copied):
    agent = copied(rp.IQN(training=rp.Training(batch_size=2), network=rp.Network(hidden=(7,))))
    assert dataclasses.replace(agent, discount=0.5) == rp.IQN(
        discount=0.5, training=rp.Training(batch_size=2), network=rp.Network(hidden=(7,))
    )
    assert rp.Adaptive(training=copied(rp.Training(batch_size=2))).training == dataclasses.replace(OWN, batch_size=2)


def test_what_jax_has_copied_is_complete():
    copied = jax.tree.map(lambda x: x, rp.Training(batch_size=2))
    assert rp.Adaptive(training=copied).training == rp.Training(batch_size=2)
