"""Draw the pictures of the problems with the library's own renderer.

Run `python docs/figures/problems.py` to write `three_state.png`, `risky_grid.png` and so on next to this file; names of
problems as arguments draw only these.
"""

import re
import sys
from pathlib import Path
from typing import Any

import gymnasium
import matplotlib.image
import numpy as np

import riskpath  # noqa: F401  (registers the environments with Gymnasium)

HERE = Path(__file__).parent
ACTIONS: dict[str, list[Any]] = {
    "ThreeState": [],
    "RiskyGrid": [1, 0],
    "BettingGame": [4, 4, 6, 6, 8],
    "RiverSwim": [1] * 14,
    "GamblersRuin": [1, 2, 1, 2, 3, 2],
    "WindyCliff": [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2],
    "Inventory": [8, 6, 7, 0, 5, 3],
    "Liquidation": [3, 2, 2],
    "RandomMDP": [0, 1, 0],
    "RiskyMountainCar": [np.ones(1, np.float32)] * 25 + [-np.ones(1, np.float32)] * 19,
    "MeanReversionTrading": [lambda seen: int(np.clip(10 - 12 * (seen[0] - 1), 0, 20))] * 8,
    "AmericanPut": [0] * 8,
    "GuardedMaze": [3] * 5 + [0] * 5 + [1] * 4,
    "PatrolledMaze": [1] * 4 + [3],
    "AutonomousVehicle": [1, 0, 1, 1, 0, 1],
    "Driving": [lambda seen: 2] * 6,
    "Servers": [1] + [0] * 44,
    "OptionHedging": [lambda seen: int(np.clip(10 + 160 * (seen[0] - 1), 0, 20))] * 16,
}
"""The actions before the picture, or functions of the observation."""


def picture(name: str) -> np.ndarray:
    """Return the picture of an environment after some actions."""
    env = gymnasium.make(f"riskpath/{name}-v0", render_mode="rgb_array")
    seen, _ = env.reset(seed=0)
    for action in ACTIONS[name]:
        seen, *_ = env.step(action(seen) if callable(action) else action)
    return np.asarray(env.render())


def file_name(name: str) -> str:
    """Return the name of a problem in lower case with underscores."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


if __name__ == "__main__":
    for name in sys.argv[1:] or ACTIONS:
        matplotlib.image.imsave(HERE / f"{file_name(name)}.png", picture(name))
