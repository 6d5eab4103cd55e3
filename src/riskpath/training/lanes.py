"""The state of training: lanes (seeds, and settings of float hyperparameters) side by side.

Everything has a leading axis L; the environments of a lane add an axis E. The store of an experience has the
environments of all lanes as its columns.
"""

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from riskpath.agents.abilities import StartsEpisodes, start_episode
from riskpath.agents.agent import GREEDY, Agent, AgentState
from riskpath.agents.clock import Clock
from riskpath.agents.episodes import no_episodes
from riskpath.agents.experience import Experience
from riskpath.agents.replay_buffer import ReplayBuffer
from riskpath.envs.environment import Environment
from riskpath.envs.finite import as_arrays
from riskpath.envs.vector import VectorEnvironment
from riskpath.evaluation.rollout import repeat_memory
from riskpath.training.devices import lane_mesh, placed_rows
from riskpath.training.recent_episodes import RecentEpisodes, no_recent_episodes
from riskpath.training.rounds import Round
from riskpath.types import EnvSpec, Key, Keys, TimeStep, Transition, shapes_of, tree_where

CHECKS = ("a reward", "an observation", "an action mask")
"""What must be valid at every step: finite numbers, and at least one available action."""
_EXAMPLES: dict[Hashable, Transition] = {}
"""Shapes of the transitions of every agent seen so far: finding them traces `act`."""


class Lanes(eqx.Module):
    """The whole state of training; leaves of all but the store have leading axes L or L, E."""

    agent: Agent
    """Float hyperparameters have a leading axis L."""
    env: Environment
    """So do its arrays."""
    agent_state: AgentState
    env_state: Any
    time_step: TimeStep
    """The next time step of each environment."""
    memory: Any
    """The agent's memory of each episode."""
    return_so_far: Float[Array, "L E"]
    """R_{0:t−1}, before the next step."""
    experience: Experience
    """How steps become batches; it has no arrays."""
    store: ReplayBuffer
    """What the experience has stored."""
    keys: Keys
    steps: Int[Array, ""]
    """Environment steps taken by each lane."""
    clock: Clock
    """The number of updates so far, and of all planned ones."""
    valid: Bool[Array, "3"]
    """Whether all rewards, observations and action masks were valid (`CHECKS`)."""
    recent: RecentEpisodes
    """The latest training episodes, for display."""

    @property
    def count(self) -> int:
        return self.return_so_far.shape[0]

    @property
    def num_envs(self) -> int:
        return self.return_so_far.shape[1]

    @property
    def round(self) -> Round:
        return Round.of(self.agent, self.experience, self.num_envs)

    def what_is_wrong(self, metrics: dict[str, Any], since: int) -> str | None:
        """Return in one line what has become invalid since a step; None if everything is valid."""
        between = f"between steps {since} and {int(self.steps)}"
        for what, valid in zip(CHECKS, np.asarray(self.valid), strict=True):
            wrong = "left no action available" if what == "an action mask" else "was not a finite number"
            if not valid:
                return f"{what} {wrong} {between}"
        if not np.isfinite(metrics.get("loss", 0.0)).all():
            return f"the loss was not a finite number {between}: try a smaller learning_rate"
        return None

    def planned(self, steps: int) -> "Lanes":
        """Return these lanes with schedules that end after this number of steps."""
        iterations = -(-(steps - self.experience.warm_up) // self.round.steps_of_iteration)
        updates = max(1, iterations * self.round.updates)
        return eqx.tree_at(lambda s: s.clock.planned, self, jnp.asarray(updates, jnp.int32))


def is_swept(leaf: Any) -> bool:
    """Tell whether a hyperparameter is traced, so that it may differ between lanes: floats only."""
    return isinstance(leaf, float) or eqx.is_inexact_array(leaf)


def stack(settings: Sequence[Any], seeds: int, swept: Callable[[Any], bool]) -> Any:
    """Stack the swept leaves of every setting, repeated for each seed: lane = setting · seeds + seed."""
    varying, fixed = eqx.partition(settings[0], swept)
    columns = zip(*(jax.tree.leaves(eqx.filter(setting, swept)) for setting in settings), strict=True)
    stacked = [_repeat_each(column, seeds) for column in columns]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(varying), stacked), fixed)


