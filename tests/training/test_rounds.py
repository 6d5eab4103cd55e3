"""Chunks of training: they end at the same steps however long their parts take, and wherever a run is continued."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from riskpath.training import rounds
from riskpath.training.rounds import Part, Round, in_chunks

ROUND = Round(num_envs=2, moves=1, updates=1, interval=5)
"""Ten steps."""


@dataclass(frozen=True)
class Lanes:
    """As much of lanes as chunks need."""

    steps: int = 0
    num_envs: int = 2
    round: Any = ROUND
    warm_up: int = 41

    @property
    def experience(self) -> Any:
        return self


def explore(lanes: Lanes, moves: int) -> tuple[Lanes, dict[str, Any]]:
    return replace(lanes, steps=lanes.steps + 2 * moves), {}


def parts(monkeypatch, lanes: Lanes, steps: int, seconds: float, begin: int | None = None) -> list[Part]:
    """Return the parts if a round takes so many seconds; the loss is the step."""
    now = [0.0]
    monkeypatch.setattr(rounds.time, "monotonic", lambda: now[0])

    def train(lanes: Lanes, times: int) -> tuple[Lanes, dict[str, Any]]:
        now[0] += seconds * times
        losses = [lanes.steps + 10.0 * (i + 1) for i in range(times)]
        return replace(lanes, steps=lanes.steps + 10 * times), {"loss": np.float32([np.mean(losses)])}

    return list(in_chunks(lanes, steps, 100, explore, train, begin))


@pytest.mark.parametrize("seconds", [1e-6, 0.01, 0.3, 40.0])
def test_chunks_do_not_depend_on_the_time_they_take(monkeypatch, seconds):
    found = parts(monkeypatch, Lanes(), 400, seconds)
    assert [part.lanes.steps for part in found if part.whole] == [42, 142, 242, 342, 402]
    losses = [part.metrics["loss"].item() for part in found if part.whole and part.metrics]
    assert losses == pytest.approx([97.0, 197.0, 297.0, 377.0])
    if seconds == 40.0:
        assert len(found) == 1 + 36


@pytest.mark.parametrize("at", [42, 52, 142, 152, 232])
def test_a_continued_run_has_the_chunks_of_an_uninterrupted_one(monkeypatch, at):
    found = parts(monkeypatch, Lanes(at), 400 - at, 0.3, begin=0)
    assert [part.lanes.steps for part in found if part.whole] == [s for s in (142, 242, 342, 402) if s > at]


def test_parts_take_about_a_second(monkeypatch):
    found = parts(monkeypatch, Lanes(warm_up=0), 1_000, 0.3)
    sizes = np.diff([0, *(part.lanes.steps for part in found)]) // 10
    assert sizes.tolist()[:5] == [1, 3, 3, 3, 3]
