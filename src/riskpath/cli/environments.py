"""Environments by name: those of the library, registered classes of the user's own, and Gymnasium environments."""

import functools
import importlib
import os
import sys
from importlib.util import find_spec
from typing import Any

from riskpath.envs import BY_NAME as ENVIRONMENTS
from riskpath.envs import make
from riskpath.envs.environment import Environment
from riskpath.errors import in_one_line
from riskpath.registry import concrete


def make_environment(name: str, fields: dict[str, Any]) -> Any:
    """Return an environment with some of its fields changed; for a Gymnasium environment its id, or how to make it.

    MODULE:NAME imports the module first, which registers the environment. Only a user's own words lead to an import,
    never a file.
    """
    module, colon, short = name.rpartition(":")
    if colon:
        if os.getcwd() not in sys.path:  # the module may be in the current folder
            sys.path.append(os.getcwd())
        with in_one_line(f"cannot import {module}"):
            importlib.import_module(module)
    kind: Any = concrete(Environment).get(short) if colon and short not in ENVIRONMENTS else None
    if kind is not None:
        with in_one_line(f"cannot make {name}"):
            return kind(**fields)
    if not is_gymnasium(name):
        return make(short, **fields)
    from gymnasium import make as make_gymnasium

    return functools.partial(make_gymnasium, name, **fields) if fields else name


def is_gymnasium(name: str) -> bool:
    """Tell whether a name is that of a Gymnasium environment."""
    if name in ENVIRONMENTS or (find_spec("gymnasium") is None and "-v" not in name):
        return False
    from riskpath.envs import gymnasium_vector

    return gymnasium_vector.is_gymnasium(name)
