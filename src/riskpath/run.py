"""`train` and what it returns: a `Run`, from which policies, laws and learning curves are read."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from riskpath import host, loop, prepare
from riskpath.agents.base import Agent
from riskpath.checks import require_counts, require_whole
from riskpath.envs.base import Environment, FiniteEnvironment
from riskpath.errors import RiskpathError, in_one_line
from riskpath.evaluate import Evaluation, outlook, rollouts
from riskpath.law import Law
from riskpath.learned import LearnedPolicy
from riskpath.progress import TrainingBar
from riskpath.types import EnvSpec

if TYPE_CHECKING:
    from riskpath.saving import Checkpointer


@dataclass(frozen=True)
class Plan:
    """How far a call of `train` is to go, so that an interrupted one can be finished."""

    start: int
    """Environment steps of each lane before it."""
    steps: int
    """How many more were asked for."""
    evaluate_every: int | None = None
    """Steps between evaluations; the last one is in the end."""

    @property
    def goal(self) -> int:
        """Steps of each lane in the end."""
        return self.start + self.steps

    def due(self, before: int, now: int) -> bool:
        """Is it time for another evaluation? It may be late for several: after a long warm-up one has to do."""
        every = self.evaluate_every
        if every is None:
            return False
        return (now - self.start) // every > (before - self.start) // every or before < self.goal <= now


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
    row: host.Worlds | None = field(default=None, repr=False)
    """And those being trained on, which are in the middle of their episodes."""
    _copied: tuple[loop.Lanes, Any] | None = field(default=None, repr=False)
    """The lanes that were last copied to the host, and what was copied of them."""

    def __repr__(self) -> str:
        settings, world = len(self.agents), self.worlds[0]
        where = (world.problem and world.problem.name) if isinstance(world, FiniteEnvironment) else type(world).__name__
        where = (self.outside[0].name or "a Gymnasium environment") if self.outside else where
        size = f"settings {settings}, seeds {self.seeds}, steps {self.steps:,}"
        return f"<Run of {type(self.agents[0]).__name__} on {where}: {size}>"

    @property
    def finished(self) -> bool:
        """Has it gone as far as it was asked to?"""
        return self.plan is None or self.steps >= self.plan.goal

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
        require_whole(seed=seed, setting=setting)
        if not (0 <= seed < self.seeds and 0 <= setting < len(self.agents)):
            raise RiskpathError(f"there are {self.seeds} seeds and {len(self.agents)} settings, got {seed}, {setting}")
        lane = setting * self.seeds + seed
        cpu = jax.devices("cpu")[0]  # one small network at a time is faster there than on a GPU
        if self._copied is None or self._copied[0] is not self.lanes:  # all lanes at once, and once only
            self._copied = self.lanes, jax.device_get((self.lanes.agent, self.lanes.critic))
        agent, critic = jax.tree.map(
            lambda x: jax.device_put(x[lane], cpu) if isinstance(x, np.ndarray) else x, self._copied[1]
        )
        return LearnedPolicy(agent, critic, self.worlds[setting])

    def law(self, seed: int = 0, setting: int = 0, discount: float = 1.0) -> Law:
        """The exact law of the return of one lane's policy, where the problem is finite."""
        policy = self.policy(seed, setting)
        if not isinstance(policy.world, FiniteEnvironment):
            raise RiskpathError("an exact law needs a finite problem; evaluate() draws a sample anywhere")
        return policy.world.mdp(discount).evaluate(policy)

    def evaluate(self, episodes: int = 1_000, seed: int = 0, limit: int | None = None, env: Any = None) -> Evaluation:
        """Greedy episodes of every lane: the sample of returns, plain and discounted.

        Args:
            episodes: How many, for each lane.
            seed: The number their randomness starts from.
            limit: The most steps of one; needed only where the environment has no limit of its own.
            env: Another environment of the same sizes, or one for each setting; where it was trained unless told.
        """
        require_counts(episodes=episodes, limit=limit)
        require_whole(seed=seed)
        worlds, outside = self.worlds, self.outside
        if env is not None:
            worlds, outside = prepare.as_environments(env, len(self.agents))
        prepare.require_alike(self.spec, worlds[0].spec)
        limit = limit or worlds[0].spec.max_steps or 10_000
        key = jax.random.key(seed)
        if outside:
            told = _gymnasium().play(self.lanes, outside, self.spec, episodes, limit, key=key)
        else:
            world = loop.stack([world.bare() for world in worlds], self.seeds, eqx.is_array)
            told = rollouts(replace(self.lanes, env=world), self.spec, episodes, limit, key=key)
        shape = (len(self.agents), self.seeds, episodes)
        plain, discounted, finished = (np.asarray(x).reshape(shape) for x in told)
        discounts = [float(agent.discount) for agent in self.agents]
        return Evaluation(plain, discounted, [agent.risk for agent in self.agents], float(finished.mean()), discounts)

    def save(self, path: str | Path) -> None:
        """Writes everything to a folder, from which `load` makes the same run."""
        from riskpath.saving import save  # which knows runs

        save(self, path)

    def estimates(self) -> np.ndarray:
        """What every lane itself believes its (discounted) return to be worth: [settings, seeds]."""
        if self.outside:
            firsts = zip(*((found.first, found.first_mask) for found in self.outside), strict=True)
            by_lane = (jnp.asarray(np.stack(one).repeat(self.seeds, axis=0)) for one in firsts)
            believed = host.outlook(self.lanes, self.spec, *by_lane)
        else:
            believed = outlook(self.lanes, self.spec)
        return np.asarray(believed).reshape(len(self.agents), self.seeds)

    def values(self, discount: float = 1.0) -> np.ndarray:
        """β of the whole return of every lane's policy: [settings, seeds]; exact where the problem is finite."""
        if not isinstance(self.worlds[0], FiniteEnvironment):
            if discount != 1 and any(agent.discount != discount for agent in self.agents):
                raise RiskpathError(f"only 1 and the agents' own discount are known of episodes, not {discount:g}")
            return self.evaluate().values(discounted=discount != 1)
        value = lambda i, seed: float(self.agents[i].risk.value(self.law(seed, i, discount)))  # noqa: E731
        return np.array([[value(i, seed) for seed in range(self.seeds)] for i in range(len(self.agents))])


