"""Write a Gymnasium environment, a bet with three rounds, and train agents for the mean and for the tail."""

import gymnasium
import numpy as np
from gymnasium import spaces

import riskpath as rp


class Rounds(gymnasium.Env):
    """Three rounds: stake nothing, one, or ten on a coin that wins with probability 0.6."""

    observation_space = spaces.Discrete(4)
    action_space = spaces.Discrete(3)
    stakes = np.array([0.0, 1.0, 10.0])

    def reset(self, *, seed=None, options=None):
        """Start with the first round."""
        super().reset(seed=seed)
        self.round = 0
        return self.round, {}

    def step(self, action):
        """Toss the coin."""
        self.round += 1
        sign = 1.0 if self.np_random.random() < 0.6 else -1.0
        return self.round, sign * self.stakes[action], self.round == 3, False, {}


training = rp.Training(learning_rate=3e-3, learning_starts=200)
agents = [rp.IQN(rp.CVaR(level), discount=1.0, training=training) for level in (1.0, 0.25)]  # CVaR(1.0) is the mean
run = rp.train(agents, Rounds, steps=1_000, seeds=2)  # two settings, one program
sample = run.evaluate(episodes=200)
for agent, mean, tail in zip(agents, sample.mean(), sample.risk(rp.CVaR(0.25)), strict=True):
    print(f"trained for {agent.risk}: mean {mean}, CVaR 0.25 {tail}")
