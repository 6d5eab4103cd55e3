"""The training loop as one compiled program: act → step → store → update → move the target networks.

Acting and learning are `vmap`ped over lanes; the replay buffer is written outside of `vmap`. The loops are nested,
target update ⊃ update ⊃ step. The host sees the state between chunks: there it shows progress, checks for invalid
numbers, evaluates, and can be interrupted.
"""

import functools
import math
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
from jaxtyping import Array, Bool, Shaped

from riskpath.agents.abilities import StartsEpisodes, TargetNetworks, start_episode
from riskpath.agents.agent import Agent, AgentState, Mode
from riskpath.agents.learning import update_target
from riskpath.envs.environment import Environment
from riskpath.envs.vector import VectorStep
from riskpath.training.devices import lane_mesh, on_devices, spread
from riskpath.training.lanes import Lanes
from riskpath.training.rounds import Part, in_chunks
from riskpath.types import EnvSpec, Key, Keys, TimeStep, Transition, power, tree_where


class Choice(eqx.Module):
    """The next action of every environment of every lane; leaves have leading axes L, E."""

    action: Shaped[Array, "..."]
    memory: Any
    """The memory after acting."""
    extras: Any
    """The extras to store with the transition."""
    env_keys: jaxtyping.Key[Array, "*LE"]
    reset_keys: jaxtyping.Key[Array, "*LE"]


def choose(lanes: Lanes, warm_up: bool | Bool[Array, ""]) -> tuple[Lanes, Choice]:
    """Let every agent act in all of its environments; during warm-up it only explores."""
    mode = Mode(True, warm_up, lanes.clock.done)

    def one(agent: Agent, state: AgentState, key: Key, time_step: TimeStep, memory: Any):
        num_envs = time_step.reward.shape[0]
        keys = jax.random.split(key, 1 + 3 * num_envs)

        def single(keys: Keys, time_step: TimeStep, memory: Any) -> Choice:
            act_key, env_key, reset_key = keys
            output = agent.act(state, memory, time_step, key=act_key, mode=mode)
            return Choice(output.action, output.memory, output.extras, env_key, reset_key)

        return keys[0], jax.vmap(single)(keys[1:].reshape(num_envs, 3), time_step, memory)

    keys, choice = eqx.filter_vmap(one)(lanes.agent, lanes.agent_state, lanes.keys, lanes.time_step, lanes.memory)
    return eqx.tree_at(lambda s: s.keys, lanes, keys), choice


def step_and_reset(
    env: Environment,
    env_state: Any,
    action: Any,
    env_key: Key,
    reset_key: Key,
    cut: bool | Bool[Array, ""] = False,
    agent: Any = None,
    memory: Any = None,
) -> tuple[Any, VectorStep, Any]:
    """Step one environment, and reset it if its episode is over or cut; return its state, and a new episode's memory.

    If the agent starts episodes itself, `memory` is that of its state.
    """
    observation, env_state, reward, terminated, truncated = env.step(env_key, env_state, action)
    mask = env.action_mask(env_state)
    first, fresh, memory = start_episode(agent, env, memory, key=reset_key)
    following = tree_where(
        terminated | truncated | cut, (fresh, first, env.action_mask(fresh)), (env_state, observation, mask)
    )
    return following[0], VectorStep(observation, mask, reward, terminated, truncated, *following[1:]), memory


