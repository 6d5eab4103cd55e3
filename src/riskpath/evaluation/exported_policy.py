"""An exported policy: a function of arrays, without training code, replay buffer or environment.

    policy = rp.load_policy("policy.zip")
    action, memory = policy(observation, memory, reward)

`policy_file.py` says what is in a file.
"""

import functools
import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from riskpath.envs.plain_spaces import build_element, flatten_element, unstack
from riskpath.errors import RiskpathError
from riskpath.evaluation.policy_inputs import (
    as_mask,
    as_reward,
    as_rewards,
    as_starts,
    episode_seeds,
    missing_reward,
    require_states,
    short,
)
from riskpath.evaluation.policy_program import plain_name
from riskpath.validation import as_numbers

Memories = tuple[Any, ...]


class ExportedPolicy:
    """An exported policy: a function of arrays, which any number of threads may call."""

    def __init__(
        self, program: Callable[..., Any], description: dict[str, Any], traceable: bool = True, device: Any = None
    ):
        """Prepare a policy from its program, one step of many environments, and the description of its inputs.

        JAX compiles a `traceable` program, for its default device unless one is given; any other is called as it is.
        """
        self.description = description
        """What `policy.json` holds: agent, measure, environment, inputs, names and versions."""
        jit: Any = jax.jit
        if device is not None:
            jit = functools.partial(jax.jit, in_shardings=jax.sharding.SingleDeviceSharding(device))
        self._call, self._step = program, jit(program) if traceable else program
        self._shape = tuple(description["observation"]["shape"])
        self._dtype = np.dtype(description["observation"]["dtype"])
        self._count = int(description["num_actions"])
        self._space, self._actions = description.get("observation_space"), description.get("action_space")
        self._leading = description.get("first_entries", False)  # the policy looks at no others
        self._states = description["states"] and {_key(name): i for i, name in enumerate(description["states"])}
        self.fresh = tuple(np.zeros((1, *leaf["shape"]), leaf["dtype"]) for leaf in description["memory"])
        """A memory for the start of an episode, where its numbers do not count."""
        # Fewer arguments take less time: an observation of few numbers and the reward are one.
        self._mixed = bool(description["mixed"])
        self._packs = traceable and self._dtype == np.float32 and self._states is None and not self._mixed
        self._step_packed = jit(self._unpack)
        # What does not change from call to call is on the device already.
        constants = np.ones((1, self._count), bool), np.ones((1,), bool), np.zeros((1,), bool)
        self._all, self._yes, self._no = jax.device_put(constants, device) if traceable else constants

    def __repr__(self) -> str:
        about = self.description
        return f"<policy of {about['agent']} for {about['risk']} on {about['environment']}>"

    def __call__(
        self, observation: Any, memory: Memories | None = None, reward: float | None = None, mask: Any = None
    ) -> Any:
        """Return the greedy action and the memory for the next call.

        Args:
            observation: The observation; a state of a finite problem by its name.
            memory: The memory that the previous call returned; None at the start of an episode.
            reward: The reward of the previous step; not needed at the start, nor by agents that do not act on rewards.
            mask: Which discrete actions are available; by default all, of a finite problem those that the state has.
        """
        starts = self._yes if memory is None else self._no
        if memory is not None:
            self._require(memory, 1)
        if reward is None:
            reward = missing_reward(memory is None or not self.description["needs_rewards"], self.description["agent"])
        memory = self.fresh if memory is None else memory
        if mask is None and self._packs and (packed := self._pack(observation, reward)) is not None:
            actions, memory = self._step_packed(memory, packed, starts)
        else:
            obs = self.read(observation)[None]
            masks = self._all if mask is None else as_mask(mask, (1, self._count))
            rewards = np.array([as_reward(reward)], np.float32)
            actions, memory = self._step(memory, obs, rewards, masks, starts, episode_seeds(1, self._mixed))
        return self.write(np.asarray(actions)[0]), memory

    def act_batch(
        self,
        observations: Any,
        memories: Memories | None = None,
        rewards: Any = None,
        masks: Any = None,
        starts: Any = None,
    ) -> tuple[Any, Memories]:
        """Return greedy actions for many environments, and their memories for the next call.

        Args:
            observations: One for each environment, of a `Dict` or `Tuple` space as vector environments return them;
                states of a finite problem by their numbers.
            memories: The memories that the previous call returned; None at first.
            rewards: The reward of the previous step of each environment.
            masks: Which actions are available, [environments, actions].
            starts: In which environments an episode begins; by default in all if there are no memories, else in none.

        The policy of an exact solution answers −1 where the problem has no such step.
        """
        if self._space is not None and not _is_array(observations, self._shape):
            observations = np.stack([self.read(one) for one in unstack(self._space, observations)])
        actions, memories = self.act_rows(observations, memories, rewards, masks, starts)
        return actions if self._actions is None else build_element(self._actions, actions), memories

    def act_rows(
        self, observations: Any, memories: Memories | None, rewards: Any, masks: Any, starts: Any
    ) -> tuple[np.ndarray, Memories]:
        """Return what `act_batch` returns, for observations that `read` returned; `write` reads the actions."""
        obs = as_numbers(observations, "an observation").astype(self._dtype)
        obs = obs[:, : self._shape[0]] if self._leading and obs.ndim == 2 else obs
        if obs.shape[1:] != self._shape or obs.ndim != len(self._shape) + 1 or not len(obs):
            raise RiskpathError(f"observations must have shape (environments, *{self._shape}), got {obs.shape}")
        self._require_states(obs)
        count = len(obs)
        starts = as_starts(starts, memories, count)
        rewards = as_rewards(rewards, starts, self.description["agent"] if self.description["needs_rewards"] else None)
        masks = np.ones((count, self._count), bool) if masks is None else as_mask(masks, (count, self._count))
        if memories is None:
            memories = tuple(np.zeros((count, *leaf.shape[1:]), leaf.dtype) for leaf in self.fresh)
        self._require(memories, count)
        actions, after = self._step(memories, obs, rewards, masks, starts, episode_seeds(count, self._mixed))
        return np.array(actions), after

    def _pack(self, observation: Any, reward: Any) -> np.ndarray | None:
        """Return an observation and a reward as one array; None if they are not finite, or of another shape or type."""
        if type(observation) is not np.ndarray or observation.shape != self._shape or type(reward) is not float:
            return None
        packed = np.empty(observation.size + 1, np.float32)
        packed[:-1], packed[-1] = observation.ravel(), reward
        return packed if np.isfinite(packed).all() else None

    def _unpack(self, memory: Memories, packed: Any, starts: Any) -> Any:
        obs = packed[:-1].reshape(1, *self._shape)
        masks, seeds = jnp.ones((1, self._count), bool), jnp.zeros((1,), jnp.uint32)
        return self._call(memory, obs, packed[-1:], masks, starts, seeds)

    def read(self, observation: Any) -> np.ndarray:
        """Return one observation as `act_rows` takes it, without the axis of environments."""
        if self._states is not None:
            return self._state(observation)
        if self._space is not None and not _is_array(observation, self._shape, 0):
            return flatten_element(self._space, observation)
        obs = as_numbers(observation, "an observation").astype(self._dtype)
        obs = obs[: self._shape[0]] if self._leading and obs.ndim == 1 else obs
        if obs.shape != self._shape:
            raise RiskpathError(f"an observation must have shape {self._shape}, got {obs.shape}")
        self._require_states(obs)
        return obs

    def write(self, action: np.ndarray | np.generic) -> Any:
        """Return one action of `act_rows` as a call of the policy returns it: an action of the environment."""
        if names := self.description["actions"]:
            if int(action) < 0:
                raise RiskpathError(
                    "the policy has no action here: the problem has no such step, or the mask forbids it"
                )
            return names[int(action)]
        if self._actions is not None:
            return build_element(self._actions, np.asarray(action))
        return action if np.ndim(action) else int(action)

    def _require_states(self, obs: np.ndarray) -> None:
        if (count := self.description["num_states"]) is not None:
            require_states(obs, count, self.description["first_state"])

    def _state(self, name: Any) -> np.ndarray:
        try:
            return np.array(self._states[_key(name)], np.int32)
        except KeyError:
            raise RiskpathError(f"the problem has no state {short(name)}") from None

    def _require(self, memories: Any, count: int) -> None:
        shapes = [getattr(part, "shape", None) for part in memories] if isinstance(memories, tuple | list) else None
        if shapes != [(count, *leaf.shape[1:]) for leaf in self.fresh]:
            raise RiskpathError(f"memory must be None or what this policy returned for {count} environments")


def _is_array(values: Any, shape: tuple[int, ...], axes: int = 1) -> bool:
    """Tell whether observations are an array already, as `gymnasium.spaces.flatten` makes it."""
    return isinstance(values, np.ndarray) and values.shape[axes:] == shape


def _key(name: Any) -> str:
    """Return the same text for a name and for what became of it in a file."""
    return json.dumps(plain_name(name))
