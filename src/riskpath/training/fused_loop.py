"""The only file that loops over environments: act → step → store → learn, in one compiled program.

Lanes (seeds, and settings of float hyperparameters) are trained side by side: everything has a leading axis L, acting
and learning are `vmap`ped over it, and the replay ring has their environments as its columns, so that writing it stays
one slice update. The scans are nested, target renewal ⊃ update ⊃ step, and the host sees the state between chunks:
there it shows progress, checks for NaN, evaluates, and can be interrupted.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
from jaxtyping import Array, Bool, Float, Int, Shaped

from riskpath.agents.agent import Agent, CriticState
from riskpath.envs.environment import Environment
from riskpath.training.replay_buffer import Ring, gather, make_ring, push, sample_indices
from riskpath.types import EnvSpec, Key, Keys, Percept, Step, power, tree_where


class Lanes(eqx.Module):
    """The whole state of training; leaves of all but the ring have leading axes L or L, E."""

    agent: Agent
    """Float hyperparameters have a leading axis L."""
    env: Environment
    """Its arrays, too."""
    critic: CriticState
    env_state: Any
    percept: Percept
    memory: Any
    time: Int[Array, "L E"]
    earned: Float[Array, "L E"]
    """R_{0:t−1}, before the coming step."""
    ring: Ring
    keys: Keys
    steps: Int[Array, ""]
    """Environment steps taken by each lane."""
    healthy: Bool[Array, ""]
    """Have all rewards been finite numbers?"""


def is_swept(leaf: Any) -> bool:
    """Float hyperparameters are traced and may differ from lane to lane; everything else is fixed."""
    return isinstance(leaf, float) or eqx.is_inexact_array(leaf)


def stack(settings: Sequence[Any], seeds: int, swept: Callable[[Any], bool]) -> Any:
    """One PyTree whose swept leaves hold those of every setting, for each seed: lane = setting · seeds + seed."""
    varying, fixed = eqx.partition(settings[0], swept)
    columns = zip(*(jax.tree.leaves(eqx.filter(setting, swept)) for setting in settings), strict=True)
    stacked = [jnp.repeat(jnp.stack([_single(x) for x in column]), seeds, axis=0) for column in columns]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(varying), stacked), fixed)


def _single(x: Any) -> Array:
    return jnp.asarray(x, dtype=jnp.float32) if isinstance(x, float) else x


def start(agents: Sequence[Agent], worlds: Sequence[Environment], seeds: int, envs: int, seed: int) -> Lanes:
    """Fresh networks, fresh episodes, an empty ring."""
    agent, count = stack(agents, seeds, is_swept), len(agents) * seeds
    world = stack([world.bare() for world in worlds], seeds, eqx.is_array)
    spec = worlds[0].spec
    keys = lane_keys(len(agents), seeds, seed)

    def one(agent: Agent, env: Environment, key: Key) -> Any:
        init_key, env_key, key = jax.random.split(key, 3)
        critic = agent.init(spec, key=init_key)
        begun = jax.vmap(lambda key: begin(agent, env, critic, spec, key))(jax.random.split(env_key, envs))
        return critic, begun, key

    critic, (env_state, percept, memory), keys = eqx.filter_vmap(one)(agent, world, keys)
    capacity = max(agents[0].training.buffer_size // envs, 2)
    lane = jax.tree.map(lambda x: x[0, 0], percept)
    zero, false = jnp.zeros(()), jnp.zeros((), bool)
    whole = jnp.zeros((), jnp.int32)
    action = jnp.zeros((spec.action_size,)) if spec.action_size else whole
    example = Step(lane.obs, action, zero, lane.obs, lane.mask, false, false, whole, zero, zero)
    return Lanes(
        agent,
        world,
        critic,
        env_state,
        percept,
        memory,
        jnp.zeros((count, envs), jnp.int32),
        jnp.zeros((count, envs)),
        make_ring(example, capacity, count * envs),
        keys,
        jnp.zeros((), jnp.int32),
        jnp.ones((), bool),
    )


def lane_keys(settings: int, seeds: int, seed: int) -> Keys:
    """Lanes with the same seed number start alike."""
    return jnp.tile(jax.random.split(jax.random.key(seed), seeds), settings)


def begin(agent: Agent, env: Environment, critic: CriticState, spec: EnvSpec, key: Key) -> tuple[Any, Percept, Any]:
    """A new episode: the environment's state, what it says, and an empty memory."""
    obs, env_state = env.reset(key)
    return env_state, Percept(obs, jnp.zeros(()), env.action_mask(env_state)), agent.reset(critic, spec)


class Choice(eqx.Module):
    """What every environment of every lane is to do next; leaves of all have leading axes L, E."""

    action: Shaped[Array, "..."]
    memory: Any
    """After the action."""
    env_keys: jaxtyping.Key[Array, "*LE"]
    reset_keys: jaxtyping.Key[Array, "*LE"]


