"""Sweeps as programs of their own: killed at random moments, and on eight devices instead of one."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import riskpath as rp
from tests.sweeps.tiny_sweep import HOW

PROGRAM = [sys.executable, "-m", "tests.sweeps.tiny_sweep"]
ROOT = Path(__file__).parents[2]


def start(folder: Path, devices: int = 1, *more: str) -> subprocess.Popen[str]:
    """Start the tiny sweep in a process with this number of CPU devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.Popen(
        [*PROGRAM, str(folder), *more], stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )


def rows(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Return the rows that a sweep prints in the end."""
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    return json.loads(out)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> tuple[list[dict[str, Any]], float]:
    """Return the rows of the whole sweep, and the seconds that it takes when its programs are compiled."""
    found = rows(start(tmp_path_factory.mktemp("first")))
    began = time.monotonic()
    assert rows(start(tmp_path_factory.mktemp("again"))) == found
    return found, time.monotonic() - began


@pytest.mark.long
def test_ten_kills_at_random_moments_change_nothing(uninterrupted, tmp_path):
    whole, seconds = uninterrupted
    moments, finished = random.Random(0), []
    for _ in range(10):
        process = start(tmp_path)
        time.sleep(moments.uniform(0.3, 0.9) * seconds)
        process.kill()
        process.communicate()
        finished.append(len(rp.load_sweep(tmp_path).lanes) if (tmp_path / "sweep.json").exists() else 0)
    assert finished == sorted(finished)
    assert rows(start(tmp_path)) == whole
    assert len(rp.load_sweep(tmp_path).lanes) == len(whole)


@pytest.mark.long
@pytest.mark.parametrize("head", ["table", "factored"])
def test_eight_devices_give_the_same_numbers_as_one(tmp_path, head):
    """All bits with tables; networks are compiled differently for several devices, and so rounded differently."""
    one, eight = (rows(start(tmp_path / str(devices), devices, head)) for devices in (1, 8))
    assert len(one) == 8 * HOW["max_lanes"]
    assert len(list((tmp_path / "8" / "cells").iterdir())) == 1  # a block for each device
    if head == "table":
        assert eight == one
    else:  # large learning rates magnify the rounding within these 200 steps
        slow = [place for place, row in enumerate(one) if row["training.learning_rate"] <= 1e-2]
        assert [eight[place]["estimate"] for place in slow] == pytest.approx(
            [one[place]["estimate"] for place in slow], rel=1e-3
        )
