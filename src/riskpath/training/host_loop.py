"""The training loop for environments outside of the compiled program: the host steps them, the rest is the same.

Choosing, recording and learning are the functions of the fused loop, compiled one by one; with the same keys the
numbers are the same, bit for bit.
"""

import functools
import itertools
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from riskpath.agents.agent import Agent
from riskpath.envs.environment import Environment
from riskpath.envs.vector import VectorEnvironment
from riskpath.evaluation.rollout import repeat_memory
from riskpath.training import fused_loop as loop
from riskpath.training.fused_loop import Choice, Outcome
from riskpath.training.lanes import Lanes, lane_keys, with_first
from riskpath.training.lanes import start as start_lanes
from riskpath.types import EnvSpec


def start(
    agents: Sequence[Agent],
    env: Environment,
    vector: VectorEnvironment,
    seeds: int,
    num_envs: int,
    seed: int,
    first_seed: int = 0,
) -> Lanes:
    """Return lanes as the fused loop does, with the first observations of the environments."""
    lanes = start_lanes(agents, [env] * len(agents), seeds, num_envs, seed, first_seed)
    first_keys = lane_keys(len(agents), seeds, seed, first_seed)
    env_keys = jax.vmap(lambda key: jax.random.split(key, 3)[1])(first_keys)
    keys = jax.vmap(lambda key: jax.random.split(key, num_envs))(env_keys)
    first = tuple(_by_lane(x, lanes.count) for x in vector.reset(keys.reshape(-1)))
    lanes = eqx.tree_at(lambda s: (s.time_step.observation, s.time_step.action_mask), lanes, first)
    state = with_first(lanes.agent_state, *first)
    return eqx.tree_at(lambda s: s.agent_state, lanes, state)


def restart(lanes: Lanes, vector: VectorEnvironment, spec: EnvSpec) -> Lanes:
    """Return the same agents with the same replay buffer, at the start of new episodes."""
    keys = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, lanes.steps), lanes.num_envs))(lanes.keys)
    observation, mask = (_by_lane(x, lanes.count) for x in vector.reset(keys.reshape(-1)))
    vector.steps = int(lanes.steps)
    time_step = jax.vmap(jax.vmap(spec.first_time_step))(observation, mask)
    memory, nothing = (
        repeat_memory(lanes.agent_state.initial_memory, lanes.num_envs),
        jnp.zeros_like(lanes.return_so_far),
    )
    state = eqx.tree_at(lambda s: s.episodes.recent, lanes.agent_state, nothing)
    return replace(lanes, agent_state=state, time_step=time_step, memory=memory, return_so_far=nothing)


def _by_lane(x: Any, count: int) -> Array:
    """Reshape [K, …] to [L, K/L, …]."""
    return jnp.asarray(_rows(x, count))


