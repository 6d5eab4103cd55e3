"""The notice about critics whose estimates are far from all returns that were seen."""

from types import SimpleNamespace

import numpy as np
import pytest

import riskpath as rp
from riskpath.training import notices as notices
from riskpath.training.notices import FEWEST_EPISODES, FEWEST_UPDATES, notice_of_estimates
from tests.training.fakes import Counting, fake_run

SPREAD, SAME = [-1.0, 3.0], [-99.0, -99.0]


def stand_in(returns: list[float], estimates: list[float], episodes: int = 50, updates: int = FEWEST_UPDATES) -> rp.Run:
    """Return what the notice reads of a run: lanes with these latest returns and estimates."""
    lanes = len(estimates)
    ring = np.tile(np.resize(np.array(returns), 64), (lanes, 1))
    seen = SimpleNamespace(count=np.full(lanes, episodes), ring=ring)
    state, clock = SimpleNamespace(episodes=seen), SimpleNamespace(updates=updates)
    lanes_of_run = SimpleNamespace(agent_state=state, clock=clock)
    return fake_run(lanes=lanes_of_run, estimates=lambda: np.array([estimates]), agents=[rp.IQN("mean")])


@pytest.mark.parametrize(
    ("returns", "estimates", "text"),
    [
        (SPREAD, [14.9, -12.9], None),  # within three times the range of 4
        (SPREAD, [15.1, 0.0], "in 1 of 2 lanes: lane 0 predicts 15.1, its latest episodes returned -1 to 3"),
        (SPREAD, [2.0, -13.1], "lane 1 predicts -13.1"),
        (SPREAD, [20.0, 1e6], "in 2 of 2 lanes: lane 1 predicts 1e+06"),
        (SPREAD, [0.0, np.nan], "lane 1 predicts nan"),
        (SAME, [-74.7], None),  # no episode has reached the goal yet
        (SAME, [-60.0], "lane 0 predicts -60"),
    ],
)
def test_estimates_far_outside_of_the_returns_are_named(returns, estimates, text):
    line = notice_of_estimates(stand_in(returns, estimates))
    assert line is None if text is None else text in str(line)


@pytest.mark.parametrize(("episodes", "updates"), [(FEWEST_EPISODES - 1, 5_000), (500, FEWEST_UPDATES - 1)])
def test_nothing_is_said_before_there_is_something_to_compare(episodes, updates):
    assert notice_of_estimates(stand_in(SPREAD, [1e9], episodes, updates)) is None


def test_a_training_says_at_its_end_that_its_critic_left_the_returns(monkeypatch, caplog):
    monkeypatch.setattr(notices, "FAR", -1e6)  # every estimate counts as far outside
    monkeypatch.setattr(notices, "FEWEST_UPDATES", 1)
    training = rp.Training(learning_starts=40, batch_size=4, buffer_size=64)
    agent = Counting(rp.Mean(), training=training)
    mdp = rp.FiniteMDP.from_outcomes({("s", "stay"): [(1.0, 1.0, "s")]}, "s", horizon=2)
    run = rp.train(agent, mdp, steps=60, progress=False)
    for text in (caplog.text, *run.notices):
        assert "the critic predicts returns far from all that were seen, in 1 of 1 lanes" in text
    assert len(run.notices) == 1
    assert caplog.text.count(f"at step {run.steps:,} ") == 1
