"""Updates per second on this device, against the number of lanes and, on one core, against other libraries.

    python benchmarks/throughput.py
    python benchmarks/throughput.py --lanes 1 16 128 512 --agents IQN "TQL joint"      on a GPU
    python benchmarks/peers.py install --into .peers
    python benchmarks/throughput.py --peers .peers

An update is one gradient step of one seed; every setting makes one for each environment step, with one environment for
each seed. All of it is counted: acting, the environment, the replay, learning. Startup and compilation are not: a rate
is the median of several spells of the running program. On a CPU everything, peers included, runs on one core. Seeds
side by side (lanes) add up. Ours walk RiskyGrid, the peers balance CartPole-v1, both cheap and with two actions; the
agents for vector actions drive RiskyMountainCar with four cars and one critic update for each four steps.
TQL reads histories with its default GRU, 16 wide at every size;
`peers.py` lists where the peers' work differs from ours. Results go to benchmarks/results/throughput-DEVICE.json.
"""

import argparse
import importlib.metadata
import json
import math
import os
import platform
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import peers

import riskpath as rp
from riskpath.training import fused_loop as loop
from riskpath.training.inputs import as_environment

RESULTS = Path(__file__).parent / "results"
AGENTS = {
    "IQN": rp.IQN,
    "TQL joint": lambda *args, **kw: rp.TQL(*args, critic="joint", **kw),
    "TQL trajectory": lambda *args, **kw: rp.TQL(*args, critic="trajectory", **kw),
    "TQL convolved": lambda *args, **kw: rp.TQL(*args, critic="convolved", **kw),
}
CONTINUOUS = {"IQTD3": rp.IQTD3, "TQL continuous": rp.TQLContinuous}
PEERS = {"Rejax IQN": "rejax", "QR-DQN": "sb3"}


class Size(NamedTuple):
    """What all programs have in common."""

    name: str
    width: int
    quantiles: int
    compared: int
    """With how many seeds the peers are asked."""
    batch: int = 32
    capacity: int = 10_000
    learning_starts: int = 200
    target_update_interval: int = 100

    def __str__(self) -> str:
        return f"{self.width} wide, {self.quantiles} quantiles"

    def agent(self, name: str, head: Any = "late") -> rp.Agent:
        """Ours at this size."""
        training = rp.Training(
            batch_size=self.batch,
            online_taus=self.quantiles,
            target_taus=self.quantiles,
            buffer_size=self.capacity,
            learning_starts=self.learning_starts,
            target_update_interval=self.target_update_interval,
        )
        return AGENTS[name](rp.CVaR(0.25), network=rp.Network(hidden=(self.width,), head=head), training=training)


class VectorSize(NamedTuple):
    """The size of the agents for vector actions."""

    name: str = "vector"
    width: int = 128
    quantiles: int = 32
    batch: int = 256
    capacity: int = 20_000

    def __str__(self) -> str:
        return f"{self.width} wide, batch {self.batch}"

    def agent(self, name: str) -> rp.Agent:
        """Ours at this size."""
        training = rp.ActorCriticTraining(batch_size=self.batch, buffer_size=self.capacity, learning_starts=800)
        network = rp.Network(hidden=(self.width, self.width), window=10)
        return CONTINUOUS[name](rp.CVaR(0.25), network=network, training=training)


PAPER = Size("paper", width=512, quantiles=64, compared=1)
SMALL = Size("small", width=64, quantiles=32, compared=8)
VECTOR = VectorSize()


def start(agent: rp.Agent, lanes: int) -> tuple[loop.Lanes, Any]:
    """The state before learning, and the sizes of the environment."""
    vectors = isinstance(agent, rp.IQTD3 | rp.TQLContinuous)
    world = as_environment(rp.RiskyMountainCar(0.5, 300) if vectors else "RiskyGrid")
    return loop.start([agent], [world], lanes, 4 if vectors else 1, 0), world.spec


