"""Rollouts in environments that the host steps."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import riskpath as rp
from riskpath.training import measured
from tests.conftest import without_training


class Coin(gymnasium.Env):
    """Half of the episodes earn 1 at once, the others earn nothing for thirty steps."""

    observation_space, action_space = spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.short, self.time = self.np_random.random() < 0.5, 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.zeros(1, np.float32), float(self.short), self.short or self.time == 30, False, {}


@pytest.fixture(scope="module")
def run() -> rp.Run:
    training = rp.Training(
        learning_starts=20, batch_size=2, num_quantiles=2, num_target_quantiles=2, num_action_quantiles=2
    )
    agent = rp.IQN(discount=0.5, training=training, network=rp.Network(hidden=(4,)))
    with without_training():  # any policy will do
        return rp.train(agent, Coin, steps=120, seeds=2)


@pytest.mark.parametrize("environments", [8, 64])
def test_long_episodes_count_as_much_as_short_ones(run, environments, monkeypatch):
    # Of the episodes that finish first nearly all are short.
    monkeypatch.setattr(measured, "ENVIRONMENTS", environments)
    shown = []
    returns, discounted, finished = measured.sample_returns(run, 100, 0, progress=lambda *counts: shown.append(counts))
    assert returns.shape == (2, 100)
    assert returns.mean() == pytest.approx(0.5, abs=4 * 0.5 / 200**0.5)
    np.testing.assert_array_equal(returns, discounted)  # of one reward in the first step
    assert finished.all()
    assert shown == sorted(shown)
    assert shown[-1] == (200, 200)


def test_the_same_seed_plays_the_same_episodes(run):
    one, same, other = (run.evaluate(30, seed=seed).returns for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@pytest.mark.parametrize(
    ("steps", "length", "wanted", "expected"),
    [
        (40_000, 100.0, None, 100),
        (40_000, 100.0, 7, 7),
        (1_000, 100.0, None, 20),
        (9_000_000, 100.0, None, 1_000),
        (40_000, None, None, 50),  # no episode has finished: as long as the limit
    ],
)
def test_the_default_number_of_episodes_follows_from_the_training(run, steps, length, wanted, expected, monkeypatch):
    figures = {} if length is None else {"ep_len_mean": np.array([length - 50, length + 50])}
    monkeypatch.setattr(rp.Run, "recent_figures", lambda _: figures)
    like = rp.Run(run.agents, run.environments, 2, run.lanes, sources=run.sources)
    monkeypatch.setattr(rp.Run, "steps", steps)
    monkeypatch.setattr(rp.Run, "spec", rp.EnvSpec(2, (1,), max_episode_steps=200))
    assert measured.episodes_for(like, wanted) == expected
    like.sources = []
    assert measured.episodes_for(like, wanted) == (wanted or 1_000)
