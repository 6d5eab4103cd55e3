"""What `train` returns: a `Run`, from which policies, distributions and learning curves are read."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np

from riskpath.agents.abilities import Population
from riskpath.agents.agent import Agent
from riskpath.envs.finite import FiniteEnvironment, as_arrays
from riskpath.errors import RiskpathError
from riskpath.evaluation.evaluation import Evaluation, setting_labels
from riskpath.evaluation.learned_frontier import LearnedFloors, LearnedFrontier
from riskpath.evaluation.learned_policy import LearnedPolicy
from riskpath.mdp.exact.constrained_solver import risk_frontier
from riskpath.mdp.exact.frontier import LEVELS, check_levels, finite_frontier
from riskpath.mdp.law import Law
from riskpath.plot.curves import plot_curve
from riskpath.plot.notebook import html_lines
from riskpath.risk.compose import parse_risk
from riskpath.risk.measures import CVaR, Mean, RiskMeasure
from riskpath.training import inputs
from riskpath.training.checkpoint import read_checkpoint, write_checkpoint
from riskpath.training.dataset import Dataset
from riskpath.training.lanes import stack
from riskpath.training.logged import LoggedEnvironment
from riskpath.training.measured import SITUATIONS, Measured, episodes_for, sample_returns
from riskpath.training.notices import notice_of_estimates, notice_of_losses
from riskpath.training.progress import counting
from riskpath.training.recording import stored_episodes
from riskpath.training.run_state import RunState
from riskpath.training.selection import select_candidates, serve, weights_above_floors, with_weights
from riskpath.validation import given, require_counts, require_whole


class TrainingStopped(RiskpathError):
    """Training stopped with an error; `run` is the state before it."""

    def __init__(self, message: str, run: "Run"):
        super().__init__(message)
        self.run = run


@contextmanager
def keep(run: "Run") -> Iterator[None]:
    """Attach the run so far to an error, for example of an environment or a full disk."""
    try:
        yield
    except TrainingStopped:
        raise
    except RiskpathError as error:
        raise TrainingStopped(str(error), run) from error


class Run(RunState):
    """Trained lanes: one for each setting and seed, and how they were trained."""

    reporter: ClassVar[Callable[["Run", str | Path, str | None], Path]]
    """Writes the page of `report`. The report package, which stands above this one, sets it."""
    pusher: ClassVar[Callable[["Run", str | Path, str | None], Path]]
    """Writes the folder of `push`, set in the same way."""

    def __repr__(self) -> str:
        size = f"settings {len(self.agents)}, seeds {self.seeds}, steps {self.steps:,}"
        return f"<Run of {type(self.agents[0]).__name__} on {self.environment_name}: {size}>"

    def _repr_html_(self) -> str:
        return html_lines(repr(self)[1:-1], [str(agent) for agent in self.agents])

    def serve(self, *risks: RiskMeasure | str, floor: float | None = None, setting: int = 0) -> "Run":
        """Return this run with other measures than the trained one, a setting for each; `Adaptive` serves every CVaR.

        The networks do not change. Their candidates are compared again on held-out episodes.

        Args:
            risks: The measures; by default the trained one.
            floor: Another floor, for an agent that was trained with `subject_to`.
            setting: The setting whose networks serve them.
        """
        run = self._serve(risks, floor, setting)
        with counting("comparing candidates", "blocks of episodes") as progress:
            run.lanes = select_candidates(run, progress if run.sources else None)
        return run

    def _serve(self, risks: Sequence[RiskMeasure | str], floor: float | None, setting: int) -> "Run":
        """Return the run of `serve` before its candidates are compared."""
        self._lane(0, setting)
        agents, lanes = serve(self, [parse_risk(risk) for risk in risks], floor, setting)
        repeat = lambda listed: [listed[setting]] * len(agents) if listed else []
        parts = {"sources": repeat(self.sources), "workers": self.workers, "first_seed": self.first_seed}
        return Run(agents, repeat(self.environments), self.seeds, lanes, **parts)

    def policy(
        self,
        seed: int = 0,
        setting: int = 0,
        risk: RiskMeasure | str | None = None,
        floor: float | None = None,
    ) -> LearnedPolicy:
        """Return the greedy policy of one lane: `action, memory = policy(state, memory, reward)`.

        Args:
            seed: Which seed.
            setting: Which setting.
            risk: Another measure than the trained one, for example another level of CVaR for `Adaptive`.
            floor: Another floor than the trained one.
        """
        lane = self._lane(seed, setting)
        if risk is not None or floor is not None:
            return self.serve(*([] if risk is None else [risk]), floor=floor, setting=setting).policy(seed)
        cpu = jax.local_devices(backend="cpu")[0]  # one small network at a time is faster there than on a GPU
        if self._copied is None or self._copied[0] is not self.lanes:  # copy all lanes at once
            self._copied = self.lanes, jax.device_get((self.lanes.agent, self.lanes.agent_state))
        agent, state = jax.tree.map(
            lambda x: jax.device_put(x[lane], cpu) if isinstance(x, np.ndarray) else x, self._copied[1]
        )
        return LearnedPolicy(agent, state, self.environments[setting])

    def _lane(self, seed: int, setting: int) -> int:
        require_whole(seed=seed, setting=setting)
        if not (0 <= seed < self.seeds and 0 <= setting < len(self.agents)):
            raise RiskpathError(f"no seed {seed} of {self.seeds}, setting {setting} of {len(self.agents)} (from 0)")
        return setting * self.seeds + seed

    def law(self, seed: int = 0, setting: int = 0, discount: float = 1.0, max_situations: int | None = None) -> Law:
        """Return the exact distribution of the return of one lane's policy; the problem must be finite.

        Args:
            seed: Which seed.
            setting: Which setting.
            discount: The discount of the return.
            max_situations: Refuse a policy that distinguishes more situations at one time.
        """
        policy = self.policy(seed, setting)
        if not isinstance(policy.environment, FiniteEnvironment):
            raise RiskpathError(
                "the exact return distribution needs a finite problem; evaluate() samples returns of any"
            )
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
            episodes: Number of episodes for each lane; by default 1,000. Where the host steps the environment, the
                default is 20 to 1,000, chosen to take about a quarter of the training steps.
            seed: Seed of their randomness.
            max_episode_steps: Most steps of an episode; needed only where the environment has no limit of its own.
            env: Another environment of the same sizes, or one for each setting; by default the one trained on.
            risk: Another measure than the trained one, for example another level of CVaR for `Adaptive`, served by the
                first setting.
            progress: Show progress on a terminal, where the host steps the environment.
        """
        if risk is not None:
            return self.serve(risk).evaluate(episodes, seed, max_episode_steps, env, progress=progress)
        require_counts(**given(episodes=episodes, max_episode_steps=max_episode_steps))
        require_whole(seed=seed)
        environments, sources, lanes = self.environments, self.sources, self.lanes
        if env is not None:
            environments, sources = inputs.as_environments(env, len(self.agents))
            lanes = replace(lanes, env=stack([as_arrays(one) for one in environments], self.seeds, eqx.is_array))
        inputs.require_alike(self.spec, environments[0].spec)
        if isinstance(environments[0], LoggedEnvironment):
            raise RiskpathError("this run was trained on data, without an environment: give evaluate(env=…)")
        elsewhere = replace(self, environments=environments, sources=sources, lanes=lanes)
        episodes = episodes_for(elsewhere, episodes)
        with counting("evaluating", "episodes") if progress else nullcontext() as show:
            returns = sample_returns(elsewhere, episodes, seed, max_episode_steps, show)
        shape = (len(self.agents), self.seeds, episodes)
        plain, discounted, finished = (np.asarray(x).reshape(shape) for x in returns)
        discounts = [float(agent.discount) for agent in self.agents]
        return Evaluation(plain, discounted, [agent.risk for agent in self.agents], float(finished.mean()), discounts)

    def exact_laws(self, max_situations: int | None = SITUATIONS, discounted: bool = False) -> list[list[Law]] | None:
        """Return for each setting the exact return distributions of its seeds; None where episodes must be sampled.

        Args:
            max_situations: A policy with more situations at one time is not evaluated exactly; None for two million.
            discounted: Discount the returns as the agents do.
        """
        if not all(isinstance(environment, FiniteEnvironment) for environment in self.environments):
            return None
        discounts = [float(agent.discount) if discounted else 1.0 for agent in self.agents]
        try:
            return [
                [self.law(seed, setting, discount, max_situations) for seed in range(self.seeds)]
                for setting, discount in enumerate(discounts)
            ]
        except RiskpathError:  # too many situations, or episodes without an end
            return None

    def measure(
        self,
        episodes: int | None = None,
        seed: int = 0,
        max_situations: int | None = SITUATIONS,
        progress: bool = True,
    ) -> Measured:
        """Return the undiscounted returns of every lane's policy: exact where that is quick, else of sampled episodes.

        Args:
            episodes: Sampled episodes of each lane; by default as in `evaluate`.
            seed: Seed of their randomness.
            max_situations: A policy with more situations at one time is not evaluated exactly; None for two million.
            progress: Show progress on a terminal, where the host steps the environment.
        """
        risks, laws = [agent.risk for agent in self.agents], self.exact_laws(max_situations)
        if laws is not None:
            return Measured(risks, exact=laws)
        return Measured(risks, sample=self.evaluate(episodes, seed, progress=progress))

    def frontier(self, levels: Sequence[float] = LEVELS, episodes: int | None = None, seed: int = 0) -> LearnedFrontier:
        """Return mean and CVaR of the policies for many levels, all from this one training; exact where that is quick.

        Args:
            levels: Levels of CVaR, from 0 to 1.
            episodes: Sampled episodes of each seed and level; by default 10,000, on the host the number of `evaluate`.
            seed: Seed of their randomness.
        """
        listed, episodes = check_levels(levels), episodes_for(self, episodes, 10_000)
        found = self.serve(*(CVaR(level) for level in listed)).measure(episodes, seed)
        env = self.environments[0]
        exact = finite_frontier(env.mdp(), listed) if isinstance(env, FiniteEnvironment) else None
        intervals = None if found.sample is None else found.sample.risk()
        return LearnedFrontier(np.array(listed), found.means(), found.values(), exact, intervals)

    def floors(self, floors: Sequence[float], episodes: int | None = None, seed: int = 0) -> LearnedFloors:
        """Return mean and risk of the policies for several floors, all from this training with `subject_to`.

        Args:
            floors: Floors under the measure that has one.
            episodes: As in `frontier`.
            seed: Seed of their randomness.
        """
        listed, episodes = sorted(set(floors)), episodes_for(self, episodes, 10_000)
        if not listed:
            raise RiskpathError("floors must be at least one number, got none")
        agent, env = self.agents[0], self.environments[0]
        served = self._serve([], listed[0], 0)
        with counting("comparing candidates", "blocks of episodes") as progress:
            chosen = weights_above_floors(served, listed, progress if self.sources else None)
        lanes = [with_weights(served.lanes, weights) for weights in chosen]
        found = [replace(served, lanes=one).measure(episodes, seed) for one in lanes]
        assert isinstance(agent, Population)  # others are refused by `serve`
        risk, exact = agent.floor.measure, None
        if isinstance(env, FiniteEnvironment) and isinstance(agent.risk, Mean):
            exact = risk_frontier(env.mdp(), risk, listed)
        means, values = (np.concatenate([one.values(by) for one in found]) for by in (Mean(), risk))
        return LearnedFloors(risk, np.array(listed), means, values, exact)

    @property
    def notices(self) -> list[str]:
        """Return warnings about this run, one line each: estimates far outside of the returns, lost environments."""
        return [line for line in (notice_of_estimates(self), notice_of_losses(self)) if line]

    def values(self, discount: float = 1.0) -> np.ndarray:
        """Return β of the whole return of every lane's policy: [settings, seeds]; exact where the problem is finite."""
        if not isinstance(self.environments[0], FiniteEnvironment):
            if discount != 1 and any(agent.discount != discount for agent in self.agents):
                raise RiskpathError(f"discount must be 1 or the agents' own for sampled returns, got {discount:g}")
            return self.evaluate().values(discounted=discount != 1)
        value = lambda i, seed: float(self.agents[i].risk.value(self.law(seed, i, discount)))
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
        """Write one HTML page with all figures and tables of this run and return its path; replace only a page."""
        return Run.reporter(self, path, title)

    def save(self, path: str | Path, overwrite: bool = True) -> None:
        """Write everything to a folder, from which `load` restores the same run.

        A run that was saved there is replaced, unless `overwrite` is false; other content is never replaced.
        """
        write_checkpoint(self, path, overwrite)

    def push(self, folder: str | Path, *, title: str | None = None) -> Path:
        """Write a folder to share and return its path: this run, its policy, its report and a model card.

        `load` and `train` accept the folder like a saved run. Only files pushed there before are replaced; others stay,
        so the folder may be a clone of a repository.
        """
        return Run.pusher(self, folder, title)


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
