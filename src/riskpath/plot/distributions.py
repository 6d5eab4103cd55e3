"""Return distributions: finite distributions, samples of returns, and several of them in one figure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from riskpath.errors import RiskpathError
from riskpath.plot.style import Axes, as_axes, finish, pick_colours
from riskpath.risk.compose import parse_risk

KINDS = {
    "cdf": ("return", "probability of at most this return"),
    "histogram": ("return", "probability"),
    "pdf": ("return", "probability"),
    "quantiles": ("level", "quantile of the return"),
}
"""The kinds of figures and the labels of their axes."""
FEW_ATOMS = 24
"""A histogram shows a bar for each return up to this number of different returns, and bins beyond."""


class Mark(NamedTuple):
    """A risk value that a line marks, with its interval if it is an estimate."""

    value: float
    text: str
    interval: tuple[float, float] | None = None


class Distribution(NamedTuple):
    """A return distribution to draw."""

    atoms: np.ndarray
    probs: np.ndarray
    label: str | None
    mark: Mark | None


def plot_law(
    law: Any, ax: Axes | None = None, *, kind: str = "cdf", label: str | None = None, risk: Any = None, **style: Any
) -> Axes:
    """Draw a finite distribution.

    Args:
        law: A `Law`, or anything with `atoms` and `probs`.
        ax: Matplotlib axes; by default those of a new figure.
        kind: "cdf" (distribution function), "histogram" or "pdf" (probabilities), or "quantiles" (quantile function).
        label: Text for the legend.
        risk: A measure, or a text such as "cvar:0.1"; a dashed line marks its value.
        style: Passed to matplotlib, for example `color="black"`.
    """
    if not (hasattr(law, "atoms") and hasattr(law, "probs")):
        raise RiskpathError(
            f"a distribution has atoms and probs, got a {type(law).__name__}; plot_returns draws samples"
        )
    return _draw([_from_law(law, label, _measure(risk))], ax, kind, style)


def plot_returns(
    returns: Any,
    ax: Axes | None = None,
    *,
    kind: str | None = None,
    label: str | None = None,
    risk: Any = None,
    **style: Any,
) -> Axes:
    """Draw a sample of returns; several seeds [seeds, episodes] are pooled.

    Args:
        returns: The sample, for example `evaluation.returns[0]`.
        ax: Matplotlib axes; by default those of a new figure.
        kind: As in `plot_law`; by default "histogram", or "cdf" for fewer than 50 returns.
        label: Text for the legend.
        risk: A measure, or a text such as "cvar:0.1"; a dashed line marks its value on the pooled sample.
        style: Passed to matplotlib.
    """
    drawn = _from_sample(returns, label, _measure(risk))
    return _draw([drawn], ax, kind or ("histogram" if np.size(returns) >= 50 else "cdf"), style)


def compare(
    *things: Any,
    labels: Sequence[str] | None = None,
    risk: Any = None,
    ax: Axes | None = None,
    kind: str = "cdf",
    **style: Any,
) -> Axes:
    """Draw several return distributions, with dashed lines at their risk values.

    Args:
        things: Distributions, solutions, evaluations, runs (their default evaluation is drawn) or arrays of returns; or
            one dictionary from labels to these. Seeds are pooled. The risk of an evaluation is the mean over its seeds,
            and a band shows the 95 % interval.
        labels: One for each of them.
        risk: A measure, or a text such as "cvar:0.1"; by default the measure that a solution or a run maximises. False
            for no lines.
        ax: Matplotlib axes; by default those of a new figure.
        kind: As in `plot_law`.
        style: Passed to matplotlib.
    """
    if len(things) == 1 and isinstance(things[0], Mapping):
        labels, things = labels or [str(label) for label in things[0]], tuple(things[0].values())
    if not things:
        raise RiskpathError("compare needs at least one distribution, solution, evaluation, run or array of returns")
    names = [None] * len(things) if labels is None else [labels] if isinstance(labels, str) else list(labels)
    if len(names) != len(things):
        raise RiskpathError(f"got {len(names)} labels for {len(things)} distributions; they must match")
    measure = False if risk is False else _measure(risk)
    pairs = zip(things, names, strict=True)
    return _draw([one for thing, name in pairs for one in _from_thing(thing, name, measure)], ax, kind, style)


def quantile_steps(axis: Axes, atoms: np.ndarray, probs: np.ndarray, **style: Any) -> None:
    """Draw the quantile function of a finite distribution."""
    axis.stairs(atoms, np.concatenate([[0.0], np.cumsum(probs)]), baseline=None, **style)


def _from_thing(thing: Any, label: str | None, measure: Any) -> Iterator[Distribution]:
    """Return the distributions of a `Law`, a solution, an evaluation, a run or an array; one for each setting."""
    if hasattr(thing, "agents") and hasattr(thing, "evaluate"):  # a run
        thing = thing.evaluate()
    if hasattr(thing, "returns") and hasattr(thing, "risks"):  # an evaluation
        for risk, setting in zip(thing.risks, thing, strict=True):
            name = label if len(thing.risks) == 1 else f"{label}, {risk}" if label else str(risk)
            mark, chosen = None, measure or risk
            if measure is not False:
                (interval,) = setting.risk(chosen)
                mark = Mark(interval.estimate, f"{chosen} = {interval}", (interval.low, interval.high))
            yield _from_sample(setting.returns, name, None)._replace(mark=mark)
    elif hasattr(law := getattr(thing, "law", None), "atoms"):  # a solution
        yield _from_law(law, label, getattr(thing, "risk", None) if measure is None else measure)
    elif hasattr(thing, "atoms") and hasattr(thing, "probs"):
        yield _from_law(thing, label, measure)
    else:
        yield _from_sample(thing, label, measure)


def _from_law(law: Any, label: str | None, measure: Any) -> Distribution:
    atoms, probs = np.asarray(law.atoms, np.float64), np.asarray(law.probs, np.float64)
    return Distribution(atoms, probs, label, _mark(measure, atoms, probs))


def _from_sample(returns: Any, label: str | None, measure: Any) -> Distribution:
    """Pool a sample of returns; those that differ by rounding only become one atom."""
    try:
        sample = np.asarray(returns, np.float64).ravel()
    except (TypeError, ValueError):
        raise RiskpathError(
            "returns must be an array of numbers; a distribution, solution, evaluation or run can be compared, too: "
            f"got a {type(returns).__name__}"
        ) from None
    if not sample.size or not np.isfinite(sample).all():
        wrong = f"got {sample[~np.isfinite(sample)][0]}" if sample.size else "got none"
        raise RiskpathError(f"returns must be finite numbers, at least one: {wrong}")
    _, first, counts = np.unique(
        np.round(sample / max(1.0, np.abs(sample).max()), 6), return_index=True, return_counts=True
    )
    return Distribution(sample[first], counts / sample.size, label, _mark(measure, sample, None))


def _measure(risk: Any) -> Any:
    if risk is None or hasattr(risk, "distort"):
        return risk
    return parse_risk(risk)


def _mark(measure: Any, atoms: np.ndarray, probs: np.ndarray | None) -> Mark | None:
    if measure is None or measure is False:
        return None
    value = float(measure.value(atoms, probs))
    return Mark(value, f"{measure} = {value:.4g}")


def _draw(drawn: list[Distribution], ax: Axes | None, kind: str, style: dict[str, Any]) -> Axes:
    if kind not in KINDS:
        raise RiskpathError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
    ax, fixed = as_axes(ax), style.pop("color", None)
    colours = pick_colours(ax, [one.label for one in drawn]) if fixed is None else [fixed] * len(drawn)
    shared = np.unique(np.concatenate([one.atoms for one in drawn]))
    few = len(shared) <= FEW_ATOMS
    for place, (one, colour) in enumerate(zip(drawn, colours, strict=True)):
        width = 1.8 + (0.8 * min(3, len(drawn) - 1 - place) if few else 0.0)  # equal parts stay visible
        options: dict[str, Any] = {"color": colour, "label": _legend_text(one), **style}
        if kind == "cdf":
            ends = np.concatenate([[0.0], np.minimum(np.cumsum(one.probs), 1.0)])
            ax.step(one.atoms[[0, *range(len(one.atoms))]], ends, where="post", **{"linewidth": width, **options})
        elif kind == "quantiles":
            quantile_steps(ax, one.atoms, one.probs, **{"linewidth": width, **options})
        elif few:
            bar = _bar_width(shared, len(drawn))
            owners = np.array([np.isin(one.atoms, other.atoms) for other in drawn])  # [distributions, atoms]
            offset = (owners[:place].sum(axis=0) - (owners.sum(axis=0) - 1) / 2) * bar
            ax.bar(one.atoms + offset, one.probs, bar, **{"alpha": 0.85, **options})
        else:
            edges = np.linspace(shared[0], shared[-1], min(60, 8 + int(len(shared) ** 0.5)))
            mass, _ = np.histogram(one.atoms, edges, weights=one.probs)
            ax.stairs(mass, edges, fill=True, color=colour, alpha=0.2)
            ax.stairs(mass, edges, **{"linewidth": 1.4, **options})
        if one.mark:
            _mark_line(ax, one.mark, colour, kind == "quantiles", None if one.label else one.mark.text)
    if kind == "cdf" and ax.get_ylim()[0] < 0:
        ax.set_ylim(bottom=0.0)
    return finish(ax, *KINDS[kind])


def _legend_text(one: Distribution) -> str | None:
    if not one.label or not one.mark:
        return one.label
    return one.mark.text if one.mark.text.startswith(f"{one.label} = ") else f"{one.label} ({one.mark.text})"


def _bar_width(atoms: np.ndarray, groups: int) -> float:
    """Return the width of a bar, of which several stand beside each other at every atom."""
    span = float(atoms[-1] - atoms[0]) or 10.0
    gap = float(np.diff(atoms).min()) if len(atoms) > 1 else span
    return max(0.8 * min(gap, span / 8) / groups, span / 150)


def _mark_line(ax: Axes, mark: Mark, colour: Any, horizontal: bool, label: str | None) -> None:
    line, band = (ax.axhline, ax.axhspan) if horizontal else (ax.axvline, ax.axvspan)
    line(mark.value, color=colour, linestyle="--", linewidth=1.3, label=label, zorder=3)
    if mark.interval:
        band(*mark.interval, color=colour, alpha=0.12, linewidth=0, zorder=0)
