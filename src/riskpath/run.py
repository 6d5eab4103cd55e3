"""`train` and what it returns: a `Run`, from which policies, laws and learning curves are read."""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from riskpath import loop
from riskpath.agents.base import Agent
from riskpath.envs import make
from riskpath.envs.base import (
    Environment,
    FiniteEnvironment,
    FiniteProblem,
    action_numbers,
    as_finite,
    finite,
    state_numbers,
)
from riskpath.errors import RiskpathError
from riskpath.law import Law
from riskpath.mdp.model import FiniteMDP
from riskpath.types import EnvSpec, Percept


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
    """What `evaluate_every` saw: step, and for each lane the exact value of its greedy policy."""

    @property
    def steps(self) -> int:
        """Environment steps of each lane so far."""
        return int(self.lanes.steps)

    @property
    def spec(self) -> EnvSpec:
        """Sizes of the environment."""
        return self.worlds[0].spec

    def policy(self, seed: int = 0, setting: int = 0) -> "LearnedPolicy":
        """The greedy policy of one lane, `action, memory = policy(state, memory, reward)`."""
        if not (0 <= seed < self.seeds and 0 <= setting < len(self.agents)):
            raise RiskpathError(f"there are {self.seeds} seeds and {len(self.agents)} settings, got {seed}, {setting}")
        lane = setting * self.seeds + seed
        host = jax.devices("cpu")[0]  # one small network at a time is faster there than on a GPU
        agent, critic = jax.tree.map(
            lambda x: jax.device_put(x[lane], host) if eqx.is_array(x) else x, (self.lanes.agent, self.lanes.critic)
        )
        return LearnedPolicy(agent, critic, self.worlds[setting])

    def law(self, seed: int = 0, setting: int = 0, discount: float = 1.0) -> Law:
        """The exact law of the return of one lane's policy, where the problem is finite."""
        world = self.worlds[setting]
        if not isinstance(world, FiniteEnvironment):
            raise RiskpathError("an exact law needs a finite problem")
        return world.mdp(discount).evaluate(self.policy(seed, setting))

    def values(self, discount: float = 1.0) -> np.ndarray:
        """β of the whole return of every lane's policy, exactly: [settings, seeds]."""
        return np.array(
            [
                [float(agent.risk.value(self.law(seed, setting, discount))) for seed in range(self.seeds)]
                for setting, agent in enumerate(self.agents)
            ]
        )


@dataclass(frozen=True)
class LearnedPolicy:
    """A trained policy as a plain function; on a finite problem it speaks of that problem's states and actions."""

    agent: Agent
    critic: Any = field(repr=False)
    world: Environment

    def __call__(self, state: Any, memory: Any = None, reward: float = 0.0) -> tuple[Any, Any]:
        """The greedy action and the memory after it."""
        obs, mask, names = self._read(state)
        percept = Percept(jnp.asarray(obs), jnp.asarray(reward, jnp.float32), jnp.asarray(mask))
        memory = self.agent.reset(self.critic, self.world.spec) if memory is None else memory
        action, memory = _act(self.agent, self.critic, memory, percept)
        return names[int(action)] if names else int(action), memory

    def estimate(self, state: Any, memory: Any = None, reward: float = 0.0) -> dict[Any, float]:
        """What the agent believes each available action to be worth."""
        obs, mask, names = self._read(state)
        percept = Percept(jnp.asarray(obs), jnp.asarray(reward, jnp.float32), jnp.asarray(mask))
        memory = self.agent.reset(self.critic, self.world.spec) if memory is None else memory
        values = self.agent.estimate(self.critic, memory, percept)
        return {names[i] if names else i: float(value) for i, value in enumerate(values) if mask[i]}

    def _read(self, state: Any) -> tuple[Any, np.ndarray, list[Any]]:
        if not isinstance(self.world, FiniteEnvironment):
            return state, np.ones(self.world.spec.num_actions, bool), []
        assert self.world.problem is not None
        number, names = _names(self.world.problem)
        return np.int32(number[state]), np.asarray(self.world.tables.available[number[state]]), names


@eqx.filter_jit
def _act(agent: Agent, critic: Any, memory: Any, percept: Percept) -> Any:
    return agent.act(critic, memory, percept, key=jax.random.key(0), explore=jnp.zeros(()))


@functools.lru_cache(maxsize=64)
def _names(problem: FiniteMDP) -> tuple[dict[Any, int], list[Any]]:
    """State numbers and action names of a problem, remembered with it."""
    return state_numbers(problem), list(action_numbers(problem))


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
    raise RiskpathError(f"cannot train on a {type(env).__name__}; give a name, a FiniteMDP or an environment")


