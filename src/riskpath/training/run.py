"""What `train` returns: a `Run`, from which policies, laws and learning curves are read."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from riskpath.agents.agent import Agent
from riskpath.envs.environment import Environment, FiniteEnvironment
from riskpath.errors import RiskpathError
from riskpath.evaluation.evaluation import Evaluation, outlook, rollouts
from riskpath.evaluation.learned_policy import LearnedPolicy
from riskpath.risk.law import Law
from riskpath.training import fused_loop as loop
from riskpath.training import host_loop as host
from riskpath.training import inputs as prepare
from riskpath.types import EnvSpec
from riskpath.validation import given, require_counts, require_whole


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
        require_counts(episodes=episodes, **given(limit=limit))
        require_whole(seed=seed)
        worlds, outside = self.worlds, self.outside
        if env is not None:
            worlds, outside = prepare.as_environments(env, len(self.agents))
        prepare.require_alike(self.spec, worlds[0].spec)
        limit = limit or worlds[0].spec.max_episode_steps or 10_000
        key = jax.random.key(seed)
        if outside:
            told = prepare.gym_worlds().play(self.lanes, outside, self.spec, episodes, limit, key=key)
        else:
            world = loop.stack([world.bare() for world in worlds], self.seeds, eqx.is_array)
            told = rollouts(replace(self.lanes, env=world), self.spec, episodes, limit, key=key)
        shape = (len(self.agents), self.seeds, episodes)
        plain, discounted, finished = (np.asarray(x).reshape(shape) for x in told)
        discounts = [float(agent.discount) for agent in self.agents]
        return Evaluation(plain, discounted, [agent.risk for agent in self.agents], float(finished.mean()), discounts)

    def save(self, path: str | Path) -> None:
        """Writes everything to a folder, from which `load` makes the same run."""
        from riskpath.training.checkpoint import save  # which knows runs

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
