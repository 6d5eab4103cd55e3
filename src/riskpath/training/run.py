"""What `train` returns: a `Run`, from which policies, laws and learning curves are read."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from riskpath.agents.agent import Agent
from riskpath.envs.environment import Environment
from riskpath.envs.finite import FiniteEnvironment, as_arrays
from riskpath.envs.vector import VectorEnvironment
from riskpath.errors import RiskpathError
from riskpath.evaluation.evaluation import Evaluation, setting_labels
from riskpath.evaluation.learned_frontier import LearnedFrontier
from riskpath.evaluation.learned_policy import LearnedPolicy
from riskpath.evaluation.rollout import Returns, first_observations, initial_values, rollout
from riskpath.mdp.frontier import LEVELS, check_levels, finite_frontier
from riskpath.plot.curves import plot_curve
from riskpath.plot.notebook import html_lines
from riskpath.report.page import require_page, write_page
from riskpath.risk.compose import parse_risk
from riskpath.risk.law import Law
from riskpath.risk.measures import CVaR, RiskMeasure
from riskpath.training import inputs
from riskpath.training.checkpoint import read_checkpoint, write_checkpoint
from riskpath.training.dataset import Dataset
from riskpath.training.gather_record import gather
from riskpath.training.host_evaluation import episodes_for, gymnasium_rollout
from riskpath.training.lanes import Lanes, lane_keys, stack
from riskpath.training.logged import LoggedEnvironment
from riskpath.training.notices import notice_of_estimates
from riskpath.training.plan import Plan
from riskpath.training.progress import counting
from riskpath.training.recording import stored_episodes
from riskpath.training.selection import select_members, serve
from riskpath.types import EnvSpec
from riskpath.validation import given, require_counts, require_whole


class TrainingStopped(RiskpathError):
    """Training met an error and cannot go on; `run` is what was learned before."""

    def __init__(self, message: str, run: "Run"):
        super().__init__(message)
        self.run = run


@dataclass
class Run:
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
    """What the last call of `train` was to do."""
    sources: list[Any] = field(default_factory=list, repr=False)
    """Where the host steps the environments: how to make those of each setting."""
    vector: VectorEnvironment | None = field(default=None, repr=False)
    """The environments being trained on, if the host steps them."""
    first_seed: int = 0
    """Number of the first seed."""
    _copied: tuple[Lanes, Any] | None = field(default=None, repr=False)
    """The lanes that were last copied to the host, and the copy."""

    def __repr__(self) -> str:
        size = f"settings {len(self.agents)}, seeds {self.seeds}, steps {self.steps:,}"
        return f"<Run of {type(self.agents[0]).__name__} on {self.environment_name}: {size}>"

    def _repr_html_(self) -> str:
        return html_lines(repr(self)[1:-1], [str(agent) for agent in self.agents])

    @property
    def environment_name(self) -> str:
        """Return the name of the environment of the first setting."""
        env = self.environments[0]
        if self.sources:
            return self.sources[0].name or "a Gymnasium environment"
        if isinstance(env, LoggedEnvironment):
            return "logged data"
        return env.problem.name if isinstance(env, FiniteEnvironment) and env.problem else type(env).__name__

    @property
    def finished(self) -> bool:
        """Tell whether training went as far as planned."""
        return self.plan is None or self.steps >= self.plan.goal

    @property
    def steps(self) -> int:
        """Return the environment steps of each lane so far."""
        return int(self.lanes.steps)

    @property
    def spec(self) -> EnvSpec:
        """Return the specification of the environment."""
        return self.environments[0].spec

    def serve(self, *risks: RiskMeasure | str) -> "Run":
        """Return this run with other measures than the trained one, a setting for each; `Adaptive` serves every CVaR.

        The first setting's networks are used as they are. Its members are compared anew on held-out episodes.
        """
        agents, lanes = serve(self, [parse_risk(risk) for risk in risks])
        first = lambda listed: [listed[0]] * len(agents) if listed else []  # noqa: E731
        sources, environments = first(self.sources), first(self.environments)
        run = Run(agents, environments, self.seeds, lanes, sources=sources, first_seed=self.first_seed)
        with counting("comparing members", "blocks of episodes") as progress:
            run.lanes = select_members(run, progress if run.sources else None)
        return run

    def policy(self, seed: int = 0, setting: int = 0, risk: RiskMeasure | str | None = None) -> LearnedPolicy:
        """Return the greedy policy of one lane: `action, memory = policy(state, memory, reward)`.

        Args:
            seed: Which seed.
            setting: Which setting.
            risk: Another measure than the trained one, for example another level of CVaR for `Adaptive`.
        """
        if risk is not None:
            return self.serve(risk).policy(seed)
        lane = self._lane(seed, setting)
        cpu = jax.devices("cpu")[0]  # one small network at a time is faster there than on a GPU
        if self._copied is None or self._copied[0] is not self.lanes:  # copy all lanes at once
            self._copied = self.lanes, jax.device_get((self.lanes.agent, self.lanes.agent_state))
        agent, state = jax.tree.map(
            lambda x: jax.device_put(x[lane], cpu) if isinstance(x, np.ndarray) else x, self._copied[1]
        )
        return LearnedPolicy(agent, state, self.environments[setting])

    def _lane(self, seed: int, setting: int) -> int:
        """Return the number of a lane."""
        require_whole(seed=seed, setting=setting)
        if not (0 <= seed < self.seeds and 0 <= setting < len(self.agents)):
            raise RiskpathError(f"no seed {seed} of {self.seeds}, setting {setting} of {len(self.agents)} (from 0)")
        return setting * self.seeds + seed

    def law(self, seed: int = 0, setting: int = 0, discount: float = 1.0, max_situations: int | None = None) -> Law:
        """Return the exact law of the return of one lane's policy; the problem must be finite.

        Args:
            seed: Which seed.
            setting: Which setting.
            discount: The discount of the return.
            max_situations: A policy that distinguishes more situations at one time is refused.
        """
        policy = self.policy(seed, setting)
        if not isinstance(policy.environment, FiniteEnvironment):
            raise RiskpathError("an exact law needs a finite problem; evaluate() samples returns anywhere")
        mdp, members = policy.environment.mdp(discount), policy.members()
        laws = [mdp.evaluate(member, max_situations) for _, member in members]
        return Law.mix(laws, [weight for weight, _ in members])

    def evaluate(
        self,
        episodes: int | None = None,
        seed: int = 0,
        max_episode_steps: int | None = None,
        env: Any = None,
        risk: RiskMeasure | str | None = None,
        progress: bool = True,
    ) -> Evaluation:
        """Roll out greedy episodes of every lane and return their returns, plain and discounted.

        Args:
            episodes: Number of episodes for each lane; by default 1,000. Where the host steps the environment, by
                default as many as take about a quarter of the steps of training, from 20 to 1,000.
            seed: Seed of their randomness.
            max_episode_steps: Most steps of an episode; needed only where the environment has no limit of its own.
            env: Another environment of the same sizes, or one for each setting; by default the one trained on.
            risk: Another measure than the trained one, for example another level of CVaR for `Adaptive`.
            progress: Show progress on a terminal, where the host steps the environment.
        """
        if risk is not None:
            return self.serve(risk).evaluate(episodes, seed, max_episode_steps, env, progress=progress)
        require_counts(**given(episodes=episodes, max_episode_steps=max_episode_steps))
        require_whole(seed=seed)
        environments, sources = self.environments, self.sources
        if env is not None:
            environments, sources = inputs.as_environments(env, len(self.agents))
        inputs.require_alike(self.spec, environments[0].spec)
        if isinstance(environments[0], LoggedEnvironment):
            raise RiskpathError("this run was trained on data, without an environment: give evaluate(env=…)")
        elsewhere = Run(self.agents, environments, self.seeds, self.lanes, sources=sources, first_seed=self.first_seed)
        episodes = episodes_for(elsewhere, episodes)
        with counting("evaluating", "episodes") if progress else nullcontext() as show:
            returns = elsewhere.sample_returns(self.lanes, episodes, seed, max_episode_steps, show)
        shape = (len(self.agents), self.seeds, episodes)
        plain, discounted, finished = (np.asarray(x).reshape(shape) for x in returns)
        discounts = [float(agent.discount) for agent in self.agents]
        return Evaluation(plain, discounted, [agent.risk for agent in self.agents], float(finished.mean()), discounts)

    def sample_returns(
        self, lanes: Lanes, episodes: int, seed: int, max_episode_steps: int | None = None, progress: Any = None
    ) -> Returns:
        """Roll out greedy episodes of lanes and return plain returns, discounted returns and which episodes ended."""
        limit = max_episode_steps or self.environments[0].spec.max_episode_steps or 10_000
        key, spec, sources = jax.random.key(seed), self.spec, self.sources
        if sources:
            players = (lanes.agent, lanes.agent_state, sources, spec)
            return gymnasium_rollout(*players, episodes, limit, key=key, progress=progress)
        stacked = stack([as_arrays(env) for env in self.environments], self.seeds, eqx.is_array)
        keys = lane_keys(len(self.agents), self.seeds, seed, self.first_seed)  # settings meet the same randomness
        return rollout(lanes.agent, stacked, lanes.agent_state, spec, episodes, limit, keys=keys)

    def frontier(self, levels: Sequence[float] = LEVELS, episodes: int | None = None, seed: int = 0) -> LearnedFrontier:
        """Return mean and CVaR of the policies for many levels, all from this one training.

        Args:
            levels: Levels of CVaR, from 0 to 1.
            episodes: Episodes of each seed and level; by default 10,000, on the host as many as in `evaluate`.
            seed: Seed of their randomness.
        """
        listed, episodes = check_levels(levels), episodes_for(self, episodes, 10_000)
        evaluation = self.serve(*(CVaR(level) for level in listed)).evaluate(episodes, seed)
        env = self.environments[0]
        exact = finite_frontier(env.mdp(), listed) if isinstance(env, FiniteEnvironment) else None
        return LearnedFrontier(np.array(listed), evaluation.returns.mean(axis=-1), evaluation.values(), exact)

    def estimates(self) -> np.ndarray:
        """Return each lane's own estimate of its (discounted) return, from one random start: [settings, seeds]."""
        values = initial_values(self.lanes.agent, self.lanes.agent_state, self.spec, *self.first_inputs())
        return np.asarray(values).reshape(len(self.agents), self.seeds)

    @property
    def notices(self) -> list[str]:
        """Return what a user should know before trusting this run, one line each: estimates far outside of returns."""
        line = notice_of_estimates(self)
        return [line] if line else []

    def first_inputs(self, draw: int = 0) -> tuple[Any, Any]:
        """Return a first observation and action mask for every lane; the host's environments have only one."""
        if self.sources:
            firsts = zip(*((source.first, source.first_mask) for source in self.sources), strict=True)
            observation, mask = (jnp.asarray(np.stack(one).repeat(self.seeds, axis=0)) for one in firsts)
            return observation, mask
        keys = jax.vmap(lambda key: jax.random.fold_in(key, draw))(self.lanes.keys)
        return first_observations(self.lanes.env, keys)

    def values(self, discount: float = 1.0) -> np.ndarray:
        """Return β of the whole return of every lane's policy: [settings, seeds]; exact where the problem is finite."""
        if not isinstance(self.environments[0], FiniteEnvironment):
            if discount != 1 and any(agent.discount != discount for agent in self.agents):
                raise RiskpathError(f"discount must be 1 or the agents' own for sampled returns, got {discount:g}")
            return self.evaluate().values(discounted=discount != 1)
        value = lambda i, seed: float(self.agents[i].risk.value(self.law(seed, i, discount)))  # noqa: E731
        return np.array([[value(i, seed) for seed in range(self.seeds)] for i in range(len(self.agents))])

    def plot(
        self, ax: Any = None, *, kind: str | None = None, episodes: int | None = None, seed: int = 0, **style: Any
    ) -> Any:
        """Draw the learning curve of every setting, or the distributions of its returns, and return the axes.

        Args:
            ax: Matplotlib axes; by default those of a new figure.
            kind: "median" or "mean" over seeds for the learning curve; "cdf", "histogram" or "quantiles" for returns.
                By default the curve, if the run was trained with `evaluate_every`, else "cdf".
            episodes: Episodes of each lane, for returns; by default as in `evaluate`.
            seed: Seed of their randomness.
            style: Passed to matplotlib, for example `color="black"`.
        """
        shape = (len(self.agents), self.seeds)
        points = [point for point in self.curve if np.shape(point.get("values", ())) == shape]
        kind = kind or ("median" if points else "cdf")
        if kind not in ("median", "mean"):
            return self.evaluate(episodes, seed).plot(ax, kind=kind, **style)
        if not points:
            raise RiskpathError('this run has no learning curve: train with evaluate_every=…, or plot kind="cdf"')
        steps, curves = [point["step"] for point in points], np.stack([point["values"] for point in points], axis=-1)
        for label, values in zip(setting_labels([agent.risk for agent in self.agents]), curves, strict=True):
            ax = plot_curve(steps, values, ax, label=label, kind=kind, **style)
        return ax

    def dataset(self, seed: int = 0, setting: int = 0) -> Dataset:
        """Return the finished training episodes that the replay buffer of one lane still holds.

        Args:
            seed: Which seed.
            setting: Which setting.
        """
        lane = self._lane(seed, setting)
        return stored_episodes(self.lanes, self.environments[setting], lane)

    def report(self, path: str | Path, *, title: str | None = None) -> Path:
        """Write one HTML page with all figures and tables of this run and return its path; only a page is replaced."""
        require_page(path)  # before the work
        record = gather(self, title)
        return write_page(path, [record], title=record.title)

    def save(self, path: str | Path, overwrite: bool = True) -> None:
        """Write everything to a folder, from which `load` makes the same run.

        A run that was saved there before is replaced, unless `overwrite` is false; anything else is never replaced.
        """
        write_checkpoint(self, path, overwrite)


def load(path: str | Path, *, agent: Agent | Sequence[Agent] | None = None, env: Any = None) -> Run:
    """Load a saved run; `train` continues it as if it had never stopped.

    Args:
        path: The folder.
        agent: The agent, or one for each setting; needed only if its class, or that of its measure, is not defined in
            this process.
        env: The environment, or one for each setting; needed only if its class is not defined in this process, or if it
            is a Gymnasium environment that was not given by its id.
    """
    return Run(**read_checkpoint(path, agent, env))
