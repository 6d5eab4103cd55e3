"""The training loop as one compiled program: act → step → store → learn → update targets.

Acting and learning are `vmap`ped over lanes; the replay buffer is written outside of `vmap`. The loops are nested,
target update ⊃ learn ⊃ step. The host sees the state between chunks: there it shows progress, checks for invalid
numbers, evaluates, and can be interrupted.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
from jaxtyping import Array, Bool, Float, Shaped

from riskpath.agents.abilities import TargetNetworks
from riskpath.agents.agent import Agent, AgentState, Mode
from riskpath.agents.experience import Experience
from riskpath.agents.learning import update_target
from riskpath.envs.environment import Environment
from riskpath.training.devices import lane_mesh, on_devices, spread
from riskpath.training.lanes import Lanes
from riskpath.types import EnvSpec, Key, Keys, TimeStep, Transition, power, tree_where


class Choice(eqx.Module):
    """What every environment of every lane does next; leaves have leading axes L, E."""

    action: Shaped[Array, "..."]
    memory: Any
    """The memory after acting."""
    extras: Any
    """What is stored with the transition."""
    env_keys: jaxtyping.Key[Array, "*LE"]
    reset_keys: jaxtyping.Key[Array, "*LE"]


class Outcome(eqx.Module):
    """The result of a step; leaves have leading axes L, E. A finished episode has been followed by a new one."""

    final_observation: Shaped[Array, "..."]
    """The true observation after the action."""
    final_action_mask: Bool[Array, "..."]
    reward: Float[Array, "*LE"]
    terminated: Bool[Array, "*LE"]
    truncated: Bool[Array, "*LE"]
    observation: Shaped[Array, "..."]
    """What the agent sees next: the same, or the first observation of a new episode."""
    action_mask: Bool[Array, "..."]


def choose(lanes: Lanes, warm_up: bool | Bool[Array, ""]) -> tuple[Lanes, Choice]:
    """Let every agent act in all of its environments; during warm-up it only explores."""

    def one(agent: Agent, state: AgentState, key: Key, time_step: TimeStep, memory: Any):
        num_envs = time_step.reward.shape[0]
        keys = jax.random.split(key, 1 + 3 * num_envs)

        def single(keys: Keys, time_step: TimeStep, memory: Any) -> Choice:
            act_key, env_key, reset_key = keys
            output = agent.act(state, memory, time_step, key=act_key, mode=Mode(True, warm_up))
            return Choice(output.action, output.memory, output.extras, env_key, reset_key)

        return keys[0], jax.vmap(single)(keys[1:].reshape(num_envs, 3), time_step, memory)

    keys, choice = eqx.filter_vmap(one)(lanes.agent, lanes.agent_state, lanes.keys, lanes.time_step, lanes.memory)
    return eqx.tree_at(lambda s: s.keys, lanes, keys), choice


def step_and_reset(env: Environment, env_state: Any, action: Any, env_key: Key, reset_key: Key) -> tuple[Any, Outcome]:
    """Step one environment, and reset it if its episode is over."""
    observation, env_state, reward, terminated, truncated = env.step(env_key, env_state, action)
    mask = env.action_mask(env_state)
    first, fresh = env.reset(reset_key)
    following = tree_where(
        terminated | truncated, (fresh, first, env.action_mask(fresh)), (env_state, observation, mask)
    )
    return following[0], Outcome(observation, mask, reward, terminated, truncated, *following[1:])


def step_environments(lanes: Lanes, choice: Choice) -> tuple[Lanes, Outcome]:
    """Step all environments that are part of the program."""
    each = eqx.filter_vmap(step_and_reset, in_axes=(None, 0, 0, 0, 0))
    arguments = (lanes.env_state, choice.action, choice.env_keys, choice.reset_keys)
    env_state, outcome = eqx.filter_vmap(each)(lanes.env, *arguments)
    return eqx.tree_at(lambda s: s.env_state, lanes, env_state), outcome


def record(lanes: Lanes, spec: EnvSpec, choice: Choice, outcome: Outcome) -> Lanes:
    """Store the transitions, and prepare the next time step of every environment."""

    def one(agent: Agent, state: AgentState, time_step: TimeStep, choice: Choice, outcome: Outcome, so_far):
        def single(time_step: TimeStep, choice: Choice, o: Outcome, so_far):
            so_far = so_far + power(agent.discount, time_step.time) * o.reward
            transition = Transition(
                time_step.observation,
                choice.action,
                o.reward,
                o.final_observation,
                o.final_action_mask,
                o.terminated | (o.truncated & agent.ends_at_limit),
                o.truncated,
                time_step.time,
                so_far,
                choice.extras,
            )
            done = o.terminated | o.truncated
            following = TimeStep(
                o.observation,
                jnp.where(done, 0.0, o.reward),
                o.action_mask,
                jnp.where(done, spec.no_action(), choice.action),
                jnp.where(done, 0, time_step.time + 1),
            )
            memory = tree_where(done, state.initial_memory, choice.memory)
            return transition, following, memory, jnp.where(done, 0.0, so_far)

        stored, following, memory, after = jax.vmap(single)(time_step, choice, outcome, so_far)
        done = outcome.terminated | outcome.truncated
        assert state.episodes is not None
        shown = (outcome.observation, outcome.action_mask)
        earned = (outcome.reward, stored.return_so_far, time_step.time)
        episodes = state.episodes.add(*earned, done, *shown, agent.discount, state.gradient_steps == 0)
        return eqx.tree_at(lambda s: s.episodes, state, episodes), stored, following, memory, after

    arguments = (lanes.agent_state, lanes.time_step, choice, outcome, lanes.return_so_far)
    state, transitions, time_step, memory, so_far = eqx.filter_vmap(one)(lanes.agent, *arguments)
    flat = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), transitions)
    return Lanes(
        lanes.agent,
        lanes.env,
        state,
        lanes.env_state,
        time_step,
        memory,
        so_far,
        lanes.experience,
        lanes.experience.add(lanes.store, flat),
        lanes.keys,
        lanes.steps + lanes.num_envs,
        lanes.valid & _valid(flat, time_step, spec),
        lanes.recent.add(
            outcome.reward, transitions.return_so_far, transitions.time, transitions.terminated | transitions.truncated
        ),
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
    lanes, choice = choose(lanes, warm_up)
    lanes, outcome = step_environments(lanes, choice)
    return record(lanes, spec, choice, outcome)


def update(lanes: Lanes, spec: EnvSpec) -> tuple[Lanes, dict[str, Array]]:
    """Call `learn` once for every lane, on a batch of its experience."""
    keys, sample_keys, learn_keys = jnp.moveaxis(jax.vmap(lambda k: jax.random.split(k, 3))(lanes.keys), 1, 0)
    samples = lanes.experience.batch(lanes.store, lanes.count, lanes.time_step, lanes.memory, keys=sample_keys)
    learn = eqx.filter_vmap(lambda agent, state, batch, key: agent.learn(state, batch, key=key))
    state, metrics = learn(lanes.agent, lanes.agent_state, samples, learn_keys)
    return eqx.tree_at(lambda s: (s.agent_state, s.keys), lanes, (state, keys)), metrics


def learn(lanes: Lanes, spec: EnvSpec) -> tuple[Lanes, dict[str, Array]]:
    """Call `learn` as often as one iteration needs."""
    times = lanes.experience.updates(lanes.num_envs)
    if times == 1:
        return update(lanes, spec)
    lanes, metrics = _scan(lambda s: update(s, spec), lanes, times)
    return lanes, jax.tree.map(lambda x: x.mean(axis=0), metrics)


def update_targets(lanes: Lanes) -> AgentState:
    """Return the agents' states after an update of their target networks, if they have any."""
    if not isinstance(lanes.agent, TargetNetworks):
        return lanes.agent_state
    return eqx.filter_vmap(update_target)(lanes.agent, lanes.agent_state)


