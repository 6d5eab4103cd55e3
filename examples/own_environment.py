"""A Gymnasium environment of one's own: a gambler with three rounds, trained for the mean and for the tail."""

import gymnasium
import numpy as np
from gymnasium import spaces

import riskpath as rp


class Rounds(gymnasium.Env):
    """Three rounds: stake nothing, one, or ten on a coin that wins 60 times in 100."""

    observation_space = spaces.Discrete(4)
    action_space = spaces.Discrete(3)
    stakes = np.array([0.0, 1.0, 10.0])

    def reset(self, *, seed=None, options=None):
        """The first round."""
        super().reset(seed=seed)
        self.round = 0
        return self.round, {}

    def step(self, action):
        """The coin is tossed."""
        self.round += 1
        sign = 1.0 if self.np_random.random() < 0.6 else -1.0
        return self.round, sign * self.stakes[action], self.round == 3, False, {}


training = rp.Training(start_steps=300, lr=3e-3, lr_end=3e-4, lr_steps=1_500.0, reward_scale=0.1, kappa=0.1)
runs = {}
for risk in (rp.Mean(), rp.CVaR(0.25)):
    runs[str(risk)] = rp.train(rp.IQN(risk, discount=1.0, training=training), Rounds, steps=1_500, seeds=3)
    found = runs[str(risk)].evaluate(episodes=400)
    print(f"trained for {risk}: mean {found.mean()[0]}, CVaR 0.25 {found.risk(rp.CVaR(0.25))[0]}")
gain = rp.compare(runs["cvar:0.25"].evaluate(400), runs["mean"].evaluate(400), rp.CVaR(0.25))[0]
print(f"what training for the tail gains there: {gain}")
