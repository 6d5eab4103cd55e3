"""Small problems that several test files of this folder use."""

import dataclasses
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import riskpath as rp

# At most three steps. State "a" has the actions "on" and "out", state "b" has "on" and "back".
MASKED = rp.FiniteMDP.from_outcomes(
    {
        ("a", "on"): [(1.0, 1.0, "b")],
        ("a", "out"): [(1.0, 5.0, "end")],
        ("b", "on"): [(1.0, 2.0, "b")],
        ("b", "back"): [(0.5, 3.0, "a"), (0.5, 4.0, "b")],
    },
    "a",
    horizon=3,
)
# The same with features of states.
FEATURES = {"a": (0.0, 2.0, 7.0), "b": (1.0, -2.0, 7.0), "end": (0.5, 0.0, 7.0)}
OBSERVED = dataclasses.replace(MASKED, features=FEATURES)
SMALL: dict[str, Any] = {"riskpath/BettingGame-v0": {"rounds": 3}}
"""Fields of Gymnasium environments that take long to make with their defaults."""


class EchoEnv(gymnasium.Env):
    """A Gymnasium environment with random observations that ends after `length` steps.

    It fails on actions outside of its space and, if `masked`, on action 0, which its mask excludes.
    """

    def __init__(self, observation_space=None, action_space=None, length=5, masked=False):
        self.observation_space = observation_space or spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = action_space or spaces.Discrete(3)
        self.length, self.masked = length, masked

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.time = 0
        return self.observation_space.sample(), self._info()

    def step(self, action):
        assert self.action_space.contains(action), action
        assert not (self.masked and action == 0)
        self.time += 1
        return self.observation_space.sample(), 1.0, self.time >= self.length, False, self._info()

    def _info(self):
        return {"action_mask": np.array([0, 1, 1], np.int8)} if self.masked else {}