def cut_now(lanes: Lanes, spec: EnvSpec) -> Bool[Array, " E"]:
    """Tell which environments begin anew now, so that those that learn in short rollouts are at different times."""
    envs, after = lanes.num_envs, lanes.steps // lanes.num_envs + 1
    if not lanes.experience.staggered or not spec.max_episode_steps:
        return jnp.zeros((envs,), bool)
    return after == jnp.asarray(np.arange(envs) * spec.max_episode_steps // envs, jnp.int32)


def step_environments(lanes: Lanes, choice: Choice, cut: Bool[Array, " E"]) -> tuple[Lanes, VectorStep, Any]:
    """Step all environments that are part of the program; return the memories of new episodes, too.

    These are None unless the agent starts episodes itself.
    """
    starts = isinstance(lanes.agent, StartsEpisodes)
    each = eqx.filter_vmap(step_and_reset, in_axes=(None, 0, 0, 0, 0, 0, None, None))
    arguments = (lanes.env_state, choice.action, choice.env_keys, choice.reset_keys)
    starting = (lanes.agent, lanes.agent_state.initial_memory) if starts else (None, None)
    lane = eqx.if_array(0)  # an environment may have other fields, such as whole numbers
    every = eqx.filter_vmap(each, in_axes=(lane, 0, 0, 0, 0, None, lane, 0))
    env_state, outcome, memory = every(lanes.env, *arguments, cut, *starting)
    return eqx.tree_at(lambda s: s.env_state, lanes, env_state), outcome, memory


def record(
    lanes: Lanes, spec: EnvSpec, choice: Choice, outcome: VectorStep, first_memory: Any = None, cut: Any = None
) -> Lanes:
    """Store the transitions, and prepare the next time step of every environment.

    An episode that is cut counts as a rollout's end, and not as an episode.
    """
    fresh = lanes.clock.updates == 0
    cut = jnp.zeros((lanes.num_envs,), bool) if cut is None else cut

    def one(agent: Agent, state: AgentState, time_step: TimeStep, choice: Choice, outcome: VectorStep, so_far, first):
        def single(time_step: TimeStep, choice: Choice, o: VectorStep, so_far, cut, first):
            so_far = so_far + power(agent.discount, time_step.time) * o.reward
            transition = Transition(
                time_step.observation,
                choice.action,
                o.reward,
                o.final_observation,
                o.final_action_mask,
                o.terminated | (o.truncated & agent.ends_at_limit),
                o.truncated | cut,
                time_step.time,
                so_far,
                choice.extras,
            )
            done = o.terminated | o.truncated | cut
            following = TimeStep(
                o.observation,
                jnp.where(done, 0.0, o.reward),
                o.action_mask,
                jnp.where(done, spec.no_action(), choice.action),
                jnp.where(done, 0, time_step.time + 1),
            )
            memory = tree_where(done, state.initial_memory if first is None else first, choice.memory)
            return transition, following, memory, jnp.where(done, 0.0, so_far)

        stored, following, memory, after = jax.vmap(single)(time_step, choice, outcome, so_far, cut, first)
        done = outcome.terminated | outcome.truncated
        assert state.episodes is not None
        shown = (outcome.observation, outcome.action_mask)
        earned = (outcome.reward, stored.return_so_far, time_step.time)
        episodes = state.episodes.add(*earned, done, *shown, agent.discount, fresh, cut)
        return eqx.tree_at(lambda s: s.episodes, state, episodes), stored, following, memory, after

    arguments = (lanes.agent_state, lanes.time_step, choice, outcome, lanes.return_so_far, first_memory)
    state, transitions, time_step, memory, so_far = eqx.filter_vmap(one)(lanes.agent, *arguments)
    flat = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), transitions)
    over = outcome.terminated | outcome.truncated
    return replace(
        lanes,
        agent_state=state,
        time_step=time_step,
        memory=memory,
        return_so_far=so_far,
        store=lanes.experience.add(lanes.store, flat),
        steps=lanes.steps + lanes.num_envs,
        valid=lanes.valid & _valid(flat, time_step, spec),
        recent=lanes.recent.add(outcome.reward, transitions.return_so_far, transitions.time, over, cut[None]),
    )


def _valid(stored: Transition, following: TimeStep, spec: EnvSpec) -> Bool[Array, "3"]:
    """Check rewards, observations and action masks (`lanes.CHECKS`)."""
    columns = len(stored.reward)
    observed = stored.next_observation.reshape(columns, -1)
    masks = following.action_mask.reshape(columns, *spec.mask_shape)
    yes = jnp.ones((columns,), bool)
    finite = jnp.isfinite(observed).all(axis=1) if spec.observation_dtype == jnp.float32 else yes
    available = masks.any(axis=-1).reshape(columns, -1).all(axis=1) if spec.num_actions else yes
    # One reduction for all: three of them, stacked afterwards, are computed by one thread on a GPU.
    return jnp.stack([jnp.isfinite(stored.reward), finite, available]).all(axis=1)


def collect(lanes: Lanes, spec: EnvSpec, warm_up: bool) -> Lanes:
    """Take one step in every environment of every lane and store it."""
    cut = cut_now(lanes, spec)
    lanes, choice = choose(lanes, warm_up)
    lanes, outcome, first_memory = step_environments(lanes, choice, cut)
    return record(lanes, spec, choice, outcome, first_memory, cut)


def update(lanes: Lanes) -> tuple[Lanes, dict[str, Array]]:
    """Update every lane once, on a batch of its experience."""
    keys, sample_keys, update_keys = jnp.moveaxis(jax.vmap(lambda k: jax.random.split(k, 3))(lanes.keys), 1, 0)
    samples = lanes.experience.batch(lanes.store, lanes.count, lanes.time_step, lanes.memory, keys=sample_keys)
    one = eqx.filter_vmap(lambda agent, state, batch, key: agent.update(state, batch, lanes.clock, key=key))
    state, metrics = one(lanes.agent, lanes.agent_state, samples, update_keys)
    places = lambda s: (s.agent_state, s.keys, s.clock.updates)
    return eqx.tree_at(places, lanes, (state, keys, lanes.clock.updates + 1)), metrics


