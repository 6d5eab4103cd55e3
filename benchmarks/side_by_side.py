"""Two checkouts in turn on one core: `throughput.py --against ../other/src` prints the ratio of their rates.

For each program (agent, size, head, lanes) there are two processes, one for each source tree. Both compile first; then
they train in turn, spell by spell, so that a change in the load of the machine meets both. The ratio of two spells that
follow one another is the measurement; their median is printed. The rate per second of processor time, which other
programs on the machine hardly disturb, is compared as well.

The other checkout may be older: its own benchmarks/throughput.py makes the agents and runs them. Before version 0.2
that file had other names; `_work` uses them if it has to.
"""

import contextlib
import importlib
import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from peers import take_turns

RESULTS = Path(__file__).parent / "results" / "throughput-against.json"
SOURCES = Path(__file__).resolve().parent.parent / "src"
OLD_SIZES = {"paper": "PAPER", "small": "SMALL", "continuous": "VECTOR"}
OLD_HEADS = {"factored": "late", "deep": "deep"}
COMPILING_S = 1_200
"""Seconds that a process may take to compile, or to answer beyond the length of a spell."""


class Program(NamedTuple):
    """What is measured in both checkouts."""

    agent: str
    size: str
    head: str
    lanes: int


class Failed(Exception):
    """A process ended or did not answer in time."""


class Worker:
    """A process that trains a spell at a time (`peers.take_turns`)."""

    def __init__(self, command: list[str], environment: dict[str, str]):
        one_thread = {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **one_thread, **environment},
        )
        self.errors: list[str] = []
        self.collector = threading.Thread(target=self._collect_errors, daemon=True)
        self.collector.start()

    def _collect_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors = [*self.errors[-19:], line.rstrip()]

    def answer(self, timeout: float) -> dict[str, Any]:
        """Return the next answer; other lines that a library prints are skipped."""
        timer = threading.Timer(timeout, self.process.kill)
        timer.start()
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                if line.startswith("ANSWER "):
                    return json.loads(line.removeprefix("ANSWER "))
        finally:
            timer.cancel()
        self.process.wait()
        self.collector.join()
        raise Failed(self.errors[-1] if self.errors else f"exit status {self.process.returncode}")

    def spell(self, seconds: float) -> dict[str, float]:
        """Train for some seconds and return the rates."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{seconds}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(self.errors[-1] if self.errors else "the process has ended") from None
        return self.answer(seconds + COMPILING_S)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        self.collector.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                assert pipe is not None
                pipe.close()


def compare(other: Path, programs: list[Program], seconds: float, repeats: int) -> None:
    """Measure programs in both checkouts, print the ratios and write them to a file after every program."""
    other = _sources(other)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the processes inherit it
    print("old and new in turn on one core; updates per second, and new / old as the median of neighbouring spells\n")
    columns = f"{'old':>10}{'new':>10}{'ratio':>8}{'lowest':>8}{'highest':>8}{'by CPU time':>13}"
    print(f"{'agent':16}{'size':12}{'head':10}{'lanes':>5}{columns}", flush=True)
    rows: list[dict[str, Any]] = []
    for program in programs:
        row: dict[str, Any] = program._asdict()
        try:
            row |= summary(*measure(other, program, seconds, repeats))
        except Failed as failure:
            row |= {"failed": str(failure)}
        rows.append(row)
        print(_line(row), flush=True)
        RESULTS.parent.mkdir(exist_ok=True)
        about = {"seconds": seconds, "repeats": repeats, "versions": [_version(other), _version(SOURCES)]}
        RESULTS.write_text(json.dumps({**about, "rows": rows}, indent=2) + "\n")
    slower = [row for row in rows if row.get("ratio_by_cpu_time", 1.0) < 0.95]
    names = [f"{row['agent']} ({row['size']}, {row['lanes']} lanes)" for row in slower]
    print(f"\nslower by more than 5%: {', '.join(names) or 'none'}")


def measure(
    other: Path, program: Program, seconds: float, repeats: int
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Return the rates of both checkouts in spells that take turns."""
    workers: list[Worker] = []
    try:
        for sources in (other, SOURCES):
            workers.append(_worker(sources, program))
            workers[-1].answer(COMPILING_S)  # one after the other: both use the same core
        for worker in workers:
            worker.spell(min(1.0, seconds))  # the first spell is not counted
        spells = [[worker.spell(seconds) for worker in workers] for _ in range(repeats)]
    finally:
        for worker in workers:
            worker.close()
    return [old for old, _ in spells], [new for _, new in spells]


def _worker(sources: Path, program: Program) -> Worker:
    """Start the process of one source tree."""
    command = [sys.executable, "-W", "ignore", str(Path(__file__).resolve()), str(sources), json.dumps(program)]
    return Worker(command, {"PYTHONPATH": str(sources)})


def summary(old: list[dict[str, float]], new: list[dict[str, float]]) -> dict[str, Any]:
    """Return median rates and ratios of spells that follow one another."""
    by_clock = [after["rate"] / before["rate"] for before, after in zip(old, new, strict=True)]
    by_cpu = [after["cpu_rate"] / before["cpu_rate"] for before, after in zip(old, new, strict=True)]
    return {
        "old": statistics.median(spell["rate"] for spell in old),
        "new": statistics.median(spell["rate"] for spell in new),
        "ratio": statistics.median(by_clock),
        "ratios": by_clock,
        "ratio_by_cpu_time": statistics.median(by_cpu),
        "ratios_by_cpu_time": by_cpu,
    }


def _line(row: dict[str, Any]) -> str:
    start = f"{row['agent']:16}{row['size']:12}{row['head']:10}{row['lanes']:5}"
    if "failed" in row:
        return f"{start}  failed: {row['failed']}"
    low, high = min(row["ratios"]), max(row["ratios"])
    rates = f"{row['old']:10,.0f}{row['new']:10,.0f}"
    return f"{start}{rates}{row['ratio']:8.3f}{low:8.3f}{high:8.3f}{row['ratio_by_cpu_time']:13.3f}"


def _sources(path: Path) -> Path:
    """Return the src folder of a checkout, given itself or its parent."""
    for folder in (path, path / "src"):
        if (folder / "riskpath").is_dir():
            return folder.resolve()
    raise SystemExit(f"{path} has no package riskpath: give the src folder of a checkout")


def _version(sources: Path) -> str:
    for file in ("version.py", "__init__.py"):
        path = sources / "riskpath" / file
        if path.is_file():
            for line in path.read_text().splitlines():
                if line.startswith("__version__"):
                    return line.partition("=")[2].strip(" \"'")
    return "unknown"


def _work(sources: Path, program: Program) -> Iterator[int]:
    """Return the training of a program in this process, with the benchmark that belongs to the source tree."""
    folder = sources.parent / "benchmarks"
    sys.path[:] = [str(folder), *(path for path in sys.path if Path(path or ".").resolve() != Path(__file__).parent)]
    sys.modules.pop("peers", None)  # that of the other checkout may differ
    module = importlib.import_module("throughput")
    module.AGENTS.setdefault("CVaR-DRL", module.rp.CVaRDRL)  # not measured before version 0.2
    if hasattr(module, "SIZES"):
        return module.work(module.SIZES[program.size].agent(program.agent, program.head), program.lanes)
    size = getattr(module, OLD_SIZES[program.size])
    if program.size == "continuous":
        return module.work(size.agent(program.agent), program.lanes, rounds=1)
    return module.work(size.agent(program.agent, OLD_HEADS[program.head]), program.lanes)


if __name__ == "__main__":
    take_turns(_work(Path(sys.argv[1]), Program(*json.loads(sys.argv[2]))))
