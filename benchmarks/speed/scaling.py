"""Measure how time and memory of training grow with lanes, width, quantiles, batch, history and replay buffer.

    python benchmarks/speed/scaling.py                            on one core, a quarter of an hour; on a GPU, minutes
    python benchmarks/speed/scaling.py --axes lanes --agents IQN  a part of it; --quick: two sizes, to the folder `runs`

One size is changed at a time, the others keep their defaults. An agent is trained by the fused loop as in
`throughput.py`: acting, the environment, the replay buffer and learning. A spell is one call of the compiled program,
which does many updates; the time is the median of several, on one core in seconds of the process. Compilation is not
included. The replay buffer is full.
RiskyGrid is the environment, RiskyMountainCar for continuous actions; along the axis of histories TQL trades in
MeanReversionTrading with episodes of 512 steps and remembers the latest 1, 4, … observations.

Each axis gets the line time = fixed + slope · size that fits best; at its knee both parts are equal. Memory is what the
compiled program holds: its arguments, results and temporary arrays.

On a GPU, processes compile side by side; then they measure one at a time. Results go to
benchmarks/results/scaling-DEVICE.json after every point, and to a picture beside it. The same command continues there.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import multiprocessing
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import scaling_lines
import workload

import riskpath as rp
from riskpath.agents.config import ActorCritic
from riskpath.experiments.records import write_json
from riskpath.training import fused_loop
from riskpath.training.inputs import as_environment
from riskpath.training.lanes import start

AXES_OF = {
    "IQN": ("lanes", "width", "quantiles", "batch", "buffer"),
    "TQL trajectory": ("lanes", "width", "history"),
    "Adaptive": ("lanes", "width", "quantiles", "batch"),
    "IQTD3": ("lanes",),
    "Adaptive continuous": ("lanes",),
}
VALUES = {
    "cpu": {
        "lanes": (1, 4, 16, 64),
        "width": (64, 256, 512),
        "quantiles": (8, 32, 128),
        "batch": (8, 32, 128),
        "history": (1, 4, 32, 128),
        "buffer": (10_000, 100_000, 1_000_000),
    },
    "gpu": {
        "lanes": (1, 8, 64, 512, 2048),
        "width": (64, 128, 1024),
        "quantiles": (8, 32, 256),
        "batch": (8, 32, 512),
        "history": (1, 4, 16, 64, 256),
        "buffer": (10_000, 1_000_000, 2_000_000),
    },
}
LONG_EPISODE = 512
"""Steps of an episode along the axis of histories; longer than any history, so that all of them roll."""


class Point(NamedTuple):
    """What is measured at once."""

    agent: str
    lanes: int
    width: int
    quantiles: int
    batch: int
    buffer: int
    history: int = 0
    """Number of observations in a history; 0 for RiskyGrid, whose episodes have six steps."""


def default(agent: str, kind: str) -> Point:
    """Return the size around which an agent is measured."""
    if agent in workload.CONTINUOUS:
        size = workload.ContinuousSize()
        return Point(agent, 4 if kind == "cpu" else 64, size.width, size.quantiles, size.batch, size.buffer_size)
    return Point(agent, *((4, 64) if kind == "cpu" else (64, 128)), 32, 32, 10_000)


def points(kind: str, agents: Sequence[str], axes: Sequence[str], quick: bool = False) -> Iterator[tuple[str, Point]]:
    """Yield the axis and the size of every point, small ones first; a default belongs to several axes."""
    for agent in agents:
        for axis in (axis for axis in AXES_OF[agent] if axis in axes):
            values = VALUES[kind][axis]
            for value in values[:2] if quick else values[:-1] if agent in workload.CONTINUOUS else values:
                yield axis, default(agent, kind)._replace(**{axis: value})


def begin(point: Point) -> tuple[Any, Any]:
    """Return the state before learning, and the spec of the environment."""
    if point.agent in workload.CONTINUOUS:
        size = workload.ContinuousSize("continuous", point.width, point.quantiles, point.batch, point.buffer)
    else:
        size = workload.Size("discrete", point.width, point.quantiles, 1, point.batch, point.buffer)
    agent = size.agent(point.agent)
    agent = dataclasses.replace(agent, network=dataclasses.replace(agent.network, window=point.history or None))
    if not point.history:
        return workload.begin(agent, point.lanes)
    environment = as_environment(rp.MeanReversionTrading(steps=LONG_EPISODE, trades=3))
    return start([agent], [environment], point.lanes, 1, 0), environment.spec


class Compiled(NamedTuple):
    """A program, what it needs, and the spec that it was compiled for."""

    program: Any
    spec: Any
    about: dict[str, Any]


PROGRAMS: dict[Point, Compiled] = {}
"""The programs that this process has compiled and not measured yet."""


def prepare(point: Point, plain: bool = False) -> float:
    """Compile the program of a point, on a GPU with its kernels or plain, and return the seconds that it took."""
    began = time.perf_counter()
    state, spec = begin(point)
    with workload.kernels(plain):
        program = fused_loop.chunk.lower(state, spec, _count(1)).compile()  # pyright: ignore[reportFunctionMemberAccess]
    needs = program.compiled.memory_analysis()
    parts = {part: int(getattr(needs, f"{part}_size_in_bytes")) for part in ("argument", "output", "temp", "alias")}
    seconds = time.perf_counter() - began
    about = {"prepared_s": round(seconds, 1), "bytes": parts, "buffer_bytes": state.store.rows.nbytes}
    PROGRAMS[point] = Compiled(program, spec, about)
    return seconds


def measure(point: Point, seconds: float, repeats: int) -> dict[str, Any]:
    """Return the median time of one update of all lanes, and the memory; or that the memory does not suffice."""
    row: dict[str, Any] = point._asdict()
    try:
        if point not in PROGRAMS:
            prepare(point)
        program, spec, about = PROGRAMS.pop(point)
        before = _peak()
        spells = _spells(full(point, program, spec), program, spec, seconds, repeats)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error) and "out of memory" not in str(error).lower():
            raise
        return {**row, "failed": "out of memory"}
    peak = _peak()
    # The peak is that of the process; it belongs to this point if this point has raised it.
    return {
        **row,
        "update_us": 1e6 * statistics.median(spells),
        "spread": max(spells) / min(spells) - 1,
        **about,
        "device_peak_bytes": peak if peak > before else None,
    }


def _count(number: int) -> jax.Array:
    return jnp.asarray(number, jnp.int32)


def _peak() -> int:
    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)


def full(point: Point, program: Any, spec: Any) -> Any:
    """Return a state after some steps, with their transitions repeated until the replay buffer is full."""
    state, _ = jax.block_until_ready(program(begin(point)[0], spec, _count(1)))
    rows, taken = state.store.rows, int(state.store.num_added)
    rows = rows[jnp.arange(len(rows)) % taken]
    full = (rows, jnp.maximum(state.store.num_added, len(rows)))
    return eqx.tree_at(lambda s: (s.store.rows, s.store.num_added), state, full)


def _spells(state: Any, program: Any, spec: Any, seconds: float, repeats: int) -> list[float]:
    """Return the seconds of one gradient step of all lanes, in spells of about the given length."""
    agent = state.agent
    delay = agent.actor.policy_delay if isinstance(agent, ActorCritic) else 1
    steps_per_round = agent.training.target_update_interval * delay
    rounds, spent = 1, 0.0
    while spent < seconds / 4:
        rounds = rounds if not spent else min(16 * rounds, int(rounds * seconds / spent) + 1)
        spent, state = _timed(program, state, spec, rounds)
    rounds = max(1, round(rounds * seconds / spent))
    spells = []
    for _ in range(repeats):
        spent, state = _timed(program, state, spec, rounds)
        spells.append(spent / (rounds * steps_per_round))
    return spells


def _timed(program: Any, state: Any, spec: Any, rounds: int) -> tuple[float, Any]:
    number, began = jax.block_until_ready(_count(rounds)), clock()
    state, _ = jax.block_until_ready(program(state, spec, number))
    return clock() - began, state


def clock() -> float:
    """Return seconds: on one core those of this process, which other programs on the machine hardly disturb."""
    alone = jax.default_backend() == "cpu" and hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) == 1
    return time.process_time() if alone else time.perf_counter()


def run(
    listed: list[tuple[str, Point]], about: dict[str, Any], out: Path, kind: str, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Measure all points that the file does not have yet, and write it after each; return all rows."""
    earlier = json.loads(out.read_text()) if out.exists() else {}
    same = all(earlier.get(key) == value for key, value in about.items())
    rows: list[dict[str, Any]] = earlier["rows"] if same else []
    done = {Point(*(row[field] for field in Point._fields)): row for row in rows}
    left = [*dict.fromkeys(point for _, point in listed if point not in done)]
    print(f"{len(left)} points on {about['device']}, {about['cores_allowed']} core(s)\n\n{HEADING}", flush=True)
    full = {(point.agent, axis) for axis, point in listed if "failed" in done.get(point, {})}
    with contextlib.ExitStack() as stack:
        ask = in_processes(left, options.jobs, stack, prepare, measure) if kind == "gpu" else measure
        for axis, point in listed:
            if point in done or (point.agent, axis) in full:
                continue
            done[point] = row = ask(point, options.seconds or (0.4 if kind == "cpu" else 0.2), options.repeats)
            rows.append(row)
            print(line_of(row), flush=True)
            if "failed" in row:
                full.add((point.agent, axis))
            write_json(out, {**about, "rows": rows, "lines": scaling_lines.lines(rows, listed)})
    return rows


