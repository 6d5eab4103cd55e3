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
from jaxtyping import Array, Shaped

from riskpath.agents.agent import Agent
from riskpath.envs.environment import Environment
from riskpath.envs.vector import VectorEnvironment
from riskpath.evaluation.rollout import repeat_memory
from riskpath.training import fused_loop as loop
from riskpath.training.fused_loop import Outcome
from riskpath.training.lanes import Lanes, lane_keys, with_first
from riskpath.training.lanes import start as start_lanes
from riskpath.training.packing import Layout
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
    return jnp.asarray(x).reshape(count, x.shape[0] // count, *x.shape[1:])


_choose = eqx.filter_jit(loop.choose)
_unpack = eqx.filter_jit(Layout.unpack)


@eqx.filter_jit
def _pack(layout: Layout, tree: Any) -> list[Array]:
    """Return copies: they will be donated, and parts of a fresh state are the same array."""
    return [jnp.array(x, copy=True) for x in layout.pack(tree)]


# The state is donated: otherwise each call would copy the replay buffer.
@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _turn(
    layout: Layout, arrays: list[Array], outcome: Any, flags: Any
) -> tuple[list[Array], dict[str, Array], Shaped[Array, "K *act"]]:
    """Record a step, learn, update the target networks, and choose what to do next: one call for each step.

    Which of these are done is in the flags, so that one program serves every step: learn, update, choose, and whether
    only to explore. The updates are in a loop whose length the compiler does not know: in a loop, as in the fused
    program, sums are rounded in the same way, and a loop of known length would be dissolved.
    """
    times, update, chooses, warm_up = flags[0].astype(jnp.int32), flags[1], flags[2], flags[3]
    lanes, choice, spec = layout.unpack(arrays)
    outcome = Outcome(*(_by_lane(x, lanes.count) for x in outcome))
    carried, fixed = eqx.partition(loop.record(lanes, spec, choice, outcome), eqx.is_array)

    @functools.partial(jax.jit, inline=True)  # so that it is traced once, for its shapes and for the loop
    def learn(carried: Any) -> tuple[Any, dict[str, Array]]:
        lanes, metrics = loop.learn(eqx.combine(carried, fixed), spec)
        return eqx.filter(lanes, eqx.is_array), metrics

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), eqx.filter_eval_shape(learn, carried)[1])

    body = lambda _, carry: learn(carry[0])  # noqa: E731
    carried, metrics = jax.lax.fori_loop(jnp.zeros_like(times), times, body, (carried, zeros))
    lanes = eqx.combine(carried, fixed)
    old, static = eqx.partition(lanes.agent_state, eqx.is_array)
    state = jax.lax.cond(update, lambda: eqx.filter(loop.update_targets(lanes), eqx.is_array), lambda: old)
    lanes = eqx.tree_at(lambda s: s.agent_state, lanes, eqx.combine(state, static))
    after, choice = loop.choose(lanes, warm_up)
    lanes = eqx.tree_at(lambda s: s.keys, lanes, jnp.where(chooses, after.keys, lanes.keys))
    return layout.pack((lanes, choice, spec)), metrics, choice.action.reshape(-1, *choice.action.shape[2:])


def advance(
    lanes: Lanes, vector: VectorEnvironment, spec: EnvSpec, steps: int, rounds: int
) -> Iterator[tuple[Lanes, Any]]:
    """Train as `fused_loop.advance` does, with environments outside of the program.

    Ctrl-C takes effect between two iterations: within one the old state is donated and the new one not complete.
    """
    agent, num_envs, taken = lanes.agent, lanes.num_envs, int(lanes.steps)
    goal, each = taken + steps, loop.steps_per_round(agent, num_envs)
    moves, length = loop.moves_and_updates(agent, num_envs)[0], loop.iterations_per_round(agent, num_envs)

    def turns(lanes: Lanes, total: int, warm_up: bool) -> tuple[Lanes, list[dict[str, Array]], int]:
        """Take steps; return the state after them, the metrics of learning, and how many steps there were.

        The last step chooses nothing: what is chosen belongs to the next call.
        """
        lanes, choice = _choose(lanes, jnp.asarray(warm_up))
        layout = Layout.of((lanes, choice, spec))
        arrays, action = _pack(layout, (lanes, choice, spec)), choice.action.reshape(-1, *choice.action.shape[2:])
        metrics = []
        for turn in itertools.count(1):
            vector.steps += num_envs
            keys = _unpack(layout, arrays)[1] if vector.draws_from_keys else None
            outcome = vector.step(np.asarray(action), *((keys.env_keys, keys.reset_keys) if keys else (None, None)))
            learn = not warm_up and turn % moves == 0
            last = turn == total or (stop.is_set() and (learn or warm_up))
            flags = np.array([learn, learn and turn % (moves * length) == 0, not last, warm_up])
            arrays, new, action = _turn(layout, arrays, outcome, flags)
            if learn:
                metrics.append(new)
            if last:
                return _unpack(layout, arrays)[0], metrics, turn
        raise AssertionError("the last step returns")

    with delayed_interrupt() as stop:
        if warm := min(steps, max(0, agent.training.learning_starts - taken)):
            lanes, _, done = turns(lanes, -(-warm // num_envs), warm_up=True)
            taken += done * num_envs
            yield lanes, {}
        while taken < goal and not stop.is_set():
            chunk = min(rounds, max(1, -(-(goal - taken) // each))) * length * moves
            lanes, metrics, done = turns(lanes, chunk, warm_up=False)
            taken += done * num_envs
            yield lanes, jax.tree.map(lambda *x: np.mean(np.stack(x), axis=0), *metrics)
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
