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
    events: list[dict[str, Any]] = []

    class SessionLog(types.SimpleNamespace):
        START = 1

    class EventsWriter:
        flush = close = lambda self: None

        def __init__(self, path: str):
            assert path == str(tmp_path / "events")

        def write_event(self, event: dict[str, Any]) -> None:
            events.append(event)

    protocol = types.SimpleNamespace(Event=lambda **event: event, SessionLog=SessionLog)
    files = types.SimpleNamespace(EventsWriter=EventsWriter, event_pb2=protocol)
    summary = types.SimpleNamespace(scalar=lambda name, value: (name, value), text=lambda name, text: (name, text))
    names = {"": types.SimpleNamespace(), ".event_file_writer": files, ".summary": summary}
    for name, module in names.items():
        monkeypatch.setitem(sys.modules, f"tensorboardX{name}", module)
    rp.TensorBoard(tmp_path)(None, NUMBERS)
    written = {event["summary"][0]: (event["summary"][1], event["step"]) for event in events}
    rp.TensorBoard(tmp_path, resume_at=100)
    assert (events[-1]["step"], events[-1]["session_log"].status) == (101, SessionLog.START)
    assert written == {
        "loss/lane_0": (0.5, 100),
        "loss/lane_1": (0.25, 100),
        "steps_per_second": (10.0, 100),
        "evaluation/values/lane_0": (1.0, 100),
        "evaluation/values/lane_1": (2.0, 100),
        "evaluation/each": (3.0, 100),
    }


def test_without_tensorboardx_one_line_says_what_to_install(tmp_path, monkeypatch):
    for module in ("tensorboardX", "tensorboardX.event_file_writer"):  # another test may have imported both
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(rp.RiskpathError, match="tensorboardX: pip install"):
        rp.TensorBoard(tmp_path)
