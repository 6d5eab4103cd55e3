"""Training on environments that are not part of the compiled program: the host steps them, everything else is the same.

`Worlds` are all environments of all lanes, in one row: lane 0's, lane 1's, … They step together, and one that is done
begins its next episode at once (Gymnasium's SAME_STEP), so the true last observation is never lost. Choosing, recording
and learning are the functions of the fused loop, compiled one by one; with the same keys the numbers are the same.
"""

import abc
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from riskpath import loop
from riskpath.agents.base import Agent
from riskpath.envs.base import Environment
from riskpath.errors import RiskpathError
from riskpath.loop import Choice, Lanes, Outcome
from riskpath.types import EnvSpec, Key, Percept, tree_where


class Outside(Environment):
    """Stands in a program for an environment that is stepped by the host: it knows the sizes and nothing else."""

    sizes: EnvSpec
    """Sizes."""
    translation: Any = eqx.field(static=True, default=None)
    """How a user's observations and actions are read; None if they are the agent's own."""

    @property
    def spec(self) -> EnvSpec:
        """Sizes."""
        return self.sizes

    def bare(self) -> "Outside":
        """There is nothing to leave out."""
        return self

    def reset(self, key: Key) -> tuple[Shaped[Array, "*obs"], tuple[()]]:
        """Nothing has been seen yet."""
        kind = jnp.int32 if self.sizes.num_states is not None else jnp.float32
        return jnp.zeros(self.sizes.obs_shape, kind), ()

    def step(self, key: Key, state: Any, action: Any) -> Any:
        """The host's part."""
        raise RiskpathError("this environment is stepped by the host")

    def mask(self, state: Any) -> Bool[Array, " A"]:
        """Every action, until told otherwise."""
        return jnp.ones((self.sizes.num_actions,), bool)


class Seen(NamedTuple):
    """What came of one step of a row of worlds: `loop.Outcome` in NumPy, with a leading axis K."""

    final_obs: np.ndarray
    final_mask: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    obs: np.ndarray
    mask: np.ndarray


class Worlds(abc.ABC):
    """A row of environments that the host steps together."""

    spec: EnvSpec
    count: int
    """How many: K."""

    @abc.abstractmethod
    def reset(self, keys: Any) -> tuple[np.ndarray, np.ndarray]:
        """First observations [K, …] and masks [K, A]; the keys decide about randomness."""

    @abc.abstractmethod
    def step(self, action: np.ndarray, env_keys: Any, reset_keys: Any) -> Seen:
        """One step of all."""

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of whatever it holds."""


class Compiled(Worlds):
    """Environments of ours, stepped by the host like anybody's: to check one loop against the other."""

    def __init__(self, env: Environment, count: int):
        self.spec, self.count = env.spec, count
        self._env, self._state = env.bare(), None

    def reset(self, keys: Any) -> tuple[np.ndarray, np.ndarray]:
        """As in the fused loop."""
        obs, self._state, mask = _reset_all(self._env, keys.reshape(-1))
        return np.asarray(obs), np.asarray(mask)

    def step(self, action: np.ndarray, env_keys: Any, reset_keys: Any) -> Seen:
        """As in the fused loop."""
        keys = env_keys.reshape(-1), reset_keys.reshape(-1)
        self._state, outcome = _step_all(self._env, self._state, jnp.asarray(action), *keys)
        return Seen(*(np.asarray(getattr(outcome, name)) for name in Seen._fields))

    def close(self) -> None:
        """Nothing is held."""


@eqx.filter_jit
def _reset_all(env: Environment, keys: Any) -> Any:
    obs, state = jax.vmap(env.reset)(keys)
    return obs, state, jax.vmap(env.mask)(state)


@eqx.filter_jit
def _step_all(env: Environment, state: Any, action: Any, env_keys: Any, reset_keys: Any) -> Any:
    return jax.vmap(lambda *asked: loop.step_world(env, *asked))(state, action, env_keys, reset_keys)


def start(agents: Sequence[Agent], world: Outside, worlds: Worlds, seeds: int, envs: int, seed: int) -> Lanes:
    """Fresh networks and an empty ring, as in the fused loop, and the worlds' first observations."""
    lanes = loop.start(agents, [world] * len(agents), seeds, envs, seed)
    env_keys = jax.vmap(lambda key: jax.random.split(key, 3)[1])(loop.lane_keys(len(agents), seeds, seed))
    keys = jax.vmap(lambda key: jax.random.split(key, envs))(env_keys)
    told = tuple(_by_lane(x, lanes) for x in worlds.reset(keys.reshape(-1)))
    return eqx.tree_at(lambda s: (s.percept.obs, s.percept.mask), lanes, told)


