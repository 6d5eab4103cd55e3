"""Data sets from play: episodes recorded from a policy, and those that the replay buffer of a run still holds."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from riskpath.agents.experience import Logged
from riskpath.agents.replay_buffer import unpack
from riskpath.envs.environment import Environment
from riskpath.errors import RiskpathError
from riskpath.evaluation.learned_policy import LearnedPolicy
from riskpath.training import inputs
from riskpath.training.dataset import MASK, Dataset, Episode
from riskpath.training.lanes import Lanes
from riskpath.validation import require_counts, require_whole

MOST_STEPS = 10_000
"""An episode of an environment without a limit is cut off here."""


def record(policy: Any, env: Any, episodes: int, *, seed: int = 0) -> Dataset:
    """Play episodes and return them as a data set.

    Args:
        policy: `run.policy()`, a function of the observation that returns an action, or "random".
        env: A name, a `FiniteMDP` or an environment; a Gymnasium id, environment, or function that makes one.
        episodes: Number of episodes.
        seed: Seed of all randomness.
    """
    require_counts(episodes=episodes)
    require_whole(seed=seed)
    if not (policy == "random" or callable(policy)):
        raise RiskpathError(f"policy must be run.policy(), a function of the observation, or 'random', got {policy!r}")
    environments, sources = inputs.as_environments(env, 1)
    spec = environments[0].spec
    world = _Gymnasium(sources[0], seed) if sources else _Compiled(environments[0], seed)
    choose = _chooser(policy, world, np.random.default_rng(seed))
    limit = spec.max_episode_steps or MOST_STEPS
    played = [_episode(world, choose, limit, spec.action_size > 0) for _ in range(episodes)]
    return Dataset(tuple(played), spec, world.translation)


def _episode(world: Any, choose: Callable[..., tuple[Any, Any]], limit: int, continuous: bool) -> Episode:
    observation, mask = world.reset()
    seen, masks, actions, rewards = [observation], [mask], [], []
    memory, terminated, truncated = None, False, False
    while not (terminated or truncated) and len(rewards) < limit:
        reward = rewards[-1] if rewards else 0.0
        action, memory = choose(observation, memory, reward, mask)
        observation, mask, reward, terminated, truncated = world.step(action)
        for listed, value in ((seen, observation), (masks, mask), (actions, action), (rewards, reward)):
            listed.append(value)
    kept = None if continuous else np.stack(masks)
    every = kept is None or kept.all()
    arrays = np.stack(seen), np.stack(actions), np.array(rewards, np.float32)
    return Episode(*arrays, bool(terminated), None if every else kept)


class _Compiled:
    """An environment of this library, one step at a time; actions are the agent's own."""

    translation = None

    def __init__(self, env: Environment, seed: int):
        self.spec, self._key = env.spec, jax.random.key(seed)
        self._reset, self._step = eqx.filter_jit(env.reset), eqx.filter_jit(env.step)
        self._mask = eqx.filter_jit(env.action_mask)

    def reset(self) -> tuple[Any, Any]:
        self._key, key = jax.random.split(self._key)
        observation, self._state = self._reset(key)
        return np.asarray(observation), np.asarray(self._mask(self._state))

    def step(self, action: Any) -> tuple[Any, ...]:
        self._key, key = jax.random.split(self._key)
        taken = jnp.asarray(action, jnp.float32 if self.spec.action_size else jnp.int32)
        observation, self._state, reward, terminated, truncated = self._step(key, self._state, taken)
        mask = np.asarray(self._mask(self._state))
        return np.asarray(observation), mask, np.float32(reward), bool(terminated), bool(truncated)

    def random_action(self, mask: Any, draws: np.random.Generator) -> Any:
        spec = self.spec
        if spec.action_size:
            return draws.uniform(-1, 1, spec.action_size).astype(np.float32)
        rows = [np.int32(draws.choice(np.flatnonzero(row))) for row in mask.reshape(-1, mask.shape[-1])]
        return np.array(rows, np.int32) if spec.action_heads else rows[0]


