"""A learned policy with the `predict` of Stable-Baselines3, so that its tools can use it: `evaluate_policy` and others.

    predictor = Predictor(run.policy())
    actions, state = predictor.predict(observations, state, episode_start)

Observations and actions are those of the Gymnasium environment that was trained on; for one of ours, those of
`riskpath.envs.gymnasium_env`: numbers or arrays, never a finite problem's names.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from riskpath.agents.agent import Agent
from riskpath.envs.environment import FiniteEnvironment
from riskpath.errors import RiskpathError
from riskpath.evaluation.learned_policy import LearnedPolicy
from riskpath.types import EnvSpec, Percept, tree_where


@dataclass(frozen=True)
class Predictor:
    """A learned policy that acts for many environments at once, or for one."""

    policy: LearnedPolicy

    def __post_init__(self):
        if not isinstance(self.policy, LearnedPolicy):
            raise RiskpathError(f"a Predictor takes a policy, run.policy(); got a {type(self.policy).__name__}")
        if _needs_rewards(self.policy.agent, self.policy.critic, self.policy.world.spec):
            name = type(self.policy.agent).__name__
            raise RiskpathError(
                f"{name} acts on the rewards it got, which predict is not told; "
                "call the policy itself: action, memory = policy(state, memory, reward)"
            )

    def predict(
        self,
        observation: Any,
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_masks: Any = None,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Greedy actions, and the memory of every environment for the next call.

        Args:
            observation: One, or one for each environment.
            state: What the call before returned; None to begin with.
            episode_start: In which environments an episode begins: their memory starts anew.
            deterministic: Accepted, as tools pass it; the policy is greedy anyway.
            action_masks: Which actions are available, as sb3-contrib has it. A finite problem knows; elsewhere all are
                unless told.
        """
        policy, spec = self.policy, self.policy.world.spec
        obs, single = self._batch(observation)
        begins = np.full(len(obs), state is None) if episode_start is None else np.asarray(episode_start, bool).ravel()
        for name, sizes in (("episode_start", [len(begins)]), ("state", [len(part) for part in state or ()])):
            if any(size != len(obs) for size in sizes):
                raise RiskpathError(f"{name} is of {sizes[0]} environments, the observation of {len(obs)}")
        state = self._empty(len(obs)) if state is None else state
        told = _act(policy.agent, policy.critic, spec, state, begins, obs, self._masks(obs, action_masks))
        actions, memories = jax.device_get(told)
        actions = np.array(actions, np.float32 if spec.action_size else np.int64)  # a copy, which a user may change
        actions = self._translation.write(actions) if self._translation else actions
        return actions.squeeze(0) if single else actions, memories

    @property
    def _translation(self) -> Any:
        """What the policy's environment says otherwise than agents do, if it is one of Gymnasium's own."""
        return getattr(self.policy.world, "translation", None)

    def _batch(self, observation: Any) -> tuple[np.ndarray, bool]:
        """Observations with an axis of environments, and whether it had to be added."""
        spec, space = self.policy.world.spec, getattr(self._translation, "observation_space", None)
        shape = spec.observation_shape if space is None else space.shape
        if space is not None and shape is None:  # parts with names
            single = observation in space
            obs = self._translation.read(observation)[None] if single else self._translation.read_all(observation)
        else:
            obs = np.asarray(observation)
            single = obs.shape == shape
            obs = obs[None] if single else obs
            if obs.shape[1:] != shape or not len(obs) or obs.dtype.kind not in "biuf":
                raise RiskpathError(
                    f"an observation must have shape {shape}, or one axis more for several environments; "
                    f"got a {type(observation).__name__} of shape {np.shape(observation)}"
                )
            obs = obs if space is None else self._translation.read_all(obs)
        if spec.num_states is None:
            return obs.astype(spec.observation_dtype), single
        if not ((obs >= 0) & (obs < spec.num_states)).all():
            raise RiskpathError(f"states have numbers from 0 to {spec.num_states - 1}, got {obs.tolist()}")
        return obs.astype(np.int32), single

    def _empty(self, count: int) -> tuple[np.ndarray, ...]:
        """Memories at the start of an episode."""
        fresh = jax.device_get(self.policy.agent.reset(self.policy.critic, self.policy.world.spec))
        return tuple(np.broadcast_to(leaf, (count, *leaf.shape)) for leaf in jax.tree.leaves(fresh))

    def _masks(self, obs: np.ndarray, given: Any) -> np.ndarray:
        """Which actions are available, [environments, actions]."""
        world, shape = self.policy.world, (len(obs), self.policy.world.spec.num_actions)
        if given is not None:
            masks = np.asarray(given, bool)
            if masks.size != shape[0] * shape[1]:
                raise RiskpathError(f"action_masks must have shape {shape}, got {masks.shape}")
            return masks.reshape(shape)
        if not isinstance(world, FiniteEnvironment):
            return np.ones(shape, bool)
        masks = np.asarray(world.tables.available)[obs]
        return masks | ~masks.any(axis=1, keepdims=True)  # whatever is said of a terminal state


@eqx.filter_jit
def _act(agent: Agent, critic: Any, spec: EnvSpec, state: Any, begins: Any, obs: Any, masks: Any) -> Any:
    """One action of every environment; memories travel as the tuple of their arrays."""
    fresh = agent.reset(critic, spec)

    def one(state: Any, begins: Any, obs: Any, mask: Any) -> Any:
        memory = tree_where(begins, fresh, jax.tree.unflatten(jax.tree.structure(fresh), state))
        action, memory = _greedy(agent, critic, memory, Percept(obs, jnp.zeros(()), mask))
        return action, tuple(jax.tree.leaves(memory))

    return jax.vmap(one)(state, begins, obs, masks)


def _greedy(agent: Agent, critic: Any, memory: Any, percept: Percept) -> Any:
    return agent.act(critic, memory, percept, key=jax.random.key(0), explore=jnp.zeros(()))


def _needs_rewards(agent: Agent, critic: Any, spec: EnvSpec) -> bool:
    """Does anything that acting leads to depend on the reward before? `vmap` over rewards alone finds out."""
    obs, mask = jnp.zeros(spec.observation_shape, spec.observation_dtype), jnp.ones((spec.num_actions,), bool)

    def act(reward: jax.Array) -> Any:
        return _greedy(agent, critic, agent.reset(critic, spec), Percept(obs, reward, mask))

    jax.eval_shape(act, jnp.zeros(()))  # whatever else is wrong is raised here
    try:
        jax.eval_shape(jax.vmap(act, out_axes=None), jnp.zeros((2,)))
    except ValueError:  # an output varies with the reward
        return True
    return False
