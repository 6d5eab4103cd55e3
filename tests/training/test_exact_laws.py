"""Exact laws of runs where they are quick, sampled values elsewhere."""

from types import SimpleNamespace

import pytest

import riskpath as rp
from riskpath.mdp.policy_evaluation import TooManySituations, describe_policy
from riskpath.training import exact_laws
from tests.conftest import without_training
from tests.training.sizes import TINY_ADAPTIVE


@pytest.fixture(scope="module")
def run() -> rp.Run:
    agent = rp.Adaptive("cvar:0.1", discount=0.9, **TINY_ADAPTIVE, selection_episodes=0)
    with without_training():  # any policy will do
        return rp.train(agent, "RiskyGrid", steps=80, seeds=2)


def test_values_are_exact_where_that_is_quick(run):
    assert exact_laws.quick_values(run).tolist() == run.values().tolist()
    for discounted, discount in ((False, 1.0), (True, 0.9)):
        (laws,) = exact_laws.exact_laws(run, discounted=discounted) or [[]]
        assert [law.isclose(run.law(seed, discount=discount)) for seed, law in enumerate(laws)] == [True, True]


def test_too_many_situations_are_sampled(run, monkeypatch):
    assert exact_laws.exact_laws(run, max_situations=1) is None
    monkeypatch.setattr(exact_laws, "exact_laws", lambda run: None)
    sampled = exact_laws.quick_values(run, 50)
    assert sampled.shape == (1, 2)
    assert sampled.tolist() == run.evaluate(50).values().tolist()


def test_a_problem_that_is_not_finite_has_no_exact_laws():
    assert exact_laws.exact_laws(SimpleNamespace(environments=[rp.RiskyMountainCar()])) is None


def test_a_description_ends_where_there_are_too_many_situations(run):
    mdp, policy = run.environments[0].mdp(), run.policy()
    lines = describe_policy(mdp, policy, max_situations=1)
    assert lines[0] == describe_policy(mdp, policy)[0]
    assert lines[-1] == "… and many more decisions"
    assert describe_policy(mdp, policy, 1, max_situations=1) == ["… and many more decisions"]
    with pytest.raises(TooManySituations):
        mdp.evaluate(policy, max_situations=1)
