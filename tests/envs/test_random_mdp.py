"""Random problems: the same for the same seed, of the requested size, with rewards and probabilities on a grid."""

import pytest

import riskpath as rp
from riskpath.envs.random_mdp import Node


def test_the_same_fields_give_the_same_problem_and_another_seed_another_one():
    assert rp.RandomMDP(seed=3).mdp().outcomes == rp.RandomMDP(seed=3).mdp().outcomes
    assert rp.RandomMDP(seed=3).mdp().outcomes != rp.RandomMDP(seed=4).mdp().outcomes
    assert rp.RandomMDP(seed=3).mdp().outcomes != rp.RandomMDP(seed=3, stochastic=False).mdp().outcomes


@pytest.mark.parametrize(("depth", "width", "actions"), [(1, 1, 1), (1, 4, 2), (3, 2, 3), (6, 5, 2)])
def test_sizes_are_those_of_the_fields(depth, width, actions):
    mdp = rp.RandomMDP(depth=depth, width=width, actions=actions).mdp()
    assert len(mdp.outcomes) == 1 + (depth - 1) * width
    assert all(len(listed) == actions for listed in mdp.outcomes.values())
    assert mdp.max_episode_steps == depth


@pytest.mark.parametrize("stochastic", [True, False])
def test_rewards_are_whole_probabilities_are_sixteenths_and_transitions_as_requested(stochastic):
    for seed in range(20):
        mdp = rp.RandomMDP(seed=seed, stochastic=stochastic).mdp()
        listed = [o for actions in mdp.outcomes.values() for outcomes in actions.values() for o in outcomes]
        assert all(o.reward == int(o.reward) and abs(o.reward) <= 6 for o in listed)
        assert all(o.prob * 16 == int(o.prob * 16) and o.prob > 0 for o in listed)
        assert len({o.reward for o in listed}) > 3
        assert (mdp.successor is None) == stochastic
        assert mdp.max_episode_steps == 4


def test_the_exact_solvers_accept_it():
    mdp = rp.RandomMDP(seed=1, depth=3, width=2, stochastic=False).mdp()
    markov, history, adaptive = (rp.solve(mdp, "cvar:0.25", p).value for p in ("markov", "history", "adaptive"))
    assert adaptive >= history - 1e-9 >= markov - 2e-9


def test_features_tell_the_states_of_a_layer_and_the_layers_apart():
    features = rp.RandomMDP(depth=2, width=3).mdp().features
    assert features is not None
    assert features[Node(1, 2)] == (0.0, 0.0, 1.0, 0.0)
    assert len(set(features.values())) == len(features)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"stochastic": 1}, "stochastic must be True or False, got 1"),
    ],
)
def test_a_wrong_field_is_refused_by_name(fields, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message):
        rp.RandomMDP(**fields)


def test_a_node_reads_well():
    assert str(Node(2, 1)) == "node 1 of layer 2"