def restart(lanes: Lanes, worlds: Worlds, spec: EnvSpec) -> Lanes:
    """The same agents with the same replay, at the start of new episodes."""
    envs = lanes.time.shape[1]
    keys = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, lanes.steps), envs))(lanes.keys)
    obs, mask = (_by_lane(x, lanes) for x in worlds.reset(keys.reshape(-1)))
    fresh = lambda agent, critic: jax.vmap(lambda _: agent.reset(critic, spec))(jnp.arange(envs))  # noqa: E731
    memory = eqx.filter_vmap(fresh)(lanes.agent, lanes.critic)
    percept = Percept(obs, jnp.zeros_like(lanes.earned), mask)
    new = (percept, memory, jnp.zeros_like(lanes.time), jnp.zeros_like(lanes.earned))
    return eqx.tree_at(lambda s: (s.percept, s.memory, s.time, s.earned), lanes, new)


def _by_lane(x: Any, lanes: Lanes) -> Array:
    """[K, …] as [L, E, …]."""
    return jnp.asarray(np.asarray(x).reshape(*lanes.time.shape, *x.shape[1:]))


# The state is handed over and replaced: without donation each call would copy the replay. What comes first is not.
@eqx.filter_jit(donate="all-except-first")
def _choose(warm: Any, lanes: Lanes) -> tuple[Lanes, Choice]:
    return loop.choose(lanes, warm)


@eqx.filter_jit(donate="all-except-first")
def _settle(told: tuple[EnvSpec, Choice, Outcome, Any, Any], lanes: Lanes) -> tuple[Lanes, dict[str, Array]]:
    """Records a step, learns `times` times (none or once), and renews the target networks if it is time.

    The updates are in a loop whose length the compiler is not told: in a loop, as in the fused program, sums are
    rounded the same way; one of known length would be dissolved. So one program does for every step.
    """
    spec, choice, outcome, times, renew = told
    arrays, fixed = eqx.partition(loop.record(lanes, spec, choice, outcome), eqx.is_array)
    learn = lambda arrays: loop.learn(eqx.combine(arrays, fixed), spec)  # noqa: E731
    blank = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), eqx.filter_eval_shape(learn, arrays)[1])

    def body(_: Any, carry: Any) -> Any:
        lanes, metrics = learn(carry[0])
        return eqx.filter(lanes, eqx.is_array), metrics

    arrays, metrics = jax.lax.fori_loop(jnp.zeros_like(times), times, body, (arrays, blank))
    lanes = eqx.combine(arrays, fixed)
    old, still = eqx.partition(lanes.critic, eqx.is_array)
    critic = jax.lax.cond(renew, lambda: eqx.filter(loop.renewed(lanes), eqx.is_array), lambda: old)
    return eqx.tree_at(lambda s: s.critic, lanes, eqx.combine(critic, still)), metrics


def _own(tree: Any) -> Any:
    """A copy that shares no array with anything: parts of a fresh state are one and the same."""
    return jax.tree.map(lambda x: jnp.array(x, copy=True) if eqx.is_array(x) else x, tree)


