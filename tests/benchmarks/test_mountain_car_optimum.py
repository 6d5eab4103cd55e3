"""The benchmark that computes the optimum of the risky mountain car, on a coarse grid."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from riskpath.envs.finite import as_arrays
from riskpath.envs.mountain_car import RiskyMountainCar


@pytest.fixture(scope="module")
def optimum():
    path = Path(__file__).parents[2] / "benchmarks" / "mountain_car_optimum.py"
    spec = importlib.util.spec_from_file_location("mountain_car_optimum", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_backup_is_the_maximum_over_forces(optimum):
    """Compare with a loop over forces at some nodes, on a linear value that interpolation reproduces exactly."""
    env, grid = as_arrays(RiskyMountainCar(c=0.5)), optimum.Grid(91, 71)
    plane = 3 * grid.x[:, None] + 40 * grid.v[None, :]
    got = jax.jit(lambda value: optimum.backup(env, grid, value, jnp.float32(0.2)))(plane)
    for i, j in ((20, 30), (40, 35), (60, 40), (30, 60)):
        x, v, options = float(grid.x[i]), float(grid.v[j]), []
        for a in optimum.ACTIONS:
            after = np.clip(v + 0.0015 * a - 0.0025 * np.cos(3 * x), -0.07, 0.07)
            size, prob = 0.5 * (2 - abs(a)), 1 / (4 - 3 * abs(a))
            reward = -0.1 * a * a - size * prob - 0.2 * size**2 * prob * (1 - prob)
            options.append(reward + 0.99 * (3 * (x + after) + 40 * after))
        assert got[i, j] == pytest.approx(max(options), abs=1e-4)


def test_a_coarse_optimum_already_beats_swinging_at_full_force(optimum):
    (record,) = optimum.cells(0.5, ["cvar:0.25"], optimum.Grid(91, 71), [0.0, 0.15], 100, 10)
    assert record["best"] == pytest.approx(23.5, abs=0.5)
    assert record["bang_bang"] == pytest.approx(-6.0, abs=1.0)
    assert record["do_nothing"] == pytest.approx(-29.0, abs=1.0)
