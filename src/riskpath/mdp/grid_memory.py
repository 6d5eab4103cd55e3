"""The memory of a grid, estimated before it is filled."""

import os
from typing import Any

import jax
import numpy as np

from riskpath.errors import RiskpathError
from riskpath.mdp.grid_problem import GridProblem

SHARE = 0.85
"""The share of the free memory that a grid may take."""


def needed_bytes(problem: GridProblem) -> int:
    """Return about how many bytes a backward pass takes: a table for every step, the tables at work, the stencils."""
    states = int(np.prod(problem.shape))
    corners = 2 ** len(problem.axes)
    branches = max(len(problem.actions), len(problem.noise.nodes))
    return 4 * problem.cells * (problem.steps + 7) + 8 * states * branches * (corners + 2 * len(problem.axes) + 2)


def free_bytes() -> int | None:
    """Return the free memory of the device, or of the machine if the device is its processor; None if unknown."""
    device: Any = jax.devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
    try:
        with open("/proc/meminfo") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        names = os.sysconf_names if hasattr(os, "sysconf_names") else {}
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if "SC_PHYS_PAGES" in names else None


def require_memory(problem: GridProblem) -> None:
    """Refuse a grid that does not fit."""
    needed, free = needed_bytes(problem), free_bytes()
    if free is None or needed <= SHARE * free:
        return
    shape = " × ".join(f"{len(points):,} {name}" for name, points in problem.axes.items())
    raise RiskpathError(
        f"a grid of {shape} × {problem.return_points:,} returns × {problem.steps} steps needs about "
        f"{in_units(needed)}, and {in_units(free)} are free; use fewer points, or a device with more memory"
    )


def in_units(size: float) -> str:
    """Return a number of bytes as text."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"
