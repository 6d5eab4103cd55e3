"""Learning curves over seeds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special

from riskpath.errors import RiskpathError
from riskpath.plot.style import EXACT, Axes, as_axes, finish, pick_colours

RESAMPLES = 2_000
"""Bootstrap resamples of the seeds."""


def plot_curve(
    steps: Any,
    values: Any,
    ax: Axes | None = None,
    *,
    label: str | None = None,
    kind: str = "median",
    confidence: float = 0.95,
    **style: Any,
) -> Axes:
    """Draw a learning curve over seeds.

    Args:
        steps: Environment steps at which the policies were evaluated.
        values: The value of each seed at each of these steps, [seeds, steps].
        ax: Matplotlib axes; by default those of a new figure.
        label: Text for the legend.
        kind: "median" (bands: the middle half and the range of the seeds) or "mean" (band: bootstrap interval).
        confidence: Confidence of the bootstrap interval.
        style: Passed to matplotlib, for example `linestyle=":"`.
    """
    x, y = _numbers(steps, "steps"), np.atleast_2d(_numbers(values, "values"))
    if x.ndim != 1 or not x.size or y.ndim != 2 or y.shape[1] != x.size:
        raise RiskpathError(f"values must be [seeds, steps] for {x.size} steps, got shape {np.shape(values)}")
    if kind not in ("median", "mean"):
        raise RiskpathError(f'kind of a learning curve must be "median" or "mean", got {kind!r}')
    if not 0 < confidence < 1:
        raise RiskpathError(f"confidence must lie between 0 and 1, for example 0.95, got {confidence}")
    new, ax = ax is None, as_axes(ax)
    colour = style.pop("color", None) or pick_colours(ax, [label])[0]
    if kind == "median":
        seeds_curve(ax, x, y, label, colour, **style)
    else:
        ax.plot(x, y.mean(axis=0), color=colour, label=label, **{"linewidth": 1.8, **style})
        if len(y) > 1:
            ax.fill_between(x, *mean_interval(y, confidence), color=colour, alpha=0.2, linewidth=0)
    if new:
        from matplotlib.ticker import EngFormatter

        ax.xaxis.set_major_formatter(EngFormatter(sep=""))  # 50k, 1M
    return finish(ax, "environment steps", "risk value of the greedy policy")


def seeds_curve(
    axis: Axes, steps: Sequence[float] | np.ndarray, values: np.ndarray, label: str | None, colour: str, **style: Any
) -> None:
    """Draw the median over seeds as a line, their middle half and their range as bands; `values` is [seeds, steps]."""
    low, first, median, third, high = np.quantile(values, [0.0, 0.25, 0.5, 0.75, 1.0], axis=0)
    axis.plot(steps, median, color=colour, label=label, **{"linewidth": 1.8, **style})
    if len(values) > 1:
        axis.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.fill_between(steps, first, third, color=colour, alpha=0.2, linewidth=0)


def reference_line(axis: Axes, value: float, label: str, style: str = "--") -> None:
    """Draw an exact value as a line across the axes."""
    axis.axhline(value, color=EXACT, linewidth=0.9, linestyle=style)
    axis.annotate(label, (1.0, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7)


def mean_interval(values: np.ndarray, confidence: float = 0.95) -> np.ndarray:
    """Return a bootstrap interval of the mean over at least two seeds, [2, steps]; `values` is [seeds, steps].

    Deviations from the mean are stretched as Student's t is against the normal distribution, because few seeds show
    less spread than there is.
    """
    seeds, tail = len(values), (1 + confidence) / 2
    student = scipy.special.stdtrit(seeds - 1, tail) / scipy.special.ndtri(tail) * np.sqrt(seeds / (seeds - 1))
    mean = values.mean(axis=0)
    chosen = np.random.default_rng(0).multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES) / seeds
    return np.quantile(mean + student * (chosen @ (values - mean)), [1 - tail, tail], axis=0)


def _numbers(values: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise RiskpathError(f"{name} of a learning curve must be numbers, got a {type(values).__name__}") from None
    if not np.isfinite(array).all():
        raise RiskpathError(f"{name} of a learning curve must be finite, got {array[~np.isfinite(array)][0]}")
    return array
