"""Agents with their defaults in public environments, for the mean and for CVaR 0.25, beside Stable-Baselines3.

    pip install box2d minigrid highway-env gymnax stable-baselines3
    python benchmarks/peers/public_environments.py                      every job, as many at a time as there are cores
    python benchmarks/peers/public_environments.py --only "LunarLander/Adaptive" --at-once 2 --minutes 60
    python benchmarks/peers/public_environments.py --jobs list.txt --accelerate Adaptive --pack results.json
    python benchmarks/peers/public_environments.py --draw results.json  table and figure of the results so far

A job is an environment, an agent, a measure and a group of seeds, `LunarLander/Adaptive/cvar:0.25/0-7`; our agents take
several environments of equal sizes at once, `LunarLander+LunarLander windy/Adaptive/mean/0-7`. `public_tasks.py` says
how it is trained. It runs in a process of its own, on one core, or on JAX's accelerator if `--accelerate` names it. Its
result goes to a file of its own in the folder `runs`, so that an interrupted benchmark is continued: a job that was
stopped goes on from its last checkpoint. Final policies are rolled out greedily; none is selected. All results together
make benchmarks/results/public_environments.json, .md and .png.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from public_tables import merge, write_results
from public_tasks import PEERS, TASKS, train

MEASURES = ("mean", "cvar:0.25")
SECONDS = {"Adaptive": 4.0, "AdaptiveContinuous": 2.5, "IQN": 0.5, "IQTD3": 1.5, "DQN": 1.5, "TD3": 5.0}
"""About how many seconds 1,000 steps of a seed take on one core: the longest jobs are started first."""
GRACE = 25.0
"""Seconds that a job has to save its state when the time is over."""


def job_names(seeds: int, group: int) -> list[str]:
    """Return the name of every job, the longest first. A peer has one measure, and one seed in each job."""
    listed = []
    for env, task in TASKS.items():
        for agent in task.agents:
            size = 1 if agent in PEERS else min(group, seeds)
            groups = [(first, min(first + size, seeds) - 1) for first in range(0, seeds, size)]
            measures = MEASURES[:1] if agent in PEERS else MEASURES
            listed += [f"{env}/{agent}/{m}/{first}-{last}" for m in measures for first, last in groups]
    return sorted(listed, key=_cost, reverse=True)


def parse(name: str) -> tuple[list[str], str, str, range]:
    """Return environments, agent, measure and seeds of a job."""
    envs, agent, measure, seeds = name.strip().split("/")
    listed, (first, last) = envs.split("+"), map(int, seeds.split("-"))
    if not all(env in TASKS and agent in TASKS[env].agents for env in listed):
        raise ValueError(f"no such job: {name}")
    return listed, agent, measure, range(first, last + 1)


def _cost(name: str) -> float:
    envs, agent, _, seeds = parse(name)
    return TASKS[envs[0]].steps * SECONDS[agent] * len(seeds) * len(envs)


def _file(out: Path, name: str) -> Path:
    return out / (name.replace(" ", "_").replace("/", ".").replace(":", "-") + ".json")


def work(name: str, share: float, target: Path) -> None:
    """Run one job in this process; a failure is one line in a file of its own."""
    envs, agent, measure, seeds = parse(name)
    steps, failed = int(TASKS[envs[0]].steps * share), target.with_suffix(".failed")
    failed.unlink(missing_ok=True)
    try:
        records = train(envs, agent, measure, seeds, steps, target.with_suffix(""))
    except KeyboardInterrupt:  # while it compiles, or evaluates what it has saved
        raise SystemExit(1) from None
    except Exception as error:
        failed.write_text(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
        print(failed.read_text(), flush=True)
        raise SystemExit(1) from None
    if records:
        target.with_suffix(".part").write_text(json.dumps(records))
        os.replace(target.with_suffix(".part"), target)
    for one in records:
        print(f"{one['env']}, {name}: {one['seconds']} s, means {one['means']}, CVaR {one['cvars']}", flush=True)


def run_all(wanted: list[str], options: argparse.Namespace) -> None:
    """Run jobs side by side until all are done or the time is over; then ask those that run to stop."""
    options.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60.0 * options.minutes
    cores = sorted(os.sched_getaffinity(0))
    places: list[Any] = [f"accelerator {i}" for i in range(options.sharing)] + cores[: options.at_once]
    have = {row for path in options.have for row in _seeds_in(json.loads(path.read_text())["records"])}
    waiting = [name for name in wanted if not _file(options.out, name).exists() and not _seeds_of(name) <= have]
    running: dict[Any, subprocess.Popen[bytes]] = {}
    while (waiting or running) and time.monotonic() < end:
        for place in [place for place in places if place not in running]:
            fitting = [name for name in waiting if _accelerated(name, options) == isinstance(place, str)]
            if fitting:
                waiting.remove(fitting[0])
                running[place] = _start(fitting[0], place, options)
        time.sleep(0.2)
        running = {place: process for place, process in running.items() if process.poll() is None}
    for process in running.values():
        process.send_signal(signal.SIGINT)
    end = time.monotonic() + GRACE
    while any(process.poll() is None for process in running.values()) and time.monotonic() < end:
        time.sleep(0.2)
    for process in running.values():
        process.kill()
    print(f"{len(waiting)} jobs not started, {len(running)} stopped", flush=True)


def _seeds_of(name: str) -> set[tuple[str, str, str, int]]:
    envs, agent, measure, seeds = parse(name)
    return {(env, agent, measure, seed) for env in envs for seed in seeds}


def _seeds_in(records: list[dict[str, Any]]) -> set[tuple[str, str, str, int]]:
    return {(r["env"], r["agent"], r["risk"], seed) for r in records for seed in r["seeds"]}


def _accelerated(name: str, options: argparse.Namespace) -> bool:
    return parse(name)[1] not in PEERS and any(text in name for text in options.accelerate)


def _start(name: str, place: Any, options: argparse.Namespace) -> "subprocess.Popen[bytes]":
    env = {**os.environ, "OMP_NUM_THREADS": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if not isinstance(place, str):
        one = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        env |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"{env.get('XLA_FLAGS', '')} {one}".strip()}
    command = [sys.executable, __file__, "--job", name, "--share", str(options.share), "--out", str(options.out)]
    pin = None if isinstance(place, str) else lambda: os.sched_setaffinity(0, {place})
    return subprocess.Popen(command, env=env, preexec_fn=pin)


def results_in(out: Path) -> dict[str, Any]:
    """Return all results of a folder, and what failed."""
    records = [record for file in sorted(out.glob("*.json")) for record in json.loads(file.read_text())]
    return {"records": records, "failed": [file.read_text() for file in sorted(out.glob("*.failed"))]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[""], help="jobs with one of these texts in their name")
    parser.add_argument("--jobs", type=Path, help="a file with the name of one job in each line, the first ones first")
    parser.add_argument("--list", action="store_true", help="print the names of the jobs only")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--group", type=int, default=8, help="seeds of one process of our agents")
    parser.add_argument("--share", type=float, default=1.0, help="share of the steps, for a quick look")
    parser.add_argument("--at-once", type=int, default=os.cpu_count(), help="jobs side by side, one core each")
    parser.add_argument(
        "--accelerate", nargs="*", default=[], help="our jobs with one of these texts: on an accelerator"
    )
    parser.add_argument("--sharing", type=int, default=4, help="jobs side by side on the accelerator")
    parser.add_argument("--minutes", type=float, default=1e6, help="when this time is over, jobs save and stop")
    parser.add_argument("--out", type=Path, default=Path("runs/public_environments"))
    parser.add_argument("--have", type=Path, nargs="*", default=[], help="packed results that are not made again")
    parser.add_argument("--pack", type=Path, help="write all results of the folder to this file")
    parser.add_argument("--draw", type=Path, nargs="*", help="add packed results to the committed ones, and draw")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        work(options.job, options.share, _file(options.out, options.job))
        return
    if options.draw is not None:
        new = [json.loads(path.read_text()) for path in options.draw] + [results_in(options.out)]
        print(write_results(merge([record for one in new for record in one["records"]])))
        return
    listed = options.jobs.read_text().splitlines() if options.jobs else job_names(options.seeds, options.group)
    wanted = [name for name in listed if name.strip() and any(text in name for text in options.only)]
    if options.list:
        print("\n".join(wanted))
        return
    for name in wanted:
        parse(name)
    run_all(wanted, options)
    if options.pack:
        options.pack.write_text(json.dumps(results_in(options.out)) + "\n")


if __name__ == "__main__":
    main()
