"""Axes, legends, colours and pyplot: what all figures share."""

import importlib
import sys
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import riskpath as rp

LAW, SAMPLE = rp.Law([-10.0, 90.0, 190.0], [0.1, 0.3, 0.6]), np.arange(100.0)
STEPS, VALUES = [100, 200, 300], np.ones((2, 3))


def test_given_axes_are_used_and_keep_their_labels():
    figure = Figure()
    ax: Any = figure.subplots()
    ax.set_xlabel("profit")
    assert rp.plot.plot_law(LAW, ax, label="law") is ax
    assert rp.plot.compare(LAW, ax=ax) is ax
    assert rp.plot.plot_returns(SAMPLE, ax, kind="cdf") is ax
    assert rp.plot.plot_curve(STEPS, VALUES, ax) is ax
    assert ax.get_xlabel() == "profit"
    assert ax.get_legend() is not None
    assert len({to_hex(line.get_color()) for line in ax.lines}) == 4


def test_a_new_figure_has_one_legend_outside_of_its_axes():
    ax: Any = None
    for label in ("a", "b", "c"):
        ax = rp.plot.plot_law(LAW, ax, label=label)
    assert ax.get_legend() is None
    (outside,) = ax.figure.legends
    assert [text.get_text() for text in outside.get_texts()] == ["a", "b", "c"]


def test_a_new_figure_is_saved_and_does_not_belong_to_pyplot(monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    ax: Any = rp.plot.compare(LAW, SAMPLE[0])
    assert "matplotlib.pyplot" not in sys.modules
    ax.figure.savefig(tmp_path / "law.png")
    assert (tmp_path / "law.png").stat().st_size > 1_000


def test_pyplot_is_used_if_it_is_in_use():
    # tests/test_extras.py: matplotlib itself is imported late.
    before = "matplotlib.pyplot" in sys.modules
    matplotlib.use("agg")
    plt = importlib.import_module("matplotlib.pyplot")
    try:
        ax = rp.plot.plot_returns([1.0, 2.0])
        assert plt.gcf() is ax.figure
        plt.close(ax.figure)
    finally:
        if not before:
            del sys.modules["matplotlib.pyplot"]


def test_without_matplotlib_one_line_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for draw in (lambda: rp.plot.plot_law(LAW), lambda: rp.plot.panels(1, 1)):
        with pytest.raises(rp.RiskpathError, match=r"^plotting needs matplotlib: pip install 'riskpath\[plot\]'$"):
            draw()


def test_panels_are_saved(tmp_path):
    figure, axes = rp.plot.panels(2, 3)
    assert axes.shape == (2, 3)
    assert rp.plot.save(figure, tmp_path / "new" / "panels.png").exists()


def test_colours_repeat_only_after_the_whole_palette():
    ax: Any = rp.plot.compare(*[LAW] * 9)
    colours = [to_hex(line.get_color()) for line in ax.lines]
    assert colours[:7] == list(rp.plot.PALETTE)
    assert set(colours[7:]) <= set(rp.plot.PALETTE)
