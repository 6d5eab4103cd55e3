"""The returns of a run's policies: exact distributions where that takes seconds at most, else sampled episodes.

How many episodes are sampled, and where they are played, is decided here as well.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float

from riskpath.evaluation.bootstrap import Interval, exact_interval
from riskpath.evaluation.evaluation import Evaluation
from riskpath.evaluation.host_rollout import rollout_on_host
from riskpath.evaluation.rollout import Returns, rollout
from riskpath.mdp.law import Law
from riskpath.memory import require_memory
from riskpath.risk.measures import Mean, RiskMeasure
from riskpath.training import inputs
from riskpath.training.lanes import lane_keys
from riskpath.training.run_state import RunState

SITUATIONS = 1_000
"""The most situations that a policy may distinguish at one time to be evaluated exactly."""


Progress = Callable[[int, int], None]
"""Shows the number of finished episodes and of all episodes."""
EPISODE_BYTES = 40.0
"""Memory for a sampled episode: its random key, returns and whether it ended."""
ENVIRONMENTS, FEWEST_ENVIRONMENTS = 64, 4
"""Environments of all lanes together, and of each lane at least: one call of a program serves all of them."""
SHARE = 0.25
"""Environment steps of an evaluation relative to those of training, about: an evaluation learns nothing, and so takes
a smaller share of the time."""
FEWEST, MOST = 20, 1_000
"""Episodes of each lane, if no number is given."""


@dataclass(frozen=True, eq=False)
class Measured:
    """The result of `Run.measure`; either `exact` or `sample` is given."""

    risks: Sequence[RiskMeasure]
    """The measure of each setting."""
    exact: list[list[Law]] | None = None
    """For each setting the exact return distributions of its seeds."""
    sample: Evaluation | None = None
    """Sampled episodes."""

    @property
    def episodes(self) -> int | None:
        """Return the number of sampled episodes of each lane; None where distributions are exact."""
        return None if self.sample is None else self.sample.returns.shape[-1]

    @property
    def laws(self) -> list[list[Law]]:
        """Return for each setting the return distributions of its seeds, exact or of the sample."""
        if self.exact is not None:
            return self.exact
        assert self.sample is not None
        return [[Law.of_sample(np.asarray(seed, np.float64)) for seed in seeds] for seeds in self.sample.returns]

    def values(self, risk: RiskMeasure | None = None) -> Float[np.ndarray, "settings seeds"]:
        """Return the measure of every lane's return: that of its agent, or another one."""
        if self.sample is not None:
            return np.asarray(self.sample.values(risk=risk))
        pairs = zip(self.risks, self.laws, strict=True)
        return np.array([[float((risk or own).value(law)) for law in laws] for own, laws in pairs])

    def interval(self, risk: RiskMeasure, setting: int, resamples: int, confidence: float = 0.95) -> Interval:
        """Return the mean over seeds of a measure of one setting's return; exact values resample seeds only."""
        if self.sample is None:
            return exact_interval(self.values(risk)[setting], resamples, confidence)
        return self.sample[setting].risk(risk, confidence=confidence, resamples=resamples)[0]

    def means(self) -> Float[np.ndarray, "settings seeds"]:
        return self.values(Mean())


def episodes_for(run: RunState, wanted: int | None, in_program: int = 1_000) -> int:
    """Return the number of episodes of each lane: `wanted`, or a default that takes little time.

    In environments of the compiled program the default is fixed. On the host it follows from the length of training and
    of its latest episodes.
    """
    if wanted is not None:
        return wanted
    if not run.sources:
        return in_program
    lengths = run.recent_figures().get("ep_len_mean")
    length = float(np.mean(lengths)) if lengths is not None else run.spec.max_episode_steps or 1_000
    return int(np.clip(SHARE * run.steps / length, FEWEST, MOST))


def sample_returns(
    run: RunState, episodes: int, seed: int, max_episode_steps: int | None = None, progress: Progress | None = None
) -> Returns:
    """Play greedy episodes of every lane; return plain returns, discounted returns and which episodes ended.

    In Gymnasium environments, which are made for this purpose, all episodes are played together.
    """
    lanes, each = run.lanes, EPISODE_BYTES * run.lanes.count
    what = f"evaluating {episodes:,} episodes of {lanes.count:,} policies"
    require_memory(what, each * episodes, lambda free: f"about {max(1, int(free / (2 * each))):,} episodes fit")
    limit = max_episode_steps or run.environments[0].spec.max_episode_steps or 10_000
    if not run.sources:
        keys = lane_keys(len(run.agents), run.seeds, seed, run.first_seed)  # settings meet the same randomness
        return rollout(lanes.agent, lanes.env, lanes.agent_state, run.spec, episodes, limit, keys=keys)
    module = inputs.gymnasium_module()
    module.require_copies(run.sources)
    own = run.sources[0].translation.max_episode_steps
    cut = limit if own is None or limit < own else None
    width = min(episodes, max(FEWEST_ENVIRONMENTS, ENVIRONMENTS // lanes.count))
    with closing(run.workers.for_evaluation().vector(run.sources, run.seeds * width, cut)) as vector:
        players = (lanes.agent, lanes.agent_state, vector, run.spec)
        return rollout_on_host(*players, episodes, cut, key=jax.random.key(seed), progress=progress)
