"""Schedules are shares of the training; what a time limit means to each agent."""

import jax.numpy as jnp
import pytest

import riskpath as rp
from riskpath.agents.clock import ramp
from tests.agents.clocks import clock_at


@pytest.mark.parametrize("planned", [10_000, 10_000_000])
def test_the_same_schedules_suit_short_and_long_trainings(planned):
    for done, rate, epsilon in ((0.0, 1e-3, 0.25), (0.1, 9e-4, 0.13), (0.45, 5.5e-4, 0.01), (0.95, 1e-4, 0.01)):
        clock = clock_at(done, planned)
        assert float(clock.done) == pytest.approx(done)
        assert float(rp.Training().optimiser().rate(clock.done)) == pytest.approx(rate)
        assert float(rp.EpsilonGreedy().epsilon(clock.done)) == pytest.approx(epsilon)


def test_a_clock_ends_at_1_and_stands_still_where_nothing_is_planned():
    assert float(rp.Clock(jnp.int32(30), jnp.int32(20)).done) == 1.0
    assert float(rp.Clock(jnp.int32(30), jnp.int32(0)).done) == 0.0


@pytest.mark.parametrize(
    ("starts", "ends", "expected"),
    [(0.0, 0.5, [0.0, 0.5, 1.0, 1.0]), (0.25, 1.0, [0.0, 0.0, 1 / 3, 1.0]), (0.5, 0.5, [0.0, 0.0, 0.0, 1.0])],
)
def test_a_ramp_rises_between_two_shares(starts, ends, expected):
    assert [float(ramp(done, starts, ends)) for done in (0.0, 0.25, 0.5, 1.0)] == pytest.approx(expected)


@pytest.mark.parametrize(("final", "done", "settled"), [(1e-4, 0.5, False), (1e-4, 0.6, True), (6e-4, 1.0, False)])
def test_learning_has_settled_when_rates_have_fallen_by_half(final, done, settled):
    training = rp.Training(final_learning_rate=final, decay_ends=1.0)
    assert bool(training.settled(jnp.float32(done))) == settled


WHOLE = [rp.Adaptive, rp.AdaptiveContinuous, rp.CVaRDRL, rp.QRSRM, rp.TQL, rp.TQLContinuous]
TO_GO = [rp.IQN, rp.IQTD3]


@pytest.mark.parametrize("kind", WHOLE + TO_GO, ids=lambda kind: kind.__name__)
def test_a_limit_ends_the_return_unless_it_is_to_go_and_discounted(kind):
    for discount in (0.9, 1.0):
        for given in (None, False, True):
            expected = kind in WHOLE or discount == 1.0 if given is None else not given
            agents = [kind(discount=d, bootstrap_at_limit=given) for d in (discount, jnp.asarray(discount))]
            assert [bool(agent.ends_at_limit) for agent in agents] == [expected] * 2


@pytest.mark.parametrize(("kind", "steps"), [(rp.IQN, 3), (rp.Adaptive, 4), *((k, 1) for k in (rp.TQL, rp.IQTD3))])
def test_agents_learn_from_several_steps_where_they_can(kind, steps):
    assert kind().n_steps == steps
    assert kind(n_steps=1).n_steps == 1
    if kind.several_steps:
        assert kind(n_steps=7).n_steps == 7
    else:
        with pytest.raises(rp.RiskpathError, match=f"{kind.__name__} learns from single steps: leave n_steps at 1"):
            kind(n_steps=2)
    with pytest.raises(rp.RiskpathError, match="n_steps must be at least 1, got 0"):
        kind(n_steps=0)
