"""Gymnasium's lunar lander with a noisy right half: landing there earns 70 + N(0, 100) more.

    env = gymnasium.make("riskpath/NoisyLander-v0")     # needs gymnasium[box2d]

Every episode has the same terrain. On average the right half is better by 70, its tail is worse: CVaR asks for landing
on the left. This is the lander of the public code of Return Capping (Mead et al., 2025), without its division of
rewards by 256. There the policy also observes the return so far; here agents that need it know it themselves.
"""

from typing import Any

import numpy as np

from riskpath.extras import needs_extra

with needs_extra("gymnasium", "NoisyLander"):
    import gymnasium

TERRAIN = 4
"""The seed of every episode of the simulator."""
BONUS, NOISE = 70.0, 100.0


class NoisyLander(gymnasium.Wrapper):
    """Adds a random reward to episodes that end on the right; only the noise depends on the seed of `reset`."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.noise = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode on the same terrain."""
        if seed is not None:
            self.noise = np.random.default_rng(seed)
        return self.env.reset(seed=TERRAIN, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Return the simulator's step, with noise on the reward where an episode ends on the right."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated and observation[0] > 0:
            reward = float(reward) + BONUS + NOISE * self.noise.normal()
        return observation, reward, terminated, truncated, info


def noisy_lander(**fields: Any) -> NoisyLander:
    """Return Gymnasium's LunarLander-v3 with the noise."""
    return NoisyLander(gymnasium.make("LunarLander-v3", **fields))
