"""The agents, problems, measures and training settings of the benchmark, and how a user adds to them."""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from riskpath.agents.adaptive import Adaptive
from riskpath.agents.agent import Agent
from riskpath.agents.config import EpsilonGreedy, Training
from riskpath.agents.cvar_drl import CVaRDRL
from riskpath.agents.iqn import IQN
from riskpath.agents.qrsrm import QRSRM
from riskpath.agents.tql import TQL
from riskpath.envs import BY_NAME as ENVIRONMENTS
from riskpath.envs.environment import Environment
from riskpath.envs.finite import FiniteEnvironment, FiniteProblem, as_finite, finite, name_of
from riskpath.envs.guarded_maze import GuardedMaze
from riskpath.envs.random_mdp import RandomMDP
from riskpath.errors import RiskpathError, did_you_mean
from riskpath.experiments.bench_scores import Reference, given_reference, solve_reference, suite_values
from riskpath.experiments.suite_optima import PROBLEMS as SUITE
from riskpath.mdp.model import FiniteMDP
from riskpath.mdp.solve import as_grid_problem
from riskpath.nn.network import Network
from riskpath.registry import simplify
from riskpath.risk.compose import parse_risk
from riskpath.risk.measures import Mean, RiskMeasure
from riskpath.training.codec import encode

RISKS = ("cvar:0.05", "cvar:0.1", "cvar:0.25", "cvar:0.5", "wang:-0.75", "wang:0.75", "pow:-2", "cpw:0.71")
"""The measures of the full benchmark."""
PROBLEMS = (
    *("RiskyGrid", "probe grid", "RandomMDP", "RandomMDP:2", "BettingGame", "WindyCliff", "Inventory"),
    *("Liquidation", "AmericanPut", "MeanReversionTrading"),
)
"""The problems of the full benchmark."""
QUICK_RISKS, QUICK_PROBLEMS = ("cvar:0.1", "cvar:0.5"), ("RiskyGrid", "probe grid")
"""Those of a quick one; both problems have the same sizes, and so share compiled programs."""
SMALL_STATES = 100
"""A finite problem with at most this many states is small: policies are evaluated exactly."""
SIZES: dict[str, dict[str, Any]] = {
    "small": {
        "steps": 640_000,
        "num_envs": 16,
        "train_freq": 16,
        "learning_starts": 16_000,
        "buffer_size": 320_000,
        "hidden": (128, 128),
        "batch_size": 256,
        "num_quantiles": 32,
        "num_action_quantiles": 64,
        "episodes": 20_000,
    },
    "large": {
        "steps": 8_000_000,
        "num_envs": 256,
        "train_freq": 256,
        "learning_starts": 64_000,
        "buffer_size": 2_000_000,
        "hidden": (256, 256, 256),
        "batch_size": 1_024,
        "num_quantiles": 32,
        "num_action_quantiles": 64,
        "episodes": 100_000,
    },
    "quick": {
        "steps": 24_000,
        "num_envs": 4,
        "train_freq": 4,
        "learning_starts": 1_000,
        "buffer_size": 24_000,
        "hidden": (64,),
        "batch_size": 32,
        "num_quantiles": 16,
        "num_action_quantiles": 16,
        "episodes": 2_000,
    },
}
"""Training and evaluation by the size of the problem, the same for all agents. The evaluation of large problems plays
`episodes` for each seed."""


class Entrant(NamedTuple):
    """An agent of the benchmark."""

    name: str
    make: Callable[[RiskMeasure, dict[str, Any]], Agent]
    """Returns the agent for a measure, from its parts; raises a `RiskpathError` if it does not optimise the measure."""
    control: bool = False
    """Whether it is trained for the mean, once for all measures."""


def _entrant(name: str, kind: Callable[..., Agent], control: bool = False) -> Entrant:
    return Entrant(name, lambda risk, parts: kind(risk, discount=1.0, **parts), control)


AGENTS = {
    entrant.name: entrant
    for entrant in (
        _entrant("mean control", IQN, control=True),
        _entrant("IQN", IQN),
        _entrant("CVaR-DRL", CVaRDRL),
        _entrant("TQL", functools.partial(TQL, critic="trajectory")),
        _entrant("QR-SRM", QRSRM),
        _entrant("Adaptive", Adaptive),
    )
}
"""The agents of the benchmark. TQL has the trajectory form, which has no bias."""


@dataclass(frozen=True)
class BenchProblem:
    """A problem of your own for `bench`; one that is not finite needs its values."""

    env: Any
    """The environment, a `FiniteMDP`, a name or a Gymnasium id."""
    optima: Mapping[str, tuple[float, float]] | None = None
    """For each measure: its value under the mean-optimal policy, and the optimum. By default the problem is solved."""
    spread: float | None = None
    """The standard deviation of the return of the mean-optimal policy. It decides whether shares are shown: they are if
    it is None."""
    name: str = ""
    """Its name in tables, by default that of the environment."""

    @property
    def size(self) -> str:
        """Return the entry of `SIZES` that applies."""
        states = len(self.env.tables.available) if isinstance(self.env, FiniteEnvironment) else None
        return "small" if states is not None and states <= SMALL_STATES else "large"

    @property
    def identity(self) -> Any:
        """Return what tells this environment from others, as JSON; a finite problem by a digest of its numbers."""
        if not isinstance(self.env, FiniteEnvironment):
            return encode(self.env)
        return f"{self.env.problem}, digest {self.env.digest}"

    def reference(self, risk: str) -> Reference:
        """Return what policies are measured against; solve the problem if it is not known."""
        if self.optima is not None:
            return given_reference(self.name, risk, dict(self.optima), self.spread)
        if isinstance(self.env, GuardedMaze):
            return Reference(*self.env.best(parse_risk(risk)), float(self.env.noise))
        known = suite_values().get(self.name, {})
        if risk in known and self.identity == _suite_identity(self.name):
            return known[risk]
        return solve_reference(self.env.mdp() if isinstance(self.env, FiniteEnvironment) else self.env, risk)


