"""Progress on a terminal, with rich and without."""

import io
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from riskpath.training import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(params=["rich", "plain"])
def library(request, monkeypatch) -> str:
    if request.param == "plain":
        monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return request.param


def run(steps: int) -> Any:
    return SimpleNamespace(steps=steps, estimates=lambda: np.array([[1.0, 2.0, 3.0], [7.5, 7.5, 7.5]]))


def test_the_bar_shows_steps_speed_and_estimates(library, monkeypatch):
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    bar = progress.TrainingBar(1000)
    bar(run(100), {})
    bar(run(400), {"loss": 0.1, "steps_per_second": 12_345.6})
    bar.close()
    shown = stderr.getvalue()
    assert "training" in shown
    assert "400 steps, 12,346 steps/s, estimates 2, 7.5" in shown
    if library == "plain":
        assert "training  10%  100 random steps; compiling" in shown
        assert "training  40%  400 steps" in shown
        assert shown.endswith("\n")
        assert shown.count("\n") == 1


def test_a_spinner_shows_the_work_and_disappears(library, monkeypatch):
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress.working("solving RiskyGrid"):
        pass
    assert "solving RiskyGrid" in stderr.getvalue()
    if library == "plain":
        assert stderr.getvalue().endswith(f"\r{'':119}\r")


def test_nothing_is_shown_if_stderr_is_not_a_terminal(library, monkeypatch):
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    bar = progress.TrainingBar(1000)
    bar(run(400), {"loss": 0.1, "steps_per_second": 1.0})
    bar.close()
    with progress.working("solving RiskyGrid"):
        pass
    assert stderr.getvalue() == ""


def test_plain_text_is_cut_off_at_the_width_of_the_terminal(monkeypatch):
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("COLUMNS", "11")
    monkeypatch.setitem(sys.modules, "rich", None)
    with progress.working("solving RiskyGrid"):
        pass
    assert stderr.getvalue().split("\r") == ["", "solving Ri", "solving Ri", " " * 10, ""]
