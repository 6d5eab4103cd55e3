"""Draw the pictures of the problems with the library's own renderer.

Run `python docs/figures/problems.py` to write `three_state.png`, `risky_grid.png` and the others next to this file, or
name some of the problems.
"""

import sys
from pathlib import Path

import gymnasium
import matplotlib.image
import numpy as np

import riskpath  # noqa: F401  (registers the environments with Gymnasium)

HERE = Path(__file__).parent
STEPS = {
    "ThreeState": 0,
    "RiskyGrid": 2,
    "RiskyMountainCar": 44,
    "MeanReversionTrading": 8,
    "AmericanPut": 8,
    "OptionHedging": 16,
}
MARKETS = {
    "MeanReversionTrading": lambda seen: int(np.clip(10 - 12 * (seen[0] - 1), 0, 20)),
    "AmericanPut": lambda seen: 0,
    "OptionHedging": lambda seen: int(np.clip(10 + 160 * (seen[0] - 1), 0, 20)),
}
"""Simple policies for the trading problems."""


def picture(name: str, steps: int) -> np.ndarray:
    """Return the picture of an environment after a few steps of a fixed action."""
    env = gymnasium.make(f"riskpath/{name}-v0", render_mode="rgb_array")
    seen, _ = env.reset(seed=0)
    for step in range(steps):
        action = (
            np.array([1.0 if step < 25 else -1.0], np.float32)
            if name == "RiskyMountainCar"
            else MARKETS[name](seen)
            if name in MARKETS
            else (step + 1) % 2
        )
        seen, *_ = env.step(action)
    return np.asarray(env.render())


if __name__ == "__main__":
    for name in sys.argv[1:] or STEPS:
        file = "".join(
            f"_{letter.lower()}" if letter.isupper() else letter for letter in name
        ).lstrip("_")
        matplotlib.image.imsave(HERE / f"{file}.png", picture(name, STEPS[name]))