def advance(lanes: Lanes, worlds: Worlds, spec: EnvSpec, steps: int, rounds: int) -> Iterator[tuple[Lanes, Any]]:
    """`loop.advance` with environments outside of the program.

    Ctrl-C is heard between two iterations only: in the middle of one the old state is gone and the new not there yet.
    """
    lanes = _own(lanes)
    envs, taken = lanes.time.shape[1], int(lanes.steps)
    goal, each = taken + steps, loop.steps_per_round(lanes.agent, lanes.time.shape[1])
    moves, length = loop.moves_and_updates(lanes.agent, envs)[0], loop.iterations_per_round(lanes.agent, envs)

    def move(lanes: Lanes, warm: bool, learn: bool, renew: bool) -> tuple[Lanes, dict[str, Array]]:
        lanes, choice = _choose(np.bool_(warm), lanes)
        action = np.asarray(choice.action)
        seen = worlds.step(action.reshape(-1, *action.shape[2:]), choice.env_keys, choice.reset_keys)
        outcome = Outcome(*(_by_lane(x, lanes) for x in seen))
        return _settle((spec, choice, outcome, np.int32(learn), np.bool_(renew)), lanes)

    with patient() as stop:
        warm = min(steps, max(0, lanes.agent.training.start_steps - taken))
        for _ in range(-(-warm // envs)):
            lanes, _ = move(lanes, warm=True, learn=False, renew=False)
            taken += envs
            if stop.is_set():
                break
        if warm:
            yield _own(lanes), {}
        while taken < goal and not stop.is_set():
            metrics = []
            for i in range(min(rounds, max(1, -(-(goal - taken) // each))) * length):
                for _ in range(moves - 1):
                    lanes, _ = move(lanes, warm=False, learn=False, renew=False)
                lanes, said = move(lanes, warm=False, learn=True, renew=(i + 1) % length == 0)
                taken += moves * envs
                metrics.append(said)
                if stop.is_set():
                    break
            yield _own(lanes), jax.tree.map(lambda *x: np.mean(np.stack(x), axis=0), *metrics)
    if stop.is_set():
        raise KeyboardInterrupt


@contextmanager
def patient() -> Iterator[threading.Event]:
    """Ctrl-C sets the event instead of interrupting whatever is going on; a second one interrupts."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def hear(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


@eqx.filter_jit
def _greedy(lanes: Lanes, percept: Any, memory: Any, key: Key) -> Any:
    """The best action of every lane in each of its environments [L, P]."""

    def one(agent: Agent, critic: Any, percept: Any, memory: Any) -> Any:
        act = lambda p, m: agent.act(critic, m, p, key=key, explore=jnp.zeros(()))  # noqa: E731
        return jax.vmap(act)(percept, memory)

    return eqx.filter_vmap(one)(lanes.agent, lanes.critic, percept, memory)


def rollouts(
    lanes: Lanes, worlds: Worlds, spec: EnvSpec, each: int, *, key: Key
) -> tuple[Float[np.ndarray, "L N"], Float[np.ndarray, "L N"], float]:
    """Greedy episodes: the first `each` of every world, so that long ones count as much as short ones.

    Returns, discounted returns, and the share that ended before a time limit.
    """
    count = lanes.time.shape[0]
    reset_keys = jax.random.split(key, 2)
    obs, mask = worlds.reset(jax.random.split(reset_keys[0], worlds.count))
    width = worlds.count // count
    by_lane = lambda x: jnp.asarray(x).reshape(count, width, *x.shape[1:])  # noqa: E731
    fresh = eqx.filter_vmap(lambda agent, critic: jax.vmap(lambda _: agent.reset(critic, spec))(jnp.arange(width)))(
        lanes.agent, lanes.critic
    )
    discount = np.broadcast_to(np.asarray(lanes.agent.discount, np.float64), (count,)).repeat(width)
    memory, reward = fresh, np.zeros(worlds.count, np.float32)
    total, discounted, weight = np.zeros(worlds.count), np.zeros(worlds.count), np.ones(worlds.count)
    found: list[list[tuple[float, float, bool]]] = [[] for _ in range(worlds.count)]
    key = reset_keys[1]
    while min(map(len, found)) < each:
        percept = Percept(by_lane(obs), by_lane(reward), by_lane(mask))
        action, memory = _greedy(lanes, percept, memory, key)
        key, env_key, reset_key = jax.random.split(key, 3)
        flat = np.asarray(action).reshape(worlds.count, *action.shape[2:])
        o = worlds.step(flat, *(jax.random.split(k, worlds.count) for k in (env_key, reset_key)))
        total, discounted, weight = total + o.reward, discounted + weight * o.reward, weight * discount
        done = np.asarray(o.terminated) | np.asarray(o.truncated)
        for i in np.flatnonzero(done):
            found[i].append((float(total[i]), float(discounted[i]), bool(o.terminated[i])))
        total, discounted = np.where(done, 0.0, total), np.where(done, 0.0, discounted)
        weight, reward = np.where(done, 1.0, weight), np.where(done, 0.0, o.reward).astype(np.float32)
        memory = _where_done(by_lane(done), fresh, memory)
        obs, mask = o.obs, o.mask
    kept = np.array([episodes[:each] for episodes in found]).reshape(count, width * each, 3)
    return kept[..., 0], kept[..., 1], float(kept[..., 2].mean())


@eqx.filter_jit
def outlook(lanes: Lanes, spec: EnvSpec, obs: Shaped[Array, "*obs"]) -> Float[Array, " L"]:
    """What every lane believes an episode to be worth that starts with this observation."""
    percept = Percept(obs, jnp.zeros(()), jnp.ones((spec.num_actions,), bool))
    one = lambda agent, critic: agent.worth(critic, agent.reset(critic, spec), percept)  # noqa: E731
    return eqx.filter_vmap(one)(lanes.agent, lanes.critic)


@eqx.filter_jit
def _where_done(done: Bool[Array, "L P"], fresh: Any, memory: Any) -> Any:
    return jax.vmap(jax.vmap(tree_where))(done, fresh, memory)
