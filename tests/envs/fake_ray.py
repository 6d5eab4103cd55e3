"""A small stand-in for the parts of Ray that this library uses: nodes are entries of a dictionary, actors objects here.

What is sent is pickled as Ray does it. An actor answers when it is asked for its answer, so that a node can be lost
between a question and its answer.
"""

import itertools
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest


class RayError(Exception):
    """As in `ray.exceptions`."""


class RayActorError(RayError):
    """As in `ray.exceptions`."""


class RayTaskError(RayError):
    """As in `ray.exceptions`."""


@dataclass(eq=False)
class Actor:
    """An actor: where it is, and what it runs."""

    kind: type
    cpus: float
    node: str | None = None
    inner: Any = None

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *given: Reference(self, method, cloudpickle.dumps(given)))


@dataclass(eq=False)
class Reference:
    """A question to an actor."""

    actor: Actor
    method: str
    given: bytes


@dataclass
class FakeRay:
    """A cluster: the module `ray` as far as it is used."""

    free: dict[str, float]
    """The CPUs that are free on each living node."""
    actors: list[Actor] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """The methods that were answered, with the node."""
    options: dict[str, Any] = field(default_factory=dict)
    exceptions: Any = field(default_factory=lambda: sys.modules[__name__])
    clock: Any = field(default_factory=itertools.count)

    def __post_init__(self):
        self.size = sum(self.free.values())
        self.answering: Actor | None = None

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.size}

    def available_resources(self) -> dict[str, float]:
        return {"CPU": sum(self.free.values())}

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": name, "NodeManagerAddress": f"10.0.0.{name}", "Alive": True} for name in self.free]

    def get_runtime_context(self) -> Any:
        assert self.answering is not None
        return SimpleNamespace(get_node_id=lambda: self.answering and self.answering.node)

    def remote(self, **options: Any) -> Any:
        self.options = options

        def make() -> Actor:
            self.actors.append(Actor(holder, options["num_cpus"]))
            self.place()
            return self.actors[-1]

        holder: Any = None

        def decorate(kind: type) -> Any:
            nonlocal holder
            holder = kind
            return SimpleNamespace(remote=make)

        return decorate

    def place(self) -> None:
        """Give waiting actors to the nodes with the most room."""
        for actor in self.actors:
            place = max(self.free, key=lambda name: self.free[name], default=None)
            if actor.node is None and place is not None and self.free[place] >= actor.cpus:
                actor.node, actor.inner = place, actor.kind()
                self.free[place] -= actor.cpus

    def wait(self, references: list[Reference], num_returns: int = 1, timeout: float = 0.0) -> Any:
        self.place()
        ready = [one for one in references if one.actor.node is not None][:num_returns]
        return ready, [one for one in references if one not in ready]

    def get(self, reference: Reference) -> Any:
        actor = reference.actor
        if actor.node not in self.free:
            raise RayActorError("The actor died.\nIts node has died.")
        self.answering = actor
        self.asked.append((reference.method, actor.node or ""))
        try:
            given = cloudpickle.loads(reference.given)
        except Exception as error:
            raise RayTaskError(f"Traceback\n{type(error).__name__}: {error}") from None
        return cloudpickle.loads(cloudpickle.dumps(getattr(actor.inner, reference.method)(*given)))

    def kill(self, actor: Actor) -> None:
        if actor in self.actors:
            self.actors.remove(actor)
        if actor.node in self.free:
            self.free[actor.node] += actor.cpus
        actor.node = "ended"

    def lose(self, node: str) -> None:
        """End a node with all that is on it."""
        del self.free[node]


@pytest.fixture
def cluster(monkeypatch) -> FakeRay:
    """Return a cluster of three nodes with three CPUs each, in place of Ray."""
    made: Any = FakeRay({"1": 3.0, "2": 3.0, "3": 3.0})
    monkeypatch.setitem(sys.modules, "ray", made)
    return made
