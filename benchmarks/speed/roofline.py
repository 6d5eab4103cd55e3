"""Compare a gradient step of large agents with the limits of the machine: FLOP/s, bytes/s, and what costs most.

    python benchmarks/speed/roofline.py                       on one core, some minutes; on a GPU, a minute
    python benchmarks/speed/roofline.py --profile             and the ten costliest operations of the training loop
    python benchmarks/speed/roofline.py --agents IQN --plain  on a GPU, without the kernels of nn/gpu

The limits are measured in the same run: products of large matrices in float32 (on a GPU in TF32, JAX's default) and in
bfloat16, and the sum ½ a + b of large arrays, which reads two and writes one. An agent's operations are those of its
matrix products, counted in the program before compilation with loops repeated; its bytes are what XLA's cost analysis
says about the compiled program, which counts a value as often as it passes between two compiled operations, even if
a cache holds it. Both are of one call of `learn` for all lanes: one gradient step, or for continuous actions two of the
critics and one of the actor. The time is that of this program alone; `loop_us` is the time of the whole training loop
for the same step, with acting, the environment and the replay buffer.

Results go to benchmarks/results/roofline-DEVICE.json after every agent, and to a picture beside it. The same command
continues there.
"""

import argparse
import contextlib
import functools
import json
import math
import os
import re
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scaling
import scaling_lines
import workload
from matplotlib.ticker import NullFormatter

from riskpath import plot
from riskpath.agents.config import ActorCritic
from riskpath.experiments.records import write_json
from riskpath.training import fused_loop

AGENTS = tuple(scaling.AXES_OF)
MATRIX = {"cpu": 1536, "gpu": 8192}
ARRAY = {"cpu": 2**25, "gpu": 2**28}
"""Numbers in each array of a sum."""
SUMS = 16
"""Sums in one call: they write over the same memory, which the operating system does not have to provide anew."""
COSTLIEST = 10


def size_of(agent: str, kind: str) -> scaling.Point:
    """Return the largest useful size: the widths of long trainings, with lanes well above the knee.

    Discrete agents have batches of 32 on a GPU, as in `throughput.py`: with larger ones XLA compiles for minutes.
    """
    if agent in workload.CONTINUOUS:
        return scaling.Point(agent, 4 if kind == "cpu" else 128, 256, 32, 256, 2_000)
    return scaling.Point(agent, *((4, 512, 64, 256) if kind == "cpu" else (512, 512, 64, 32)), 2_000)


class Limits(NamedTuple):
    """What the machine reaches at best."""

    float32: float
    """FLOP/s."""
    bfloat16: float
    """FLOP/s."""
    bandwidth: float
    """Bytes/s."""


def seconds_of(program: Callable[..., Any], arguments: tuple[Any, ...], seconds: float) -> float:
    """Return the least time of one call, of several rounds of calls that follow each other."""
    jax.block_until_ready(program(*arguments))
    rounds, calls, end = [], 1, scaling.clock() + seconds
    while scaling.clock() < end or len(rounds) < 3:
        began = scaling.clock()
        for _ in range(calls):
            out = program(*arguments)
        jax.block_until_ready(out)  # pyright: ignore[reportPossiblyUnboundVariable]
        rounds.append((scaling.clock() - began) / calls)
        calls = max(1, int(seconds / 8 / rounds[-1]))
    return min(rounds)


def limits(kind: str, seconds: float) -> Limits:
    """Measure the machine."""
    size, found = MATRIX[kind], []
    product = jax.jit(jnp.matmul)
    for dtype in (jnp.float32, jnp.bfloat16):
        a = jax.random.normal(jax.random.key(0), (size, size)).astype(dtype)
        found.append(2 * size**3 / seconds_of(product, (a, a), seconds))
    a, b = jnp.ones(ARRAY[kind]), jnp.ones(ARRAY[kind])
    repeated = jax.jit(lambda a, b: jax.lax.fori_loop(0, SUMS, lambda _, a: 0.5 * a + b, a))
    found.append(3 * SUMS * a.nbytes / seconds_of(repeated, (a, b), seconds))
    return Limits(*found)


