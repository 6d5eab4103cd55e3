"""Callbacks that log training."""

import json
import sys
import types
from typing import Any

import numpy as np
import pytest

import riskpath as rp

NUMBERS = {
    "step": 100,
    "loss": np.array([0.5, 0.25]),
    "steps_per_second": 10.0,
    "evaluation": {"values": [[1.0, 2.0]], "path": "BBB", "each": [np.float32(3.0)]},
}


def test_json_lines_contain_arrays_and_evaluations(tmp_path):
    log = rp.JSONLines(tmp_path / "log.jsonl")
    log(None, NUMBERS)
    log(None, {**NUMBERS, "step": 200})
    first, second = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert (first["step"], second["step"]) == (100, 200)
    assert first["loss"] == [0.5, 0.25]
    assert first["evaluation"] == {"values": [[1.0, 2.0]], "path": "BBB", "each": [3.0]}


@pytest.mark.parametrize(
    ("content", "resume_at", "kept"),
    [
        ('{"step": 10}\n{"step": 20}\n{"step": 30}\n', 20, [10, 20]),
        ('{"step": 10}\n{"step": 20}\n', 20, [10, 20]),
        ('{"step": 10}\n{"step": 20}\n', 0, []),
        ('{"step": 10}\n{"step": 2', 20, [10]),  # a killed process leaves half a line
        ('{"step": 10}\n{"step": 20}', 20, [10]),
        ('{"step": 10}\n[]\n\n{"loss": 1}\n', 20, [10]),
        ('{"step": 10}\n{"step": 20}\n', None, [10, 20]),
        ("", 20, []),
    ],
)
def test_lines_after_the_step_at_which_a_run_is_resumed_are_dropped(tmp_path, content, resume_at, kept):
    (tmp_path / "log.jsonl").write_text(content)
    log = rp.JSONLines(tmp_path / "log.jsonl", resume_at=resume_at)
    log(None, {"step": 25})
    steps = [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert steps == [*kept, 25]
    assert [file.name for file in tmp_path.iterdir()] == ["log.jsonl"]


def test_an_interruption_while_a_log_is_cut_leaves_the_old_log(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    content = '{"step": 10}\n{"step": 20}\n'
    (tmp_path / "log.jsonl").write_text(content)
    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(rp.RiskpathError, match=r"cannot write .*log.jsonl: No space left on device"):
        rp.JSONLines(tmp_path / "log.jsonl", resume_at=10)
    assert (tmp_path / "log.jsonl").read_text() == content


def test_tensorboard_receives_a_scalar_for_every_lane(tmp_path, monkeypatch):
    written: dict[str, tuple[float, int]] = {}
    purged: list[int | None] = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int | None, **options: Any):
            purged.append(purge_step)

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written[name] = (value, step)

    monkeypatch.setitem(sys.modules, "tensorboardX", types.SimpleNamespace(SummaryWriter=SummaryWriter))
    rp.TensorBoard(tmp_path)(None, NUMBERS)
    rp.TensorBoard(tmp_path, resume_at=100)
    assert purged == [None, 101]
    assert written == {
        "loss/lane_0": (0.5, 100),
        "loss/lane_1": (0.25, 100),
        "steps_per_second": (10.0, 100),
        "evaluation/values/lane_0": (1.0, 100),
        "evaluation/values/lane_1": (2.0, 100),
        "evaluation/each": (3.0, 100),
    }


def test_without_tensorboardx_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(rp.RiskpathError, match="tensorboardX: pip install"):
        rp.TensorBoard(tmp_path)
