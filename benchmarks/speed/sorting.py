"""The sorting network of `riskpath.risk.sorting` beside `jnp.sort` on this CPU.

    python benchmarks/speed/sorting.py

Each program sorts 256 laws of n atoms at once (`jax.vmap`), on one core. "sort" is the sort alone, "gradient" the
gradient of a weighted sum of the sorted atoms, as the actors of continuous agents compute it. Both programs run in
turns; a time is the least CPU time of all turns, because other work on the machine can only add to it. Compilation is
timed separately. A ratio above 1 means that the network is faster. Results go to benchmarks/results/sorting-cpu.json.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from riskpath.risk.sorting import sorting_network

RESULTS = Path(__file__).parents[1] / "results"
SORTS = {"network": sorting_network, "jnp.sort": lambda x: jnp.sort(x, stable=False)}


def gradient_of(sort: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    return jax.grad(lambda x: jnp.linspace(0.0, 1.0, x.size) ** 2 @ sort(x))


def compiled(function: Callable[[jax.Array], jax.Array], laws: jax.Array) -> tuple[Any, float]:
    """Return the compiled program and the CPU seconds of its compilation."""
    lowered = jax.jit(jax.vmap(function)).lower(laws)
    started = time.process_time()
    return lowered.compile(), time.process_time() - started


def least_seconds(programs: dict[str, Any], laws: jax.Array, seconds: float) -> dict[str, float]:
    """Return the least CPU time of one call of each program, measured in turns."""
    best = dict.fromkeys(programs, float("inf"))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, program in programs.items():
            started = time.process_time()
            program(laws).block_until_ready()
            best[name] = min(best[name], time.process_time() - started)
    return best


def measure(atoms: int, batch: int, seconds: float, key: jax.Array) -> dict[str, Any]:
    laws = jax.random.normal(key, (batch, atoms))
    row: dict[str, Any] = {"atoms": atoms}
    for what, wrap in (("sort", lambda sort: sort), ("gradient", gradient_of)):
        built = {name: compiled(wrap(sort), laws) for name, sort in SORTS.items()}
        times = least_seconds({name: program for name, (program, _) in built.items()}, laws, seconds)
        row[what] = {
            "network_us": round(1e6 * times["network"], 1),
            "jnp_sort_us": round(1e6 * times["jnp.sort"], 1),
            "ratio": round(times["jnp.sort"] / times["network"], 2),
            "network_compile_s": round(built["network"][1], 2),
            "jnp_sort_compile_s": round(built["jnp.sort"][1], 2),
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--atoms", type=int, nargs="+", default=[16, 32, 64, 128, 256, 512])
    parser.add_argument("--batch", type=int, default=256, help="laws that are sorted at once")
    parser.add_argument("--seconds", type=float, default=5.0, help="time of each measurement")
    parser.add_argument("--out", type=Path, default=RESULTS / "sorting-cpu.json")
    options = parser.parse_args()
    rows = []
    print(f"{'atoms':>6} {'':9}{'network':>11} {'jnp.sort':>11} {'ratio':>7}   compilation: network, jnp.sort")
    keys = jax.random.split(jax.random.key(0), len(options.atoms))
    for atoms, key in zip(options.atoms, keys, strict=True):
        rows.append(measure(atoms, options.batch, options.seconds, key))
        for what in ("sort", "gradient"):
            r = rows[-1][what]
            print(
                f"{atoms:6} {what:9}{r['network_us']:8.1f} µs {r['jnp_sort_us']:8.1f} µs {r['ratio']:7.2f}"
                f"   {r['network_compile_s']:.2f} s, {r['jnp_sort_compile_s']:.2f} s"
            )
    report = {
        "command": shlex.join(["python", "benchmarks/speed/sorting.py", *sys.argv[1:]]),
        "device": "cpu",
        "processor": processor(),
        "cores_allowed": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy")},
        "batch": options.batch,
        "rows": rows,
    }
    options.out.write_text(json.dumps(report, indent=2) + "\n")
    print(f"written to {options.out}")


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    jax.config.update("jax_platforms", "cpu")
    main()
