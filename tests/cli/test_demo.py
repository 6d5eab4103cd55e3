"""The demo prints the exact frontier and the results of training, and draws a figure."""

import dataclasses
import functools

import numpy as np

import riskpath as rp
from riskpath.cli import demo
from tests.cli import conftest

NETWORK = rp.Network(hidden=(4,))
TRAINING = dataclasses.replace(conftest.TRAINING, learning_starts=0)
EPISODES = 40


def test_demo_prints_the_known_optima_and_what_agents_learned(cli, monkeypatch, tmp_path, unchecked, untrained):
    # Other tests train these agents.
    game = rp.BettingGame(rounds=2)
    adaptive = functools.partial(demo.AGENTS["Adaptive"], selection_episodes=0)
    few = {"mean-trained": demo.AGENTS["mean-trained"], "Adaptive": adaptive}
    changes = {"GAME": game, "AGENTS": few, "NETWORK": NETWORK, "TRAINING": TRAINING, "STEPS": 80, "EPISODES": EPISODES}
    for name, value in {**changes, "LEVELS": (0.25, 1.0)}.items():
        monkeypatch.setattr(demo, name, value)
    status, out, _ = cli("demo", "--out", str(tmp_path / "demo.png"))
    assert status == 0
    best = [rp.solve(game.mdp(), rp.CVaR(level), policies="adaptive").value for level in (0.25, 1.0)]
    assert best[1] > best[0]
    for value in best:
        assert f"{value:.2f}" in out
    agent = rp.IQN("mean", discount=1.0, network=NETWORK, training=TRAINING)
    twin = rp.train(agent, game, steps=80, seeds=2)
    median = np.median([twin.law(seed).risk(rp.CVaR(0.25)) for seed in range(2)])
    assert f"{median:.2f}" in out[out.index("What they learned") :]
    assert (tmp_path / "demo.png").stat().st_size > 10_000
