"""The loop over chunks: after each one the run is checked, evaluated, saved and shown."""

import contextlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from riskpath.agents.experience import Logged
from riskpath.errors import RiskpathError, in_one_line
from riskpath.nn.kernels import use_kernels
from riskpath.training import fused_loop, host_loop
from riskpath.training.checkpoint import Checkpointer
from riskpath.training.notices import LOGGER, notice_of_estimates
from riskpath.training.plan import Plan
from riskpath.training.progress import Pace, counting, working
from riskpath.training.run import Run, TrainingStopped
from riskpath.training.selection import select_candidates

Callback = Callable[[Run, dict[str, Any]], None]
Evaluate = Callable[[Run], dict[str, Any]]
"""Returns a point of the learning curve."""
MOST_STEPS = 20_000
"""The largest number of steps in a chunk."""


def train_in_chunks(
    run: Run,
    plan: Plan,
    evaluate: Evaluate,
    checkpointer: Checkpointer | None,
    functions: Sequence[Callback],
    pace: Pace,
    bar: bool,
    devices: int | None,
    kernels: ModuleType | None,
) -> None:
    """Train a run as planned; chunks use the kernels, what is compiled between them does not."""
    saves = (checkpointer and checkpointer.every_steps) or plan.steps
    length = min(plan.evaluate_every or plan.steps, saves, plan.steps // 50 or 1, MOST_STEPS)
    left = max(0, plan.goal - run.steps)
    if run.vector:
        advance = host_loop.advance(run.lanes, run.vector, run.spec, left, length)
    else:
        devices = 1 if isinstance(run.lanes.experience, Logged) else devices
        advance = fused_loop.advance(run.lanes, run.spec, left, length, devices)
    learning, diverged, nothing = False, False, contextlib.nullcontext()
    with contextlib.closing(advance) as chunks:
        while True:
            with use_kernels(kernels):
                lanes, metrics = next(chunks, (None, {}))
            if lanes is None:
                return
            if wrong := lanes.what_is_wrong(metrics, since=run.steps):  # before it becomes part of the run
                raise TrainingStopped(wrong, run)
            due, run.lanes = plan.due(run.steps, int(lanes.steps)), lanes
            if run.finished:
                with counting("comparing candidates", "blocks of episodes") if bar else nothing as count:
                    run.lanes = select_candidates(run, count)
            speed = (pace.speed(run.steps) or 0.0) * len(run.agents) * run.seeds
            record = {"step": run.steps, "steps_per_second": speed, **metrics, **run.recent_figures()}
            if due:
                with working("evaluating") if bar else nothing:
                    record["evaluation"] = point = evaluate(run)
                run.curve.append({"step": run.steps, **point})
            if checkpointer:
                checkpointer.save_if_due(run)
            if metrics and (line := notice_of_estimates(run)) and (not diverged or run.finished):
                diverged = True
                LOGGER.warning("at step %s %s", f"{run.steps:,}", line)
            if functions and metrics:
                record["estimate"] = run.estimates().ravel()
            if learning or run.finished:
                record["seconds_left"] = pace.left(run.steps) or 0.0
            if bool(metrics) > learning:  # the first chunk that learns was compiled as well
                pace.begin(run.steps)
                learning = True
            for function in functions:
                with in_one_line("a callback failed"):
                    function(run, record)


def values(run: Run) -> dict[str, Any]:
    """Return a point of the learning curve: the value of every lane's policy."""
    return {"values": run.measure(20 if run.sources else 1_000, progress=False).values().tolist()}


def checked(evaluator: Callable[[Run], Any]) -> Evaluate:
    """Return a user's function of the run as one whose errors are one line."""

    def evaluate(run: Run) -> dict[str, Any]:
        with in_one_line("evaluator failed"):
            point = evaluator(run)
        if not isinstance(point, dict):
            raise RiskpathError(f"evaluator must return a dictionary, got a {type(point).__name__}")
        return point

    return evaluate
