"""Environments. A new problem is a new file, with its import and its name here; that also registers it.

`BY_NAME` holds every environment of the library that can be made from its name alone, because all of its fields have
defaults. `make`, the command line and Gymnasium (as "riskpath/NAME-v0") use these names.
"""

import dataclasses
import importlib.util
from typing import Any

from riskpath.envs.american_put import AmericanPut
from riskpath.envs.autonomous_vehicle import AutonomousVehicle
from riskpath.envs.betting_game import BettingGame
from riskpath.envs.driving import Driving
from riskpath.envs.environment import Conditioned, Environment
from riskpath.envs.gamblers_ruin import GamblersRuin
from riskpath.envs.guarded_maze import GuardedMaze
from riskpath.envs.gymnax_env import from_gymnax
from riskpath.envs.inventory import Inventory
from riskpath.envs.liquidation import Liquidation
from riskpath.envs.mean_reversion_trading import MeanReversionTrading
from riskpath.envs.mountain_car import RiskyMountainCar
from riskpath.envs.option_hedging import OptionHedging
from riskpath.envs.patrolled_maze import PatrolledMaze
from riskpath.envs.random_mdp import RandomMDP
from riskpath.envs.risky_grid import RiskyGrid
from riskpath.envs.river_swim import RiverSwim
from riskpath.envs.servers import Servers
from riskpath.envs.three_state import ThreeState
from riskpath.envs.windy_cliff import WindyCliff
from riskpath.envs.workers import RayWorkers
from riskpath.errors import RiskpathError, did_you_mean
from riskpath.registry import concrete

__all__ = [
    "AmericanPut",
    "AutonomousVehicle",
    "BettingGame",
    "Conditioned",
    "Driving",
    "Environment",
    "GamblersRuin",
    "GuardedMaze",
    "Inventory",
    "Liquidation",
    "MeanReversionTrading",
    "OptionHedging",
    "PatrolledMaze",
    "RandomMDP",
    "RayWorkers",
    "RiskyGrid",
    "RiskyMountainCar",
    "RiverSwim",
    "Servers",
    "ThreeState",
    "WindyCliff",
    "from_gymnax",
    "make",
]


BY_NAME: dict[str, type[Any]] = {
    name: cls
    for name, cls in sorted(concrete(Environment).items())
    if not any(field.default is field.default_factory is dataclasses.MISSING for field in dataclasses.fields(cls))
}
"""Name → class of the environments that come with the library."""


def make(name: str, **fields: Any) -> Any:
    """Make an environment by name, with some of its fields changed: `make("RiskyGrid", forks=5)`."""
    known = ", ".join(BY_NAME)
    if not isinstance(name, str):
        raise RiskpathError(f"make needs the name of an environment, got {name!r}; there are {known}")
    if name not in BY_NAME:
        raise RiskpathError(f"unknown environment {name!r}{did_you_mean(name, BY_NAME)}; there are {known}")
    accepted = BY_NAME[name].__dataclass_fields__
    for field in fields:
        if field not in accepted:
            raise RiskpathError(
                f"{name} has no field {field!r}{did_you_mean(field, accepted)}; there are {', '.join(accepted)}"
            )
    return BY_NAME[name](**fields)


if importlib.util.find_spec("gymnasium") is not None:  # Gymnasium does not search for plug-ins itself
    from gymnasium import register

    for _name in BY_NAME:
        register(f"riskpath/{_name}-v0", "riskpath.envs.gymnasium_env:GymnasiumEnv", kwargs={"env": _name})
    register("riskpath/NoisyLander-v0", "riskpath.envs.noisy_lander:noisy_lander")