def learn(lanes: Lanes) -> tuple[Lanes, dict[str, Array]]:
    """Make all updates of one iteration.

    Target networks move after exactly `interval` updates: here, or between iterations (`Round.moves_targets`).
    """
    times, interval = lanes.round.updates, lanes.round.interval
    part = math.gcd(times, interval)
    if part == times:
        return scan(update, lanes, times)

    def several(lanes: Lanes) -> tuple[Lanes, dict[str, Array]]:
        lanes, metrics = scan(update, lanes, part)
        return (update_targets if part == interval else update_targets_if_due)(lanes), metrics

    return scan(several, lanes, times // part)


def update_targets(lanes: Lanes) -> Lanes:
    """Update the target networks of every lane, if there are any."""
    if not isinstance(lanes.agent, TargetNetworks):
        return lanes
    one = eqx.filter_vmap(lambda agent, state: update_target(agent, state, lanes.clock))
    return eqx.tree_at(lambda s: s.agent_state, lanes, one(lanes.agent, lanes.agent_state))


def update_targets_if_due(lanes: Lanes, learned: bool | Bool[Array, ""] = True) -> Lanes:
    """Update the target networks if the number of updates is a multiple of the interval."""
    if not (interval := lanes.round.interval):
        return lanes
    old, static = eqx.partition(lanes.agent_state, eqx.is_array)
    move = lambda: eqx.filter(update_targets(lanes).agent_state, eqx.is_array)
    new = jax.lax.cond(learned & (lanes.clock.updates % interval == 0), move, lambda: old)
    return eqx.tree_at(lambda s: s.agent_state, lanes, eqx.combine(new, static))


def scan(function: Callable[[Any], Any], carry: Any, times: int) -> Any:
    """Apply `function` a fixed number of times as one compiled loop, and return the mean of its results."""
    if times == 1:
        return function(carry)
    arrays, fixed = eqx.partition(carry, eqx.is_array)

    def body(arrays: Any, _: None) -> tuple[Any, Any]:
        carry, out = function(eqx.combine(arrays, fixed))
        return eqx.filter(carry, eqx.is_array), out

    arrays, outs = jax.lax.scan(body, arrays, None, length=times)
    return eqx.combine(arrays, fixed), jax.tree.map(lambda x: x.mean(axis=0), outs)


def repeat(function: Callable[[Any], Any], carry: Any, times: Any) -> tuple[Any, Any]:
    """Apply `function` a number of times that is not known at compile time, and return the mean of its results."""
    arrays, fixed = eqx.partition(carry, eqx.is_array)

    @functools.partial(jax.jit, inline=True)  # so that it is traced once, for its shapes and for the loop
    def step(arrays: Any) -> tuple[Any, Any]:
        carry, out = function(eqx.combine(arrays, fixed))
        return eqx.filter(carry, eqx.is_array), out

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), eqx.filter_eval_shape(step, arrays)[1])

    def body(_: Any, carry: Any) -> Any:
        arrays, out = step(carry[0])
        return arrays, jax.tree.map(jnp.add, carry[1], out)

    arrays, total = jax.lax.fori_loop(jnp.zeros_like(times), times, body, (arrays, zeros))
    mean = jax.tree.map(lambda x: x / jnp.maximum(times, 1).astype(x.dtype), total)
    return eqx.combine(arrays, fixed), mean


@eqx.filter_jit
def warm_up(lanes: Lanes, spec: EnvSpec, iterations: Any) -> tuple[Lanes, dict[str, Array]]:
    """Take steps by exploration only."""
    return repeat(lambda s: (collect(s, spec, warm_up=True), {}), lanes, iterations)


@eqx.filter_jit
def chunk(lanes: Lanes, spec: EnvSpec, rounds: Any) -> tuple[Lanes, dict[str, Array]]:
    """Train for a number of rounds; each ends with a target update.

    The number is not known at compile time, so one program serves chunks of every length.
    """
    sizes = lanes.round

    def iteration(lanes: Lanes) -> tuple[Lanes, dict[str, Array]]:
        if sizes.moves == 0:
            return learn(eqx.tree_at(lambda s: s.steps, lanes, lanes.steps + sizes.steps_of_iteration))
        return learn(scan(lambda s: (collect(s, spec, warm_up=False), ()), lanes, sizes.moves)[0])

    def round_(lanes: Lanes) -> tuple[Lanes, dict[str, Array]]:
        lanes, metrics = scan(iteration, lanes, sizes.iterations)
        return update_targets(lanes) if sizes.moves_targets else lanes, metrics

    return repeat(round_, lanes, rounds)


def advance(
    lanes: Lanes, spec: EnvSpec, steps: int, chunk_steps: int, devices: int | None = None, begin: int | None = None
) -> Generator[Part]:
    """Train for about `steps` more steps of each lane, and yield lanes and metrics (`rounds.in_chunks`)."""
    mesh = lane_mesh(lanes.count, devices)
    programs: list[Any] = [warm_up, chunk]
    if mesh is not None:
        lanes = spread(lanes, mesh)
        programs = [functools.partial(on_devices, program, mesh) for program in programs]
    explore, train = (lambda lanes, times, run=run: run(lanes, spec, jnp.asarray(times, jnp.int32)) for run in programs)
    return in_chunks(lanes, steps, chunk_steps, explore, train, begin)