def _repeat_each(column: Sequence[Any], times: int) -> Array:
    """Stack numbers or arrays and repeat each, by NumPy, which compiles no program. Only shapes are traced."""
    arrays = [np.asarray(x, np.float32) if isinstance(x, float) else x for x in column]
    if any(isinstance(x, Tracer) for x in arrays):
        return jnp.repeat(jnp.stack(arrays), times, axis=0)
    return jax.device_put(np.repeat(np.stack(arrays), times, axis=0))


def start(
    agents: Sequence[Agent],
    environments: Sequence[Environment],
    seeds: int,
    num_envs: int,
    seed: int,
    first_seed: int = 0,
    devices: int | None = None,
    experience: Experience | None = None,
    vector: VectorEnvironment | None = None,
) -> Lanes:
    """Return lanes with fresh networks, fresh episodes and empty experience, by default of the agent's own kind.

    Where the host steps the environments, `vector` has those of all lanes.
    """
    agent, count = stack(agents, seeds, is_swept), len(agents) * seeds
    env = stack([as_arrays(env) for env in environments], seeds, eqx.is_array)
    spec = environments[0].spec
    keys = lane_keys(len(agents), seeds, seed, first_seed)
    state, (env_state, time_step, memory), keys = _begin_lanes(agent, env, keys, spec, num_envs, vector)
    example = _example_transition(agent, state, time_step, spec)
    experience = agents[0].experience(spec) if experience is None else experience
    rows = None if isinstance(keys, Tracer) else placed_rows(lane_mesh(count, devices))  # at once, because it is large
    zero, shape = np.zeros((), np.int32), (count, num_envs)
    fresh = np.zeros(shape, np.float32), zero, (zero, zero), np.ones((len(CHECKS),), bool)
    return_so_far, steps, updates, valid = jax.device_put(fresh)
    return Lanes(
        agent,
        env,
        state,
        env_state,
        time_step,
        memory,
        return_so_far,
        experience,
        experience.init(example, count, num_envs, rows),
        keys,
        steps,
        Clock(*updates),
        valid,
        no_recent_episodes(count, num_envs),
    )


def _begin_lanes(
    agent: Agent, env: Environment, keys: Keys, spec: EnvSpec, num_envs: int, vector: VectorEnvironment | None
) -> Any:
    """Return fresh agent states, started episodes and the keys for training.

    `init` is not compiled as a whole: the random numbers of many layers make one large program, which takes longer.
    """
    init_keys, env_keys, keys = _split_in_three(keys)
    state = _init_lanes(agent, init_keys, spec)
    starts = agent if isinstance(agent, StartsEpisodes) else None
    env_state, time_step, memory = _begin_episodes(starts, env, state.initial_memory, env_keys, spec, num_envs)
    if vector is not None:
        observation, mask = reset_on_host(vector, env_keys, num_envs)
        time_step = eqx.tree_at(lambda t: (t.observation, t.action_mask), time_step, (observation, mask))
    episodes = _no_episodes(time_step.observation, time_step.action_mask, spec.max_episode_steps)
    state = eqx.tree_at(lambda s: s.episodes, state, episodes, is_leaf=lambda x: x is None)
    return state, (env_state, time_step, memory), keys


def reset_on_host(vector: VectorEnvironment, keys: Keys, num_envs: int) -> tuple[Array, Array]:
    """Reset the environments of all lanes; return their first observations and action masks, [L, E, …]."""
    each = jax.vmap(lambda key: jax.random.split(key, num_envs))(keys)
    observation, mask = vector.reset(each.reshape(-1))
    return by_lane(observation, len(keys)), by_lane(mask, len(keys))