def _rows(x: Any, count: int) -> np.ndarray:
    return np.asarray(x).reshape(count, len(x) // count, *x.shape[1:])


class Fixed:
    """All leaves of lanes that are not arrays: programs are compiled for them.

    Flattening lanes and hashing this takes longer than a step of a small network, so both are done once for many steps.
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
        """Return the leaves that are arrays."""
        return [leaf for leaf in jax.tree.leaves(lanes) if eqx.is_array(leaf)]

    def lanes(self, arrays: Sequence[Array]) -> Lanes:
        """Return lanes with these arrays."""
        structure, leaves = self._known
        left = iter(arrays)
        return jax.tree.unflatten(structure, [next(left) if leaf is None else leaf for leaf in leaves])


# The state is donated: otherwise each call would copy the replay buffer.
@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _choose(fixed: Fixed, arrays: list[Array], warm_up: Any) -> tuple[list[Array], Choice]:
    lanes, choice = loop.choose(fixed.lanes(arrays), warm_up)
    return Fixed.arrays(lanes), choice


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _turn(
    fixed: Fixed, spec: EnvSpec, arrays: list[Array], choice: Choice, outcome: Any, flags: Any
) -> tuple[list[Array], dict[str, Array], Choice]:
    """Record a step, learn, update the target networks, and choose what to do next: one call for each step.

    Which of these are done is in the flags, so that one program serves every step: learn, update, choose, and whether
    only to explore. The updates are in a loop whose length the compiler does not know: in a loop, as in the fused
    program, sums are rounded in the same way, and a loop of known length would be dissolved.
    """
    times, update, chooses, warm_up = flags[0].astype(jnp.int32), flags[1], flags[2], flags[3]
    arrays = Fixed.arrays(loop.record(fixed.lanes(arrays), spec, choice, Outcome(*outcome)))

    @functools.partial(jax.jit, inline=True)  # so that it is traced once, for its shapes and for the loop
    def learn(arrays: list[Array]) -> tuple[list[Array], dict[str, Array]]:
        lanes, metrics = loop.learn(fixed.lanes(arrays), spec)
        return Fixed.arrays(lanes), metrics

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), eqx.filter_eval_shape(learn, arrays)[1])

    body = lambda _, carry: learn(carry[0])  # noqa: E731
    arrays, metrics = jax.lax.fori_loop(jnp.zeros_like(times), times, body, (arrays, zeros))
    lanes = fixed.lanes(arrays)
    old, static = eqx.partition(lanes.agent_state, eqx.is_array)
    state = jax.lax.cond(update, lambda: eqx.filter(loop.update_targets(lanes), eqx.is_array), lambda: old)
    lanes = eqx.tree_at(lambda s: s.agent_state, lanes, eqx.combine(state, static))
    after, choice = loop.choose(lanes, warm_up)
    lanes = eqx.tree_at(lambda s: s.keys, lanes, jnp.where(chooses, after.keys, lanes.keys))
    return Fixed.arrays(lanes), metrics, choice


@jax.jit
def _copy(arrays: Sequence[Array]) -> list[Array]:
    """Copy arrays, so that donating one does not destroy another: parts of a fresh state are the same array."""
    return [jnp.array(x, copy=True) for x in arrays]


def advance(
    lanes: Lanes, vector: VectorEnvironment, spec: EnvSpec, steps: int, rounds: int
) -> Iterator[tuple[Lanes, Any]]:
    """Train as `fused_loop.advance` does, with environments outside of the program.

    Ctrl-C takes effect between two iterations: within one the old state is donated and the new one not complete.
    """
    fixed, arrays = Fixed(lanes), _copy(Fixed.arrays(lanes))
    count, num_envs, agent = lanes.count, lanes.num_envs, lanes.agent
    taken = int(lanes.steps)
    goal, each = taken + steps, loop.steps_per_round(agent, num_envs)
    moves, length = loop.moves_and_updates(agent, num_envs)[0], loop.iterations_per_round(agent, num_envs)

    def turns(arrays: list[Array], total: int, warm_up: bool) -> tuple[list[Array], list[dict[str, Array]], int]:
        """Take steps; return the state after them, the metrics of learning, and how many steps there were.

        The last step chooses nothing: what is chosen belongs to the next call.
        """
        arrays, choice = _choose(fixed, arrays, np.bool_(warm_up))
        metrics = []
        for turn in itertools.count(1):
            action = np.asarray(choice.action)
            vector.steps += num_envs
            result = vector.step(action.reshape(-1, *action.shape[2:]), choice.env_keys, choice.reset_keys)
            outcome = tuple(_rows(x, count) for x in result)
            learn = not warm_up and turn % moves == 0
            last = turn == total or (stop.is_set() and (learn or warm_up))
            flags = np.array([learn, learn and turn % (moves * length) == 0, not last, warm_up])
            arrays, new, choice = _turn(fixed, spec, arrays, choice, outcome, flags)
            if learn:
                metrics.append(new)
            if last:
                return arrays, metrics, turn
        raise AssertionError("the last step returns")

    with delayed_interrupt() as stop:
        if warm := min(steps, max(0, agent.training.learning_starts - taken)):
            arrays, _, done = turns(arrays, -(-warm // num_envs), warm_up=True)
            taken += done * num_envs
            yield fixed.lanes(_copy(arrays)), {}
        while taken < goal and not stop.is_set():
            chunk = min(rounds, max(1, -(-(goal - taken) // each))) * length * moves
            arrays, metrics, done = turns(arrays, chunk, warm_up=False)
            taken += done * num_envs
            yield fixed.lanes(_copy(arrays)), jax.tree.map(lambda *x: np.mean(np.stack(x), axis=0), *metrics)
    if stop.is_set():
        raise KeyboardInterrupt


@contextmanager
def delayed_interrupt() -> Iterator[threading.Event]:
    """Set an event on Ctrl-C instead of raising at once; a second Ctrl-C raises."""
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested
        return

    def handle(number: int, frame: Any) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield requested
    finally:
        signal.signal(signal.SIGINT, before)
