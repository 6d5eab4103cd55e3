"""What a user hands over to `train`, checked and made ready; whatever is wrong with it is one line, before any work."""

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from riskpath.agents.agent import Agent
from riskpath.envs import make
from riskpath.envs.environment import Environment, FiniteProblem, as_finite, finite
from riskpath.errors import RiskpathError
from riskpath.mdp.model import FiniteMDP
from riskpath.training import fused_loop as loop
from riskpath.types import EnvSpec


def require_functions(progress: Any, watch: Any, callbacks: Any) -> None:
    """What is called while training goes on."""
    if not isinstance(callbacks, Sequence):
        raise RiskpathError(f"callbacks must be a list of functions, got a {type(callbacks).__name__}")
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise RiskpathError(f"progress must be True, False or a function, got {progress!r}")
    for name, function in (("watch", watch), *(("a callback", one) for one in callbacks)):
        if function is not None and not callable(function):
            raise RiskpathError(f"{name} must be a function, got {function!r}")


def as_agents(agent: Any) -> list[Agent]:
    """One for each setting."""
    agents: list[Any] = list(agent) if isinstance(agent, Iterable) and not isinstance(agent, str) else [agent]
    for one in agents:
        if isinstance(one, type) and issubclass(one, Agent):
            raise RiskpathError(f"give an agent, not its class: {one.__name__}(…)")
        if not isinstance(one, Agent):
            raise RiskpathError(f"cannot train a {type(one).__name__}; give an agent, several of them, or a run")
    if not agents:
        raise RiskpathError("give at least one agent")
    if any(_fixed(one) != _fixed(agents[0]) for one in agents):
        raise RiskpathError(
            "agents trained together may differ in float numbers only (2.0, not 2); train them one after the other"
        )
    return agents


def as_environment(env: Any) -> Environment:
    """A name, a `FiniteMDP` or an environment, as an environment whose arrays can be stacked."""
    if isinstance(env, str):
        try:
            env = make(env)
        except RiskpathError as error:
            hint = "" if "-v" in env else "; or give a Gymnasium id, for example CartPole-v1"
            raise RiskpathError(f"{error}{hint}") from None
    if isinstance(env, FiniteMDP):
        return finite(env)
    if isinstance(env, FiniteProblem):
        return as_finite(env)
    if isinstance(env, Environment):
        return env
    if isinstance(env, type) and issubclass(env, Environment):
        raise RiskpathError(f"give an environment, not its class: {env.__name__}(…)")
    raise RiskpathError(
        f"cannot train on a {type(env).__name__}; give a name, a FiniteMDP, an environment or a Gymnasium one"
    )


def as_environments(env: Any, count: int) -> tuple[list[Environment], list[Any]]:
    """An environment for each of `count` settings, and where they are Gymnasium's, how to make them."""
    outside = gymnasium_environments(env, count)
    listed = env if isinstance(env, list | tuple) else [env] * count
    worlds = [found.world for found in outside] or _match([as_environment(one) for one in listed], count)
    if any(world.spec != worlds[0].spec for world in worlds):
        raise RiskpathError("environments trained together must have the same sizes; train them one after the other")
    if not outside and any(_fixed(world.bare()) != _fixed(worlds[0].bare()) for world in worlds):
        raise RiskpathError("environments trained together may differ in numbers only; train them one after the other")
    return worlds, outside


def gymnasium_environments(env: Any, count: int) -> list[Any]:
    """How to make a Gymnasium environment for each of `count` settings; nothing if they are of another kind."""
    if find_spec("gymnasium") is None:  # all else works without it
        return []
    worlds = gym_worlds()
    if not isinstance(env, list | tuple):
        return [worlds.foreign(env)] * count if worlds.is_foreign(env) else []
    kinds = [worlds.is_foreign(one) for one in env]
    if any(kinds) and not all(kinds):
        raise RiskpathError("Gymnasium environments and others cannot be trained together; train them one by one")
    if any(isinstance(one, worlds.VectorEnv) for one in env):
        raise RiskpathError("give one vector environment for all settings, not a list of them")
    return _match([worlds.foreign(one) for one in env], count) if any(kinds) else []


def gym_worlds() -> Any:
    """The module of that name, imported only where Gymnasium is wanted: all else works without it."""
    from riskpath.envs import gymnasium_vector as gym_worlds

    return gym_worlds


def _match(found: list[Any], count: int) -> list[Any]:
    if len(found) != count:
        raise RiskpathError(f"got {count} agents and {len(found)} environments; they must match")
    return found


def _fixed(thing: Agent | Environment) -> str:
    """All of an agent or an environment that lanes must have in common."""
    swept = loop.is_swept if isinstance(thing, Agent) else eqx.is_array
    return repr((jax.tree.structure(thing), [leaf for leaf in jax.tree.leaves(thing) if not swept(leaf)]))


def require_fit(agent: Agent, spec: EnvSpec, envs: int) -> None:
    """Refuses an agent that cannot be trained there."""
    every = agent.training.train_freq
    if envs % every and every % envs:
        raise RiskpathError(f"train_freq and envs must divide one another, got {every} and {envs}")
    agent.window(spec)


def require_alike(trained: EnvSpec, other: EnvSpec) -> None:
    """Refuses an environment in which what was learned elsewhere means nothing."""
    for what, name in (
        ("shape of observations", "observation_shape"),
        ("number of states", "num_states"),
        ("number of actions", "num_actions"),
        ("length of actions", "action_size"),
    ):
        ours, theirs = getattr(trained, name), getattr(other, name)
        if ours != theirs:
            raise RiskpathError(f"this environment has another {what} than the one trained on: {theirs}, not {ours}")


def use_compilation_cache() -> None:
    """Compiled programs are kept on disk, so that only the first run of a kind waits for the compiler."""
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(Path.home() / ".cache" / "riskpath" / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