class Outcome(eqx.Module):
    """What came of it; leaves of all have leading axes L, E. An environment that is done has begun its next episode."""

    final_obs: Shaped[Array, "..."]
    """The true observation after the action."""
    final_mask: Bool[Array, "*LE A"]
    reward: Float[Array, "*LE"]
    terminated: Bool[Array, "*LE"]
    truncated: Bool[Array, "*LE"]
    obs: Shaped[Array, "..."]
    """What the agent sees next: the same, or the first observation of a new episode."""
    mask: Bool[Array, "*LE A"]


def choose(lanes: Lanes, warm: bool | Bool[Array, ""]) -> tuple[Lanes, Choice]:
    """The agents act; `warm` is for nothing but exploration."""

    def one(agent: Agent, critic: CriticState, key: Key, percept: Percept, memory: Any):
        key, *step_keys = jax.random.split(key, percept.reward.shape[0] + 1)
        explore = jnp.where(warm, 1.0, agent.training.explore(critic.updates))

        def single(key: Key, percept: Percept, memory: Any) -> Choice:
            act_key, env_key, reset_key = jax.random.split(key, 3)
            action, memory = agent.act(critic, memory, percept, key=act_key, explore=explore)
            return Choice(action, memory, env_key, reset_key)

        return key, jax.vmap(single)(jnp.stack(step_keys), percept, memory)

    keys, choice = eqx.filter_vmap(one)(lanes.agent, lanes.critic, lanes.keys, lanes.percept, lanes.memory)
    return eqx.tree_at(lambda s: s.keys, lanes, keys), choice


def step_world(env: Environment, env_state: Any, action: Any, env_key: Key, reset_key: Key) -> tuple[Any, Outcome]:
    """One environment takes its step, and begins anew if it is done."""
    obs, env_state, reward, terminated, truncated = env.step(env_key, env_state, action)
    mask = env.action_mask(env_state)
    first, fresh = env.reset(reset_key)
    seen = tree_where(terminated | truncated, (fresh, first, env.action_mask(fresh)), (env_state, obs, mask))
    return seen[0], Outcome(obs, mask, reward, terminated, truncated, *seen[1:])


def step_worlds(lanes: Lanes, choice: Choice) -> tuple[Lanes, Outcome]:
    """All environments that are part of the program take their step."""
    each = eqx.filter_vmap(step_world, in_axes=(None, 0, 0, 0, 0))
    asked = (lanes.env_state, choice.action, choice.env_keys, choice.reset_keys)
    env_state, outcome = eqx.filter_vmap(each)(lanes.env, *asked)
    return eqx.tree_at(lambda s: s.env_state, lanes, env_state), outcome


def record(lanes: Lanes, spec: EnvSpec, choice: Choice, outcome: Outcome) -> Lanes:
    """The step goes into the ring, and every environment's account is kept."""

    def one(agent: Agent, critic: CriticState, percept, choice: Choice, outcome: Outcome, time, earned):
        def single(percept: Percept, choice: Choice, o: Outcome, time, earned):
            earned = earned + power(agent.discount, time) * o.reward
            step = Step(
                percept.obs,
                choice.action,
                o.reward,
                o.final_obs,
                o.final_mask,
                o.terminated,
                o.truncated,
                time,
                earned,
                agent.note(choice.memory),
            )
            done = o.terminated | o.truncated
            memory = tree_where(done, agent.reset(critic, spec), choice.memory)
            percept = Percept(o.obs, jnp.where(done, 0.0, o.reward), o.mask)
            return step, percept, memory, jnp.where(done, 0, time + 1), jnp.where(done, 0.0, earned)

        return jax.vmap(single)(percept, choice, outcome, time, earned)

    state = (lanes.critic, lanes.percept, choice, outcome, lanes.time, lanes.earned)
    steps, percept, memory, time, earned = eqx.filter_vmap(one)(lanes.agent, *state)
    flat = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), steps)
    return Lanes(
        lanes.agent,
        lanes.env,
        lanes.critic,
        lanes.env_state,
        percept,
        memory,
        time,
        earned,
        push(lanes.ring, flat),
        lanes.keys,
        lanes.steps + time.shape[1],
        lanes.healthy & jnp.isfinite(flat.reward).all(),
    )


def collect(lanes: Lanes, spec: EnvSpec, warm: bool) -> Lanes:
    """Every environment of every lane takes one step, which goes into the ring."""
    lanes, choice = choose(lanes, warm)
    lanes, outcome = step_worlds(lanes, choice)
    return record(lanes, spec, choice, outcome)


