"""`train` and what it returns: a `Run`, from which policies, laws and learning curves are read."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from riskpath import host, loop
from riskpath.agents.base import Agent
from riskpath.envs import make
from riskpath.envs.base import (
    Environment,
    FiniteEnvironment,
    FiniteProblem,
    as_finite,
    finite,
)
from riskpath.errors import RiskpathError
from riskpath.evaluate import Evaluation, outlook, rollouts
from riskpath.law import Law
from riskpath.learned import LearnedPolicy
from riskpath.mdp.model import FiniteMDP
from riskpath.progress import TrainingBar
from riskpath.types import EnvSpec

if TYPE_CHECKING:
    from riskpath.saving import Checkpointer

EVALUATED_SIDE_BY_SIDE = 8
"""Gymnasium environments of one lane when it is evaluated."""


@dataclass(frozen=True)
class Plan:
    """How far a call of `train` is to go, so that an interrupted one can be finished."""

    start: int
    """Environment steps of each lane before it."""
    steps: int
    """How many more were asked for."""
    evaluate_every: int | None = None
    """Steps between evaluations."""


class TrainingStopped(RiskpathError):
    """Training met something it cannot go on with; `run` is what was learned before."""

    def __init__(self, message: str, run: "Run"):
        super().__init__(message)
        self.run = run


@dataclass
class Run:
    """Trained lanes: one for each setting and seed, and how they got there."""

    agents: list[Agent]
    """One for each setting."""
    worlds: list[Environment]
    """The environment of each setting."""
    seeds: int
    """Lanes for each setting."""
    lanes: loop.Lanes = field(repr=False)
    """Everything that training changes."""
    curve: list[dict[str, Any]] = field(default_factory=list, repr=False)
    """What `evaluate_every` saw: step, and the value of every lane's greedy policy or what `watch` wrote down."""
    plan: Plan | None = field(default=None, repr=False)
    """What `train` was last asked to do."""
    outside: list[Any] = field(default_factory=list, repr=False)
    """Where the host steps the environments: how to make those of each setting."""
    row: Any = field(default=None, repr=False)
    """And those being trained on, which are in the middle of their episodes."""
    _copied: tuple[loop.Lanes, Any] | None = field(default=None, repr=False)
    """The lanes that were last copied to the host, and what was copied of them."""

    @property
    def steps(self) -> int:
        """Environment steps of each lane so far."""
        return int(self.lanes.steps)

    @property
    def spec(self) -> EnvSpec:
        """Sizes of the environment."""
        return self.worlds[0].spec

    def policy(self, seed: int = 0, setting: int = 0) -> LearnedPolicy:
        """The greedy policy of one lane, `action, memory = policy(state, memory, reward)`."""
        if not (0 <= seed < self.seeds and 0 <= setting < len(self.agents)):
            raise RiskpathError(f"there are {self.seeds} seeds and {len(self.agents)} settings, got {seed}, {setting}")
        lane = setting * self.seeds + seed
        host = jax.devices("cpu")[0]  # one small network at a time is faster there than on a GPU
        if self._copied is None or self._copied[0] is not self.lanes:  # all lanes at once, and once only
            self._copied = self.lanes, jax.device_get((self.lanes.agent, self.lanes.critic))
        agent, critic = jax.tree.map(
            lambda x: jax.device_put(x[lane], host) if isinstance(x, np.ndarray) else x, self._copied[1]
        )
        return LearnedPolicy(agent, critic, self.worlds[setting])

    def law(self, seed: int = 0, setting: int = 0, discount: float = 1.0) -> Law:
        """The exact law of the return of one lane's policy, where the problem is finite."""
        world = self.worlds[setting]
        if not isinstance(world, FiniteEnvironment):
            raise RiskpathError("an exact law needs a finite problem")
        return world.mdp(discount).evaluate(self.policy(seed, setting))

    def evaluate(self, episodes: int = 1_000, seed: int = 0, limit: int | None = None, env: Any = None) -> Evaluation:
        """Greedy episodes of every lane: the sample of returns, plain and discounted.

        Args:
            episodes: How many, for each lane.
            seed: The number their randomness starts from.
            limit: The most steps of one; needed only where the environment has no limit of its own.
            env: Another environment of the same sizes, or one for each setting; where it was trained unless told.
        """
        if self.outside:
            return self._evaluate_outside(episodes, seed, limit, env)
        worlds = self.worlds if env is None else _worlds(env, len(self.agents))
        limit = limit or worlds[0].spec.max_steps or 10_000
        world = loop.stack([world.bare() for world in worlds], self.seeds, eqx.is_array)
        lanes = eqx.tree_at(lambda lanes: lanes.env, self.lanes, world)
        plain, discounted, finished = rollouts(lanes, self.spec, episodes, limit, key=jax.random.key(seed))
        shape = (len(self.agents), self.seeds, episodes)
        risks = [agent.risk for agent in self.agents]
        return Evaluation(
            np.asarray(plain).reshape(shape),
            np.asarray(discounted).reshape(shape),
            risks,
            float(finished),
            self._discounts(),
        )

    def _discounts(self) -> list[float]:
        return [float(agent.discount) for agent in self.agents]

    def _evaluate_outside(self, episodes: int, seed: int, limit: int | None, env: Any) -> Evaluation:
        from riskpath.gym_worlds import GymnasiumWorlds

        if episodes < 1:
            raise RiskpathError(f"episodes must be at least 1, got {episodes}")
        outside = self.outside if env is None else gymnasium_environments(env, len(self.agents))
        if self.spec.max_steps is None:
            limit = limit or 10_000
        width = min(episodes, EVALUATED_SIDE_BY_SIDE)
        row = GymnasiumWorlds(outside, self.seeds * width, limit=limit)
        try:
            each = -(-episodes // width)
            plain, discounted, finished = host.rollouts(self.lanes, row, self.spec, each, key=jax.random.key(seed))
        finally:
            row.close()
        shape = (len(self.agents), self.seeds, -1)
        plain, discounted = (x.reshape(shape)[:, :, :episodes] for x in (plain, discounted))
        return Evaluation(plain, discounted, [agent.risk for agent in self.agents], finished, self._discounts())

    def save(self, path: str | Path) -> None:
        """Writes everything to a folder, from which `load` makes the same run."""
        from riskpath.saving import save  # which knows runs

        save(self, path)

    def estimates(self) -> np.ndarray:
        """What every lane itself believes its (discounted) return to be worth: [settings, seeds]."""
        if self.outside:
            believed = host.outlook(self.lanes, self.spec, jnp.asarray(self.outside[0].first_observation))
        else:
            believed = outlook(self.lanes, self.spec)
        return np.asarray(believed).reshape(len(self.agents), self.seeds)

    def values(self, discount: float = 1.0) -> np.ndarray:
        """β of the whole return of every lane's policy: [settings, seeds]; exact where the problem is finite."""
        if not isinstance(self.worlds[0], FiniteEnvironment):
            return self.evaluate().values(discounted=discount < 1)
        return np.array(
            [
                [float(agent.risk.value(self.law(seed, setting, discount))) for seed in range(self.seeds)]
                for setting, agent in enumerate(self.agents)
            ]
        )


Callback = Callable[[Run, dict[str, Any]], None]


def as_environment(env: Any) -> Environment:
    """A name, a `FiniteMDP` or an environment, as an environment whose arrays can be stacked."""
    if isinstance(env, str):
        env = make(env)
    if isinstance(env, FiniteMDP):
        return finite(env)
    if isinstance(env, FiniteProblem):
        return as_finite(env)
    if isinstance(env, Environment):
        return env
    raise RiskpathError(
        f"cannot train on a {type(env).__name__}; give a name, a FiniteMDP, an environment or a Gymnasium one"
    )


def train(
    agent: Agent | Sequence[Agent] | Run,
    env: Any = None,
    *,
    steps: int | None = None,
    seeds: int = 1,
    envs: int = 1,
    seed: int = 0,
    progress: bool | Callback = False,
    evaluate_every: int | None = None,
    watch: Callable[[Run], dict[str, Any]] | None = None,
    workers: bool = False,
    checkpoint: "Checkpointer | str | Path | None" = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Trains `seeds` lanes for every setting, side by side in one compiled program.

    Settings are agents (and environments) that differ in numbers only: hyperparameters, risk levels, rewards,
    probabilities. A `Run` in place of an agent is trained further. Interrupted with Ctrl-C, it returns what was
    trained so far.

    Args:
        agent: An agent, several settings of one, or a run to continue.
        env: A name, a `FiniteMDP`, an environment; a Gymnasium id, environment, function that makes one, or vector
            environment (SAME_STEP autoreset); or a list with one for each agent.
        steps: Environment steps for each lane; a run that was interrupted is finished as planned if none are given.
        seeds: Lanes for each setting.
        envs: Environments for each lane.
        seed: The number all randomness starts from.
        progress: True for a progress bar, or a function called after every chunk with the run and its metrics.
        evaluate_every: Steps between evaluations of the greedy policies, kept in `run.curve`.
        watch: What to keep there instead of the values, as a function of the run.
        workers: Step Gymnasium environments in processes of their own, one for each: worth it if a step is slow.
        checkpoint: A folder to save to every five minutes and in the end, or a `Checkpointer`.
        callbacks: Functions of the run and a dictionary of numbers, called after every chunk (`logs.py`).
    """
    for name, value in (("steps", steps), ("seeds", seeds), ("envs", envs)):
        if value is not None and value < 1:
            raise RiskpathError(f"{name} must be at least 1, got {value}")
    if steps is None and not isinstance(agent, Run):
        raise RiskpathError("give steps=…, the environment steps for each lane")
    use_compilation_cache()
    keeper = _checkpointer(checkpoint)
    run = agent if isinstance(agent, Run) else _begin(agent, env, seeds, envs, seed, workers)
    if run.outside and run.row is None:
        _begin_anew(run, workers)
    if steps is not None:
        run.plan = Plan(run.steps, steps, evaluate_every)
    if run.plan is None:
        raise RiskpathError("give steps=…; only a run that was interrupted knows how far it was to go")
    plan, goal, every = run.plan, run.plan.start + run.plan.steps, run.plan.evaluate_every
    spec, each = run.spec, loop.steps_per_round(run.agents[0], run.lanes.time.shape[1])
    rounds = max(1, min(every or plan.steps, plan.steps // 10 or 1, 20_000) // each)
    show = TrainingBar(goal) if progress is True else progress or None
    seen = sum(point["step"] > plan.start for point in run.curve)
    next_evaluation = plan.start + (every or 0) * (1 + seen)
    left = max(0, goal - run.steps)
    began, before = time.monotonic(), run.steps
    try:
        row, ahead = run.row, (spec, left, rounds)
        advance = loop.advance(run.lanes, *ahead) if row is None else host.advance(run.lanes, row, *ahead)
        for lanes, metrics in advance:
            if not bool(lanes.healthy):
                raise TrainingStopped(
                    f"a reward was not a finite number between steps {run.steps} and {int(lanes.steps)}", run
                )
            if not np.isfinite(metrics.get("loss", 0.0)).all():
                raise TrainingStopped(
                    f"the loss was not a finite number between steps {run.steps} and {int(lanes.steps)}: "
                    "try a smaller step size, or rewards scaled down",
                    run,
                )
            run.lanes = lanes
            speed = (run.steps - before) / max(1e-9, time.monotonic() - began) * len(run.agents) * run.seeds
            numbers = {"step": run.steps, "steps_per_second": speed, **metrics}
            if every and run.steps >= next_evaluation:
                next_evaluation += every
                noted = watch(run) if watch else {"values": run.values().tolist()}
                run.curve.append({"step": run.steps, **noted})
                numbers["evaluation"] = noted
            if keeper:
                keeper.maybe(run)
            if callbacks and metrics:
                numbers["estimate"] = run.estimates().ravel()
            for callback in [*([show] if show else []), *callbacks]:
                callback(run, numbers)
    except KeyboardInterrupt:
        pass
    finally:
        if isinstance(show, TrainingBar):
            show.close()
        if keeper:
            keeper.now(run)
    return run


def _checkpointer(asked: Any) -> "Checkpointer | None":
    from riskpath.saving import Checkpointer  # which knows runs

    return asked if asked is None or isinstance(asked, Checkpointer) else Checkpointer(asked)


def _begin(agent: Agent | Sequence[Agent], env: Any, seeds: int, envs: int, seed: int, workers: bool) -> Run:
    agents = [agent] if isinstance(agent, Agent) else list(agent)
    outside = gymnasium_environments(env, len(agents))
    worlds = [found.world for found in outside] or _worlds(env, len(agents))
    if any(world.spec != worlds[0].spec for world in worlds):
        raise RiskpathError("environments trained together must have the same sizes; train them one after the other")
    if not outside and any(_fixed(world.bare()) != _fixed(worlds[0].bare()) for world in worlds):
        raise RiskpathError("environments trained together may differ in numbers only; train them one after the other")
    if any(_fixed(agent) != _fixed(agents[0]) for agent in agents):
        raise RiskpathError(
            "agents trained together may differ in float numbers only (2.0, not 2); train them one after the other"
        )
    spec, every = worlds[0].spec, agents[0].training.update_every
    if envs % every and every % envs:
        raise RiskpathError(f"update_every and envs must divide one another, got {every} and {envs}")
    agents[0].window(spec)  # refuses what it cannot handle before any work
    if not outside:
        return Run(agents, worlds, seeds, loop.start(agents, worlds, seeds, envs, seed))
    from riskpath.gym_worlds import GymnasiumWorlds

    row = GymnasiumWorlds(outside, seeds * envs, workers)
    lanes = host.start(agents, outside[0].world, row, seeds, envs, seed)
    return Run(agents, worlds, seeds, lanes, outside=outside, row=row)


def _begin_anew(run: Run, workers: bool) -> None:
    """Gymnasium environments of a run that was loaded: they are made again and start new episodes."""
    from riskpath.gym_worlds import GymnasiumWorlds

    run.row = GymnasiumWorlds(run.outside, run.seeds * run.lanes.time.shape[1], workers)
    run.lanes = host.restart(run.lanes, run.row, run.spec)


def gymnasium_environments(env: Any, count: int) -> list[Any]:
    """How to make a Gymnasium environment for each of `count` settings; nothing if they are of another kind."""
    if find_spec("gymnasium") is None:
        return []
    from riskpath.gym_worlds import foreign, is_foreign

    if isinstance(env, list | tuple):
        kinds = [is_foreign(one) for one in env]
        if any(kinds) and not all(kinds):
            raise RiskpathError("Gymnasium environments and others cannot be trained together; train them one by one")
        return _match([foreign(one) for one in env], count) if any(kinds) else []
    return [foreign(env)] * count if is_foreign(env) else []


def _match(found: list[Any], count: int) -> list[Any]:
    if len(found) != count:
        raise RiskpathError(f"got {count} agents and {len(found)} environments; they must match")
    return found


def _worlds(env: Any, count: int) -> list[Environment]:
    """An environment for each of `count` settings."""
    return _match([as_environment(one) for one in (env if isinstance(env, list | tuple) else [env] * count)], count)


def _fixed(thing: Agent | Environment) -> str:
    """All of an agent or an environment that lanes must have in common."""
    swept = loop.is_swept if isinstance(thing, Agent) else eqx.is_array
    return repr((jax.tree.structure(thing), [leaf for leaf in jax.tree.leaves(thing) if not swept(leaf)]))


def use_compilation_cache() -> None:
    """Compiled programs are kept on disk, so that only the first run of a kind waits for the compiler."""
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(Path.home() / ".cache" / "riskpath" / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
