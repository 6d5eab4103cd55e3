"""Measure gradient steps per second against the number of lanes and, on one core, against other programs.

    python benchmarks/speed/throughput.py
    python benchmarks/speed/throughput.py --lanes 1 16 128 512 --agents IQN "TQL joint"  on a GPU
    python benchmarks/speed/peers.py install --into .peers
    python benchmarks/speed/throughput.py --peers .peers                                 beside other libraries
    python benchmarks/speed/throughput.py --gymnasium --peers .peers                     Gymnasium, beside QR-DQN
    python benchmarks/speed/throughput.py --against ../other/src                         beside another checkout

A rate counts gradient steps of the critics, summed over lanes, and includes everything: acting, the environment, the
replay buffer, learning. Start-up and compilation are not included: a rate is the median of several spells of the
running program. On a CPU everything, peers included, runs on one core. Agents with discrete actions take one gradient
step for each environment step in RiskyGrid, with one environment for each lane; the peers balance CartPole-v1. Both
environments are cheap and have two actions. Agents with continuous actions drive RiskyMountainCar with four
environments and one gradient step for each four steps. TQL reads histories with its default GRU of width 16 at every
size. `peers.py` lists where the work of the peers differs from ours. Results go to
benchmarks/results/throughput-DEVICE.json, those of `--against` and `--gymnasium` to throughput-against.json and
throughput-gymnasium.json beside it.
"""

import argparse
import json
import math
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import gymnasium_speed
import jax
import jax.numpy as jnp
import peers
import side_by_side
from workload import (
    AGENTS,
    CONTINUOUS,
    OWN_HEAD,
    PAPER,
    RESULTS,
    SIZES,
    SMALL,
    ContinuousSize,
    Size,
    begin,
    machine,
    on_one_core,
    work,
)

import riskpath as rp
from riskpath.training import fused_loop

PEERS = {"Rejax IQN": "rejax", "QR-DQN": "sb3"}


def buffer_copies(agent: rp.Agent, lanes: int = 4) -> dict[str, int]:
    """Count how often the compiled program copies the replay buffer: once when it is entered, and ideally never again.

    A copy in the body of a loop, or in anything called from there, happens at every step.
    """
    state, spec = begin(agent, lanes)
    lowered = fused_loop.chunk.lower(state, spec, jnp.asarray(1, jnp.int32))  # pyright: ignore[reportFunctionMemberAccess]
    program = computations(lowered.compile().compiled.as_text())
    bodies = {body for text in program.values() for body in re.findall(r"\bbody=%([\w.-]+)", text)}
    repeated = reachable(program, bodies)
    copies = {"at entry": 0, "inside loops": 0}
    for name, text in program.items():
        for shape in re.findall(r"= \(?f32\[([\d,]+)\]\S* copy(?:-start)?\(", text):
            if math.prod(map(int, shape.split(","))) == state.store.rows.size:
                copies["inside loops" if name in repeated else "at entry"] += 1
    return copies


