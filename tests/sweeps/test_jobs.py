"""The time that is left, and what a lost node of a Ray cluster says."""

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from riskpath.sweeps import jobs
from riskpath.sweeps.ray_engine import OnRay


def work(count: int) -> list[Any]:
    return [SimpleNamespace(name=f"job {number}", size=2.0, run=dict, split=list) for number in range(count)]


@pytest.mark.parametrize(
    ("slots", "ends", "expected"),
    [
        # One after another: the first job compiles for 60 s, then each takes 1 s.
        (1, [60.0, 61.0, 62.0], ["at most 3 min left", "about 2 s left", "about 1 s left"]),
        # Side by side: all of them end at about the same time.
        (4, [60.0, 60.0, 61.0, 62.0], ["about 36 s left", "about 20 s left", "about 9 s left", "about 0 s left"]),
    ],
)
def test_the_time_left_does_not_count_compilation_again_nor_jobs_that_run_already(monkeypatch, slots, ends, expected):
    now = [0.0]
    monkeypatch.setattr(jobs.time, "monotonic", lambda: now[0])
    lines: list[str] = []
    todo = work(4)
    meter = jobs.Meter(todo, lines.append, 0, slots)
    for job, now[0] in zip(todo, ends, strict=False):
        meter.after(job, "done")
    assert [line.partition(", ")[2].partition(":")[0] for line in lines[1:]] == expected


def test_a_lost_node_is_said_once():
    alive = [2, 2, 1, 1]
    nodes = [{"NodeID": f"n{i}", "NodeManagerAddress": f"10.0.0.{i}"} for i in range(2)]
    states = itertools.chain([[{**node, "Alive": i < count} for i, node in enumerate(nodes)] for count in alive])
    ready = iter([[], [], [], ["reference"]])
    engine = object.__new__(OnRay)
    (job,) = work(1)
    engine._ray = SimpleNamespace(
        wait=lambda *_, **__: (next(ready), None), nodes=lambda: next(states), get=lambda _: {}, exceptions=None
    )
    engine._jobs, engine._nodes = {"reference": job}, {}
    lines: list[str] = []
    assert engine.wait(jobs.Meter([job], lines.append, 0)) == (job, {})
    assert lines[1:] == ["lost a node of the Ray cluster, 10.0.0.1: 1 left; its cells run again elsewhere"]
