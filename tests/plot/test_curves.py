"""Learning curves: their lines, bands and intervals."""

from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import riskpath as rp

STEPS, VALUES = [100, 200, 300], np.array([[1.0, 2.0, 3.0], [3.0, 4.0, 8.0], [2.0, 9.0, 4.0]])


@pytest.mark.parametrize(("kind", "bands", "centre"), [("median", 2, [2.0, 4.0, 4.0]), ("mean", 1, [2.0, 5.0, 5.0])])
def test_a_learning_curve_has_a_line_and_bands(kind, bands, centre):
    ax: Any = rp.plot.plot_curve(STEPS, VALUES, label="IQN", kind=kind)
    (line,) = ax.lines
    np.testing.assert_allclose(line.get_ydata(), centre)
    assert to_hex(line.get_color()) == rp.plot.COLOURS["IQN"]
    assert len(ax.collections) == bands
    one_seed: Any = rp.plot.plot_curve(STEPS, VALUES[0], kind=kind)
    assert len(one_seed.collections) == 0


def test_the_interval_of_a_mean_curve_contains_the_true_mean_as_often_as_promised():
    rng, covered = np.random.default_rng(0), []
    ax: Any = Figure().subplots()
    rp.plot.plot_curve(np.arange(400), rng.normal(size=(4, 400)), ax, kind="mean", confidence=0.9)
    (band,) = ax.collections
    outline = np.asarray(band.get_paths()[0].vertices)
    for step in range(400):
        heights = outline[outline[:, 0] == step, 1]
        covered.append(heights.min() <= 0.0 <= heights.max())
    assert 0.84 <= np.mean(covered) <= 0.96


def test_a_reference_line_marks_an_exact_value():
    ax: Any = rp.plot.plot_curve(STEPS, VALUES)
    rp.plot.reference_line(ax, 7.5, "best 7.5")
    assert list(ax.lines[-1].get_ydata()) == [7.5, 7.5]
    assert [text.get_text() for text in ax.texts] == ["best 7.5"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rp.plot.plot_curve([1, 2], VALUES), r"^values must be \[seeds, steps\] for 2 steps, .* \(3, 3\)$"),
        (lambda: rp.plot.plot_curve([], []), r"^values must be \[seeds, steps\] for 0 steps, got shape \(0,\)$"),
        (lambda: rp.plot.plot_curve(STEPS, VALUES * np.inf), r"^values of a learning curve must be finite, got inf$"),
        (lambda: rp.plot.plot_curve(["a"], [1.0]), r"^steps of a learning curve must be numbers, got a list$"),
        (lambda: rp.plot.plot_curve(STEPS, VALUES, kind="max"), r'must be "median" or "mean", got \'max\'$'),
        (lambda: rp.plot.plot_curve(STEPS, VALUES, confidence=95), r"^confidence must lie between 0 and 1, .* got 95$"),
    ],
)
def test_a_wrong_call_raises_one_line(call, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
