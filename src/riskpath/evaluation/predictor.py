"""A learned policy in many environments at once, with the `predict` method of Stable-Baselines3.

    predictor = Predictor(run.policy())
    actions, state = predictor.predict(observations, state, episode_start)

So tools such as `evaluate_policy` can use it. Observations and actions are those of the Gymnasium environment that was
trained on. For an environment of this library they are those of `riskpath.envs.gymnasium_env`: numbers or arrays, not
the names of a finite problem.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from riskpath.envs.environment import Environment
from riskpath.envs.finite import FiniteEnvironment
from riskpath.errors import RiskpathError, in_one_line
from riskpath.evaluation.policy_inputs import (
    as_mask,
    as_rewards,
    as_starts,
    episode_seeds,
    require_states,
    short,
)
from riskpath.evaluation.policy_program import first_memory, needs_rewards, step_many
from riskpath.validation import as_numbers

Memories = tuple[np.ndarray, ...]
"""The arrays of all memories; their first axis is that of the environments."""


@dataclass(frozen=True)
class Predictor:
    """Predicts actions for many environments at once, or for one."""

    policy: Any
    """What `run.policy()` returns."""

    def __post_init__(self):
        if not isinstance(getattr(self.policy, "environment", None), Environment):
            raise RiskpathError(f"a Predictor takes run.policy(), got {type(self.policy).__name__}")

    def predict(
        self,
        observation: Any,
        state: Memories | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_masks: Any = None,
        rewards: Any = None,
    ) -> tuple[np.ndarray, Memories]:
        """Return greedy actions, and the memory of every environment for the next call.

        Args:
            observation: One observation, or one for each environment.
            state: The state that the previous call returned; None at first.
            episode_start: In which environments an episode begins; their memory is reset.
            deterministic: Ignored: the policy is always greedy.
            action_masks: Which actions are available, as in sb3-contrib. Not needed for a finite problem; elsewhere the
                default is all actions.
            rewards: The reward of the previous step of each environment, or of one; ignored where an episode begins.
                Agents that act on their rewards, such as `Adaptive`, need them.
        """
        observations, single = self.read(observation)
        actions, memories = self.act(observations, state, rewards, action_masks, episode_start)
        return actions.squeeze(0) if single else actions, memories

    @functools.cached_property
    def fresh(self) -> list[np.ndarray]:
        """The arrays of the memory at the start of an episode."""
        return jax.device_get(jax.tree.leaves(first_memory(self.policy.state, self._spec)))

    @functools.cached_property
    def needs_rewards(self) -> bool:
        """Whether the policy acts on the rewards it received."""
        return needs_rewards(self.policy.agent, self.policy.state, self._spec)

    @functools.cached_property
    def _spec(self) -> Any:
        return self.policy.environment.spec

    @property
    def _translation(self) -> Any:
        """What converts observations and actions of the environment; None if they are the agent's own."""
        return getattr(self.policy.environment, "translation", None)

    def read(self, observation: Any) -> tuple[np.ndarray, bool]:
        """Return observations with an axis of environments, and whether this axis was added."""
        spec, space = self._spec, getattr(self._translation, "observation_space", None)
        if self._translation and space is not None and space.shape is None:  # a dictionary or a tuple
            with in_one_line(f"an observation must be one of {space}".replace("\n", " ")):
                single = observation in space
                obs = self._translation.read(observation)[None] if single else self._translation.read_all(observation)
            return as_numbers(obs, "an observation").astype(spec.observation_dtype), single
        shape = spec.observation_shape if space is None else space.shape
        obs = as_numbers(observation, "an observation")
        single = obs.shape == shape
        obs = obs[None] if single else obs
        if obs.shape[1:] != shape or not len(obs):
            raise RiskpathError(
                f"an observation must have shape {shape}, or one axis more for several environments; "
                f"got a {type(observation).__name__} of shape {np.shape(observation)}"
            )
        if spec.num_states is not None:
            require_states(obs, spec.num_states, int(getattr(space, "start", 0)))
        obs = self._translation.read_all(obs) if self._translation else obs
        return obs.astype(spec.observation_dtype), single

    def act(
        self, observations: np.ndarray, memories: Any, rewards: Any, masks: Any, starts: Any
    ) -> tuple[np.ndarray, Memories]:
        """Return greedy actions and the memories after them, for observations that were read.

        Without `starts` all episodes begin if there are no memories yet, else none does.
        """
        count = len(observations)
        starts = as_starts(starts, memories, count)
        rewards = as_rewards(rewards, starts, type(self.policy.agent).__name__ if self.needs_rewards else None)
        memories, masks = self._memories(memories, count), self._masks(observations, masks)
        arrays = memories, observations, rewards, masks, starts, episode_seeds(count, self.policy.mixed)
        actions, memories = jax.device_get(step_many(self.policy.agent, self.policy.state, self._spec, *arrays))
        dtype = np.float32 if self._spec.action_size else np.int64
        actions = np.array(actions, dtype)  # a copy, so that it is writable
        return self._translation.write(actions) if self._translation else actions, memories

    def _memories(self, given: Any, count: int) -> Memories:
        """Return the memories of all environments: the given ones, or those at the start of an episode."""
        if given is None:
            return tuple(np.broadcast_to(leaf, (count, *leaf.shape)) for leaf in self.fresh)
        if not isinstance(given, tuple) or not all(isinstance(part, np.ndarray) for part in given):
            raise RiskpathError(f"memories must be None or those that were returned, got a {type(given).__name__}")
        if [part.shape[1:] for part in given] != [leaf.shape for leaf in self.fresh]:
            raise RiskpathError("memories were returned by another policy: start with None")
        if len(given[0]) != count:
            raise RiskpathError(f"memories are of {len(given[0])} environments, the observation of {count}")
        return given

    def _masks(self, obs: np.ndarray, given: Any) -> np.ndarray:
        """Return which actions are available, [environments, actions]."""
        shape = (len(obs), *self._spec.mask_shape)
        if given is not None:
            return as_mask(given, shape)
        if not isinstance(self.policy.environment, FiniteEnvironment):
            return np.broadcast_to(np.asarray(self._spec.every_action()), shape)
        rows = obs if self._rows is None else [self._row(one) for one in obs]
        return self.policy.tables[1][rows]

    @functools.cached_property
    def _rows(self) -> dict[bytes, list[int]] | None:
        """Return the states that have the same features, by these features; None if observations are state numbers."""
        if (features := self.policy.environment.tables.features) is None:
            return None
        rows: dict[bytes, list[int]] = {}
        for row, vector in enumerate(np.asarray(features)):
            rows.setdefault(_bytes(vector), []).append(row)
        return rows

    def _row(self, observation: np.ndarray) -> int:
        assert self._rows is not None
        rows, masks = self._rows.get(_bytes(observation), []), self.policy.tables[1]
        if not rows:
            raise RiskpathError(f"no state has the features {short(observation.tolist())}: give action masks")
        if (masks[rows] != masks[rows[0]]).any():
            raise RiskpathError(
                f"states with the features {short(observation.tolist())} have different actions: give action masks"
            )
        return rows[0]


def _bytes(vector: np.ndarray) -> bytes:
    """Return a vector of float32 as a key; −0 equals 0."""
    return (vector + np.float32(0)).tobytes()
