"""Measure `riskpath serve`: many sessions, many clients, and malformed requests beside another client.

    python benchmarks/speed/serving.py  # 200 clients for 60 seconds, and the rest
    python benchmarks/speed/serving.py --only attacks
    python benchmarks/speed/serving.py --seconds 20 --clients 50 --rate 20

The server is a process of its own. Clients are connections of this process that stay open; each one plays episodes of
30 steps and asks for the next action as soon as it has the last one, or at a rate. A request is
lost if its connection ends without an answer or if the answer is not an action. Each part that was measured replaces
the earlier one in benchmarks/results/serving.json.
"""

import argparse
import asyncio
import collections
import contextlib
import json
import os
import platform
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import malformed
import numpy as np

import riskpath as rp
from riskpath.files import write_json
from riskpath.serving.sessions import Sessions

STEPS = 30
"""Steps of an episode."""
QUANTILES = {"median": 0.5, "p99": 0.99, "longest": 1.0}
EXPIRY = 5
"""Seconds after which an episode expires."""


class Client:
    """One connection."""

    def __init__(self, port: int, policy: str):
        self.port, self.path = port, f"/policies/{policy}/episodes"
        self.reader: Any = None
        self.writer: Any = None

    async def open(self) -> None:
        """Connect."""
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        self.writer.write(f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        return int(head[9:12]), await self.reader.readexactly(int(length[1]) if length else 0)


async def play(client: Client, until: float, interval: float, observation: list[float], found: dict[str, Any]) -> None:
    """Play episodes until a time; note how long every answer took."""
    first = json.dumps({"observation": observation}).encode()
    later = json.dumps({"observation": observation, "reward": 0.25}).encode()
    due = time.perf_counter() + np.random.default_rng().uniform(0, interval)
    await client.open()
    while time.perf_counter() < until:
        key = None
        for step in range(STEPS):
            if interval:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                due += interval
            began = time.perf_counter()
            try:
                status, body = await client.ask(
                    "POST", f"{client.path}/{key}" if key else client.path, later if key else first
                )
            except (OSError, asyncio.IncompleteReadError):
                found["lost"] += 1
                await client.open()
                break
            found["seconds"].append(time.perf_counter() - began)
            if status not in (200, 201):
                found["refused"] += 1
                break
            key = key or json.loads(body)["episode"]
            if step == STEPS - 1:
                await client.ask("DELETE", f"{client.path}/{key}")
    client.writer.close()


async def load(port: int, policy: str, clients: int, seconds: float, rate: float, observation: list[float]) -> Any:
    """Return actions per second, lost requests and quantiles of latency."""
    found: dict[str, Any] = {"lost": 0, "refused": 0, "seconds": []}
    began = time.perf_counter()
    interval = 1 / rate if rate else 0.0
    every = [play(Client(port, policy), began + seconds, interval, observation, found) for _ in range(clients)]
    await asyncio.gather(*every)
    took, waited = time.perf_counter() - began, np.array(found["seconds"]) * 1e3
    return {
        "clients": clients,
        "rate of each": rate or "as fast as possible",
        "seconds": round(took, 1),
        "actions per second": round(len(waited) / took),
        "lost": found["lost"],
        "refused": found["refused"],
        **{f"p{q:g} ms": round(float(np.percentile(waited, q)), 1) for q in (50, 99, 99.9)},
    }


@contextlib.asynccontextmanager
async def victim(port: int, policy: str, observation: list[float], waited: list[float]) -> AsyncIterator[None]:
    """Let one client act a hundred times a second; note how long it waits."""
    client, stop = Client(port, policy), False
    await client.open()
    body = json.dumps({"observation": observation, "reward": 0.25}).encode()
    key = json.loads((await client.ask("POST", client.path, json.dumps({"observation": observation}).encode()))[1])

    async def act() -> None:
        while not stop:
            began = time.perf_counter()
            await client.ask("POST", f"{client.path}/{key['episode']}", body)
            waited.append(time.perf_counter() - began)
            await asyncio.sleep(0.01)

    task = asyncio.create_task(act())
    await asyncio.sleep(0.2)
    yield
    stop = True
    await task
    client.writer.close()


async def attacks(port: int, policy: str, observation: list[float]) -> dict[str, Any]:
    """Return the answers to malformed requests, and how long another client waited meanwhile.

    They are sent by another process, so that the times are those of the server. Nothing is sent before and after.
    """
    rows: dict[str, Any] = {}
    for name in ["nothing before", *malformed.requests(policy), "nothing after"]:
        waited: list[float] = []
        command, pipe = [sys.executable, malformed.__file__, str(port), policy, name], asyncio.subprocess.PIPE
        process = None
        if not name.startswith("nothing"):
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
            await asyncio.sleep(1)  # until it has started: that takes time from everybody
        status = ""
        async with victim(port, policy, observation, waited):
            if process is None:
                await asyncio.sleep(10)
            else:
                status = (await process.communicate(b"\n"))[0].decode().strip()
        times = {f"{what} ms": 1e3 * float(np.quantile(waited, q)) for what, q in QUANTILES.items()}
        rows[name] = {"status": status, "requests": len(waited)} | {what: round(one, 1) for what, one in times.items()}
    return rows


def million_sessions(count: int) -> dict[str, Any]:
    """Return the memory of a store of sessions before and after many of them; a tenth expires, the rest is ended."""
    memory, now = [np.zeros((16,), np.float32), np.zeros((), np.int32)], [0.0]
    sessions = Sessions(memory, 10_000, 600.0, lambda: now[0])
    growth: list[float] = []
    for number in range(count):
        now[0] += 0.7
        session = sessions.begin()
        sessions.write(np.array([session.row]), [part[None] for part in memory])
        sessions.release(session)
        if number % 10:
            sessions.end(session)
        if number % (count // 10) == count // 10 - 1:
            growth.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return {"sessions": count, "left": len(sessions), "MB after each tenth": [round(one) for one in growth]}


async def sessions_over_http(process: subprocess.Popen[str], port: int, policy: str, count: int, first: bytes) -> Any:
    """Return the memory of the server after each tenth of many sessions; a tenth expires, the rest is ended."""
    numbers, statuses = iter(range(count)), collections.Counter[int]()
    growth = [resident(process)]

    async def play() -> None:
        client = Client(port, policy)
        await client.open()
        for number in numbers:
            status, body = await client.ask("POST", client.path, first)
            statuses[status] += 1
            if number % 10:
                await client.ask("DELETE", f"{client.path}/{json.loads(body)['episode']}")
            if number % (count // 10) == count // 10 - 1:
                growth.append(resident(process))
        client.writer.close()

    await asyncio.gather(*(play() for _ in range(20)))
    return {"sessions": count, "statuses": dict(statuses), "MB before and after each tenth": growth}


@contextlib.contextmanager
def server(path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start `riskpath serve` and stop it; yield the process and the port."""
    command = [sys.executable, "-m", "riskpath", "serve", f"policy={path}", "--port", "0", "--request-seconds", "3"]
    command += ["--episode-seconds", str(EXPIRY)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert process.stdout is not None
    line = process.stdout.readline()
    port = int(re.findall(r":(\d+)", line)[0])
    try:
        asyncio.run(until_ready(port))
        yield process, port
    finally:
        process.send_signal(signal.SIGTERM)
        print(process.stdout.read().strip(), "with status", process.wait(30))


async def until_ready(port: int) -> None:
    client = Client(port, "policy")
    await client.open()
    while (await client.ask("GET", "/ready"))[0] != 200:
        await asyncio.sleep(0.1)
    client.writer.close()


def resident(process: subprocess.Popen[str]) -> int:
    """Return the memory of a process in MB, on Linux."""
    status = Path(f"/proc/{process.pid}/status")
    found = re.search(r"VmRSS:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(found[1]) // 1024 if found else 0


def processor_seconds(process: subprocess.Popen[str]) -> float:
    """Return the processor time of a process so far, on Linux: what an answer costs, whatever else is running."""
    status = Path(f"/proc/{process.pid}/stat")
    ticks = sum(map(int, status.read_text().rpartition(")")[2].split()[11:13])) if status.exists() else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def measure_server(options: argparse.Namespace) -> dict[str, Any]:
    """Return what was measured of a server."""
    record: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        agent = rp.Adaptive(rp.CVaR(0.25), training=rp.Training(learning_starts=100), selection_episodes=0)
        run = rp.train(agent, rp.MeanReversionTrading(), steps=200)
        path = run.policy().export(Path(folder) / "policy.zip", platforms=("cpu",))
        observation = [0.0] * run.spec.observation_shape[0]
        with server(path) as (process, port):
            if options.only in (None, "load"):
                memory, before, own = resident(process), processor_seconds(process), time.process_time()
                row = asyncio.run(load(port, "policy", options.clients, options.seconds, options.rate, observation))
                count = row["actions per second"] * row["seconds"]
                row["server, processor µs per action"] = round(1e6 * (processor_seconds(process) - before) / count)
                row["clients, processor µs per action"] = round(1e6 * (time.process_time() - own) / count)
                record["load of clients"] = row | {"MB before and after": [memory, resident(process)]}
            if options.only in (None, "sessions"):
                first, count = json.dumps({"observation": observation}).encode(), options.http_sessions
                done = sessions_over_http(process, port, "policy", count, first)
                record["sessions over HTTP"] = asyncio.run(done)
            if options.only in (None, "attacks"):
                memory = resident(process)
                rows = asyncio.run(attacks(port, "policy", observation))
                record["malformed"] = rows | {"MB before and after": [memory, resident(process)]}
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=0.0, help="actions per second of each client; 0: at once")
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--http-sessions", type=int, default=20_000)
    parser.add_argument("--only", choices=["load", "attacks", "sessions"])
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "serving.json")
    options = parser.parse_args()
    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "load before": os.getloadavg()}
    found = {"sessions": million_sessions(options.sessions)} if options.only in (None, "sessions") else {}
    found |= measure_server(options)
    for name, part in found.items():
        print(name, *(f"    {key}: {value}" for key, value in part.items()), sep="\n")
    earlier = json.loads(options.out.read_text()) if options.out.exists() else {}
    after = {"load after": os.getloadavg()}
    write_json(options.out, earlier | {name: machine | after | part for name, part in found.items()})


if __name__ == "__main__":
    main()
