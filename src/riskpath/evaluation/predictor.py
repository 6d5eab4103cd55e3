"""A learned policy with the `predict` method of Stable-Baselines3, so that tools such as `evaluate_policy` can use it.

    predictor = Predictor(run.policy())
    actions, state = predictor.predict(observations, state, episode_start)

Observations and actions are those of the Gymnasium environment that was trained on. For an environment of this library
they are those of `riskpath.envs.gymnasium_env`: numbers or arrays, not the names of a finite problem.
"""

import functools
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from riskpath.agents.agent import Agent, AgentState
from riskpath.envs.finite import FiniteEnvironment
from riskpath.errors import RiskpathError, in_one_line
from riskpath.evaluation.learned_policy import LearnedPolicy, act_with_memory, first_memory
from riskpath.evaluation.policy_inputs import as_mask, as_numbers, require_states, short
from riskpath.types import EnvSpec, tree_where


@dataclass(frozen=True)
class Predictor:
    """Predicts actions for many environments at once, or for one."""

    policy: LearnedPolicy

    def __post_init__(self):
        if not isinstance(self.policy, LearnedPolicy):
            raise RiskpathError(f"a Predictor takes a policy, run.policy(); got a {type(self.policy).__name__}")

    def predict(
        self,
        observation: Any,
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_masks: Any = None,
        rewards: Any = None,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
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
        policy, spec = self.policy, self.policy.environment.spec
        obs, single = self._batch(observation)
        begins = np.full(len(obs), state is None) if episode_start is None else np.asarray(episode_start, bool).ravel()
        if len(begins) != len(obs):
            raise RiskpathError(f"episode_start is of {len(begins)} environments, the observation of {len(obs)}")
        memories, rewards = self._memories(state, len(obs)), self._rewards(rewards, begins)
        masks = self._masks(obs, action_masks)
        result = _act(policy.agent, policy.state, spec, memories, begins, obs, rewards, masks)
        actions, memories = jax.device_get(result)
        actions = np.array(actions, np.float32 if spec.action_size else np.int64)  # a copy, so that it is writable
        actions = self._translation.write(actions) if self._translation else actions
        return actions.squeeze(0) if single else actions, memories

    @property
    def _translation(self) -> Any:
        """Return the converter of observations and actions of a Gymnasium environment, or None."""
        return getattr(self.policy.environment, "translation", None)

    def _batch(self, observation: Any) -> tuple[np.ndarray, bool]:
        """Return observations with an axis of environments, and whether this axis was added."""
        spec, space = self.policy.environment.spec, getattr(self._translation, "observation_space", None)
        if space is not None and space.shape is None:  # a dictionary or a tuple
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
        obs = obs if space is None else self._translation.read_all(obs)
        return obs.astype(spec.observation_dtype), single

    def _memories(self, state: Any, count: int) -> tuple[np.ndarray, ...]:
        """Return the memories of all environments: the given ones, or those at the start of an episode."""
        fresh = jax.device_get(jax.tree.leaves(first_memory(self.policy.state, self.policy.environment.spec)))
        if state is None:
            return tuple(np.broadcast_to(leaf, (count, *leaf.shape)) for leaf in fresh)
        if not isinstance(state, tuple) or not all(isinstance(part, np.ndarray) for part in state):
            raise RiskpathError(f"state must be None or the state that predict returned, got a {type(state).__name__}")
        if [part.shape[1:] for part in state] != [leaf.shape for leaf in fresh]:
            raise RiskpathError("state was returned by the predictor of another policy: start with state=None")
        if len(state[0]) != count:
            raise RiskpathError(f"state is of {len(state[0])} environments, the observation of {count}")
        return state

    @functools.cached_property
    def _needs_rewards(self) -> bool:
        return _needs_rewards(self.policy.agent, self.policy.state, self.policy.environment.spec)

    def _rewards(self, given: Any, begins: np.ndarray) -> np.ndarray:
        """Return the last reward of every environment; 0 where an episode begins."""
        if given is None:
            if self._needs_rewards and not begins.all():
                name = type(self.policy.agent).__name__
                raise RiskpathError(f"{name} acts on the rewards it received: give rewards=…, one for each environment")
            return np.zeros(len(begins), np.float32)
        rewards = np.atleast_1d(as_numbers(given, "a reward"))
        if rewards.shape != begins.shape:
            raise RiskpathError(f"rewards have shape {rewards.shape}, but there are {len(begins)} environments")
        return np.where(begins, 0, rewards).astype(np.float32)

    def _masks(self, obs: np.ndarray, given: Any) -> np.ndarray:
        """Return which actions are available, [environments, actions]."""
        env, shape = self.policy.environment, (len(obs), self.policy.environment.spec.num_actions)
        if given is not None:
            return as_mask(given, shape)
        if not isinstance(env, FiniteEnvironment):
            return np.ones(shape, bool)
        rows = obs if self._rows is None else [self._row(one) for one in obs]
        return self.policy.tables[1][rows]

    @functools.cached_property
    def _rows(self) -> dict[bytes, list[int]] | None:
        """Return the states that have the same features, by these features; None if observations are state numbers."""
        features = getattr(getattr(self.policy.environment, "tables", None), "features", None)
        if features is None:
            return None
        rows: dict[bytes, list[int]] = {}
        for row, vector in enumerate(np.asarray(features)):
            rows.setdefault(_bytes(vector), []).append(row)
        return rows

    def _row(self, observation: np.ndarray) -> int:
        """Return the number of a state with these features."""
        assert self._rows is not None
        rows, masks = self._rows.get(_bytes(observation), []), self.policy.tables[1]
        if not rows:
            raise RiskpathError(f"no state has the features {short(observation.tolist())}: give action_masks")
        if (masks[rows] != masks[rows[0]]).any():
            raise RiskpathError(
                f"states with the features {short(observation.tolist())} have different actions: give action_masks"
            )
        return rows[0]


def _bytes(vector: np.ndarray) -> bytes:
    """Return a vector of float32 as a key; −0 equals 0."""
    return (vector + np.float32(0)).tobytes()


@eqx.filter_jit
def _act(
    agent: Agent, state: AgentState, spec: EnvSpec, memories: Any, begins: Any, obs: Any, rewards: Any, masks: Any
) -> Any:
    """Return one action for every environment; memories travel as the tuple of their arrays."""
    fresh = first_memory(state, spec)

    def one(memory: Any, begins: Any, obs: Any, reward: Any, mask: Any) -> Any:
        memory = tree_where(begins, fresh, jax.tree.unflatten(jax.tree.structure(fresh), memory))
        action, memory = act_with_memory(agent, state, memory, obs, reward, mask)
        return action, tuple(jax.tree.leaves(memory))

    return jax.vmap(one)(memories, begins, obs, rewards, masks)


def _needs_rewards(agent: Agent, state: AgentState, spec: EnvSpec) -> bool:
    """Tell whether anything that follows from acting depends on the last reward; `vmap` over rewards finds out."""
    obs, mask = jnp.zeros(spec.observation_shape, spec.observation_dtype), jnp.ones((spec.num_actions,), bool)

    def act(reward: jax.Array) -> Any:
        return act_with_memory(agent, state, first_memory(state, spec), obs, reward, mask)

    jax.eval_shape(act, jnp.zeros(()))  # raises any other error
    try:
        jax.eval_shape(jax.vmap(act, out_axes=None), jnp.zeros((2,)))
    except ValueError:  # an output varies with the reward
        return True
    return False
