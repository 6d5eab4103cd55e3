"""The problems that come with the library, by name."""

import importlib.util
from typing import Any

from riskpath.envs.environment import Environment
from riskpath.envs.gymnax_env import from_gymnax
from riskpath.envs.mountain_car import RiskyMountainCar
from riskpath.envs.risky_grid import RiskyGrid
from riskpath.envs.three_state import ThreeState
from riskpath.errors import RiskpathError, did_you_mean

__all__ = ["Environment", "RiskyGrid", "RiskyMountainCar", "ThreeState", "from_gymnax", "make"]

BY_NAME = {"ThreeState": ThreeState, "RiskyGrid": RiskyGrid, "RiskyMountainCar": RiskyMountainCar}


def make(name: str, **fields: Any) -> Any:
    """An environment by name, with any of its fields changed: `make("RiskyGrid", forks=5)`."""
    if name not in BY_NAME:
        raise RiskpathError(
            f"unknown environment {name!r}{did_you_mean(name, BY_NAME)}; there are {', '.join(BY_NAME)}"
        )
    known = BY_NAME[name].__dataclass_fields__
    for field in fields:
        if field not in known:
            raise RiskpathError(
                f"{name} has no field {field!r}{did_you_mean(field, known)}; there are {', '.join(known)}"
            )
    return BY_NAME[name](**fields)


def _register() -> None:
    """Tells Gymnasium the names, where it is installed: it has no plug-ins that it would look for by itself."""
    if importlib.util.find_spec("gymnasium") is None:
        return
    from gymnasium import register

    for name in BY_NAME:
        register(f"riskpath/{name}-v0", "riskpath.envs.gymnasium_env:GymnasiumEnv", kwargs={"env": name})


_register()