def in_processes(
    left: list[Point],
    jobs: int,
    stack: contextlib.ExitStack,
    prepare: Callable[[Point], Any],
    measure: Callable[..., dict[str, Any]],
) -> Callable[..., dict[str, Any]]:
    """Compile all points in several processes; return a function that lets the right process measure one."""
    spawn = multiprocessing.get_context("spawn")
    pools = [concurrent.futures.ProcessPoolExecutor(1, spawn) for _ in range(min(jobs, len(left)))]
    for pool in pools:
        stack.callback(pool.shutdown)
    began, owner = time.perf_counter(), {point: pools[number % len(pools)] for number, point in enumerate(left)}
    concurrent.futures.wait([pool.submit(prepare, point) for point, pool in owner.items()])
    print(f"compiled in {time.perf_counter() - began:.0f} s", flush=True)
    return lambda point, *how: owner[point].submit(measure, point, *how).result()


HEADING = f"{'agent':20}{'lanes':>6}{'width':>7}{'quant.':>7}{'batch':>6}{'buffer':>9}{'hist.':>6}{'µs':>10}{'MB':>9}"


def line_of(row: dict[str, Any]) -> str:
    """Return a row as a line of the table: its size, microseconds of one update of all lanes, and memory."""
    sizes = (row[name] for name in ("lanes", "width", "quantiles", "batch", "buffer", "history"))
    start = f"{row['agent']:20}" + "{:6}{:7}{:7}{:6}{:9}{:6}".format(*sizes)
    if "failed" in row:
        return f"{start}  {row['failed']}"
    return f"{start}{row['update_us']:10,.0f}{scaling_lines.held_bytes(row) / 1e6:9,.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axes", nargs="+", default=[*scaling_lines.AXES], choices=[*scaling_lines.AXES])
    parser.add_argument("--agents", nargs="+", default=[*AXES_OF], choices=[*AXES_OF])
    parser.add_argument("--quick", action="store_true", help="two sizes of each axis, short spells")
    parser.add_argument("--seconds", type=float, help="length of a spell; 0.4 on a CPU, 0.2 on a GPU")
    parser.add_argument("--repeats", type=int, default=3, help="number of spells")
    parser.add_argument("--jobs", type=int, default=14, help="processes that compile side by side on a GPU")
    parser.add_argument("--all-cores", action="store_true", help="on a CPU: use all cores, not one")
    options = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes share a GPU
    if not options.all_cores:
        workload.on_one_core()
    here = workload.machine()
    kind = "cpu" if jax.default_backend() == "cpu" else "gpu"
    name = here["device"].replace(" ", "-").lower() + (f"-{here['cores_allowed']}-cores" if options.all_cores else "")
    folder = Path("runs") if options.quick else workload.RESULTS
    out = folder / f"scaling-{name}.json"
    about = {"command": shlex.join(["python", *sys.argv]), **here}
    listed = [*points(kind, options.agents, options.axes, options.quick)]
    rows = run(listed, about, out, kind, options)
    print(f"\n{scaling_lines.table(rows, listed)}")
    print(f"\n{out}, {scaling_lines.draw(rows, listed, scaling_lines.label(here), out.with_suffix('.png'))}")


if __name__ == "__main__":
    main()