def train(
    agent: Agent | Sequence[Agent] | Run,
    env: Any = None,
    *,
    steps: int,
    seeds: int = 1,
    envs: int = 1,
    seed: int = 0,
    progress: bool | Callable[[Run, dict[str, Any]], None] = False,
    evaluate_every: int | None = None,
) -> Run:
    """Trains `seeds` lanes for every setting, side by side in one compiled program.

    Settings are agents (and environments) that differ in numbers only: hyperparameters, risk levels, rewards,
    probabilities. A `Run` in place of an agent is trained further. Interrupted with Ctrl-C, it returns what was
    trained so far.

    Args:
        agent: An agent, several settings of one, or a run to continue.
        env: A name, a `FiniteMDP`, an environment, or one for each agent.
        steps: Environment steps for each lane.
        seeds: Lanes for each setting.
        envs: Environments for each lane.
        seed: The number all randomness starts from.
        progress: True for a progress bar, or a function called after every chunk with the run and its metrics.
        evaluate_every: Steps between exact evaluations of the greedy policies, kept in `run.curve`.
    """
    for name, value in (("steps", steps), ("seeds", seeds), ("envs", envs)):
        if value < 1:
            raise RiskpathError(f"{name} must be at least 1, got {value}")
    _use_compilation_cache()
    run = agent if isinstance(agent, Run) else _begin(agent, env, seeds, envs, seed)
    spec, each = run.spec, loop.steps_per_round(run.agents[0], run.lanes.time.shape[1])
    rounds = max(1, min(evaluate_every or steps, steps // 10 or 1, 20_000) // each)
    show = _progress_bar(run.steps + steps) if progress is True else progress or None
    next_evaluation = run.steps + (evaluate_every or 0)
    began, before = time.monotonic(), run.steps
    try:
        for lanes, metrics in loop.advance(run.lanes, spec, steps, rounds):
            if not bool(lanes.healthy):
                raise TrainingStopped(
                    f"a reward was not a finite number between steps {run.steps} and {int(lanes.steps)}", run
                )
            run.lanes = lanes
            if evaluate_every and run.steps >= next_evaluation:
                next_evaluation += evaluate_every
                run.curve.append({"step": run.steps, "values": run.values().tolist()})
            if show:
                speed = (run.steps - before) / max(1e-9, time.monotonic() - began)
                show(run, {**metrics, "steps_per_second": speed * len(run.agents) * run.seeds})
    except KeyboardInterrupt:
        pass
    finally:
        if progress is True and show is not None:
            show.close()  # pyright: ignore[reportFunctionMemberAccess]
    return run


def _begin(agent: Agent | Sequence[Agent], env: Any, seeds: int, envs: int, seed: int) -> Run:
    agents = [agent] if isinstance(agent, Agent) else list(agent)
    worlds = [as_environment(one) for one in (env if isinstance(env, list | tuple) else [env] * len(agents))]
    if len(worlds) != len(agents):
        raise RiskpathError(f"got {len(agents)} agents and {len(worlds)} environments; they must match")
    if any(world.spec != worlds[0].spec for world in worlds):
        raise RiskpathError("environments trained together must have the same sizes; train them one after the other")
    if any(_fixed(agent) != _fixed(agents[0]) for agent in agents):
        raise RiskpathError("agents trained together may differ in float numbers only; train them one after the other")
    agents[0].window(worlds[0].spec)  # refuses what it cannot handle before any work
    return Run(agents, worlds, seeds, loop.start(agents, worlds, seeds, envs, seed))


def _fixed(agent: Agent) -> str:
    """All of an agent that is not a float number."""
    return repr(jax.tree.structure(agent))


def _progress_bar(goal: int) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    class Bar:
        """Steps, speed and the agents' own idea of what they are worth."""

        def __init__(self):
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
            console = Console(stderr=True)
            self.bar = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)
            self.bar.start()
            self.task = self.bar.add_task("training", total=goal, note="")

        def __call__(self, run: Run, metrics: dict[str, Any]) -> None:
            note = f"{run.steps:,} steps, {metrics['steps_per_second']:,.0f} steps/s"
            if "loss" in metrics:
                note += f", loss {float(np.mean(metrics['loss'])):.3g}"
            self.bar.update(self.task, completed=run.steps, note=note)

        def close(self) -> None:
            self.bar.stop()

    return Bar()


def _use_compilation_cache() -> None:
    """Compiled programs are kept on disk, so that only the first run of a kind waits for the compiler."""
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(Path.home() / ".cache" / "riskpath" / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
