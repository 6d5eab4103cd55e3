"""Training from logged data: a stand-in for the environment, and lanes whose experience is the data."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Shaped

from riskpath.agents.agent import Agent
from riskpath.agents.episodes import NUM_STARTS, Episodes, no_episodes
from riskpath.agents.experience import Logged, Replay
from riskpath.agents.replay_agent import ReplayAgent
from riskpath.agents.replay_buffer import pack_rows
from riskpath.envs.environment import Environment
from riskpath.errors import RiskpathError
from riskpath.training.dataset import Dataset, Episode
from riskpath.training.lanes import Lanes
from riskpath.types import EnvSpec, Key, Transition


class LoggedEnvironment(Environment):
    """The stand-in for an environment when there is only data: episodes start, but cannot be played."""

    env_spec: EnvSpec
    starts: Shaped[Array, "K *obs"]
    """First observations of the data."""
    masks: Bool[Array, "K *A"]
    """Which actions were available there."""
    translation: Any = eqx.field(static=True, default=None)
    """Converts observations and actions of the environment; None if they are the agent's own."""

    @property
    def spec(self) -> EnvSpec:
        return self.env_spec

    def reset(self, key: Key) -> tuple[Shaped[Array, "*obs"], Any]:
        """Return one of the first observations; the state is its number."""
        number = jax.random.randint(key, (), 0, len(self.starts))
        return self.starts[number], number

    def step(self, key: Key, state: Any, action: Any) -> Any:
        raise RiskpathError("this run was trained on data, without an environment: give env=… to play episodes")

    def action_mask(self, state: Any) -> Bool[Array, "*A"]:
        """Return which actions were available at the start."""
        return self.masks[state]


def logged_environment(data: Dataset) -> LoggedEnvironment:
    """Return the stand-in for the environment of a data set."""
    firsts = [_read(data, episode) for episode in data.episodes[:NUM_STARTS]]
    observations, masks = (jnp.asarray(np.stack([one[i][0] for one in firsts])) for i in (0, 1))
    return LoggedEnvironment(data.spec, observations, masks, data.translation)


def require_replay(agent: Agent) -> ReplayAgent:
    """Return an agent that can learn from data; refuse any other in one line."""
    if not isinstance(agent, ReplayAgent):
        name = type(agent).__name__
        raise RiskpathError(f"{name} learns from its own actions; data need an agent that replays steps, such as IQN")
    return agent


def without_steps(agent: Agent) -> ReplayAgent:
    """Return the agent with one update per step, because there are no environment steps."""
    own = require_replay(agent)
    return replace(own, training=replace(own.training, learning_starts=0, train_freq=1))


def logged_experience(agent: Agent, spec: EnvSpec, rows: int) -> Logged:
    """Return the experience of an agent that learns from a number of logged steps."""
    replay = require_replay(agent).experience(spec)
    assert isinstance(replay, Replay)
    return Logged(rows, replay.samples, replay.window, replay.n_steps)


def with_data(lanes: Lanes, agents: Sequence[Agent], spec: EnvSpec, data: Dataset) -> Lanes:
    """Return fresh lanes whose experience is the data, with the statistics of its returns."""
    agent = agents[0]
    if any(one.discount != agent.discount for one in agents):
        raise RiskpathError("agents that learn from the same data need the same discount; train them one after another")
    if jax.tree.leaves(lanes.store.example.extras):
        raise RiskpathError(f"{type(agent).__name__} stores numbers of its own with every step, which data do not have")
    steps, masks = _transitions(data, agent)
    rows = pack_rows(jax.tree.map(jnp.asarray, steps))[:, None]
    stored = (rows, jnp.asarray(len(data), jnp.int32))
    lanes = eqx.tree_at(lambda s: (s.store.rows, s.store.num_added), lanes, stored)
    episodes = _statistics(steps, masks, jnp.asarray(agent.discount, jnp.float32), spec.max_episode_steps)
    repeated = jax.tree.map(lambda x: jnp.repeat(x[None], lanes.count, axis=0), episodes)
    return eqx.tree_at(lambda s: s.agent_state.episodes, lanes, repeated)


def _read(data: Dataset, episode: Episode) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return observations, masks and actions as an agent sees them."""
    spec, translation = data.spec, data.translation
    seen, actions = episode.observations, episode.actions
    if translation is not None:
        seen, actions = translation.read_all(seen), translation.read_actions(actions)
    seen = np.asarray(seen, spec.observation_dtype).reshape(len(seen), *spec.observation_shape)
    every = np.broadcast_to(np.asarray(spec.every_action()), (len(seen), *spec.mask_shape))
    masks = every if episode.action_masks is None else np.asarray(episode.action_masks, bool)
    return seen, masks.reshape(every.shape), np.asarray(actions, np.float32 if spec.action_size else np.int32)


def _transitions(data: Dataset, agent: Agent) -> tuple[Transition, np.ndarray]:
    """Return all steps in order, [N, …], and the masks before them."""
    discount, ends_at_limit = float(agent.discount), bool(agent.ends_at_limit)
    columns: list[tuple[Any, ...]] = []
    for episode in data.episodes:
        seen, masks, actions = _read(data, episode)
        time = np.arange(len(actions), dtype=np.int32)
        so_far = np.cumsum(discount**time * episode.rewards.astype(np.float64)).astype(np.float32)
        last, cut = time == time[-1], not episode.terminated
        ends, rewards = last & (episode.terminated or ends_at_limit), episode.rewards.astype(np.float32)
        following = (seen[1:], masks[1:], ends, last & cut, time, so_far)
        columns.append((seen[:-1], actions, rewards, *following, masks[:-1]))
    *parts, masks = (np.concatenate(column) for column in zip(*columns, strict=True))
    make: Any = Transition
    return jax.vmap(lambda *one: make(*one, ()))(*map(jnp.asarray, parts)), masks


@eqx.filter_jit
def _statistics(steps: Transition, masks: Any, discount: Array, limit: int | None) -> Episodes:
    """Return the statistics after the episodes were played one after the other in one environment."""
    done = steps.terminated | steps.truncated
    following = jnp.roll(steps.observation, -1, axis=0), jnp.roll(jnp.asarray(masks), -1, axis=0)
    first = no_episodes(steps.observation[:1], jnp.asarray(masks)[:1], limit)

    def add(episodes: Episodes, row: Any) -> tuple[Episodes, None]:
        reward, so_far, time, over, seen, mask = (x[None] for x in row)
        return episodes.add(reward, so_far, time, over, seen, mask, discount), None

    rows = (steps.reward, steps.return_so_far, steps.time, done, *following)
    return jax.lax.scan(add, first, rows)[0]