def known_optimum(env: Any, risk: RiskMeasure) -> float | None:
    """Return the optimum of an environment that is one of the suite, if the suite has it for this measure."""
    for name, references in suite_values().items():
        same = str(risk) in references and name_of(env) == type(SUITE[name]()).__name__
        if same and BenchProblem(env).identity == _suite_identity(name):
            return references[str(risk)].optimum
    return None


def hyperparameters(settings: dict[str, Any]) -> dict[str, Any]:
    """Return network, training and exploration of all agents.

    Learning rates fall to 1 % until 90 % of the training, the probability of a random action until 50 %.
    """
    names = ("train_freq", "buffer_size", "batch_size", "num_quantiles", "num_action_quantiles")
    sizes = {name: settings[name] for name in names} | {"num_target_quantiles": settings["num_quantiles"]}
    starts = min(settings["learning_starts"], settings["steps"] // 4)
    training = Training(learning_rate=1e-3, final_learning_rate=1e-5, learning_starts=starts, **sizes)
    exploration = EpsilonGreedy(initial_eps=1.0, final_eps=0.05, fraction=0.5)
    return {"network": Network(hidden=settings["hidden"]), "training": training, "exploration": exploration}


def as_entrants(agents: Any) -> list[Entrant]:
    """Return agents by name, as objects or in a dictionary; an object keeps its own network and training."""
    if agents is None:
        return list(AGENTS.values())
    if isinstance(agents, Mapping):
        return [_as_entrant(agent, str(name)) for name, agent in agents.items()]
    return _distinct("agent", [_as_entrant(agent) for agent in _listed(agents)])


def _as_entrant(agent: Any, name: str = "") -> Entrant:
    if isinstance(agent, str):
        return AGENTS[_match("agent", agent, AGENTS)]._replace(**({"name": name} if name else {}))
    if isinstance(agent, Agent):
        make = lambda risk, parts: replace(agent, risk=risk)
        return Entrant(name or type(agent).__name__, make, isinstance(agent.risk, Mean))
    if isinstance(agent, type) and issubclass(agent, Agent):
        return _entrant(name or agent.__name__, agent)
    raise RiskpathError(f"an agent of a benchmark is a name, an agent or its class; got {agent!r}")


def as_problems(problems: Any, quick: bool = False) -> list[BenchProblem]:
    """Return problems by name, as environments or in a dictionary."""
    if problems is None:
        problems = QUICK_PROBLEMS if quick else PROBLEMS
    if isinstance(problems, Mapping):
        return [_as_problem(problem, str(name)) for name, problem in problems.items()]
    return _distinct("problem", [_as_problem(problem) for problem in _listed(problems)])


def _as_problem(problem: Any, name: str = "") -> BenchProblem:
    given = problem if isinstance(problem, BenchProblem) else BenchProblem(problem)
    env, name = given.env, name or given.name
    if isinstance(env, str):
        env, found = _by_name(env, given.optima is not None)
        name = name or found
    if isinstance(env, FiniteMDP):
        name, env = name or env.name, finite(env)
    if isinstance(env, FiniteProblem):
        name, env = name or type(env).__name__, as_finite(env)
    name = name or type(env).__name__
    solvable = isinstance(env, FiniteEnvironment | GuardedMaze) or as_grid_problem(env) is not None
    if given.optima is None and not solvable:
        raise RiskpathError(f"{name} cannot be solved exactly: give rp.BenchProblem(env, optima={{risk: (…, …)}})")
    return replace(given, env=env, name=name)


def _by_name(text: str, known: bool) -> tuple[Any, str]:
    """Return an environment by its name, and the name for tables."""
    head, _, seed = text.partition(":")
    if simplify(head) == "randommdp" and seed.isdigit() and int(seed):
        return RandomMDP(seed=int(seed), depth=6), f"RandomMDP:{int(seed)}"
    if known:  # also a Gymnasium id
        return text, text
    name = _match("problem", head if seed == "0" else text, SUITE | ENVIRONMENTS)
    return (SUITE | ENVIRONMENTS)[name](), name


@functools.cache
def _suite_identity(name: str) -> Any:
    return _as_problem(SUITE[name]()).identity


def _match(what: str, text: str, known: Iterable[str]) -> str:
    """Return the name that a text means, in any spelling of its words."""
    plain = lambda name: simplify(name).replace(" ", "")
    for name in known:
        if plain(name) == plain(text):
            return name
    raise RiskpathError(f"unknown {what} {text!r}{did_you_mean(text, known)}; there are {', '.join(known)}")


def _listed(things: Any) -> list[Any]:
    single = isinstance(things, str | Agent | Environment | FiniteMDP | BenchProblem | type)
    if not single and not isinstance(things, Iterable):
        raise RiskpathError(f"a benchmark takes a list or a dictionary of agents and problems, got {things!r}")
    return [things] if single else list(things)


def _distinct(what: str, listed: list[Any]) -> list[Any]:
    names = [one.name for one in listed]
    for name in names:
        if names.count(name) > 1:
            raise RiskpathError(f"two {what}s are called {name}; give a dictionary with a name for each")
    if not listed:
        raise RiskpathError(f"give at least one {what}")
    return listed
