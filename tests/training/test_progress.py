"""Progress on a terminal."""

import io
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import riskpath as rp
from riskpath.training import progress
from tests.training.fakes import fake_run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch) -> Terminal:
    """Make stderr a terminal; called within a test, because pytest replaces stderr before it."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "stderr", stderr := Terminal())
    return stderr


def run(steps: int = 400, risks: tuple[str, ...] = ("cvar:0.1",), seeds: int = 2, discount: float = 1.0) -> rp.Run:
    agents = [SimpleNamespace(risk=risk, discount=discount) for risk in risks]
    return fake_run(steps=steps, agents=agents, seeds=seeds, first_seed=3)


def record(lanes: int = 2) -> dict[str, Any]:
    count = np.arange(1.0, lanes + 1)
    figures = {"ep_rew_mean": 10 * count, "ep_rew_risk": count / 8, "ep_len_mean": count + 100, "estimate": -count}
    return {"loss": count, "steps_per_second": 12_345.6, "seconds_left": 61.2, **figures}


@pytest.mark.parametrize(
    ("of", "lanes", "expected"),
    [
        (
            run(),
            2,
            [
                ["last 100 episodes", "return", "cvar:0.1", "length", "own estimate"],
                ["seed 3", "10", "0.125", "101", "-1"],
                ["seed 4", "20", "0.25", "102", "-2"],
            ],
        ),
        (
            run(risks=("mean", "cvar:0.5"), seeds=1, discount=0.9),
            2,
            [
                ["last 100 episodes", "return", "discounted measure", "length", "own estimate"],
                ["mean, seed 3", "10", "0.125", "101", "-1"],
                ["cvar:0.5, seed 3", "20", "0.25", "102", "-2"],
            ],
        ),
        (
            run(seeds=9),
            9,
            [
                ["last 100 episodes", "return", "cvar:0.1", "length", "own estimate"],
                ["9 seeds", "10 to 90", "0.125 to 1.125", "101 to 109", "-9 to -1"],
            ],
        ),
    ],
    ids=["lanes", "settings", "many"],
)
def test_the_rows_below_the_bar_are_the_lanes_or_the_settings(of, lanes, expected):
    assert progress.episode_rows(of, record(lanes)) == expected
    assert progress.episode_rows(of, {"loss": np.ones(lanes)}) == []  # before every lane has finished an episode


def test_many_settings_are_cut_off():
    rows = progress.episode_rows(run(risks=("mean",) * 20, seeds=1), record(20))
    assert len(rows) == 10
    assert rows[1][0] == "setting 0"
    assert rows[-1] == ["and 12 more settings"]


def test_the_time_left_counts_from_where_the_run_was_resumed(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    pace = progress.Pace(10_000, 6_000)
    assert pace.left(6_000) is None
    now[0] = 130.0  # compiled, and 100 steps
    assert pace.left(6_100) == pytest.approx(30 * 39)
    pace.begin(6_100)
    now[0] = 140.0
    assert pace.left(8_100) == pytest.approx(9.5)
    assert pace.left(12_000) == 0


def test_the_bar_shows_steps_speed_time_left_and_episodes(monkeypatch):
    stderr = terminal(monkeypatch)
    bar = progress.TrainingBar(1000)
    bar(run(100), {})
    bar(run(400), record())
    with progress.counting("evaluating", "episodes") as count:  # work in between is a note on the same bar
        count(30, 200)
    bar.close()
    shown = stderr.getvalue()
    assert "training" in shown
    assert "400 steps, 12,346 steps/s, 61 s left" in shown
    assert "evaluating: 30 of 200 episodes" in shown
    for word in ("seed 3", "return", "cvar:0.1", "own estimate", "0.125"):
        assert word in shown
    assert not progress._SHOWN


def test_a_spinner_shows_the_work(monkeypatch):
    stderr = terminal(monkeypatch)
    with progress.working("solving RiskyGrid"):
        pass
    assert "solving RiskyGrid" in stderr.getvalue()


@pytest.mark.parametrize("rich", [True, False])
def test_nothing_is_shown_without_rich_or_a_terminal(rich, monkeypatch):
    stderr = io.StringIO() if rich else Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    if not rich:
        monkeypatch.setitem(sys.modules, "rich", None)
    bar = progress.TrainingBar(1000)
    bar(run(400), record())
    bar.close()
    with progress.working("solving RiskyGrid"):
        pass
    assert stderr.getvalue() == ""
