"""Exact laws of runs where they are quick, sampled values elsewhere."""

import pytest

import riskpath as rp
from riskpath.evaluation import learned_policy
from riskpath.mdp.policy_evaluation import TooManySituations, describe_policy
from tests.conftest import without_training
from tests.training.fakes import fake_run
from tests.training.sizes import TINY_ADAPTIVE


@pytest.fixture(scope="module")
def run() -> rp.Run:
    agent = rp.Adaptive("cvar:0.1", discount=0.9, **TINY_ADAPTIVE, selection_episodes=0)
    with without_training():  # any policy will do
        return rp.train(agent, "RiskyGrid", steps=80, seeds=2)


def test_values_are_exact_where_that_is_quick(run):
    found = run.measure()
    assert found.values().tolist() == run.values().tolist()
    assert (found.episodes, found.means()[0, 1]) == (None, run.law(1).mean)
    for discounted, discount in ((False, 1.0), (True, 0.9)):
        (laws,) = run.exact_laws(discounted=discounted) or [[]]
        assert [law.isclose(run.law(seed, discount=discount)) for seed, law in enumerate(laws)] == [True, True]


@pytest.mark.parametrize("count", [1, 5, 6, 27, 90])
def test_situations_are_answered_in_batches_of_few_sizes(run, count, monkeypatch):
    policy, sizes = run.policy(), []
    step_many = learned_policy.step_many
    monkeypatch.setattr(learned_policy, "BATCHES", (25, 5))
    monkeypatch.setattr(learned_policy, "step_many", lambda *args: (sizes.append(len(args[-1])), step_many(*args))[1])
    start, *_ = (states := list(run.environments[0].mdp().outcomes))
    ((_, memory),) = policy.answer_all([(start, None, 0.0)])
    sizes.clear()
    situations = [(states[i % len(states)], memory if i % 3 else None, float(i % 7)) for i in range(count)]
    together = policy.answer_all(situations)
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) - count < 5
    assert set(sizes) <= {25, 5}
    assert len(sizes) == count // 25 + -(-(count % 25) // 5)
    assert together == [policy.answer_all([situation])[0] for situation in situations]


def test_too_many_situations_are_sampled(run):
    assert run.exact_laws(max_situations=1) is None
    found, sampled = run.measure(100, max_situations=1), run.evaluate(100)
    assert found.values().tolist() == sampled.values().tolist()
    assert found.episodes == 100
    assert found.means() == pytest.approx(sampled.returns.mean(axis=-1))
    assert found.laws[0][1].mean == pytest.approx(found.means()[0, 1])


def test_a_problem_that_is_not_finite_has_no_exact_laws():
    assert fake_run(environments=[rp.RiskyMountainCar()]).exact_laws() is None


def test_a_description_ends_where_there_are_too_many_situations(run):
    mdp, policy = run.environments[0].mdp(), run.policy()
    lines = describe_policy(mdp, policy, max_situations=1)
    assert lines[0] == describe_policy(mdp, policy)[0]
    assert lines[-1] == "… and many more decisions"
    assert describe_policy(mdp, policy, 1, max_situations=1) == ["… and many more decisions"]
    with pytest.raises(TooManySituations):
        mdp.evaluate(policy, max_situations=1)
