"""Evaluation in Gymnasium environments: how many episodes, and in how many environments at once."""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from riskpath.agents.agent import Agent, AgentState
from riskpath.evaluation.host_rollout import rollout_on_host
from riskpath.evaluation.rollout import Returns, lane_count
from riskpath.training import inputs
from riskpath.training.run_state import RunState
from riskpath.types import EnvSpec, Key

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


def gymnasium_rollout(
    agent: Agent,
    state: AgentState,
    sources: Sequence[Any],
    spec: EnvSpec,
    episodes: int,
    limit: int,
    *,
    key: Key,
    progress: Callable[[int, int], None] | None = None,
) -> Returns:
    """Roll out episodes of every lane in Gymnasium environments made for this purpose, all of them together."""
    module = inputs.gymnasium_module()
    module.require_copies(sources)
    own = sources[0].translation.max_episode_steps
    cut = limit if own is None or limit < own else None
    lanes = lane_count(state)
    width = min(episodes, max(FEWEST_ENVIRONMENTS, ENVIRONMENTS // lanes))
    with closing(module.GymnasiumVector(sources, lanes // len(sources) * width, limit=cut)) as vector:
        return rollout_on_host(agent, state, vector, spec, episodes, cut, key=key, progress=progress)
