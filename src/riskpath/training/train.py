"""`train`: an agent, an environment and a number of steps become a `Run`."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from riskpath.agents.agent import Agent
from riskpath.errors import RiskpathError, in_one_line
from riskpath.training import fused_loop as loop
from riskpath.training import host_loop as host
from riskpath.training import inputs as prepare
from riskpath.training.checkpoint import Checkpointer
from riskpath.training.progress import TrainingBar
from riskpath.training.run import Plan, Run, TrainingStopped
from riskpath.validation import given, require_counts, require_whole

Callback = Callable[[Run, dict[str, Any]], None]


def train(
    agent: Agent | Sequence[Agent] | Run,
    env: Any = None,
    *,
    steps: int | None = None,
    seeds: int = 1,
    envs: int = 1,
    seed: int = 0,
    progress: bool | Callback = False,
    evaluate_every: int | None = None,
    watch: Callable[[Run], dict[str, Any]] | None = None,
    workers: bool = False,
    checkpoint: Checkpointer | str | Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Trains `seeds` lanes for every setting, side by side in one compiled program.

    Settings are agents (and environments) that differ in numbers only: hyperparameters, risk levels, rewards,
    probabilities. A `Run` in place of an agent is trained further. Interrupted with Ctrl-C, it returns what was
    trained so far; where something fails, that is the `run` of a `TrainingStopped`.

    Args:
        agent: An agent, several settings of one, or a run to continue.
        env: A name, a `FiniteMDP`, an environment; a Gymnasium id, environment, function that makes one, or vector
            environment (SAME_STEP autoreset); or a list with one for each agent.
        steps: Environment steps for each lane; a run that was interrupted is finished as planned if none are given.
        seeds: Lanes for each setting.
        envs: Environments for each lane.
        seed: The number all randomness starts from.
        progress: True for a progress bar, or a function called after every chunk with the run and its metrics.
        evaluate_every: Steps between evaluations of the greedy policies, kept in `run.curve`; one more in the end.
        watch: What to keep there instead of the values, as a function of the run.
        workers: Step Gymnasium environments in processes of their own, one for each: worth it if a step is slow.
        checkpoint: A folder to save to at first, every five minutes and in the end, or a `Checkpointer`.
        callbacks: Functions of the run and a dictionary of numbers, called after every chunk (`logs.py`).
    """
    require_counts(seeds=seeds, envs=envs, **given(steps=steps, evaluate_every=evaluate_every))
    require_whole(seed=seed)
    prepare.require_functions(progress, watch, callbacks)
    if steps is None and not isinstance(agent, Run):
        raise RiskpathError("give steps=…, the environment steps for each lane")
    prepare.use_compilation_cache()
    keeper = _checkpointer(checkpoint)
    if isinstance(agent, Run):
        run = _taken_up(agent, env, seeds, envs, workers)
    else:
        run = _begin(agent, env, seeds, envs, seed, workers)
    if steps is not None:
        run.plan = Plan(run.steps, steps, evaluate_every)
    if (plan := run.plan) is None:
        raise RiskpathError("give steps=…; only a run that was interrupted knows how far it was to go")
    if watch and not plan.evaluate_every:
        raise RiskpathError("watch is called at every evaluation: give evaluate_every=… as well")
    if run.outside and plan.evaluate_every and not watch:
        prepare.gym_worlds().require_copies(run.outside)
    if keeper:
        keeper.now(run)  # a place that cannot be written to is known before the work, and whatever happens can go on
    goal, each = plan.goal, loop.steps_per_round(run.agents[0], run.lanes.time.shape[1])
    rounds = max(1, min(plan.evaluate_every or plan.steps, plan.steps // 10 or 1, 20_000) // each)
    show = TrainingBar(goal) if progress is True else progress or None
    began, before = time.monotonic(), run.steps
    try:
        ahead = (run.spec, max(0, goal - run.steps), rounds)
        chunks: Any = host.advance(run.lanes, run.row, *ahead) if run.row else loop.advance(run.lanes, *ahead)
        with _keeping(run), contextlib.closing(chunks):  # the host's hears Ctrl-C as long as it is open
            for lanes, metrics in chunks:
                _require_finite(run, lanes, metrics)
                due, run.lanes = plan.due(run.steps, int(lanes.steps)), lanes
                speed = (run.steps - before) / max(1e-9, time.monotonic() - began) * len(run.agents) * run.seeds
                numbers = {"step": run.steps, "steps_per_second": speed, **metrics}
                if due:
                    numbers["evaluation"] = noted = _noted(run, watch)
                    run.curve.append({"step": run.steps, **noted})
                if keeper:
                    keeper.maybe(run)
                if callbacks and metrics:
                    numbers["estimate"] = run.estimates().ravel()
                for callback in [*([show] if show else []), *callbacks]:
                    with in_one_line("a callback failed"):
                        callback(run, numbers)
    except KeyboardInterrupt:
        pass
    finally:
        if isinstance(show, TrainingBar):
            show.close()
        if keeper:
            with _keeping(run):
                keeper.now(run)
    return run


@contextlib.contextmanager
def _keeping(run: Run) -> Iterator[None]:
    """An environment fails, or a disk is full: what was learned before is not lost."""
    try:
        yield
    except TrainingStopped:
        raise
    except RiskpathError as error:
        raise TrainingStopped(str(error), run) from error


def _require_finite(run: Run, lanes: loop.Lanes, metrics: dict[str, Any]) -> None:
    """Stops before the run becomes what nobody wants to keep."""
    between = f"between steps {run.steps} and {int(lanes.steps)}"
    if not bool(lanes.healthy):
        raise TrainingStopped(f"a reward was not a finite number {between}", run)
    if not np.isfinite(metrics.get("loss", 0.0)).all():
        cure = "try a smaller step size, or rewards scaled down"
        raise TrainingStopped(f"the loss was not a finite number {between}: {cure}", run)


def _noted(run: Run, watch: Any) -> dict[str, Any]:
    """What the learning curve keeps."""
    if watch is None:
        return {"values": run.values().tolist()}
    with in_one_line("watch failed"):
        noted = watch(run)
    if not isinstance(noted, dict):
        raise RiskpathError(f"watch must return a dictionary, got a {type(noted).__name__}")
    return noted


def _checkpointer(asked: Any) -> Checkpointer | None:
    if not isinstance(asked, Checkpointer | str | Path | None):
        raise RiskpathError(f"checkpoint must be a folder or a Checkpointer, got {asked!r}")
    return Checkpointer(asked) if isinstance(asked, str | Path) else asked


def _begin(agent: Any, env: Any, seeds: int, envs: int, seed: int, workers: bool) -> Run:
    agents = prepare.as_agents(agent)
    worlds, outside = prepare.as_environments(env, len(agents))
    prepare.require_fit(agents[0], worlds[0].spec, envs)
    if not outside:
        return Run(agents, worlds, seeds, loop.start(agents, worlds, seeds, envs, seed))
    row = prepare.gym_worlds().GymnasiumWorlds(outside, seeds * envs, workers)
    lanes = host.start(agents, outside[0].world, row, seeds, envs, seed)
    return Run(agents, worlds, seeds, lanes, outside=outside, row=row)


def _taken_up(run: Run, env: Any, seeds: int, envs: int, workers: bool) -> Run:
    """A run to be trained further; Gymnasium environments that are not where it was left begin anew."""
    if env is not None:
        raise RiskpathError("a run is trained further where it was trained before: give no environment")
    for name, asked, has in (("seeds", seeds, run.seeds), ("envs", envs, run.lanes.time.shape[1])):
        if asked not in (1, has):
            raise RiskpathError(f"a run is trained further with the {name} it has, {has}, not {asked}")
    if not run.outside or (run.row and run.row.steps == run.steps):
        return run
    if run.row and not run.outside[0].alone:
        with contextlib.suppress(Exception):  # it may be broken
            run.row.close()
        run.row = None
    row: host.Worlds = run.row or prepare.gym_worlds().GymnasiumWorlds(
        run.outside, run.seeds * run.lanes.time.shape[1], workers
    )
    run.row, run.lanes = row, host.restart(run.lanes, row, run.spec)
    return run
