"""The shape of agents: four abstract methods, and no method that is both concrete and overridden."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import riskpath.agents
from riskpath.agents.agent import Agent

MODULES = [
    importlib.import_module(found.name) for found in pkgutil.walk_packages(riskpath.agents.__path__, "riskpath.agents.")
]
CLASSES = {
    value
    for module in MODULES
    for value in vars(module).values()
    if inspect.isclass(value) and value.__module__.startswith("riskpath.agents")
}


def methods(kind: type) -> Iterator[str]:
    """Yield the methods and properties that a class defines itself, without those that Python or Equinox call."""
    for name, value in vars(kind).items():
        called = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
        if called and not name.startswith("__"):
            yield name


def test_an_agent_has_four_abstract_methods():
    assert Agent.__abstractmethods__ == {"init", "act", "update", "value"}
    assert len(CLASSES) > 40


@pytest.mark.parametrize("kind", sorted(CLASSES, key=str), ids=str)
def test_no_concrete_method_is_overridden(kind):
    concrete = {
        (base.__name__, name)
        for name in methods(kind)
        for base in kind.__mro__[1:]
        if name in vars(base) and not getattr(vars(base)[name], "__isabstractmethod__", False)
        if base.__module__.startswith("riskpath")
    }
    assert not concrete
