"""Figures of return distributions: their lines, bars, labels and risk values."""

import itertools
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import riskpath as rp

LAW = rp.Law([-10.0, 90.0, 190.0], [0.1, 0.3, 0.6])
SAMPLE = np.random.default_rng(0).normal(100.0, 20.0, (2, 400))


def evaluation(*risks: str, seeds: int = 3) -> rp.Evaluation:
    """Return an evaluation whose settings have normal returns with means 0, 100, …"""
    noise = np.random.default_rng(1).normal(size=(len(risks), seeds, 60))
    returns = noise + 100.0 * np.arange(len(risks))[:, None, None]
    return rp.Evaluation(returns, returns / 2, [rp.parse_risk(risk) for risk in risks], 1.0)


def legend(ax: Any) -> list[str]:
    return ax.get_legend_handles_labels()[1]


def dashed(ax: Any) -> list[float]:
    """Return the x of all dashed vertical lines."""
    return [float(np.asarray(line.get_xdata())[0]) for line in ax.lines if line.get_linestyle() == "--"]


def test_the_cdf_of_a_law_steps_at_its_atoms():
    ax: Any = rp.plot.plot_law(LAW, label="law")
    (line,) = ax.lines
    assert line.get_drawstyle() == "steps-post"
    np.testing.assert_allclose(line.get_xdata(), [-10, -10, 90, 190])
    np.testing.assert_allclose(line.get_ydata(), [0.0, 0.1, 0.4, 1.0])
    assert legend(ax) == ["law"]
    assert ax.get_xlabel() == "return"
    assert ax.get_ylim()[0] == 0.0


@pytest.mark.parametrize("kind", ["histogram", "pdf"])
def test_a_law_of_few_atoms_has_a_bar_for_each(kind):
    ax: Any = rp.plot.plot_law(LAW, kind=kind)
    assert [bar.get_x() + bar.get_width() / 2 for bar in ax.patches] == pytest.approx(LAW.atoms)
    assert [bar.get_height() for bar in ax.patches] == pytest.approx(LAW.probs)


def test_quantiles_are_steps_over_the_levels():
    ax: Any = rp.plot.plot_law(LAW, kind="quantiles", risk="mean")
    (stairs,) = ax.patches
    data = stairs.get_data()
    np.testing.assert_allclose(data.values, LAW.atoms)
    np.testing.assert_allclose(data.edges, [0.0, 0.1, 0.4, 1.0])
    (line,) = ax.lines  # the value is a height here
    assert list(line.get_ydata()) == pytest.approx([LAW.mean] * 2)


def test_the_histogram_of_a_sample_holds_all_returns():
    ax: Any = rp.plot.plot_returns(SAMPLE, risk=rp.CVaR(0.1), label="sample")
    filled, outline = ax.patches
    for stairs in (filled, outline):
        data = stairs.get_data()
        assert data.values.sum() == pytest.approx(1.0)
        assert (data.edges[0], data.edges[-1]) == pytest.approx((SAMPLE.min(), SAMPLE.max()))
    assert dashed(ax) == pytest.approx([rp.CVaR(0.1).value(SAMPLE.ravel())])


@pytest.mark.parametrize(
    ("returns", "kind", "shapes"),
    [(SAMPLE[0, :49], None, "line"), (SAMPLE[0, :50], None, "stairs"), (SAMPLE, "cdf", "line"), ([1, 2], "pdf", "bar")],
)
def test_samples_choose_their_kind(returns, kind, shapes):
    ax: Any = rp.plot.plot_returns(returns, kind=kind)
    assert (len(ax.lines), len(ax.patches)) == {"line": (1, 0), "stairs": (0, 2), "bar": (0, 2)}[shapes]


def test_returns_that_differ_by_rounding_are_one_bar():
    ax: Any = rp.plot.plot_returns([0.3, 0.1 + 0.2, np.float32(0.3), 7.0], kind="histogram")
    assert [bar.get_height() for bar in ax.patches] == [0.75, 0.25]


@pytest.mark.parametrize("kind", ["cdf", "histogram"])
@pytest.mark.parametrize("risk", ["cvar:0.25", rp.CVaR(0.25)], ids=["text", "measure"])
def test_a_dashed_line_marks_the_risk_value(kind, risk):
    ax: Any = rp.plot.plot_law(LAW, kind=kind, risk=risk)
    value = 0.4 * -10 + 0.6 * 90
    assert dashed(ax) == pytest.approx([value])
    assert legend(ax) == ["cvar:0.25 = 50"]
    named: Any = rp.plot.plot_law(LAW, kind=kind, risk=risk, label="law")
    assert legend(named) == ["law (cvar:0.25 = 50)"]


GRID = rp.RiskyGrid().mdp()
FIGURE: Any = Figure()


