"""Training on environments that are not part of the compiled program: the host steps them, everything else is the same.

`Worlds` are all environments of all lanes, in one row: lane 0's, lane 1's, … They step together, and one that is done
begins its next episode at once (Gymnasium's SAME_STEP), so the true last observation is never lost. Choosing, recording
and learning are the functions of the fused loop, compiled one by one; with the same keys the numbers are the same.
"""

import abc
import functools
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from riskpath.agents.agent import Agent
from riskpath.envs.environment import Environment
from riskpath.errors import RiskpathError
from riskpath.training import fused_loop as loop
from riskpath.training.fused_loop import Choice, Lanes, Outcome
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
        return jnp.zeros(self.sizes.observation_shape, self.sizes.observation_dtype), ()

    def step(self, key: Key, state: Any, action: Any) -> Any:
        """The host's part."""
        raise RiskpathError("this environment is stepped by the host")

    def action_mask(self, state: Any) -> Bool[Array, " A"]:
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
    steps: int = 0
    """How far each lane's are; lanes that were stopped in the middle of a chunk are not as far."""

    @abc.abstractmethod
    def reset(self, keys: Any) -> tuple[np.ndarray, np.ndarray]:
        """First observations [K, …] and masks [K, A]; the keys decide about randomness."""

    @abc.abstractmethod
    def step(self, action: np.ndarray, env_keys: Any, reset_keys: Any) -> Seen:
        """One step of all."""

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of whatever it holds."""


def start(agents: Sequence[Agent], world: Environment, worlds: Worlds, seeds: int, envs: int, seed: int) -> Lanes:
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
    worlds.steps = int(lanes.steps)
    percept = Percept(obs, jnp.zeros_like(lanes.earned), mask)
    memory, time, earned = _fresh_memories(lanes, spec, envs), jnp.zeros_like(lanes.time), jnp.zeros_like(lanes.earned)
    return replace(lanes, percept=percept, memory=memory, time=time, earned=earned)


def _fresh_memories(lanes: Lanes, spec: EnvSpec, each: int) -> Any:
    """Those of `each` episodes of every lane before their first step."""
    several = lambda agent, critic: jax.vmap(lambda _: agent.reset(critic, spec))(jnp.arange(each))  # noqa: E731
    return eqx.filter_vmap(several)(lanes.agent, lanes.critic)


def _by_lane(x: Any, lanes: Lanes) -> Array:
    """[K, …] as [L, K/L, …]."""
    return jnp.asarray(_rows(x, lanes.time.shape[0]))


def _rows(x: Any, count: int) -> np.ndarray:
    return np.asarray(x).reshape(count, len(x) // count, *x.shape[1:])


class Fixed:
    """All of lanes that are no arrays: programs are compiled for it.

    Taking lanes apart and hashing this takes longer than a small network's step, so both are done once for many steps.
    """

    def __init__(self, lanes: Lanes):
        leaves, structure = jax.tree.flatten(lanes)
        self._known = (structure, tuple(None if eqx.is_array(leaf) else leaf for leaf in leaves))
        self._hash = hash(self._known)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Fixed) and self._known == other._known)

    @staticmethod
    def arrays(lanes: Lanes) -> list[Array]:
        """The rest of them."""
        return [leaf for leaf in jax.tree.leaves(lanes) if eqx.is_array(leaf)]

    def lanes(self, arrays: Sequence[Array]) -> Lanes:
        """Both together."""
        structure, leaves = self._known
        left = iter(arrays)
        return jax.tree.unflatten(structure, [next(left) if leaf is None else leaf for leaf in leaves])


# The state is handed over and replaced: without donation each call would copy the replay.
@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _choose(fixed: Fixed, arrays: list[Array], warm: Any) -> tuple[list[Array], Choice]:
    lanes, choice = loop.choose(fixed.lanes(arrays), warm)
    return Fixed.arrays(lanes), choice


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _settle(
    fixed: Fixed, spec: EnvSpec, arrays: list[Array], choice: Choice, seen: Any, times: Any, renew: Any
) -> tuple[list[Array], dict[str, Array]]:
    """Records a step, learns `times` times (none or once), and renews the target networks if it is time.

    The updates are in a loop whose length the compiler is not told: in a loop, as in the fused program, sums are
    rounded the same way; one of known length would be dissolved. So one program does for every step.
    """
    arrays = Fixed.arrays(loop.record(fixed.lanes(arrays), spec, choice, Outcome(*seen)))
    learn = lambda arrays: loop.learn(fixed.lanes(arrays), spec)  # noqa: E731
    blank = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), eqx.filter_eval_shape(learn, arrays)[1])

    def body(_: Any, carry: Any) -> Any:
        lanes, metrics = learn(carry[0])
        return Fixed.arrays(lanes), metrics

    arrays, metrics = jax.lax.fori_loop(jnp.zeros_like(times), times, body, (arrays, blank))
    lanes = fixed.lanes(arrays)
    old, still = eqx.partition(lanes.critic, eqx.is_array)
    critic = jax.lax.cond(renew, lambda: eqx.filter(loop.renewed(lanes), eqx.is_array), lambda: old)
    return Fixed.arrays(eqx.tree_at(lambda s: s.critic, lanes, eqx.combine(critic, still))), metrics


def _own(arrays: Sequence[Array]) -> list[Array]:
    """Copies that share nothing with anything: parts of a fresh state are one and the same."""
    return [jnp.array(x, copy=True) for x in arrays]


def advance(lanes: Lanes, worlds: Worlds, spec: EnvSpec, steps: int, rounds: int) -> Iterator[tuple[Lanes, Any]]:
    """`loop.advance` with environments outside of the program.

    Ctrl-C is heard between two iterations only: in the middle of one the old state is gone and the new not there yet.
    """
    fixed, arrays = Fixed(lanes), _own(Fixed.arrays(lanes))
    (count, envs), taken, agent = lanes.time.shape, int(lanes.steps), lanes.agent
    goal, each = taken + steps, loop.steps_per_round(agent, envs)
    moves, length = loop.moves_and_updates(agent, envs)[0], loop.iterations_per_round(agent, envs)

    def move(arrays: list[Array], warm: bool, learn: bool, renew: bool) -> tuple[list[Array], dict[str, Array]]:
        arrays, choice = _choose(fixed, arrays, np.bool_(warm))
        action = np.asarray(choice.action)
        worlds.steps += envs
        seen = worlds.step(action.reshape(-1, *action.shape[2:]), choice.env_keys, choice.reset_keys)
        told = tuple(_rows(x, count) for x in seen)
        return _settle(fixed, spec, arrays, choice, told, np.int32(learn), np.bool_(renew))

    with patient() as stop:
        warm = min(steps, max(0, agent.training.learning_starts - taken))
        for _ in range(-(-warm // envs)):
            arrays, _ = move(arrays, warm=True, learn=False, renew=False)
            taken += envs
            if stop.is_set():
                break
        if warm:
            yield fixed.lanes(_own(arrays)), {}
        while taken < goal and not stop.is_set():
            metrics = []
            for i in range(min(rounds, max(1, -(-(goal - taken) // each))) * length):
                for _ in range(moves - 1):
                    arrays, _ = move(arrays, warm=False, learn=False, renew=False)
                arrays, said = move(arrays, warm=False, learn=True, renew=(i + 1) % length == 0)
                taken += moves * envs
                metrics.append(said)
                if stop.is_set():
                    break
            yield fixed.lanes(_own(arrays)), jax.tree.map(lambda *x: np.mean(np.stack(x), axis=0), *metrics)
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
    lanes: Lanes, worlds: Worlds, spec: EnvSpec, each: int, limit: int | None = None, *, key: Key
) -> tuple[Float[np.ndarray, "L N"], Float[np.ndarray, "L N"], Bool[np.ndarray, "L N"]]:
    """Greedy episodes: the first `each` of every world, so that long ones count as much as short ones.

    Returns, discounted returns, and which of them ended before the worlds cut them off, after `limit` steps.
    """
    count, size = lanes.time.shape[0], worlds.count
    start_key, key = jax.random.split(key)
    obs, mask = worlds.reset(jax.random.split(start_key, size))
    memory = fresh = _fresh_memories(lanes, spec, size // count)
    discount = np.broadcast_to(np.asarray(lanes.agent.discount, np.float64), (count,)).repeat(size // count)
    reward, length = np.zeros(size, np.float32), np.zeros(size, int)
    total, discounted, weight = np.zeros(size), np.zeros(size), np.ones(size)
    found: list[list[tuple[float, float, bool]]] = [[] for _ in range(size)]
    while min(map(len, found)) < each:
        percept = Percept(*(_by_lane(x, lanes) for x in (obs, reward, mask)))
        key, act_key, env_key, reset_key = jax.random.split(key, 4)
        action, memory = _greedy(lanes, percept, memory, act_key)
        flat = np.asarray(action).reshape(size, *action.shape[2:])
        o = worlds.step(flat, *(jax.random.split(k, size) for k in (env_key, reset_key)))
        total, discounted, weight = total + o.reward, discounted + weight * o.reward, weight * discount
        length += 1
        done = o.terminated | o.truncated
        for i in np.flatnonzero(done):
            cut = o.truncated[i] and length[i] == limit
            found[i].append((total[i], discounted[i], not cut))
        total, discounted, length = (np.where(done, 0, x) for x in (total, discounted, length))
        weight, reward = np.where(done, 1.0, weight), np.where(done, 0.0, o.reward).astype(np.float32)
        memory = _where_done(_by_lane(done, lanes), fresh, memory)
        obs, mask = o.obs, o.mask
    kept = np.array([episodes[:each] for episodes in found]).reshape(count, -1, 3)
    return kept[..., 0], kept[..., 1], kept[..., 2] > 0


@eqx.filter_jit
def outlook(lanes: Lanes, spec: EnvSpec, obs: Shaped[Array, "L *obs"], mask: Bool[Array, "L A"]) -> Float[Array, " L"]:
    """What every lane believes an episode to be worth that starts with such an observation."""

    def one(agent: Agent, critic: Any, obs: Any, mask: Any) -> Float[Array, ""]:
        return agent.worth(critic, agent.reset(critic, spec), Percept(obs, jnp.zeros(()), mask))

    return eqx.filter_vmap(one)(lanes.agent, lanes.critic, obs, mask)


@eqx.filter_jit
def _where_done(done: Bool[Array, "L P"], fresh: Any, memory: Any) -> Any:
    return jax.vmap(jax.vmap(tree_where))(done, fresh, memory)
