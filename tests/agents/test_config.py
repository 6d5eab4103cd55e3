"""Schedules that follow the length of training, and what a time limit means to each agent."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import riskpath as rp
from riskpath.agents.config import UNPLANNED, ReplayTraining

CALM: dict[str, Any] = {"learning_starts": 1_000}
PLANNED: dict[str, tuple[ReplayTraining, int, dict[str, float]]] = {  # steps of training, and what follows from them
    "discrete": (
        rp.Training(**CALM),
        11_000,
        {"decay_starts": 0.0, "decay_steps": 9_000.0, "epsilon_steps": 2_000.0},
    ),
    "every fourth step": (
        rp.Training(**CALM, train_freq=4),
        11_000,
        {"decay_starts": 0.0, "decay_steps": 2_250.0, "epsilon_steps": 500.0},
    ),
    "a late start": (
        rp.Training(**CALM, decay_starts=2_000.0),
        11_000,
        {"decay_starts": 2_000.0, "decay_steps": 7_200.0, "epsilon_steps": 2_000.0},
    ),
    "a start in the middle": (
        rp.Training(**CALM, decay_starts=None),
        11_000,
        {"decay_starts": 5_000.0, "decay_steps": 4_500.0, "epsilon_steps": 2_000.0},
    ),
    "a start after the end": (
        rp.Training(**CALM, decay_starts=20_000.0),
        11_000,
        {"decay_starts": 20_000.0, "decay_steps": 1.0, "epsilon_steps": 2_000.0},
    ),
    "given": (
        rp.Training(**CALM, decay_starts=5.0, decay_steps=7.0, epsilon_steps=3.0),
        11_000,
        {"decay_starts": 5.0, "decay_steps": 7.0, "epsilon_steps": 3.0},
    ),
    "only exploration is given": (
        rp.Training(**CALM, epsilon_steps=3.0),
        11_000,
        {"decay_starts": 0.0, "decay_steps": 9_000.0, "epsilon_steps": 3.0},
    ),
    "nothing is learned": (
        rp.Training(**CALM),
        500,
        {"decay_starts": 0.0, "decay_steps": 1.0, "epsilon_steps": 1.0},
    ),
    "continuous": (  # two gradient steps of the critics for every eighth step
        rp.ActorCriticTraining(**CALM),
        41_000,
        {"decay_starts": 5_000.0, "decay_steps": 4_500.0},
    ),
    "continuous, all at once": (
        rp.ActorCriticTraining(**CALM, decay_starts=0.0, policy_delay=1),
        41_000,
        {"decay_starts": 0.0, "decay_steps": 4_500.0},
    ),
    "continuous, given": (
        rp.ActorCriticTraining(**CALM, decay_steps=10.0),
        41_000,
        {"decay_starts": 5_000.0, "decay_steps": 10.0},
    ),
}


@pytest.mark.parametrize("case", PLANNED)
def test_schedules_follow_the_length_of_training_where_none_are_given(case):
    training, steps, expected = PLANNED[case]
    planned = training.for_steps(steps)
    assert type(planned) is type(training)
    assert {name: float(getattr(planned, name)) for name in expected} == pytest.approx(expected)
    again = planned.for_steps(10 * steps)  # a schedule that was found stays
    assert {name: float(getattr(again, name)) for name in expected} == pytest.approx(expected)
    starts, lasts = expected["decay_starts"], expected["decay_steps"]
    for step in (starts, starts + lasts // 2, starts + lasts, 1e6):
        found = float(planned.progress(jnp.int32(step)))
        assert found == pytest.approx(np.clip((step - starts) / lasts, 0, 1), abs=1e-6)


def test_schedules_of_a_training_of_unknown_length():
    for training in (rp.Training(), rp.ActorCriticTraining(decay_starts=None)):
        assert float(training.progress(jnp.int32(UNPLANNED / 2))) == pytest.approx(0.5)
        assert float(training.progress(jnp.int32(2 * UNPLANNED))) == 1.0
    epsilon = [float(rp.Training().epsilon_at(jnp.int32(share * UNPLANNED))) for share in (0.0, 0.5, 1.0, 2.0)]
    np.testing.assert_allclose(epsilon, [0.25, 0.13, 0.01, 0.01], rtol=1e-5)


@pytest.mark.parametrize(("decay", "share", "settled"), [(0.1, 0.5, False), (0.1, 0.6, True), (0.6, 1.0, False)])
def test_learning_has_settled_when_rates_have_fallen_by_half(decay, share, settled):
    training = rp.Training(learning_rate_decay=decay, decay_steps=1_000.0)
    assert bool(training.settled(jnp.int32(1_000 * share))) == settled


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
