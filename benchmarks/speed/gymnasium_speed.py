"""Environment steps per second in CartPole-v1, stepped by the host: IQN beside sb3-contrib's QR-DQN, on one core.

`throughput.py --gymnasium --peers .peers` calls this. Both have two hidden layers of 64 units, 32 quantiles to learn
and to compare actions, batches of 32, and one gradient step for each environment step; ours is what `rp.train` does
with a Gymnasium id. There is one process for each program. They train in turn, spell by spell, so that a change in the
load of the machine meets all of them; a ratio is the median over rounds of neighbouring spells. QR-DQN trains one seed
at a time: its rate with eight seeds, one after the other, is that of one. Results go to
benchmarks/results/throughput-gymnasium.json.
"""

import json
import shlex
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peers
from workers import in_turns

import riskpath as rp

RESULTS = Path(__file__).parents[1] / "results" / "throughput-gymnasium.json"
SEEDS = (1, 8)
CHUNK = 2_000
"""Steps of each seed between two looks at the clock."""
SIZE = {
    "hidden": [64, 64],
    "quantiles": 32,
    "batch": 32,
    "buffer_size": 10_000,
    "learning_starts": 200,
    "target_update_interval": 100,
}


def work(seeds: int) -> Iterator[int]:
    """Train IQN, and yield the environment steps of all seeds after every chunk."""
    training = rp.Training(
        batch_size=SIZE["batch"],
        num_quantiles=SIZE["quantiles"],
        num_target_quantiles=SIZE["quantiles"],
        num_action_quantiles=SIZE["quantiles"],
        buffer_size=SIZE["buffer_size"],
        learning_starts=SIZE["learning_starts"],
        target_update_interval=SIZE["target_update_interval"],
    )
    agent = rp.IQN(rp.CVaR(0.25), network=rp.Network(hidden=tuple(SIZE["hidden"])), training=training)
    run = rp.train(agent, "CartPole-v1", steps=SIZE["learning_starts"] + CHUNK, seeds=seeds)
    while True:
        before = run.steps
        run = rp.train(run, steps=CHUNK)
        yield (run.steps - before) * seeds


def compare(peers_folder: Path, machine: dict[str, Any], seconds: float, repeats: int) -> None:
    """Measure ours with every number of seeds and the peer in turn; print rates and ratios and write them to a file."""
    ours = [[sys.executable, "-W", "ignore", str(Path(__file__).resolve()), str(seeds)] for seeds in SEEDS]
    commands = [peers.take_turns_command(peers_folder, "sb3", SIZE), *ours]
    about, spells = in_turns(commands, seconds, repeats)
    for worker in about:
        machine["versions"] |= worker.get("versions", {})
    rounds = [[spell["rate"] for spell in spells_of_round] for spells_of_round in spells]
    theirs, *own = zip(*rounds, strict=True)
    rows = [summary(seeds, rates, theirs) for seeds, rates in zip(SEEDS, own, strict=True)]
    print(f"QR-DQN, one seed at a time: {statistics.median(theirs):,.0f} steps/s")
    for row in rows:
        spread = f"{min(row['ratios']):.2f} to {max(row['ratios']):.2f}"
        print(f"IQN, {row['seeds']} seed(s): {row['steps_per_second']:,.0f} steps/s, {row['ratio']:.2f} × ({spread})")
    about = {"command": shlex.join(["python", *sys.argv]), **machine, "size": SIZE, "seconds": seconds}
    peer = {"program": "QR-DQN", "seeds": 1, "steps_per_second": statistics.median(theirs), "rates": theirs}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({**about, "rows": [peer, *rows]}, indent=2) + "\n")


def summary(seeds: int, rates: tuple[float, ...], theirs: tuple[float, ...]) -> dict[str, Any]:
    """Return our median rate, and the ratios of spells that follow one another."""
    ratios = [one / other for one, other in zip(rates, theirs, strict=True)]
    medians = {"steps_per_second": statistics.median(rates), "ratio": statistics.median(ratios)}
    return {"program": "IQN", "seeds": seeds, **medians, "rates": rates, "ratios": ratios}


if __name__ == "__main__":
    peers.take_turns(work(int(sys.argv[1])))