def update(lanes: Lanes, spec: EnvSpec) -> tuple[Lanes, dict[str, Array]]:
    """One update of every lane from its own part of the ring."""
    keys, sample_keys, learn_keys = jnp.moveaxis(jax.vmap(lambda k: jax.random.split(k, 3))(lanes.keys), 1, 0)
    count, batch = lanes.time.shape[0], lanes.agent.training.samples
    ages, columns = sample_indices(lanes.ring, count, batch, sample_keys)
    samples = gather(lanes.ring, ages, columns, lanes.agent.window(spec))
    learn = eqx.filter_vmap(lambda agent, critic, batch, key: agent.learn(critic, batch, key=key))
    critic, metrics = learn(lanes.agent, lanes.critic, samples, learn_keys)
    return eqx.tree_at(lambda s: (s.critic, s.keys), lanes, (critic, keys)), metrics


def _repeat(function: Callable[[Any], Any], carry: Any, times: int) -> Any:
    """`function` applied again and again, as one compiled loop."""
    arrays, fixed = eqx.partition(carry, eqx.is_array)

    def body(arrays: Any, _: None) -> tuple[Any, Any]:
        carry, out = function(eqx.combine(arrays, fixed))
        return eqx.filter(carry, eqx.is_array), out

    arrays, outs = jax.lax.scan(body, arrays, None, length=times)
    return eqx.combine(arrays, fixed), outs


@eqx.filter_jit
def warm_up(lanes: Lanes, spec: EnvSpec, iterations: int) -> Lanes:
    """Random actions only."""
    return _repeat(lambda s: (collect(s, spec, warm=True), None), lanes, iterations)[0]


def moves_and_updates(agent: Agent, envs: int) -> tuple[int, int]:
    """An iteration of training: how many steps all environments take, and how many updates follow."""
    return max(1, agent.training.train_freq // envs), max(1, envs // agent.training.train_freq)


def iterations_per_round(agent: Agent, envs: int) -> int:
    """Iterations between two renewals of the target network."""
    return max(1, agent.training.target_update_interval // moves_and_updates(agent, envs)[1])


def learn(lanes: Lanes, spec: EnvSpec) -> tuple[Lanes, dict[str, Array]]:
    """The updates of one iteration."""
    times = moves_and_updates(lanes.agent, lanes.time.shape[1])[1]
    if times == 1:
        return update(lanes, spec)
    lanes, metrics = _repeat(lambda s: update(s, spec), lanes, times)
    return lanes, jax.tree.map(lambda x: x.mean(axis=0), metrics)


def renewed(lanes: Lanes) -> CriticState:
    """The critics after what happens at the end of a round."""
    return eqx.filter_vmap(lambda agent, critic: agent.sync(critic))(lanes.agent, lanes.critic)


@eqx.filter_jit
def chunk(lanes: Lanes, spec: EnvSpec, rounds: int) -> tuple[Lanes, dict[str, Array]]:
    """`rounds` renewals of the target network, `target_update_interval` updates before each."""
    envs = lanes.time.shape[1]
    moves, length = moves_and_updates(lanes.agent, envs)[0], iterations_per_round(lanes.agent, envs)

    def iteration(lanes: Lanes) -> tuple[Lanes, dict[str, Array]]:
        if moves == 1:
            return learn(collect(lanes, spec, warm=False), spec)
        return learn(_repeat(lambda s: (collect(s, spec, warm=False), None), lanes, moves)[0], spec)

    def round_(lanes: Lanes) -> tuple[Lanes, dict[str, Array]]:
        lanes, metrics = _repeat(iteration, lanes, length)
        lanes = eqx.tree_at(lambda s: s.critic, lanes, renewed(lanes))
        return lanes, jax.tree.map(lambda x: x.mean(axis=0), metrics)

    lanes, metrics = _repeat(round_, lanes, rounds)
    return lanes, jax.tree.map(lambda x: x.mean(axis=0), metrics)


def steps_per_round(agent: Agent, envs: int) -> int:
    """Environment steps of each lane between two renewals of its target network."""
    return iterations_per_round(agent, envs) * moves_and_updates(agent, envs)[0] * envs


def advance(lanes: Lanes, spec: EnvSpec, steps: int, rounds: int) -> Iterator[tuple[Lanes, Any]]:
    """Trains for about `steps` more environment steps a lane, handing over the state after every chunk."""
    envs = lanes.time.shape[1]
    goal = int(lanes.steps) + steps
    warm = min(steps, max(0, lanes.agent.training.learning_starts - int(lanes.steps)))
    if warm:
        lanes = warm_up(lanes, spec, -(-warm // envs))
        yield lanes, {}
    each = steps_per_round(lanes.agent, envs)
    while (left := goal - int(lanes.steps)) > 0:
        lanes, metrics = chunk(lanes, spec, min(rounds, max(1, -(-left // each))))
        yield lanes, metrics
