"""Updates per second on this device, against the number of lanes.

    python benchmarks/throughput.py --agents IQN "TQL joint" --lanes 16 512

A lane-update is one gradient step of one seed; every setting makes one update for each environment step, so it is
also an environment step. Compilation is not counted. Results go to benchmarks/results/throughput-DEVICE.json.
"""

import argparse
import json
import time
from pathlib import Path

import jax

import riskpath as rp
from riskpath import loop
from riskpath.run import as_environment

RESULTS = Path(__file__).parent / "results"
SMALL = (rp.Network(), rp.Training(start_steps=200, capacity=10_000))
PAPER_WIDTH = (rp.Network(hidden=(512,)), rp.Training(online_taus=64, target_taus=64, start_steps=200, capacity=10_000))
PUBLISHED = (rp.Network(hidden=(512,), head="deep"), PAPER_WIDTH[1])
AGENTS = {
    "IQN": rp.IQN,
    "TQL joint": lambda *args, **kw: rp.TQL(*args, critic="joint", **kw),
    "TQL trajectory": lambda *args, **kw: rp.TQL(*args, critic="trajectory", **kw),
    "TQL convolved": lambda *args, **kw: rp.TQL(*args, critic="convolved", **kw),
}


def lane_updates_per_second(name: str, sizes, lanes: int, seconds: float = 3.0) -> float:
    """Best of several chunks after one that is not counted."""
    network, training = sizes
    agent = AGENTS[name](rp.CVaR(0.25), network=network, training=training)
    world = as_environment("RiskyGrid")
    state = loop.start([agent], [world], lanes, 1, 0)
    state = loop.warm_up(state, world.spec, training.start_steps)
    rounds = 2
    state, _ = jax.block_until_ready(loop.chunk(state, world.spec, rounds))
    best, spent = 0.0, 0.0
    while spent < seconds:
        began = time.perf_counter()
        state, _ = jax.block_until_ready(loop.chunk(state, world.spec, rounds))
        spent += (took := time.perf_counter() - began)
        best = max(best, rounds * training.target_period * lanes / took)
    return best


def ring_copies(name: str, lanes: int = 4) -> int:
    """How many instructions of the compiled program copy an array of the ring's shape."""
    agent = AGENTS[name](rp.CVaR(0.25), network=SMALL[0], training=SMALL[1])
    world = as_environment("RiskyGrid")
    state = loop.start([agent], [world], lanes, 1, 0)
    text = loop.chunk.lower(state, world.spec, 1).compile().compiled.as_text()  # pyright: ignore[reportFunctionMemberAccess]
    shape = "f32[" + ",".join(map(str, state.ring.rows.shape)) + "]"
    body = [line for line in text.splitlines() if " copy(" in line and shape in line.split("copy(")[0]]
    return len(body)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--agents", nargs="+", default=list(AGENTS))
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    device = jax.devices()[0].device_kind
    rows = []
    for name in options.agents:
        print(f"{name}: {ring_copies(name)} copies of the ring in the compiled program", flush=True)
        for size, sizes in (
            ("64 wide, 32 taus", SMALL),
            ("512 wide, 64 taus", PAPER_WIDTH),
            ("published head", PUBLISHED),
        ):
            for lanes in options.lanes:
                speed = lane_updates_per_second(name, sizes, lanes, options.seconds)
                rows.append({"agent": name, "size": size, "lanes": lanes, "lane_updates_per_second": speed})
                print(f"{device}: {name}, {size}, {lanes} lanes: {speed:,.0f} lane-updates/s", flush=True)
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"throughput-{device.replace(' ', '-').lower()}.json"
    target.write_text(json.dumps({"device": device, "jax": jax.__version__, "rows": rows}, indent=2) + "\n")