def work(agent: rp.Agent, lanes: int, rounds: int = 2) -> Iterator[int]:
    """Trains, and yields the updates of all lanes after every chunk."""
    state, spec = start(agent, lanes)
    state = loop.warm_up(state, spec, agent.training.learning_starts)
    each = agent.training.target_update_interval * getattr(agent.training, "delay", 1)
    while True:
        state, _ = jax.block_until_ready(loop.chunk(state, spec, rounds))
        yield rounds * each * lanes


def ring_copies(agent: rp.Agent, lanes: int = 4) -> dict[str, int]:
    """How often the compiled program copies the replay ring: once when it is entered, and, or so we hope, never again.

    A copy in the body of a loop, or in anything called from there, happens at every step.
    """
    state, spec = start(agent, lanes)
    lowered = loop.chunk.lower(state, spec, 1)  # pyright: ignore[reportFunctionMemberAccess]
    program = computations(lowered.compile().compiled.as_text())
    bodies = {body for text in program.values() for body in re.findall(r"\bbody=%([\w.-]+)", text)}
    repeated = reachable(program, bodies)
    found = {"at entry": 0, "inside loops": 0}
    for name, text in program.items():
        for shape in re.findall(r"= \(?f32\[([\d,]+)\]\S* copy(?:-start)?\(", text):
            if math.prod(map(int, shape.split(","))) == state.ring.rows.size:
                found["inside loops" if name in repeated else "at entry"] += 1
    return found


def computations(program: str) -> dict[str, str]:
    """The text of every computation of an HLO module, by name."""
    parts = re.split(r"^(?:ENTRY )?%([\w.-]+) \(.*\{$", program, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def reachable(program: dict[str, str], names: set[str]) -> set[str]:
    """These computations and all that they call."""
    seen, waiting = set(), list(names)
    while waiting:
        if (name := waiting.pop()) not in seen:
            seen.add(name)
            called = re.findall(r"\w+=\{?((?:%[\w.-]+(?:, )?)+)", program[name])
            waiting += {word for words in called for word in re.findall(r"%([\w.-]+)", words)} & program.keys()
    return seen


def ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ours over the peers' where both were measured, and TQL over IQN everywhere."""
    speed = {(row["program"], row["size"], row["lanes"], row["head"]): row["updates_per_second"] for row in rows}
    found = []
    for (program, size, lanes, head), rate in speed.items():
        rivals = [(peer, None) for peer in PEERS] + ([("IQN", head)] if program.startswith("TQL") else [])
        for rival, its_head in rivals if program in AGENTS else []:
            if other := speed.get((rival, size, lanes, its_head)):
                found.append(
                    {
                        "ratio": f"{program} / {rival}",
                        "size": size,
                        "lanes": lanes,
                        "head": head,
                        "value": rate / other,
                    }
                )
    return found


def on_one_core() -> None:
    """Starts this program anew on one core of a CPU: XLA sizes its pools of threads once, when it starts."""
    if jax.default_backend() != "cpu" or not hasattr(os, "sched_setaffinity"):
        return
    allowed, one_thread = os.sched_getaffinity(0), {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    if len(allowed) > 1 or one_thread.items() - os.environ.items():
        os.sched_setaffinity(0, {max(allowed)})
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **one_thread})


