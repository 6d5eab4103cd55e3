"""`train`: train an agent in an environment for a number of steps, and return a `Run`."""

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from riskpath.agents.agent import Agent
from riskpath.agents.experience import Logged
from riskpath.errors import RiskpathError, in_one_line
from riskpath.nn.kernels import use_kernels
from riskpath.training import fused_loop, host_loop, inputs
from riskpath.training.checkpoint import Checkpointer
from riskpath.training.dataset import Dataset
from riskpath.training.devices import chosen_kernels
from riskpath.training.lane_memory import require_lanes
from riskpath.training.lanes import CHECKS, Lanes, start
from riskpath.training.logged import (
    LoggedEnvironment,
    logged_environment,
    logged_experience,
    start_logged,
    without_steps,
)
from riskpath.training.notices import LOGGER, notice_of_estimates, notice_random_transitions
from riskpath.training.plan import Plan
from riskpath.training.progress import Pace, TrainingBar, counting, working
from riskpath.training.run import Run, TrainingStopped
from riskpath.training.selection import select_members
from riskpath.validation import given, require_counts, require_whole

Callback = Callable[[Run, dict[str, Any]], None]


def train(
    agent: Agent | Sequence[Agent] | Run,
    env: Any = None,
    *,
    data: Dataset | None = None,
    steps: int | None = None,
    seeds: int = 1,
    num_envs: int = 1,
    seed: int = 0,
    first_seed: int = 0,
    progress: bool | Callback = False,
    evaluate_every: int | None = None,
    evaluator: Callable[[Run], dict[str, Any]] | None = None,
    workers: bool = False,
    devices: int | None = None,
    checkpoint: Checkpointer | str | Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train `seeds` lanes for every setting, side by side in one compiled program.

    Settings are agents (and environments) that differ in numbers only: hyperparameters, risk levels, rewards,
    probabilities. A `Run` in place of an agent is trained further. Ctrl-C ends training early and returns the run so
    far; after an error the run so far is the `run` of a `TrainingStopped`.

    Args:
        agent: An agent, several settings of one, or a run to continue.
        env: A name, a `FiniteMDP`, an environment; a Gymnasium id, environment, function that makes one, or vector
            environment (SAME_STEP autoreset); or a list with one for each agent.
        data: Logged episodes to learn from instead of an environment, for agents with a replay buffer. `steps` then
            counts updates, and `env` is only for evaluation. Nothing guards such an agent against actions that the data
            never tried.
        steps: Environment steps for each lane; by default an interrupted run is finished as planned.
        seeds: Lanes for each setting.
        num_envs: Environments for each lane.
        seed: Seed of all randomness.
        first_seed: Number of the first seed of each setting: seeds 4 to 7 of a run with `seeds=8` are those of
            `seeds=4, first_seed=4`. Up to rounding, a lane does not depend on the others.
        progress: True for a progress bar, or a function called after every chunk with the run and its metrics.
        evaluate_every: Steps between evaluations of the greedy policies, kept in `run.curve`; one more at the end.
            They are exact on small finite problems. Otherwise they play 1,000 episodes, or 20 if the host steps them.
        evaluator: A function of the run whose result (a dictionary) is kept there instead of the values.
        workers: Step each Gymnasium environment in a process of its own; worth it if a step is slow.
        devices: The largest number of local devices that share the lanes; by default the most that divide their number.
        checkpoint: A folder to save to at the start, every five minutes and at the end, or a `Checkpointer`. Only
            `Checkpointer(path, overwrite=True)` replaces another run that was saved there.
        callbacks: Functions of the run and a dictionary of metrics, called after every chunk (`callbacks.py`).
    """
    require_counts(seeds=seeds, num_envs=num_envs, **given(steps=steps, evaluate_every=evaluate_every, devices=devices))
    require_whole(seed=seed)
    require_counts(0, first_seed=first_seed)
    inputs.require_functions(progress, evaluator, callbacks)
    if steps is None and not isinstance(agent, Run):
        raise RiskpathError("give steps=…, the environment steps for each lane")
    checkpointer, continued = _as_checkpointer(checkpoint), isinstance(agent, Run)
    if isinstance(agent, Run):
        if data is not None:
            raise RiskpathError("a run is continued with the data it was trained on, which it holds: give no data")
        run = _continue(agent, env, seeds, num_envs, workers)
    else:
        assert steps is not None
        agents = [one if data is None else without_steps(one) for one in inputs.as_agents(agent)]
        if data is None:
            run = _begin(agents, env, seeds, num_envs, (seed, first_seed, devices), workers)
        else:
            run = _begin_with_data(agents, env, data, seeds, num_envs, (seed, first_seed))
    if steps is not None:
        run.plan = Plan(run.steps, steps, evaluate_every)
    if (plan := run.plan) is None:
        raise RiskpathError("give steps=…; only an interrupted run has steps left")
    run.lanes = fused_loop.planned(run.lanes, plan.goal)
    if evaluator and not plan.evaluate_every:
        raise RiskpathError("evaluator is called at every evaluation: give evaluate_every=… as well")
    if plan.evaluate_every and not evaluator and isinstance(run.environments[0], LoggedEnvironment):
        raise RiskpathError("data cannot evaluate a policy: give env=…, or leave evaluate_every out")
    if run.sources and plan.evaluate_every and not evaluator:
        inputs.gymnasium_module().require_copies(run.sources)
    kernels = chosen_kernels(run.agents[0])
    if checkpointer:
        checkpointer.begin(run, continued)  # a folder that cannot be written is reported before the work
    each = fused_loop.steps_per_round(run.agents[0], run.lanes.experience, run.lanes.num_envs)
    saves = (checkpointer and checkpointer.every_steps) or plan.steps
    rounds = max(1, min(plan.evaluate_every or plan.steps, saves, plan.steps // 50 or 1, 20_000) // each)
    show = TrainingBar(plan.goal, run.steps) if progress is True else progress or None
    functions = [*([show] if show else []), *callbacks]
    pace, learning, bar, nothing = Pace(plan.goal, run.steps), False, progress is True, contextlib.nullcontext()
    diverged = False
    try:
        devices = 1 if isinstance(run.lanes.experience, Logged) else devices
        chunks = _chunks(run, max(0, plan.goal - run.steps), rounds, devices, kernels)
        with _keep(run), contextlib.closing(chunks):
            for lanes, metrics in chunks:
                _require_valid(run, lanes, metrics)
                due, run.lanes = plan.due(run.steps, int(lanes.steps)), lanes
                if run.finished:
                    with counting("comparing members", "blocks of episodes") if bar else nothing as count:
                        run.lanes = select_members(run, count)
                speed = (pace.speed(run.steps) or 0.0) * len(run.agents) * run.seeds
                record = {"step": run.steps, "steps_per_second": speed, **metrics, **run.recent_figures()}
                if due:
                    with working("evaluating") if bar else nothing:
                        record["evaluation"] = point = _evaluate(run, evaluator)
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
    except KeyboardInterrupt:
        pass
    finally:
        if isinstance(show, TrainingBar):
            show.close()
        if checkpointer:
            with _keep(run):
                checkpointer.save(run)
    return run


def _chunks(
    run: Run, steps: int, rounds: int, devices: int | None, kernels: ModuleType | None
) -> Generator[tuple[Lanes, dict[str, Any]]]:
    """Yield the lanes and metrics after each chunk, which uses these kernels."""
    if run.vector:
        chunks = host_loop.advance(run.lanes, run.vector, run.spec, steps, rounds)
    else:
        chunks = fused_loop.advance(run.lanes, run.spec, steps, rounds, devices)
    with contextlib.closing(chunks):
        while True:
            with use_kernels(kernels):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk


@contextlib.contextmanager
def _keep(run: Run) -> Iterator[None]:
    """Attach the run so far to an error, for example of an environment or a full disk."""
    try:
        yield
    except TrainingStopped:
        raise
    except RiskpathError as error:
        raise TrainingStopped(str(error), run) from error


def _require_valid(run: Run, lanes: Lanes, metrics: dict[str, Any]) -> None:
    """Stop before invalid numbers become part of the run."""
    between = f"between steps {run.steps} and {int(lanes.steps)}"
    for what, valid in zip(CHECKS, np.asarray(lanes.valid), strict=True):
        wrong = "left no action available" if what == "an action mask" else "was not a finite number"
        if not valid:
            raise TrainingStopped(f"{what} {wrong} {between}", run)
    if not np.isfinite(metrics.get("loss", 0.0)).all():
        cure = "try a smaller learning_rate"
        raise TrainingStopped(f"the loss was not a finite number {between}: {cure}", run)


def _evaluate(run: Run, evaluator: Any) -> dict[str, Any]:
    """Return a point of the learning curve."""
    if evaluator is None:
        return {"values": run.measure(20 if run.sources else 1_000, progress=False).values().tolist()}
    with in_one_line("evaluator failed"):
        point = evaluator(run)
    if not isinstance(point, dict):
        raise RiskpathError(f"evaluator must return a dictionary, got a {type(point).__name__}")
    return point


def _as_checkpointer(checkpoint: Any) -> Checkpointer | None:
    if not isinstance(checkpoint, Checkpointer | str | Path | None):
        raise RiskpathError(f"checkpoint must be a folder or a Checkpointer, got {checkpoint!r}")
    return Checkpointer(checkpoint) if isinstance(checkpoint, str | Path) else checkpoint


def _begin(agents: Any, env: Any, seeds: int, num_envs: int, seed: tuple[int, int, int | None], workers: bool) -> Run:
    environments, sources = inputs.as_environments(env, len(agents))
    inputs.require_fit(agents[0], environments[0].spec, num_envs)
    require_lanes(agents, environments[0], seeds, num_envs, before=seed[1])
    if not sources:
        lanes = start(agents, environments, seeds, num_envs, *seed)
        notice_random_transitions(agents[0], environments[0], lanes, on_host=False)
        return Run(agents, environments, seeds, lanes, first_seed=seed[1])
    vector = inputs.gymnasium_module().GymnasiumVector(sources, seeds * num_envs, workers)
    lanes = host_loop.start(agents, environments[0], vector, seeds, num_envs, *seed[:2])
    notice_random_transitions(agents[0], environments[0], lanes, on_host=True)
    return Run(agents, environments, seeds, lanes, sources=sources, vector=vector, first_seed=seed[1])


def _begin_with_data(agents: Any, env: Any, data: Any, seeds: int, num_envs: int, seed: tuple[int, int]) -> Run:
    if not isinstance(data, Dataset):
        raise RiskpathError(f"data must be a rp.Dataset, got a {type(data).__name__}")
    stand_in, sources = logged_environment(data), []
    environments: Any = [stand_in] * len(agents)
    if env is not None:
        environments, sources = inputs.as_environments(env, len(agents))
        inputs.require_alike(data.spec, environments[0].spec)
    agents[0].require_actions(data.spec)
    logged_experience(agents[0], data.spec, len(data)).require_fit(num_envs)
    lanes = start_logged(agents, environments, data, seeds, *seed)
    LOGGER.warning(
        "%s learns from data alone: nothing guards it against actions that the data never tried",
        type(agents[0]).__name__,
    )
    return Run(agents, environments, seeds, lanes, sources=sources, first_seed=seed[1])


def _continue(run: Run, env: Any, seeds: int, num_envs: int, workers: bool) -> Run:
    """Prepare a run for further training; Gymnasium environments that are not at the run's step are reset."""
    if env is not None:
        raise RiskpathError("a run is continued in the environment it was trained in: give no environment")
    for name, wanted, has in (("seeds", seeds, run.seeds), ("num_envs", num_envs, run.lanes.num_envs)):
        if wanted not in (1, has):
            raise RiskpathError(f"a run is continued with its own {name}, {has}, not {wanted}")
    data = isinstance(run.lanes.experience, Logged)
    if data or not run.sources or (run.vector and run.vector.steps == run.steps):
        return run
    if run.vector and not run.sources[0].single_use:
        with contextlib.suppress(Exception):  # it may be broken
            run.vector.close()
        run.vector = None
    vector = run.vector or inputs.gymnasium_module().GymnasiumVector(
        run.sources, run.seeds * run.lanes.num_envs, workers
    )
    run.vector, run.lanes = vector, host_loop.restart(run.lanes, vector, run.spec)
    return run