def begin_anew(lanes: Lanes, spec: EnvSpec, which: Bool[Array, "L E"], observation: Array, action_mask: Array) -> Lanes:
    """Return the same agents with the same experience, some of whose environments are at the start of a new episode.

    The unfinished episodes do not count. Transitions of them stay: their times tell that no other one follows.
    """
    first = jax.vmap(jax.vmap(spec.first_time_step))(observation, action_mask)
    memory = repeat_memory(lanes.agent_state.initial_memory, lanes.num_envs)
    fresh = lambda new, old: jax.vmap(jax.vmap(tree_where))(which, new, old)
    time_step, memory = fresh((first, memory), (lanes.time_step, lanes.memory))
    zero = lambda x: jnp.where(which, 0.0, x)
    state = eqx.tree_at(lambda s: s.episodes.recent, lanes.agent_state, replace_fn=zero)
    recent = replace(lanes.recent, so_far=zero(lanes.recent.so_far))
    so_far = zero(lanes.return_so_far)
    return replace(lanes, agent_state=state, time_step=time_step, memory=memory, return_so_far=so_far, recent=recent)


def by_lane(x: Any, count: int) -> Array:
    """Reshape [K, …] to [L, K/L, …]."""
    return jnp.asarray(x).reshape(count, x.shape[0] // count, *x.shape[1:])


@jax.jit
def _split_in_three(keys: Keys) -> Any:
    return tuple(jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)(keys))


def _init_lanes(agent: Agent, keys: Keys, spec: EnvSpec) -> AgentState:
    """Return fresh agent states; what does not depend on the lane (zeros) is repeated by NumPy.

    `eqx.filter_vmap` would compile one more program for each shape of an array.
    """
    swept, fixed = eqx.partition(agent, eqx.is_array)
    same = []

    def one(swept: Agent, key: Key) -> AgentState:
        own, others = eqx.partition(eqx.combine(swept, fixed).init(spec, key=key), lambda x: isinstance(x, Tracer))
        same.append(others)
        return own

    own = jax.vmap(one)(swept, keys)
    repeat = lambda x: _repeat_each([x], keys.shape[0]) if eqx.is_array(x) else x
    return eqx.combine(own, jax.tree.map(repeat, same[0]))


@eqx.filter_jit
def _begin_episodes(agent: Any, env: Environment, memory: Any, keys: Keys, spec: EnvSpec, num_envs: int) -> Any:
    """Start the episodes of every lane: states of the environments, first time steps, and memories of the agents."""

    def one(agent: Any, env: Environment, memory: Any, key: Key) -> Any:
        def begin(key: Key) -> Any:
            observation, env_state, first = start_episode(agent, env, memory, key=key)
            return env_state, spec.first_time_step(observation, env.action_mask(env_state)), first

        return jax.vmap(begin)(jax.random.split(key, num_envs))

    return eqx.filter_vmap(one)(agent, env, memory, keys)


@functools.partial(jax.jit, static_argnums=2)
def _no_episodes(observation: Array, action_mask: Array, limit: int | None) -> Any:
    return jax.vmap(lambda first, mask: no_episodes(first, mask, limit))(observation, action_mask)


def _example_transition(agent: Agent, state: AgentState, time_step: TimeStep, spec: EnvSpec) -> Transition:
    """Return the shapes of a transition as it is stored; `act` decides about action and extras."""

    def one(agent: Agent, state: AgentState, first: TimeStep) -> Transition:
        output = agent.act(state, state.initial_memory, first, key=jax.random.key(0), mode=GREEDY)
        shown, no = (first.observation, output.action, first.reward, first.observation), jnp.zeros((), bool)
        return Transition(*shown, first.action_mask, no, no, first.time, first.reward, output.extras)

    lane = lambda tree: jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, tree)
    first = lambda agent, state, time_step: one(lane(agent), lane(state), lane(lane(time_step)))
    known = shapes_of((agent, state, time_step, spec))
    if known not in _EXAMPLES:
        _EXAMPLES[known] = eqx.filter_eval_shape(first, agent, state, time_step)
    return _EXAMPLES[known]


def lane_keys(settings: int, seeds: int, seed: int, first_seed: int = 0) -> Keys:
    """Return a key for each lane; it depends on the number of the lane's seed only, not on the lanes beside it."""
    return jnp.tile(jax.random.split(jax.random.key(seed), first_seed + seeds)[first_seed:], settings)
