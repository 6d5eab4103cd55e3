"""Episodes of the greedy policies of a run: how many, and where they are played."""

from collections.abc import Callable
from contextlib import closing

import jax
import numpy as np

from riskpath.evaluation.host_rollout import rollout_on_host
from riskpath.evaluation.rollout import Returns, rollout
from riskpath.memory import require_memory
from riskpath.training import inputs
from riskpath.training.lanes import Lanes, lane_keys
from riskpath.training.run_state import RunState

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
    run: RunState,
    lanes: Lanes,
    episodes: int,
    seed: int,
    max_episode_steps: int | None = None,
    progress: Progress | None = None,
) -> Returns:
    """Play greedy episodes of lanes in their environments.

    Return plain returns, discounted returns and which episodes ended. In Gymnasium environments, which are made for
    this purpose, all episodes are played together.
    """
    require_memory(
        f"evaluating {episodes:,} episodes of {lanes.count:,} policies",
        EPISODE_BYTES * episodes * lanes.count,
        lambda free: f"about {max(1, int(free / (2 * EPISODE_BYTES * lanes.count))):,} episodes fit",
    )
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