def test_compare_draws_every_kind_of_thing():
    solution, two = rp.solve(GRID, "cvar:0.1", "history"), evaluation("mean", "cvar:0.5")
    things = {"law": LAW, "best": solution, "array": SAMPLE[0], "TQL": two[0], "both": two}
    ax: Any = rp.plot.compare(things)
    marks = [solution.value, *(one.estimate for one in (two.risk()[0], *two.risk()))]
    assert dashed(ax) == pytest.approx(marks)  # a law and an array have no measure of their own
    texts = [f"({risk} = {interval})" for risk, interval in zip(("mean", "cvar:0.5"), two.risk(), strict=True)]
    assert legend(ax) == [
        "law",
        "best (cvar:0.1 = 72.38)",
        "array",
        f"TQL {texts[0]}",
        f"both, mean {texts[0]}",
        f"both, cvar:0.5 {texts[1]}",
    ]
    colours = [to_hex(line.get_color()) for line in ax.lines if line.get_linestyle() == "-"]
    assert len(set(colours)) == 6
    assert colours[3] == rp.plot.COLOURS["TQL"]


def test_compare_uses_one_measure_for_all_or_none():
    things = (LAW, rp.solve(GRID, "cvar:0.1", "history"), evaluation("cvar:0.5"))
    ax: Any = rp.plot.compare(*things, labels=["a", "b", "c"], risk="mean")
    returns = evaluation("cvar:0.5").returns
    assert dashed(ax) == pytest.approx([LAW.mean, things[1].law.mean, returns.mean()])
    assert dashed(rp.plot.compare(*things, risk=False)) == []


def test_bars_at_the_same_return_stand_beside_each_other():
    ax: Any = rp.plot.compare(LAW, rp.Law([-10.0, 90.0, 150.0], [0.2, 0.2, 0.6]), kind="histogram")
    spans = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches)
    assert all(end <= start + 1e-9 for (_, end), (start, _) in itertools.pairwise(spans))
    middles = [(start + end) / 2 for start, end in spans]
    assert [np.mean(middles[:2]), np.mean(middles[2:4]), *middles[4:]] == pytest.approx([-10.0, 90.0, 150.0, 190.0])


def test_an_evaluation_marks_the_mean_over_seeds_and_its_interval():
    two = evaluation("mean", "cvar:0.1")
    ax: Any = two.plot()
    assert dashed(ax) == pytest.approx([one.estimate for one in two.risk()])
    assert legend(ax) == [f"{risk} = {one}" for risk, one in zip(("mean", "cvar:0.1"), two.risk(), strict=True)]
    bands = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in ax.patches]
    assert np.ravel(bands) == pytest.approx(np.ravel([(one.low, one.high) for one in two.risk()]))
    halved: Any = two.plot(discounted=True, risk="mean", labels=["a", "b"])
    assert dashed(halved) == pytest.approx([one.estimate / 2 for one in two.mean()])
    assert legend(halved)[0].startswith("a (mean = ")


def test_settings_with_the_same_measure_have_different_labels():
    assert legend(evaluation("mean", "mean").plot(risk=False)) == ["mean (setting 0)", "mean (setting 1)"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rp.plot.plot_law([1.0, 2.0]),
            r"^a distribution has atoms and probs, got a list; plot_returns draws samples$",
        ),
        (lambda: rp.plot.plot_law(LAW, kind="violin"), r"^kind must be one of cdf, histogram, .*; got 'violin'$"),
        (lambda: rp.plot.plot_law(LAW, risk="cvr:0.1"), r"^unknown risk measure 'cvr:0.1'"),
        (
            lambda: rp.plot.plot_law(LAW, risk=0.1),
            r"^expected a risk measure such as .* got 0.1$",
        ),
        (lambda: rp.plot.plot_law(LAW, FIGURE), r"^ax must be matplotlib axes, got a Figure$"),
        (lambda: rp.plot.plot_returns([]), r"^returns must be finite numbers, at least one: got none$"),
        (lambda: rp.plot.plot_returns([1.0, np.nan]), r"^returns must be finite numbers, at least one: got nan$"),
        (lambda: rp.plot.plot_returns("abc"), r"^returns must be an array of numbers; .* got a str$"),
        (
            lambda: rp.plot.compare(),
            r"^compare needs at least one distribution, solution, evaluation, run or array of returns$",
        ),
        (lambda: rp.plot.compare(LAW, labels=["a", "b"]), r"^got 2 labels for 1 distributions; they must match$"),
        (lambda: rp.plot.compare(LAW, GRID), r"^returns must be an array of numbers; .* got a FiniteMDP$"),
    ],
)
def test_a_wrong_call_raises_one_line(call, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
