"""What is logged: every number, whatever it is wrapped in."""

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


def test_json_lines_hold_whatever_a_user_notes(tmp_path):
    log = rp.JSONLines(tmp_path / "log.jsonl")
    log(None, NUMBERS)
    log(None, {**NUMBERS, "step": 200})
    first, second = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert (first["step"], second["step"]) == (100, 200)
    assert first["loss"] == [0.5, 0.25]
    assert first["evaluation"] == {"values": [[1.0, 2.0]], "path": "BBB", "each": [3.0]}


def test_tensorboard_gets_a_scalar_for_every_lane(tmp_path, monkeypatch):
    written: dict[str, tuple[float, int]] = {}

    class SummaryWriter:
        def __init__(self, folder: str, **options: Any):
            pass

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written[name] = (value, step)

    monkeypatch.setitem(sys.modules, "tensorboardX", types.SimpleNamespace(SummaryWriter=SummaryWriter))
    rp.TensorBoard(tmp_path)(None, NUMBERS)
    assert written == {
        "loss/lane_0": (0.5, 100),
        "loss/lane_1": (0.25, 100),
        "steps_per_second": (10.0, 100),
        "evaluation/values/lane_0": (1.0, 100),
        "evaluation/values/lane_1": (2.0, 100),
        "evaluation/each": (3.0, 100),
    }


def test_without_tensorboardx_one_line_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(rp.RiskpathError, match="pip install tensorboardX"):
        rp.TensorBoard(tmp_path)
