"""The training loop for environments outside of the compiled program: the host steps them.

The rest is the same: one compiled program, called once per step, chooses, records and learns by the functions of the
fused loop. With the same keys the numbers are the same, bit for bit.
"""

import functools
import itertools
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from riskpath.envs.vector import EpisodesLost, VectorEnvironment, VectorStep
from riskpath.evaluation.packing import Layout
from riskpath.training import fused_loop as loop
from riskpath.training.fused_loop import Choice
from riskpath.training.lanes import Lanes, begin_anew, by_lane
from riskpath.training.rounds import Part, in_chunks
from riskpath.types import EnvSpec, Keys


class State(eqx.Module):
    """The state between two calls of the program."""

    lanes: Lanes
    """The lanes before the choice: training can continue from here."""
    keys: Keys
    """Their keys after the choice."""
    choice: Choice
    spec: EnvSpec


_choose = eqx.filter_jit(loop.choose)


@functools.partial(jax.jit, static_argnums=0)
def _pack(layout: Layout, leaves: list[Array]) -> list[Array]:
    """Return packed copies: they will be donated, and parts of a fresh state share arrays."""
    return [jnp.array(x, copy=True) for x in layout.pack(leaves)]


@functools.partial(jax.jit, static_argnums=0)
def _unpack(layout: Layout, arrays: list[Array]) -> list[Array]:
    """Return unpacked copies: the next call destroys its arguments."""
    return [jnp.array(x, copy=True) for x in layout.unpack(arrays)]


# The state is donated: otherwise each call would copy the replay buffer.
@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _turn(
    layout: Layout, draws: bool, arrays: list[Array], outcome: Any, flags: Any
) -> tuple[list[Array], dict[str, Array], Any]:
    """Record a step, learn, and choose the next actions: one call per step.

    The flags tell whether to learn, and whether the next action only explores, so that one program serves every step.
    The updates are in a loop of unknown length, because XLA would unroll a loop of known length and then round sums
    differently from the fused program.
    """
    learns, explores = flags
    state: State = layout.unpacked(arrays)
    outcome = VectorStep(*(by_lane(x, state.lanes.count) for x in outcome))
    lanes = loop.record(replace(state.lanes, keys=state.keys), state.spec, state.choice, outcome)
    lanes, metrics = loop.repeat(loop.learn, lanes, learns.astype(jnp.int32))
    if lanes.round.moves_targets:
        lanes = loop.update_targets_if_due(lanes, learns)
    after, choice = loop.choose(lanes, explores)
    return layout.pack(State(lanes, after.keys, choice, state.spec)), metrics, _asked(choice, draws)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _anew(layout: Layout, draws: bool, arrays: list[Array], shown: Any, explores: Any) -> tuple[list[Array], Any]:
    """Choose again where environments began anew instead of stepping; by the same keys others act as before."""
    state: State = layout.unpacked(arrays)
    lanes = begin_anew(state.lanes, state.spec, *(by_lane(x, state.lanes.count) for x in shown))
    after, choice = loop.choose(lanes, explores)
    return layout.pack(State(lanes, after.keys, choice, state.spec)), _asked(choice, draws)


def _asked(choice: Choice, draws: bool) -> tuple[Any, ...]:
    """Return what environments are asked for: actions and, if they draw from keys, those of the step and the reset."""
    flat = choice.action.reshape(-1, *choice.action.shape[2:])
    return (flat, choice.env_keys, choice.reset_keys) if draws else (flat, None, None)


def advance(
    lanes: Lanes, vector: VectorEnvironment, spec: EnvSpec, steps: int, chunk_steps: int, begin: int | None = None
) -> Generator[Part]:
    """Train as `fused_loop.advance` does, with environments outside of the program.

    Ctrl-C takes effect between two iterations: within one the old state is donated and the new one not complete. In
    the first one, which compiles, and where the environments have to wait, it takes effect at once.
    """
    sizes, draws = lanes.round, vector.draws_from_keys
    warms = min(steps, lanes.experience.warm_up - int(lanes.steps)) > 0
    after, choice = _choose(lanes, jnp.asarray(warms))
    state = State(lanes, after.keys, choice, spec)
    layout = Layout.of(state)
    arrays, asked = _pack(layout, jax.tree.leaves(eqx.filter(state, eqx.is_array))), _asked(choice, draws)

    compiled = stopped = False
    explores = np.asarray(warms)

    def stepped() -> VectorStep:
        """Step all environments; what began anew instead is asked again."""
        nonlocal arrays, asked
        while True:
            action, *keys = asked
            try:
                return vector.step(np.asarray(action), *keys)
            except EpisodesLost as lost:
                arrays, asked = _anew(layout, draws, arrays, (lost.which, *lost.shown), explores)

    def turns(total: int, warm_up: bool) -> tuple[Lanes, dict[str, Any]]:
        """Take steps of every environment; return the lanes and the mean of the metrics of learning."""
        nonlocal arrays, asked, compiled, stopped, explores
        if stopped:
            raise KeyboardInterrupt
        metrics = []
        with delayed_interrupt(lambda: compiled and not vector.waits) as stop:
            for turn in itertools.count(1):
                vector.steps += sizes.num_envs
                outcome = stepped()
                learns = not warm_up and turn % sizes.moves == 0
                last = turn == total or (stop.is_set() and (learns or warm_up))
                explores = np.asarray(warm_up and not last)
                flags = np.array([learns, explores])
                arrays, new, asked = _turn(layout, draws, arrays, outcome, flags)
                compiled = True
                if learns:
                    metrics.append(new)
                if last:
                    break
        stopped = stop.is_set()
        mean = jax.tree.map(lambda *x: np.mean(np.stack(x), axis=0), *metrics) if metrics else {}
        return layout.tree(_unpack(layout, arrays)).lanes, mean

    return in_chunks(
        lanes,
        steps,
        chunk_steps,
        lambda lanes, times: turns(times, warm_up=True),
        lambda lanes, rounds: turns(rounds * sizes.iterations * sizes.moves, warm_up=False),
        begin,
    )


@contextmanager
def delayed_interrupt(delays: Callable[[], bool]) -> Iterator[threading.Event]:
    """Set an event on Ctrl-C instead of raising at once, if it is to be delayed now; a second Ctrl-C raises."""
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested
        return

    def handle(number: int, frame: Any) -> None:
        if requested.is_set() or not delays():
            raise KeyboardInterrupt
        requested.set()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield requested
    finally:
        signal.signal(signal.SIGINT, before)
