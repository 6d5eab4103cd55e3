"""Two checkouts in turn on one core: `throughput.py --against ../other/src` prints the ratio of their rates.

For each program (agent, size, head, lanes) there are two processes, one for each source tree. Both compile first; then
they train in turn, spell by spell, so that a change in the load of the machine meets both. The ratio of two spells that
follow one another is the measurement; their median is printed. The rate per second of processor time, which other
programs on the machine hardly disturb, is compared as well.

The other checkout may be older: its own `workload.py` makes the agents and runs them, and `benchmarks/throughput.py`
where it has no such file.
"""

import json
import os
import runpy
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from peers import take_turns
from workers import Failed, in_turns

RESULTS = Path(__file__).parents[1] / "results" / "throughput-against.json"
SOURCES = Path(__file__).resolve().parents[2] / "src"


class Program(NamedTuple):
    """What is measured in both checkouts."""

    agent: str
    size: str
    head: str
    lanes: int


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
    _, rounds = in_turns([_command(sources, program) for sources in (other, SOURCES)], seconds, repeats)
    return [old for old, _ in rounds], [new for _, new in rounds]


def _command(sources: Path, program: Program) -> list[str]:
    """Return the command that starts the process of one source tree."""
    return [sys.executable, "-W", "ignore", str(Path(__file__).resolve()), str(sources), json.dumps(program)]


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
    file = next((path for path in (folder / "speed" / "workload.py", folder / "throughput.py") if path.is_file()), None)
    if file is None:
        raise SystemExit(f"{folder} has neither speed/workload.py nor throughput.py")
    sys.path[:1] = [str(file.parent), str(sources)]  # what it imports belongs to its checkout, too
    sys.modules.pop("peers")
    its = runpy.run_path(str(file))
    return its["work"](its["SIZES"][program.size].agent(program.agent, program.head), program.lanes)


if __name__ == "__main__":
    take_turns(_work(Path(sys.argv[1]), Program(*json.loads(sys.argv[2]))))