def computations(program: str) -> dict[str, str]:
    """Return the text of every computation of an HLO module, by name."""
    parts = re.split(r"^(?:ENTRY )?%([\w.-]+) \(.*\{$", program, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def reachable(program: dict[str, str], names: set[str]) -> set[str]:
    """Return these computations and all that they call."""
    seen, waiting = set(), list(names)
    while waiting:
        if (name := waiting.pop()) not in seen:
            seen.add(name)
            called = re.findall(r"\w+=\{?((?:%[\w.-]+(?:, )?)+)", program[name])
            waiting += {word for words in called for word in re.findall(r"%([\w.-]+)", words)} & program.keys()
    return seen


def ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return our rates over the peers' where both were measured, and those of other agents over IQN's or IQTD3's."""
    speed = {(row["program"], row["size"], row["lanes"], row["head"]): row["updates_per_second"] for row in rows}
    listed = []
    for (program, size, lanes, head), rate in speed.items():
        plain = "IQN" if program in AGENTS else "IQTD3"
        rivals = [(peer, None) for peer in PEERS if program in AGENTS] + [(plain, head)] * (program != plain)
        for rival, its_head in rivals if program not in PEERS else []:
            if other := speed.get((rival, size, lanes, its_head)):
                about = {"ratio": f"{program} / {rival}", "size": size, "lanes": lanes, "head": head}
                listed.append({**about, "value": rate / other})
    return listed


def measure_all(options: argparse.Namespace) -> None:
    """Measure every agent, and the peers if they are installed; write the results after every row."""
    here, on_cpu = machine(), jax.default_backend() == "cpu"
    lanes_listed = sorted({*options.lanes} | ({PAPER.compared, SMALL.compared} if options.peers else set()))
    print(f"{here['device']} ({here['processor']}), {here['cores_allowed']} core(s), jax {jax.__version__}\n")
    copies = {}
    for name in [] if options.skip_copies else options.agents:
        copies[name] = counts = buffer_copies(SIZES["small" if name in AGENTS else "continuous"].agent(name))
        print(
            f"{name}: the replay buffer is copied {counts['at entry']} × at entry, {counts['inside loops']} × in loops"
        )

    rows: list[dict[str, Any]] = []
    versions = {}
    command, sizes = shlex.join(["python", *sys.argv]), {name: size._asdict() for name, size in SIZES.items()}
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"throughput-{here['device'].replace(' ', '-').lower()}.json"

    def add(program: str, head: str | None, size: Any, lanes: int, rate: dict[str, Any], **more: Any) -> None:
        rows.append({"program": program, "head": head, "size": size.name, "lanes": lanes, **rate, **more})
        speeds = "".join(f"{x:12,.1f}" for x in (rate["updates_per_second"], min(rate["rates"]), max(rate["rates"])))
        print(f"{program:21}{head or '':10}{size!s:24}{lanes:6}{speeds}{rate['cores_used']:7.2f}", flush=True)
        everything = {"command": command, **here, "peers": versions, "sizes": sizes, "buffer_copies": copies}
        target.write_text(json.dumps({**everything, "rows": rows, "ratios": ratios(rows)}, indent=2) + "\n")

    columns = f"{'lanes':>6}{'updates/s':>12}{'lowest':>12}{'highest':>12}{'cores':>7}"
    print(f"\n{'program':21}{'head':10}{'size':24}{columns}")
    for size in (SIZES[name] for name in options.sizes):
        for program, peer in PEERS.items() if options.peers and isinstance(size, Size) else ():
            compared = getattr(size, "compared", 1)
            seeds = 1 if peer == "sb3" else compared  # seeds one after the other do not change the total rate
            common = {**size._asdict(), "seeds": seeds}
            rate = peers.ask(options.peers, peer, common, options.seconds, options.repeats)
            versions[program] = rate.pop("versions")
            add(program, None, size, compared, rate, seeds_side_by_side=seeds)
        for name, head, lanes in programs(options, size, lanes_listed):
            if head == "deep" and on_cpu and lanes != getattr(size, "compared", 1):
                continue  # minutes for each row, of which only this one is compared with anything
            running = work(size.agent(name, head), lanes)
            add(name, head, size, lanes, peers.measure(running, options.seconds, options.repeats))

    print(f"\n{'ratio':32}{'head':10}{'size':8}{'lanes':>6}{'':4}")
    for row in ratios(rows):
        print(f"{row['ratio']:32}{row['head']:10}{row['size']:8}{row['lanes']:6}{row['value']:9.2f}x")
    if options.peers:
        print("\nQR-DQN trains one seed at a time: its total rate with several is that of one, as given here.")


def programs(
    options: argparse.Namespace, size: Size | ContinuousSize, lanes_listed: list[int]
) -> list[tuple[str, str, int]]:
    """Return agent, head and number of lanes of every program of one size."""
    discrete = isinstance(size, Size)
    names = [name for name in options.agents if name in (AGENTS if discrete else CONTINUOUS)]
    heads = options.heads if discrete else options.heads[:1]
    listed = [(name, head, lanes) for name in names for head in heads for lanes in lanes_listed]
    return [program for program in listed if program[0] not in OWN_HEAD or program[1] == "factored"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--agents", nargs="+", default=[*AGENTS, *CONTINUOUS], choices=[*AGENTS, *CONTINUOUS])
    parser.add_argument("--heads", nargs="+", default=["factored", "deep"], choices=["factored", "deep"])
    parser.add_argument("--sizes", nargs="+", default=[*SIZES], choices=[*SIZES])
    parser.add_argument("--skip-copies", action="store_true", help="do not look for copies of the replay buffer")
    parser.add_argument("--peers", type=Path, help="the folder that peers.py installed into")
    parser.add_argument("--gymnasium", action="store_true", help="CartPole-v1 stepped by the host, beside QR-DQN")
    parser.add_argument("--against", type=Path, help="the src folder of another checkout to compare with, on one core")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a spell")
    parser.add_argument("--repeats", type=int, default=3, help="number of spells")
    options = parser.parse_args()
    if options.against:
        listed = [
            side_by_side.Program(name, size.name, head, lanes)
            for size in (SIZES[name] for name in options.sizes)
            for name, head, lanes in programs(options, size, options.lanes)
        ]
        return side_by_side.compare(options.against, listed, options.seconds, options.repeats)
    on_one_core()
    if options.gymnasium:
        if not options.peers:
            parser.error("--gymnasium compares with QR-DQN: give --peers")
        return gymnasium_speed.compare(options.peers, machine(), options.seconds, options.repeats)
    if options.peers and jax.default_backend() != "cpu":
        parser.error("peers are compared on a CPU: set JAX_PLATFORMS=cpu")
    return measure_all(options)


if __name__ == "__main__":
    main()
