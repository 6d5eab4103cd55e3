"""Converts and checks the arguments of `train` and `Run.evaluate`; an error is one line, before any work starts."""

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import Any

import equinox as eqx
import jax

from riskpath.agents.agent import Agent
from riskpath.envs import make
from riskpath.envs.environment import Environment
from riskpath.envs.finite import FiniteEnvironment, FiniteProblem, as_arrays, as_finite, finite, pad_alike
from riskpath.errors import RiskpathError
from riskpath.mdp.model import FiniteMDP
from riskpath.risk.measures import CVaR, Mean
from riskpath.training.lanes import is_swept
from riskpath.types import EnvSpec


def require_functions(progress: Any, evaluator: Any, callbacks: Any) -> None:
    """Refuse functions that cannot be called during training."""
    if not isinstance(callbacks, Sequence):
        raise RiskpathError(f"callbacks must be a list of functions, got a {type(callbacks).__name__}")
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise RiskpathError(f"progress must be True, False or a function, got {progress!r}")
    for name, function in (("evaluator", evaluator), *(("a callback", one) for one in callbacks)):
        if function is not None and not callable(function):
            raise RiskpathError(f"{name} must be a function, got {function!r}")


def as_agents(agent: Any) -> list[Agent]:
    """Return one agent for each setting."""
    agents: list[Any] = list(agent) if isinstance(agent, Iterable) and not isinstance(agent, str) else [agent]
    for one in agents:
        if isinstance(one, type) and issubclass(one, Agent):
            raise RiskpathError(f"give an agent, not its class: {one.__name__}(…)")
        if not isinstance(one, Agent):
            example = "give an agent such as rp.Adaptive('cvar:0.1'), several of them, or a run"
            raise RiskpathError(f"cannot train a {type(one).__name__}; {example}")
    if not agents:
        raise RiskpathError("give at least one agent")
    if any(_fixed(one) != _fixed(agents[0]) for one in agents):
        raise RiskpathError(f"agents trained together may differ in float hyperparameters only: {_difference(agents)}")
    return agents


def _difference(agents: list[Agent]) -> str:
    """Return why agents cannot be trained together, and what to do."""
    kinds = {type(agent.risk) for agent in agents}
    if kinds == {Mean, CVaR}:
        return "write CVaR(1.0) for Mean() to train it beside other levels"
    if len(kinds) > 1:
        return "their measures are of different kinds; wrap each one in riskpath.risk.Tabulated(measure)"
    return "write 2.0, not 2, and train agents with other differences one after the other"


def as_environment(env: Any) -> Environment:
    """Return a name, a `FiniteMDP` or an environment as an environment whose arrays can be stacked."""
    if isinstance(env, str):
        try:
            env = make(env)
        except RiskpathError as error:
            hint = "" if "-v" in env else "; or give a Gymnasium id, for example CartPole-v1 or package:Env-v0"
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
    """Return an environment for each of `count` settings and, for Gymnasium environments, how to make them."""
    sources = gymnasium_sources(env, count)
    listed = env if isinstance(env, list | tuple) else [env] * count
    environments: list[Environment] = [source.environment for source in sources]
    environments = environments or padded(_match([as_environment(e) for e in listed], count))
    if any(env.spec != environments[0].spec for env in environments):
        raise RiskpathError("environments trained together must have the same sizes; train them one after the other")
    if not sources and any(_fixed(as_arrays(env)) != _fixed(as_arrays(environments[0])) for env in environments):
        raise RiskpathError("environments trained together may differ in numbers only; train them one after the other")
    return environments, sources


def padded(environments: list[Environment]) -> list[Environment]:
    """Return environments with tables of equal shapes, if all of them are finite problems with features."""
    finite = [e for e in environments if isinstance(e, FiniteEnvironment) and e.tables.features is not None]
    return [*pad_alike(finite)] if len(finite) == len(environments) else environments


def gymnasium_sources(env: Any, count: int) -> list[Any]:
    """Return the maker of a Gymnasium environment for each of `count` settings; nothing for other environments."""
    if find_spec("gymnasium") is None:
        if isinstance(env, str) and "-v" in env:
            raise RiskpathError(f"{env} is a Gymnasium environment, which needs: pip install 'riskpath[gymnasium]'")
        return []
    vector = gymnasium_module()
    if not isinstance(env, list | tuple):
        return [vector.gymnasium_source(env)] * count if vector.is_gymnasium(env) else []
    kinds = [vector.is_gymnasium(one) for one in env]
    if any(kinds) and not all(kinds):
        raise RiskpathError("Gymnasium environments and others cannot be trained together; train them one by one")
    if any(isinstance(one, vector.VectorEnv) for one in env):
        raise RiskpathError("give one vector environment for all settings, not a list of them")
    return _match([vector.gymnasium_source(one) for one in env], count) if any(kinds) else []


def gymnasium_module() -> Any:
    """Import `envs.gymnasium_vector`, only where Gymnasium is needed."""
    from riskpath.envs import gymnasium_vector

    return gymnasium_vector


def _match(listed: list[Any], count: int) -> list[Any]:
    if len(listed) != count:
        raise RiskpathError(f"got {count} agents and {len(listed)} environments; they must match")
    return listed


def _fixed(thing: Agent | Environment) -> str:
    """Return a text of all static values, which lanes must have in common."""
    leaves = jax.tree.leaves(thing)
    if isinstance(thing, Agent):
        return repr((jax.tree.structure(thing), [leaf for leaf in leaves if not is_swept(leaf)]))
    return repr((jax.tree.structure(thing), [leaf.shape if eqx.is_array(leaf) else leaf for leaf in leaves]))


def program_key(agent: Agent, env: Any) -> str:
    """Return a text that is equal for settings that share a program: they differ in numbers only."""
    if sources := gymnasium_sources(env, 1):
        return f"{_fixed(agent)} {sources[0].name or id(env)}"
    environment = as_environment(env)
    return f"{_fixed(agent)} {environment.spec} {_fixed(as_arrays(environment))}"


def require_fit(agent: Agent, spec: EnvSpec, num_envs: int) -> None:
    """Refuse an agent that cannot be trained in an environment."""
    agent.require_actions(spec)
    agent.experience(spec).require_fit(num_envs)


def require_alike(trained: EnvSpec, other: EnvSpec) -> None:
    """Refuse an environment with other sizes than the one trained on."""
    for what, name in (
        ("shape of observations", "observation_shape"),
        ("number of states", "num_states"),
        ("number of actions", "num_actions"),
        ("length of actions", "action_size"),
        ("set of choices", "action_heads"),
    ):
        ours, theirs = getattr(trained, name), getattr(other, name)
        if ours != theirs:
            raise RiskpathError(f"this environment has another {what} than the one trained on: {theirs}, not {ours}")