def machine() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else []
    packages = ["jax", "jaxlib", "equinox", "optax", "numpy"]
    return {
        "device": jax.devices()[0].device_kind,
        "processor": names[0] if names else platform.processor(),
        "cores_allowed": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "versions": {"riskpath": rp.__version__} | {name: importlib.metadata.version(name) for name in packages},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--agents", nargs="+", default=[*AGENTS, *CONTINUOUS], choices=[*AGENTS, *CONTINUOUS])
    parser.add_argument("--heads", nargs="+", default=["late", "deep"], choices=["late", "deep"])
    parser.add_argument(
        "--sizes", nargs="+", default=["paper", "small", "vector"], choices=["paper", "small", "vector"]
    )
    parser.add_argument("--skip-copies", action="store_true", help="do not look for copies of the replay")
    parser.add_argument("--peers", type=Path, help="the folder that peers.py installed into")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a spell")
    parser.add_argument("--repeats", type=int, default=3, help="number of spells")
    options = parser.parse_args()
    on_one_core()
    here, on_cpu = machine(), jax.default_backend() == "cpu"
    if options.peers and not on_cpu:
        parser.error("peers are compared on a CPU: set JAX_PLATFORMS=cpu")
    wanted = {*options.lanes} | ({PAPER.compared, SMALL.compared} if options.peers else set())

    print(f"{here['device']} ({here['processor']}), {here['cores_allowed']} core(s), jax {jax.__version__}\n")
    numbered, vectors = ([name for name in options.agents if name in kind] for kind in (AGENTS, CONTINUOUS))
    asked = [] if options.skip_copies else options.agents
    copies = {name: ring_copies((SMALL if name in AGENTS else VECTOR).agent(name)) for name in asked}
    for name, found in copies.items():
        print(f"{name}: copies of the replay {found['at entry']} at entry, {found['inside loops']} inside loops")

    rows, versions = [], {}
    print(
        f"\n{'program':16}{'head':6}{'size':24}{'lanes':>6}{'updates/s':>12}{'lowest':>12}{'highest':>12}{'cores':>7}"
    )

    command, sizes = shlex.join(["python", *sys.argv]), {size.name: size._asdict() for size in (PAPER, SMALL, VECTOR)}
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"throughput-{here['device'].replace(' ', '-').lower()}.json"

    def add(program: str, head: str | None, size: Any, lanes: int, found: dict[str, Any], **more: Any) -> None:
        rows.append({"program": program, "head": head, "size": size.name, "lanes": lanes, **found, **more})
        speeds = "".join(f"{x:12,.1f}" for x in (found["updates_per_second"], min(found["rates"]), max(found["rates"])))
        print(f"{program:16}{head or '':6}{size!s:24}{lanes:6}{speeds}{found['cores_used']:7.2f}", flush=True)
        everything = {"command": command, **here, "peers": versions, "sizes": sizes, "ring_copies": copies}
        everything |= {"rows": rows, "ratios": ratios(rows)}  # after every row: an interruption loses one at most
        target.write_text(json.dumps(everything, indent=2) + "\n")

    for size in (size for size in (PAPER, SMALL) if size.name in options.sizes):
        for program, peer in PEERS.items() if options.peers else ():
            seeds = 1 if peer == "sb3" else size.compared  # one after the other, seeds change nothing in its rate
            common = {**size._asdict(), "seeds": seeds}
            found = peers.ask(options.peers, peer, common, options.seconds, options.repeats)
            versions[program] = found.pop("versions")
            add(program, None, size, size.compared, found, seeds_side_by_side=seeds)
        for name in numbered:
            for head in options.heads:
                for lanes in sorted(wanted):
                    if head == "deep" and on_cpu and lanes != size.compared:
                        continue  # minutes for each row, of which only this one is compared with anything
                    running = work(size.agent(name, head), lanes)
                    add(name, head, size, lanes, peers.measure(running, options.seconds, options.repeats))

    for name in vectors if VECTOR.name in options.sizes else []:
        for lanes in sorted(wanted):
            running = work(VECTOR.agent(name), lanes, rounds=1)
            add(name, None, VECTOR, lanes, peers.measure(running, options.seconds, options.repeats))

    print(f"\n{'ratio':32}{'head':6}{'size':8}{'lanes':>6}{'':4}")
    for row in ratios(rows):
        print(f"{row['ratio']:32}{row['head']:6}{row['size']:8}{row['lanes']:6}{row['value']:9.2f}x")
    if options.peers:
        print("\nQR-DQN trains one seed at a time: its total rate with several is that of one, as given here.")


if __name__ == "__main__":
    main()
