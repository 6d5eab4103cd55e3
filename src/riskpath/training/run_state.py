"""The state of a run: agents, environments, lanes and the learning curve. `Run` adds the methods for users."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Shaped

from riskpath.agents.agent import Agent
from riskpath.envs.environment import Environment
from riskpath.envs.finite import name_of
from riskpath.envs.vector import Loss, VectorEnvironment
from riskpath.envs.workers import LocalWorkers, Workers
from riskpath.evaluation.rollout import first_observations, initial_values
from riskpath.training.lanes import Lanes
from riskpath.training.logged import LoggedEnvironment
from riskpath.training.plan import Plan
from riskpath.types import EnvSpec

if TYPE_CHECKING:
    from riskpath.envs.gymnasium_vector import GymnasiumSource


@dataclass
class RunState:
    """Trained lanes: one for each setting and seed, and how they were trained."""

    agents: list[Agent]
    """One agent for each setting."""
    environments: list[Environment]
    """The environment of each setting."""
    seeds: int
    """Lanes for each setting."""
    lanes: Lanes = field(repr=False)
    """Everything that training changes."""
    curve: list[dict[str, Any]] = field(default_factory=list, repr=False)
    """The learning curve: at each evaluation the step and the value of every lane's policy, or `evaluator`'s result."""
    plan: Plan | None = field(default=None, repr=False)
    """The plan of the last call of `train`."""
    sources: "list[GymnasiumSource]" = field(default_factory=list, repr=False)
    """Where the host steps the environments: how to make those of each setting."""
    vector: VectorEnvironment | None = field(default=None, repr=False)
    """The environments being trained on, if the host steps them."""
    workers: Workers = field(default_factory=LocalWorkers, repr=False)
    """Who steps them."""
    losses: list[Loss] = field(default_factory=list, repr=False)
    """Environments that were lost with a worker during training."""
    first_seed: int = 0
    """Number of the first seed."""
    _copied: tuple[Lanes, Any] | None = field(default=None, repr=False)
    """The lanes that were last copied to the host, and the copy."""

    @property
    def environment_name(self) -> str:
        """Return the name of the environment of the first setting."""
        env = self.environments[0]
        if self.sources:
            return self.sources[0].name or "a Gymnasium environment"
        if isinstance(env, LoggedEnvironment):
            return "logged data"
        return name_of(env)

    @property
    def finished(self) -> bool:
        """Tell whether training is complete, as planned."""
        return self.plan is None or self.steps >= self.plan.goal

    @property
    def steps(self) -> int:
        """Return the environment steps of each lane so far."""
        return int(self.lanes.steps)

    @property
    def spec(self) -> EnvSpec:
        """Return the specification of the environment."""
        return self.environments[0].spec

    def estimates(self) -> np.ndarray:
        """Return each lane's own estimate of its (discounted) return, from one random start: [settings, seeds]."""
        values = initial_values(self.lanes.agent, self.lanes.agent_state, self.spec, *self.first_inputs())
        return np.asarray(values).reshape(len(self.agents), self.seeds)

    def recent_figures(self) -> dict[str, np.ndarray]:
        """Return figures of the last hundred training episodes of every lane: `RecentEpisodes.figures`."""
        return self.lanes.recent.figures([agent.risk for agent in self.agents for _ in range(self.seeds)])

    def first_inputs(self, draw: int = 0) -> tuple[Shaped[Array, "L *obs"], Bool[Array, "L *A"]]:
        """Return a first observation and action mask for every lane; the host's environments have only one."""
        if self.sources:
            firsts = zip(*((source.first, source.first_mask) for source in self.sources), strict=True)
            observation, mask = (jnp.asarray(np.stack(one).repeat(self.seeds, axis=0)) for one in firsts)
            return observation, mask
        keys = jax.vmap(lambda key: jax.random.fold_in(key, draw))(self.lanes.keys)
        return first_observations(self.lanes.env, keys)
