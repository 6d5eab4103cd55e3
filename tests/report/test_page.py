"""The page is one file: its data cannot break it, it names no other place, and it replaces only its own kind."""

import dataclasses
import json
import math
import os
import re
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import riskpath as rp
from riskpath.report import page, write_page
from riskpath.report.page import MARKER, SCRIPTS, as_json, make_page
from tests.report.examples import bench_record, run_record, sweep_record

WICKED = "</script><script>alert(1)</script><!-- & \u2028 “π”"


def data_of(text: str) -> dict:
    """Return the data of a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, flags=re.DOTALL)
    assert found
    return json.loads(found[1])


def test_names_cannot_break_the_page():
    text = make_page([run_record(WICKED)], [bench_record()], [sweep_record()], title=WICKED)
    assert text.count("</script>") == 2
    assert "<script>alert" not in text
    data = data_of(text)
    assert data["title"] == data["runs"][0]["title"] == WICKED
    assert data["benches"][0]["rows"][0]["agent"] == "IQN"
    assert data["sweeps"][0]["rows"][3]["settings"] == {"training.learning_rate": 0.1, "network.hidden": [64, 64]}


def test_the_page_names_no_other_place():
    text = make_page([run_record("one")], [bench_record()])
    assert set(re.findall(r"https?://[\w./]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=\"(?!data:)", text)
    assert "default-src 'none'" in text


def test_every_script_is_part_of_the_page():
    files = {entry.name for entry in resources.files("riskpath.report").iterdir()}
    assert set(SCRIPTS) == {name for name in files if name.endswith(".js")}
    assert "page.css" in files


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, "null"),
        (-math.inf, "null"),
        (1 / 3, "0.333333"),
        (12345678.0, "12345700.0"),
        (np.float32(2.5), "2.5"),
        (3, "3"),
        (True, "true"),
        ({"a": (1.5, None)}, '{"a":[1.5,null]}'),
        ("<&>", '"\\u003c\\u0026\\u003e"'),
    ],
)
def test_numbers_are_short_and_valid_json(value, text):
    assert as_json(value) == text


def test_only_a_page_is_replaced(tmp_path, monkeypatch):
    place = tmp_path / "new" / "report.html"
    assert write_page(place, [run_record("one")]) == place
    write_page(place, [run_record("two")])
    assert data_of(place.read_text())["runs"][0]["title"] == "two"
    assert place.read_text().splitlines()[1] == MARKER
    assert [entry.name for entry in place.parent.iterdir()] == ["report.html"]
    other = tmp_path / "thesis.html"
    other.write_text("<!doctype html>\nmine")
    with pytest.raises(rp.RiskpathError, match=r"thesis\.html is not a report of riskpath, so it is not overwritten"):
        write_page(other, [run_record("one")])
    assert other.read_text() == "<!doctype html>\nmine"
    with pytest.raises(rp.RiskpathError, match="it is a folder; give a file such as"):
        write_page(tmp_path)
    with pytest.raises(rp.RiskpathError, match=r"cannot write .*report.html"):
        write_page(other / "report.html")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = place.read_text()
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(rp.RiskpathError, match="No space left on device"):
        write_page(place, [run_record("three")])
    assert place.read_text() == before
    assert [entry.name for entry in place.parent.iterdir()] == ["report.html"]


def test_records_are_plain_data():
    record = run_record("one")
    assert json.loads(as_json(dataclasses.asdict(record)))["settings"][0]["curve"]["steps"][0] == 1_000


def test_scripts_stay_readable():
    for file in Path(page.__file__).parent.iterdir():
        assert file.is_dir() or len(file.read_text().splitlines()) <= 300, file.name
