"""A warning of one line: the critic has left the returns seen."""

import numpy as np

from riskpath.training.run_state import RunState

FAR = 3.0
"""An estimate diverges if it lies outside of the returns seen by more than this multiple of their range."""
LEAST_RANGE = 0.1
"""The smallest range, as a fraction of the largest return, for the time when all episodes have the same return."""
FEWEST_EPISODES, FEWEST_UPDATES = 20, 1_000
"""Estimates are not compared with returns before this."""


def notice_of_estimates(run: RunState) -> str | None:
    """Return one line if the estimates of some lanes are far outside of their latest returns."""
    state = run.lanes.agent_state
    assert state.episodes is not None
    if not all(agent.risk.monetary for agent in run.agents):
        return None  # estimates such as a probability are not in the unit of the returns
    counts, updates = np.asarray(state.episodes.count), int(run.lanes.clock.updates)
    if counts.min() < FEWEST_EPISODES or updates < FEWEST_UPDATES:
        return None
    ring, estimates = np.asarray(state.episodes.ring, np.float64), run.estimates().ravel()
    latest = [lane[: int(min(count, len(lane)))] for lane, count in zip(ring, counts, strict=True)]
    low, high = (np.array([function(lane) for lane in latest]) for function in (np.min, np.max))
    reach = FAR * np.maximum(high - low, LEAST_RANGE * np.maximum(np.abs(low), np.abs(high)))
    far = np.flatnonzero((estimates > high + reach) | (estimates < low - reach) | ~np.isfinite(estimates))
    if not len(far):
        return None
    worst = far[np.argmax(np.abs(estimates[far] - (low + high)[far] / 2))]
    return (
        f"the critic has left the returns seen in {len(far)} of {len(estimates)} lanes: lane {worst} predicts "
        f"{estimates[worst]:,.6g}, its latest episodes returned {low[worst]:,.6g} to {high[worst]:,.6g}; "
        "do not trust its estimates, and try a smaller learning_rate, a discount below 1, or more steps"
    )