def product_flops(jaxpr: Any) -> int:
    """Count the operations of all matrix products of a program; a loop counts as often as it is repeated."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            inner = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
            total += 2 * inner * math.prod(equation.outvars[0].aval.shape)
            continue
        values = [x for value in equation.params.values() for x in (value if isinstance(value, tuple) else (value,))]
        parts = [product_flops(getattr(x, "jaxpr", x)) for x in values if hasattr(getattr(x, "jaxpr", x), "eqns")]
        once = max(parts, default=0) if equation.primitive.name == "cond" else sum(parts)
        if equation.primitive.name == "scan":
            once *= equation.params["length"]
        elif equation.primitive.name == "pallas_call":
            once *= math.prod(equation.params["grid_mapping"].grid)
        total += once
    return total


def against(flops: float, nbytes: float, seconds: float, machine: Limits) -> dict[str, float]:
    """Return what a program achieves, and its shares of the limits.

    The roof is what the machine could do with this intensity: the lower of its FLOP/s and of its bytes/s times
    operations for each byte.
    """
    roof = min(machine.float32, machine.bandwidth * flops / nbytes)
    return {
        "intensity": flops / nbytes,
        "flops_per_s": flops / seconds,
        "bytes_per_s": nbytes / seconds,
        "share_of_flops": flops / seconds / machine.float32,
        "share_of_bandwidth": nbytes / seconds / machine.bandwidth,
        "share_of_roof": flops / seconds / roof,
    }


UPDATES: dict[scaling.Point, tuple[Any, dict[str, Any]]] = {}
"""The compiled updates of this process, and their counts."""


def prepare(point: scaling.Point, plain: bool = False) -> None:
    """Compile one update of all lanes, and the training loop."""
    state, _ = scaling.begin(point)
    arrays, fixed = eqx.partition(state, eqx.is_array)

    def update(arrays: Any) -> Any:
        after = fused_loop.update(eqx.combine(arrays, fixed))[0]
        return eqx.filter((after.agent_state, after.keys), eqx.is_array)

    with workload.kernels(plain):
        compiled, jaxpr = jax.jit(update).lower(arrays).compile(), jax.make_jaxpr(update)(arrays).jaxpr
    analysis: Any = compiled.cost_analysis()
    analysis = analysis[0] if isinstance(analysis, list) else analysis  # before JAX 0.5
    counts = {
        "flops": product_flops(jaxpr),
        "flops_of_xla": analysis.get("flops"),
        "bytes": analysis["bytes accessed"],
    }
    UPDATES[point] = (compiled, counts)
    scaling.prepare(point, plain)


def measure(
    point: scaling.Point, seconds: float, machine: Limits, profiled: bool, plain: bool = False
) -> dict[str, Any]:
    """Return what the update of an agent achieves, its share of the training loop, and the costliest operations."""
    if point not in UPDATES:
        prepare(point, plain)
    program, spec, _ = scaling.PROGRAMS[point]
    compiled, counts = UPDATES.pop(point)
    state = scaling.full(point, program, spec)
    spent = seconds_of(compiled, (eqx.filter(state, eqx.is_array),), seconds)
    row: dict[str, Any] = {**point._asdict(), **counts, "update_us": 1e6 * spent}
    row |= against(counts["flops"], counts["bytes"], spent, machine)
    steps = state.agent.actor.policy_delay if isinstance(state.agent, ActorCritic) else 1
    if profiled:
        row["costliest"] = costliest(program, state, spec, max(1, 20 // state.agent.training.target_update_interval))
    del state
    return {**row, "loop_us": steps * scaling.measure(point, seconds, 3)["update_us"]}


def costliest(program: Any, state: Any, spec: Any, rounds: int) -> list[dict[str, Any]]:
    """Return the operations of the training loop with the largest sums of durations, and their shares of all."""
    number = jax.block_until_ready(jnp.asarray(rounds, jnp.int32))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(program(state, spec, number))
        (path,) = Path(folder).rglob("*.xplane.pb")
        times = durations(jax.profiler.ProfileData.from_file(str(path)))
    text = program.compiled.as_text()
    about = {re.sub(r"\W", "_", name): shape for name, shape in re.findall(r"%([\w.-]+) = \(?(\w+\[[\d,]*\])", text)}
    origins = {re.sub(r"\W", "_", name): path for name, path in re.findall(r'%([\w.-]+) = .*?op_name="([^"]+)"', text)}
    total = sum(times.values())
    found = []
    for name, spent in times.most_common(COSTLIEST):
        plain = re.sub(r"\W", "_", name)
        found.append({"name": name, "share": spent / total, "shape": about.get(plain), "origin": origins.get(plain)})
    return found


def durations(profile: Any) -> Counter[str]:
    """Return the nanoseconds of every kernel of a GPU, or else of every operation of the CPU, by name."""
    kernels: Counter[str] = Counter()
    operations: Counter[str] = Counter()
    for plane in profile.planes:
        for line in plane.lines:
            if "GPU" in plane.name and line.name.startswith("Stream"):
                for event in line.events:
                    kernels[event.name] += event.duration_ns
            elif "CPU" in plane.name and line.name.startswith("tf_XLA"):
                for event in line.events:
                    outer = event.name.startswith(("end:", "while", "call", "conditional"))  # others run inside
                    if not outer and any(name == "hlo_op" for name, _ in event.stats):
                        operations[event.name] += event.duration_ns
    return kernels or operations


def table(rows: list[dict[str, Any]]) -> str:
    """Return the results in Markdown."""
    lines = ["| agent | update | GFLOP | GB | GFLOP/s | of the limit | GB/s | of the limit | of the loop |"]
    lines.append("|---|" + "---:|" * 8)
    for row in rows:
        work = f"{row['flops'] / 1e9:.3g} | {row['bytes'] / 1e9:.3g} | {row['flops_per_s'] / 1e9:,.3g}"
        shares = f"{row['share_of_flops']:.1%} | {row['bytes_per_s'] / 1e9:,.3g} | {row['share_of_bandwidth']:.0%}"
        of_loop = f"{row['update_us'] / row['loop_us']:.0%}"
        lines.append(f"| {row['agent']} | {row['update_us'] / 1e3:,.3g} ms | {work} | {shares} | {of_loop} |")
    return "\n".join(lines)


def draw(rows: list[dict[str, Any]], machine: Limits, device: str, path: Path) -> Path:
    """Draw the roofs of the machine and a point for each agent."""
    figure, panels = plot.panels(1, 1, 6.0, 4.2)
    axis = panels[0, 0]
    ridge = machine.float32 / machine.bandwidth
    intensities = [row["intensity"] for row in rows]
    x = np.geomspace(min([*intensities, ridge]) / 4, 8 * max([*intensities, ridge]), 200)
    for limit, name, style in (
        (machine.float32, "float32 products", "-"),
        (machine.bfloat16, "bfloat16 products", ":"),
    ):
        axis.plot(x, np.minimum(limit, machine.bandwidth * x) / 1e9, style, color="0.4", linewidth=1.3, label=name)
    for row in rows:
        label = f"{row['agent']}: {row['share_of_roof']:.0%} of its roof"
        colour = scaling_lines.COLOURS[row["agent"]]
        axis.plot([row["intensity"]], [row["flops_per_s"] / 1e9], "o", color=colour, markersize=7, label=label)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_ylim(min(row["flops_per_s"] for row in rows) / 2e10, machine.bfloat16 / 5e8)
    for ticks in (axis.xaxis, axis.yaxis):
        ticks.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
        ticks.set_minor_formatter(NullFormatter())
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.set_xlabel("operations for each byte", fontsize=9)
    axis.set_ylabel("GFLOP/s", fontsize=9)
    axis.set_title(f"{device}, {machine.bandwidth / 1e9:,.0f} GB/s", fontsize=10)
    axis.legend(fontsize=8, frameon=False, loc="lower right")
    return plot.save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", default=[*AGENTS], choices=AGENTS)
    parser.add_argument("--seconds", type=float, default=0.5, help="time of each measurement")
    parser.add_argument("--profile", action="store_true", help="list the costliest operations")
    parser.add_argument("--plain", action="store_true", help="without the kernels for GPUs, to compare")
    options = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes share a GPU
    workload.on_one_core()
    here, kind = workload.machine(), "cpu" if jax.default_backend() == "cpu" else "gpu"
    device = here["device"].replace(" ", "-").lower()
    out = workload.RESULTS / f"roofline-{device}{'-plain' if options.plain else ''}.json"
    ways = functools.partial(prepare, plain=options.plain), functools.partial(measure, plain=options.plain)
    about = {"command": shlex.join(["python", *sys.argv]), **here}
    earlier: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    if any(earlier.get(key) != value for key, value in about.items()):
        earlier = {"rows": []}
    rows: list[dict[str, Any]] = earlier["rows"]
    sizes = [size_of(agent, kind) for agent in options.agents if agent not in {row["agent"] for row in rows}]
    machine = Limits(**earlier["limits"]) if rows else limits(kind, options.seconds)
    print(f"{here['device']}: {machine.float32 / 1e9:,.0f} GFLOP/s in float32, ", end="")
    print(f"{machine.bfloat16 / 1e9:,.0f} in bfloat16, {machine.bandwidth / 1e9:,.0f} GB/s", flush=True)
    with contextlib.ExitStack() as stack:
        ask = scaling.in_processes(sizes, len(sizes), stack, *ways) if kind == "gpu" else ways[1]
        for point in sizes:
            rows.append(ask(point, options.seconds, machine, options.profile))
            write_json(out, {**about, "limits": machine._asdict(), "rows": rows})
            print(table(rows[-1:]).splitlines()[-1], flush=True)
            for cost in rows[-1].get("costliest", []):
                print(f"    {cost['share']:6.1%}  {cost['name']}  {cost['shape'] or ''}  {cost['origin'] or ''}")
    print(f"\n{table(rows)}\n\n{out}, {draw(rows, machine, scaling_lines.label(here), out.with_suffix('.png'))}")


if __name__ == "__main__":
    main()