def iterations_per_round(agent: Agent, experience: Experience, num_envs: int) -> int:
    """Return the iterations between two updates of the target networks; 1 for an agent without any."""
    if not isinstance(agent, TargetNetworks):
        return 1
    return max(1, agent.target_update[0] // experience.updates(num_envs))


def steps_per_round(agent: Agent, experience: Experience, num_envs: int) -> int:
    """Return the steps of each lane in one round: environment steps, or updates if there are only data."""
    iterations, moves = iterations_per_round(agent, experience, num_envs), experience.moves(num_envs)
    return iterations * (moves * num_envs or experience.updates(num_envs))


def _scan(function: Callable[[Any], Any], carry: Any, times: int) -> Any:
    """Apply `function` a fixed number of times as one compiled loop, and stack what it returns."""
    arrays, fixed = eqx.partition(carry, eqx.is_array)

    def body(arrays: Any, _: None) -> tuple[Any, Any]:
        carry, out = function(eqx.combine(arrays, fixed))
        return eqx.filter(carry, eqx.is_array), out

    arrays, outs = jax.lax.scan(body, arrays, None, length=times)
    return eqx.combine(arrays, fixed), outs


def _repeat(function: Callable[[Any], Any], carry: Any, times: Any) -> tuple[Any, Any]:
    """Apply `function` a number of times that the compiler does not know, and return the mean of what it returns."""
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
def warm_up(lanes: Lanes, spec: EnvSpec, iterations: Any) -> Lanes:
    """Take steps with nothing but exploration."""
    return _repeat(lambda s: (collect(s, spec, warm_up=True), ()), lanes, iterations)[0]


@eqx.filter_jit
def chunk(lanes: Lanes, spec: EnvSpec, rounds: Any) -> tuple[Lanes, dict[str, Array]]:
    """Train for a number of rounds; each ends with an update of the target networks.

    The number is not known to the compiler, so one program serves chunks of every length.
    """
    moves = lanes.experience.moves(lanes.num_envs)
    length = iterations_per_round(lanes.agent, lanes.experience, lanes.num_envs)

    def iteration(lanes: Lanes) -> tuple[Lanes, dict[str, Array]]:
        if moves == 0:
            updates = lanes.experience.updates(lanes.num_envs)
            return learn(eqx.tree_at(lambda s: s.steps, lanes, lanes.steps + updates), spec)
        if moves == 1:
            return learn(collect(lanes, spec, warm_up=False), spec)
        return learn(_scan(lambda s: (collect(s, spec, warm_up=False), None), lanes, moves)[0], spec)

    def round_(lanes: Lanes) -> tuple[Lanes, dict[str, Array]]:
        lanes, metrics = _scan(iteration, lanes, length)
        lanes = eqx.tree_at(lambda s: s.agent_state, lanes, update_targets(lanes))
        return lanes, jax.tree.map(lambda x: x.mean(axis=0), metrics)

    return _repeat(round_, lanes, rounds)


def _explore(lanes: Lanes, spec: EnvSpec, iterations: Any) -> tuple[Lanes, dict[str, Array]]:
    return warm_up(lanes, spec, iterations), {}


def _train(lanes: Lanes, spec: EnvSpec, rounds: Any) -> tuple[Lanes, dict[str, Array]]:
    return chunk(lanes, spec, rounds)


def advance(
    lanes: Lanes, spec: EnvSpec, steps: int, rounds: int, devices: int | None = None
) -> Iterator[tuple[Lanes, Any]]:
    """Train for about `steps` more environment steps a lane, and yield the state after every chunk."""
    goal, mesh = int(lanes.steps) + steps, lane_mesh(lanes.count, devices)
    explore, train = _explore, _train
    if mesh is not None:
        lanes = spread(lanes, mesh)
        explore, train = (functools.partial(on_devices, program, mesh) for program in (_explore, _train))
    warm = min(steps, max(0, lanes.experience.warm_up - int(lanes.steps)))
    if warm:
        lanes, _ = explore(lanes, spec, jnp.asarray(-(-warm // lanes.num_envs), jnp.int32))
        yield lanes, {}
    each = steps_per_round(lanes.agent, lanes.experience, lanes.num_envs)
    while (left := goal - int(lanes.steps)) > 0:
        lanes, metrics = train(lanes, spec, jnp.asarray(min(rounds, max(1, -(-left // each))), jnp.int32))
        yield lanes, metrics
