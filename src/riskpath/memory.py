"""Find the free memory, and refuse work that does not fit into it in one line."""

from collections.abc import Callable
from pathlib import Path

import jax

from riskpath.errors import RiskpathError

CONTAINER = Path("/sys/fs/cgroup")
"""Where Linux says how much memory a container may use."""
PAIR_BYTES = 2_000
"""The approximate bytes of a state and an action of a finite problem, with their outcomes."""


def free_bytes() -> float | None:
    """Return the free memory of a device, or of the machine if the device is its processor; None if it is unknown."""
    limits = [device.memory_stats() or {} for device in jax.local_devices() if device.platform != "cpu"]
    if limits and all("bytes_limit" in stats for stats in limits):
        return float(min(stats["bytes_limit"] - stats.get("bytes_in_use", 0) for stats in limits))
    return host_bytes()


def host_bytes() -> float | None:
    """Return the free memory of the machine or of its container; None if it is unknown."""
    return min((free for free in (_machine(), _container()) if free is not None), default=None)


def _machine() -> float | None:
    available = _entry(Path("/proc/meminfo"), "MemAvailable")
    return None if available is None else 1024.0 * available


def _container() -> float | None:
    try:
        most, used = (int((CONTAINER / f"memory.{name}").read_text()) for name in ("max", "current"))
    except (OSError, ValueError):  # no container, or one without a limit, which says "max"
        return None
    return most - used + (_entry(CONTAINER / "memory.stat", "inactive_file") or 0.0)  # copies of files, freed at need


def _entry(file: Path, name: str) -> float | None:
    """Return the number in the line of a file that begins with a name; None if there is none."""
    try:
        return next(float(line.split()[1]) for line in file.read_text().splitlines() if line.startswith(name))
    except (OSError, StopIteration, ValueError):
        return None


def require_memory(what: str, needed: float, cure: Callable[[float], str]) -> None:
    """Refuse work that needs more memory than is free; `cure` says from the free bytes what would fit."""
    free = free_bytes()
    if free is not None and needed > free:
        raise RiskpathError(f"{what} needs about {in_units(needed)}, and {in_units(free)} are free: {cure(free)}")


def require_table(what: str, pairs: float) -> None:
    """Refuse a finite problem whose pairs of a state and an action cannot fit into the memory of the machine."""
    free = host_bytes()
    if free is not None and PAIR_BYTES * pairs > free:
        raise RiskpathError(
            f"{what} has about {pairs:,.0f} pairs of a state and an action, too many for a table: "
            f"{in_units(free)} are free, in which about {int(free / PAIR_BYTES):,} fit"
        )


def in_units(size: float) -> str:
    """Return a number of bytes as text."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} PB"
