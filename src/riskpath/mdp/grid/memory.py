"""The memory of a grid, estimated before it is filled."""

import numpy as np

from riskpath import memory
from riskpath.mdp.grid.problem import GridProblem

SHARE = 0.85
"""The fraction of the free memory that a grid may take."""


def needed_bytes(problem: GridProblem) -> int:
    """Return a rough size of a backward pass in bytes: a table for every step, the tables in use, the stencils."""
    states = int(np.prod(problem.shape))
    corners = 2 ** len(problem.axes)
    branches = max(len(problem.actions), len(problem.noise.nodes))
    return 4 * problem.cells * (problem.steps + 7) + 8 * states * branches * (corners + 2 * len(problem.axes) + 2)


def require_memory(problem: GridProblem) -> None:
    """Refuse a grid that does not fit."""
    shape = " × ".join(f"{len(points):,} {name}" for name, points in problem.axes.items())
    what = f"a grid of {shape} × {problem.return_points:,} returns × {problem.steps} steps"
    needed = needed_bytes(problem) / SHARE

    def cure(free: float) -> str:
        return f"use fewer points, for example {max(2, int(problem.return_points * free / needed)):,} returns"

    memory.require_memory(what, needed, cure)
