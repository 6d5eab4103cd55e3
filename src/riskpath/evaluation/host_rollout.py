"""Greedy rollouts in environments that the host steps: all lanes together, with one compiled call per step."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

from riskpath.agents.agent import Agent, AgentState, act_greedily
from riskpath.envs.vector import EpisodesLost, VectorEnvironment
from riskpath.evaluation.packing import Layout
from riskpath.evaluation.rollout import Returns, lane_count, repeat_memory, with_reward
from riskpath.types import EnvSpec, Key, TimeStep, tree_where


def rollout_on_host(
    agent: Agent,
    state: AgentState,
    vector: VectorEnvironment,
    spec: EnvSpec,
    episodes: int,
    limit: int | None = None,
    *,
    key: Key,
    progress: Callable[[int, int], None] | None = None,
) -> Returns:
    """Roll out greedy episodes of every lane.

    An environment that has finished an episode starts the next one of its lane, until all have begun. Every started
    episode is finished and counted, so that the sample does not favour short ones. After `limit` steps the environments
    truncate an episode for this evaluation.
    """
    lanes, size = lane_count(state), vector.num_envs
    accounts = _Accounts(lanes, size, episodes, np.asarray(agent.discount, np.float64))
    key, start_key = jax.random.split(key)
    observation, mask = vector.reset(jax.random.split(start_key, size))
    fixed, constant = Layout.packed((agent, state))
    memory = repeat_memory(state.initial_memory, size // lanes)
    previous = jnp.broadcast_to(spec.no_action(), (lanes, size // lanes, *spec.no_action().shape))
    moving, carried = Layout.packed((memory, previous, key))
    reward, done = np.zeros(size, np.float32), np.ones(size, bool)
    while accounts.finished < lanes * episodes:
        shown = observation, reward, mask, done, accounts.length.astype(np.int32)
        after, action = _turn(fixed, moving, constant, carried, shown)
        try:
            o = vector.step(np.asarray(action), None, None)
        except EpisodesLost as lost:  # they begin anew; by the same keys the others act as before
            rows = lambda new, old: np.where(lost.which.reshape(-1, *[1] * (new.ndim - 1)), new, old)
            observation, mask = map(rows, lost.shown, (observation, mask))
            reward, done = np.where(lost.which, np.float32(0), reward), done | lost.which
            accounts.forget(lost.which)
            continue
        carried = after
        observation, mask, done = o.observation, o.action_mask, o.terminated | o.truncated
        reward = np.where(done, np.float32(0), o.reward)
        accounts.add(o.reward, done, o.truncated, limit)
        if progress is not None and done.any():
            progress(accounts.finished, lanes * episodes)
    return accounts.results[..., 0], accounts.results[..., 1], accounts.results[..., 2] > 0


class _Accounts:
    """The returns of current and finished episodes."""

    def __init__(self, lanes: int, size: int, episodes: int, discount: np.ndarray):
        width = size // lanes
        self.results = np.zeros((lanes, episodes, 3))
        """Return, discounted return, and whether the episode ended before the limit."""
        self.finished, self.length = 0, np.zeros(size, int)
        self._lane = np.arange(size) // width
        self._number = np.arange(size) % width  # of the episode that each environment plays
        self._begun = np.full(lanes, width)
        self._discount = np.broadcast_to(discount, (lanes,)).repeat(width)
        self._account = np.zeros(size), np.zeros(size), np.ones(size)

    def add(self, reward: np.ndarray, done: np.ndarray, truncated: np.ndarray, limit: int | None) -> None:
        """Count a step of all environments."""
        self._account, self.length = with_reward(self._account, reward, self._discount), self.length + 1
        (total, discounted, _), episodes = self._account, self.results.shape[1]
        for i in np.flatnonzero(done):
            lane, number, cut = self._lane[i], self._number[i], bool(truncated[i]) and self.length[i] == limit
            if number < episodes:  # otherwise it only waits for the others
                self.results[lane, number] = total[i], discounted[i], not cut
                self.finished += 1
            self._number[i] = self._begun[lane]
            self._begun[lane] += 1
        self.forget(done)

    def forget(self, which: np.ndarray) -> None:
        """Begin with the accounts of these environments anew."""
        total, discounted, weight = self._account
        total[which], discounted[which], weight[which], self.length[which] = 0.0, 0.0, 1.0, 0


@functools.partial(jax.jit, static_argnums=(0, 1))
def _turn(
    fixed: Layout, moving: Layout, constant: list[Array], carried: list[Array], shown: Any
) -> tuple[list[Array], Shaped[Array, "K *act"]]:
    """Let every lane act greedily in each of its environments; where an episode is `done`, a new one has begun."""
    agent, state = fixed.unpacked(constant)
    memory, previous, key = moving.unpacked(carried)
    lanes, width = previous.shape[:2]
    observation, reward, mask, done, time = (x.reshape(lanes, width, *x.shape[1:]) for x in shown)
    anew = jax.vmap(jax.vmap(tree_where))
    first = repeat_memory(state.initial_memory, width)
    memory, previous = anew(done, (first, jnp.zeros_like(previous)), (memory, previous))
    key, act_key = jax.random.split(key)
    seen = (observation, reward, mask, previous, time)
    act = lambda agent, state, memory, seen, key: act_greedily(agent, state, memory, TimeStep(*seen), key=key)
    each = eqx.filter_vmap(act, in_axes=(None, None, 0, 0, 0))
    output = eqx.filter_vmap(each)(agent, state, memory, seen, jax.random.split(act_key, (lanes, width)))
    action = output.action.reshape(lanes * width, *output.action.shape[2:])
    return moving.pack((output.memory, output.action, key)), action
