"""Policies evaluated by Stable-Baselines3, compared with the exact law of their return.

Not part of `make test`, because it needs PyTorch: run `make test-peers`.
"""

from typing import Any

import gymnasium
import numpy as np
import pytest

import riskpath as rp
from riskpath.evaluation.predictor import Predictor

sb3: Any = pytest.importorskip("stable_baselines3.common.evaluation")
vec_env: Any = pytest.importorskip("stable_baselines3.common.vec_env")

TRAINING = rp.Training(
    learning_starts=200,
    target_update_interval=20,
    batch_size=8,
    num_quantiles=8,
    num_target_quantiles=8,
    num_action_quantiles=8,
)
TABLE = rp.Network(head="table")
AGENTS = {
    "IQN": rp.IQN(rp.CVaR(0.1), network=TABLE, training=TRAINING),
    "TQL": rp.TQL(rp.CVaR(0.1), network=TABLE, training=TRAINING),
    "TQL, networks": rp.TQL(rp.Mean(), network=rp.Network(hidden=(16,), history_size=8), training=TRAINING),
}


@pytest.fixture(scope="module", params=AGENTS)
def run(request) -> rp.Run:
    """Train for a few steps: the policy does not have to be good."""
    return rp.train(AGENTS[request.param], "RiskyGrid", steps=400)


@pytest.mark.parametrize("count", [1, 7])
def test_returns_have_the_exact_law(run, count):
    env = vec_env.DummyVecEnv([lambda: gymnasium.make("riskpath/RiskyGrid-v0")] * count)
    env.seed(1)
    episodes = 300
    returns, lengths = sb3.evaluate_policy(
        Predictor(run.policy()), env, episodes, deterministic=False, return_episode_rewards=True, warn=False
    )
    law = run.law()
    assert (len(returns), set(lengths)) == (episodes, {6})
    distance = np.abs(np.array(returns)[:, None] - law.atoms[None, :])
    assert distance.min(axis=1).max() < 1e-3
    shares = np.bincount(distance.argmin(axis=1), minlength=len(law.atoms)) / episodes
    assert (np.abs(shares - law.probs) <= 5 * np.sqrt(law.probs * (1 - law.probs) / episodes) + 1e-9).all()
    assert abs(np.mean(returns) - law.mean) <= 5 * law.std / episodes**0.5 + 1e-3


def test_the_mean_in_a_single_environment_is_exact():
    run = rp.train(AGENTS["TQL"], "RiskyGrid", steps=400)
    env = gymnasium.make("riskpath/RiskyGrid-v0")
    env.reset(seed=0)
    mean, std = sb3.evaluate_policy(Predictor(run.policy()), env, 100, warn=False)
    law = run.law()
    assert abs(mean - law.mean) <= 5 * law.std / 10 + 1e-3
    assert (std > 0) == (law.std > 0)


def test_a_continuous_policy_has_the_same_mean_as_in_our_own_evaluation(unchecked):
    training = rp.Training(batch_size=8, learning_starts=50, buffer_size=500)
    agent = rp.TQLContinuous(network=rp.Network(hidden=(16,), history_size=4, window=3), training=training)
    run = rp.train(agent, rp.RiskyMountainCar(0.0, max_episode_steps=40), steps=100)
    env = vec_env.DummyVecEnv([lambda: gymnasium.make("riskpath/RiskyMountainCar-v0", c=0.0, max_episode_steps=40)] * 4)
    returns, lengths = sb3.evaluate_policy(Predictor(run.policy()), env, 40, return_episode_rewards=True, warn=False)
    ours = run.evaluate(episodes=400).returns[0, 0]
    assert set(lengths) == {40}
    assert abs(np.mean(returns) - ours.mean()) <= 5 * ours.std() / 40**0.5 + 1e-2
