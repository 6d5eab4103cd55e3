"""The loop over chunks: after each one the run is checked, evaluated, saved and shown."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from riskpath.agents.experience import Logged
from riskpath.errors import RiskpathError, in_one_line
from riskpath.nn.kernels import use_kernels
from riskpath.training import fused_loop, host_loop
from riskpath.training.checkpoint import Checkpointer
from riskpath.training.notices import LOGGER, notice_of_estimates
from riskpath.training.plan import Plan
from riskpath.training.progress import Pace, TrainingBar, counting, working
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
    bar: TrainingBar | None,
    devices: int | None,
    kernels: ModuleType | None,
) -> None:
    """Train a run as planned. It changes about every second, so that little is lost if an exception ends this.

    A chunk uses the kernels; what is compiled between chunks does not.
    """
    saves = (checkpointer and checkpointer.every_steps) or plan.steps
    length = min(plan.evaluate_every or plan.steps, saves, plan.steps // 50 or 1, MOST_STEPS)
    left, before, pace = max(0, plan.goal - run.steps), run.steps, Pace(plan.goal, run.steps)
    if run.vector:
        advance = host_loop.advance(run.lanes, run.vector, run.spec, left, length, plan.start)
    else:
        devices = 1 if isinstance(run.lanes.experience, Logged) else devices
        advance = fused_loop.advance(run.lanes, run.spec, left, length, devices, plan.start)
    learning, diverged, nothing = False, False, contextlib.nullcontext()
    with contextlib.closing(advance) as parts:
        while True:
            with use_kernels(kernels):
                part = next(parts, None)
            if part is None:
                return
            lanes, metrics = part.lanes, part.metrics
            if run.vector:
                run.losses, run.vector.losses = [*run.losses, *run.vector.losses], ()
            if wrong := lanes.what_is_wrong(metrics, since=run.steps):  # before it becomes part of the run
                raise TrainingStopped(wrong, run)
            if not part.whole:
                run.lanes = lanes
                if bar:
                    bar.advance(run.steps, pace.left(run.steps) if learning else None)
                if checkpointer:
                    checkpointer.save_if_late(run)
                continue
            due, before = plan.due(before, int(lanes.steps)), int(lanes.steps)
            # The last chunk counts when all is done, so what is interrupted here is made when the run goes on.
            after = run if before < plan.goal else replace(run)
            after.lanes = lanes
            if after.finished:
                with counting("comparing candidates", "blocks of episodes") if bar else nothing as count:
                    after.lanes = select_candidates(after, count)
            speed = (pace.speed(before) or 0.0) * len(run.agents) * run.seeds
            record = {"step": before, "steps_per_second": speed, **metrics, **after.recent_figures()}
            if due:
                with working("evaluating") if bar else nothing:
                    record["evaluation"] = point = evaluate(after)
                run.curve.append({"step": before, **point})
            run.lanes = after.lanes
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
            for function in ([bar] if bar else []) + list(functions):
                with in_one_line("a callback failed"):
                    function(run, record)


def values(run: Run, episodes: int = 1_000) -> dict[str, Any]:
    """Return a point of the learning curve: every lane's value; a host, which is slow, plays few episodes."""
    return {"values": run.measure(20 if run.sources else episodes, progress=False).values().tolist()}


def checked(evaluator: Callable[[Run], Any]) -> Evaluate:
    """Return a user's function of the run as one whose errors are one line."""

    def evaluate(run: Run) -> dict[str, Any]:
        with in_one_line("evaluator failed"):
            point = evaluator(run)
        if not isinstance(point, dict):
            raise RiskpathError(f"evaluator must return a dictionary, got a {type(point).__name__}")
        return point

    return evaluate