class _Gymnasium:
    """A Gymnasium environment; observations and actions are its own."""

    def __init__(self, source: Any, seed: int):
        inputs.gymnasium_module().require_copies([source])
        self._env, self._seed, self.translation = source.factory(), seed, source.translation
        self._env.action_space.seed(seed)

    def reset(self) -> tuple[Any, Any]:
        """Return the first observation and mask; the first episode decides the randomness of all."""
        observation, info = self._env.reset(seed=self._seed)
        self._seed = None
        return observation, self._mask(info)

    def step(self, action: Any) -> tuple[Any, ...]:
        observation, reward, terminated, truncated, info = self._env.step(action)
        return observation, self._mask(info), np.float32(reward), bool(terminated), bool(truncated)

    def _mask(self, info: Any) -> Any:
        return self.translation.read_mask(info[MASK]) if MASK in info else self.translation.every_action

    def random_action(self, mask: Any, draws: np.random.Generator) -> Any:
        if mask.size and not self.translation.joint:
            return self.translation.write(np.int64(draws.choice(np.flatnonzero(mask))))
        return self._env.action_space.sample()


def _chooser(policy: Any, world: Any, draws: np.random.Generator) -> Callable[..., tuple[Any, Any]]:
    """Return a policy as a function of observation, memory, last reward and mask that returns action and memory."""

    def learned(observation: Any, memory: Any, reward: Any, mask: Any) -> tuple[Any, Any]:
        masks = mask[None] if mask.size else None
        actions, memory = policy.act_batch(np.asarray(observation)[None], memory, [float(reward)], masks)
        return actions[0], memory

    if isinstance(policy, LearnedPolicy):
        return learned
    if policy == "random":
        return lambda observation, memory, reward, mask: (world.random_action(mask, draws), None)
    return lambda observation, memory, reward, mask: (np.asarray(policy(observation)), None)


def stored_episodes(lanes: Lanes, env: Environment, lane: int) -> Dataset:
    """Return the finished episodes that the store of a lane holds, oldest first."""
    store, spec, translation = lanes.store, env.spec, getattr(env, "translation", None)
    logged = isinstance(lanes.experience, Logged)
    width = 1 if logged else lanes.num_envs
    rows, added = np.asarray(store.rows), int(store.num_added)
    rows = np.roll(rows, -(added % len(rows)), axis=0) if added > len(rows) else rows[:added]
    first = 0 if logged else lane * width
    seen = jax.tree.map(lambda x: np.asarray(x[lane]), lanes.agent_state.episodes)
    starts = {o.tobytes(): m for o, m in zip(seen.first_observation, seen.first_action_mask, strict=True)}
    found = []
    for column in range(first, first + width):
        steps = jax.device_get(jax.vmap(lambda row: unpack(store.example, row))(jnp.asarray(rows[:, column])))
        over, begin = np.asarray(steps.terminated | steps.truncated), 0
        for end in np.flatnonzero(over):
            part = jax.tree.map(lambda x, a=begin, b=end: np.asarray(x)[a : b + 1], steps)
            begin = int(end) + 1
            if part.time[0] == 0 and (np.diff(part.time) == 1).all():
                found.append(_as_episode(part, spec, translation, starts))
    if not found:
        raise RiskpathError("the replay buffer of this run holds no finished episode")
    return Dataset(tuple(found), spec, translation)


def _as_episode(part: Any, spec: Any, translation: Any, starts: dict[bytes, np.ndarray]) -> Episode:
    """Return consecutive transitions as an episode, with the environment's own actions."""
    seen = np.concatenate([part.observation, part.next_observation[-1:]])
    actions = part.action if translation is None else np.asarray(translation.write(part.action))
    # The mask before the first step is not stored, but those of the latest starts are known.
    first = starts.get(seen[0].tobytes(), np.asarray(spec.every_action()))
    masks = np.concatenate([first[None], part.next_action_mask]) if spec.num_actions else None
    masks = None if masks is None or masks.all() else masks
    return Episode(seen, actions, part.reward, bool(part.terminated[-1] and not part.truncated[-1]), masks)