Callback = Callable[[Run, dict[str, Any]], None]


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
    trained so far; where something fails, that is the `run` of a `TrainingStopped`.

    Args:
        agent: An agent, several settings of one, or a run to continue.
        env: A name, a `FiniteMDP`, an environment; a Gymnasium id, environment, function that makes one, or vector
            environment (SAME_STEP autoreset); or a list with one for each agent.
        steps: Environment steps for each lane; a run that was interrupted is finished as planned if none are given.
        seeds: Lanes for each setting.
        envs: Environments for each lane.
        seed: The number all randomness starts from.
        progress: True for a progress bar, or a function called after every chunk with the run and its metrics.
        evaluate_every: Steps between evaluations of the greedy policies, kept in `run.curve`; one more in the end.
        watch: What to keep there instead of the values, as a function of the run.
        workers: Step Gymnasium environments in processes of their own, one for each: worth it if a step is slow.
        checkpoint: A folder to save to at first, every five minutes and in the end, or a `Checkpointer`.
        callbacks: Functions of the run and a dictionary of numbers, called after every chunk (`logs.py`).
    """
    require_counts(steps=steps, seeds=seeds, envs=envs, evaluate_every=evaluate_every)
    require_whole(seed=seed)
    prepare.require_functions(progress, watch, callbacks)
    if steps is None and not isinstance(agent, Run):
        raise RiskpathError("give steps=…, the environment steps for each lane")
    prepare.use_compilation_cache()
    keeper = _checkpointer(checkpoint)
    if isinstance(agent, Run):
        run = _taken_up(agent, env, seeds, envs, workers)
    else:
        run = _begin(agent, env, seeds, envs, seed, workers)
    if steps is not None:
        run.plan = Plan(run.steps, steps, evaluate_every)
    if (plan := run.plan) is None:
        raise RiskpathError("give steps=…; only a run that was interrupted knows how far it was to go")
    if watch and not plan.evaluate_every:
        raise RiskpathError("watch is called at every evaluation: give evaluate_every=… as well")
    if run.outside and plan.evaluate_every and not watch:
        _gymnasium().require_copies(run.outside)
    if keeper:
        keeper.now(run)  # a place that cannot be written to is known before the work, and whatever happens can go on
    goal, each = plan.goal, loop.steps_per_round(run.agents[0], run.lanes.time.shape[1])
    rounds = max(1, min(plan.evaluate_every or plan.steps, plan.steps // 10 or 1, 20_000) // each)
    show = TrainingBar(goal) if progress is True else progress or None
    began, before = time.monotonic(), run.steps
    try:
        ahead = (run.spec, max(0, goal - run.steps), rounds)
        chunks: Any = host.advance(run.lanes, run.row, *ahead) if run.row else loop.advance(run.lanes, *ahead)
        with _keeping(run), contextlib.closing(chunks):  # the host's hears Ctrl-C as long as it is open
            for lanes, metrics in chunks:
                _require_finite(run, lanes, metrics)
                due, run.lanes = plan.due(run.steps, int(lanes.steps)), lanes
                speed = (run.steps - before) / max(1e-9, time.monotonic() - began) * len(run.agents) * run.seeds
                numbers = {"step": run.steps, "steps_per_second": speed, **metrics}
                if due:
                    numbers["evaluation"] = noted = _noted(run, watch)
                    run.curve.append({"step": run.steps, **noted})
                if keeper:
                    keeper.maybe(run)
                if callbacks and metrics:
                    numbers["estimate"] = run.estimates().ravel()
                for callback in [*([show] if show else []), *callbacks]:
                    with in_one_line("a callback failed"):
                        callback(run, numbers)
    except KeyboardInterrupt:
        pass
    finally:
        if isinstance(show, TrainingBar):
            show.close()
        if keeper:
            with _keeping(run):
                keeper.now(run)
    return run


@contextlib.contextmanager
def _keeping(run: Run) -> Iterator[None]:
    """An environment fails, or a disk is full: what was learned before is not lost."""
    try:
        yield
    except TrainingStopped:
        raise
    except RiskpathError as error:
        raise TrainingStopped(str(error), run) from error


def _require_finite(run: Run, lanes: loop.Lanes, metrics: dict[str, Any]) -> None:
    """Stops before the run becomes what nobody wants to keep."""
    between = f"between steps {run.steps} and {int(lanes.steps)}"
    if not bool(lanes.healthy):
        raise TrainingStopped(f"a reward was not a finite number {between}", run)
    if not np.isfinite(metrics.get("loss", 0.0)).all():
        cure = "try a smaller step size, or rewards scaled down"
        raise TrainingStopped(f"the loss was not a finite number {between}: {cure}", run)


def _noted(run: Run, watch: Any) -> dict[str, Any]:
    """What the learning curve keeps."""
    with in_one_line("watch failed"):
        noted = watch(run) if watch else {"values": run.values().tolist()}
    if not isinstance(noted, dict):
        raise RiskpathError(f"watch must return a dictionary, got a {type(noted).__name__}")
    return noted


def _checkpointer(asked: Any) -> "Checkpointer | None":
    from riskpath.saving import Checkpointer  # which knows runs

    if not isinstance(asked, Checkpointer | str | Path | None):
        raise RiskpathError(f"checkpoint must be a folder or a Checkpointer, got {asked!r}")
    return Checkpointer(asked) if isinstance(asked, str | Path) else asked


def _begin(agent: Any, env: Any, seeds: int, envs: int, seed: int, workers: bool) -> Run:
    agents = prepare.as_agents(agent)
    worlds, outside = prepare.as_environments(env, len(agents))
    prepare.require_fit(agents[0], worlds[0].spec, envs)
    if not outside:
        return Run(agents, worlds, seeds, loop.start(agents, worlds, seeds, envs, seed))
    row = _gymnasium().GymnasiumWorlds(outside, seeds * envs, workers)
    lanes = host.start(agents, outside[0].world, row, seeds, envs, seed)
    return Run(agents, worlds, seeds, lanes, outside=outside, row=row)


def _taken_up(run: Run, env: Any, seeds: int, envs: int, workers: bool) -> Run:
    """A run to be trained further; Gymnasium environments that are not where it was left begin anew."""
    if env is not None:
        raise RiskpathError("a run is trained further where it was trained before: give no environment")
    for name, asked, has in (("seeds", seeds, run.seeds), ("envs", envs, run.lanes.time.shape[1])):
        if asked not in (1, has):
            raise RiskpathError(f"a run is trained further with the {name} it has, {has}, not {asked}")
    if not run.outside or (run.row and run.row.steps == run.steps):
        return run
    if run.row and not run.outside[0].alone:
        with contextlib.suppress(Exception):  # it may be broken
            run.row.close()
        run.row = None
    row: host.Worlds = run.row or _gymnasium().GymnasiumWorlds(
        run.outside, run.seeds * run.lanes.time.shape[1], workers
    )
    run.row, run.lanes = row, host.restart(run.lanes, row, run.spec)
    return run


def _gymnasium() -> Any:
    """Imported only where Gymnasium is wanted: all else works without it."""
    from riskpath import gym_worlds

    return gym_worlds
