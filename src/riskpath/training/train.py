"""`train`: train an agent in an environment for a number of steps, and return a `Run`."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from riskpath.agents.agent import Agent
from riskpath.envs.workers import LocalWorkers, Workers, as_workers
from riskpath.errors import RiskpathError
from riskpath.training import inputs
from riskpath.training.begin import begin, go_on
from riskpath.training.checkpoint import Checkpointer
from riskpath.training.dataset import Dataset
from riskpath.training.devices import chosen_kernels
from riskpath.training.logged import LoggedEnvironment
from riskpath.training.outer_loop import Callback, checked, train_in_chunks, values
from riskpath.training.plan import Plan
from riskpath.training.progress import TrainingBar, working
from riskpath.training.run import Run, keep
from riskpath.validation import given, require_counts, require_whole


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
    workers: bool | str | Workers | None = None,
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
        workers: Who steps Gymnasium environments, worth it if a step is slow: True for a process for each of them,
            "ray" or the address of a Ray cluster, or `rp.RayWorkers`. By default this process, or as before.
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
    who = None if workers is None else as_workers(workers)
    checkpointer, continued = _as_checkpointer(checkpoint), isinstance(agent, Run)
    if continued and data is not None:
        raise RiskpathError("a run is continued with the data it was trained on, which it holds: give no data")
    with working("starting workers") if progress is True and who and who.on_cluster else contextlib.nullcontext():
        if isinstance(agent, Run):
            run = go_on(agent, env, seeds, num_envs, who)
        else:
            run = begin(agent, env, data, seeds, num_envs, seed, first_seed, devices, who or LocalWorkers())
    if steps is not None:
        run.plan = Plan(run.steps, steps, evaluate_every)
    if (plan := run.plan) is None:
        raise RiskpathError("give steps=…; only an interrupted run has steps left")
    run.lanes = run.lanes.planned(plan.goal)
    if evaluator and not plan.evaluate_every:
        raise RiskpathError("evaluator is called at every evaluation: give evaluate_every=… as well")
    if plan.evaluate_every and not evaluator:
        if isinstance(run.environments[0], LoggedEnvironment):
            raise RiskpathError("data cannot evaluate a policy: give env=…, or leave evaluate_every out")
        if run.sources:
            inputs.gymnasium_module().require_copies(run.sources)
    kernels = chosen_kernels(run.agents[0])
    if checkpointer:
        checkpointer.begin(run, continued)  # a folder that cannot be written is reported before the work
    with keep(run), contextlib.ExitStack() as at_the_end:
        functions, bar = [*([progress] if callable(progress) else []), *callbacks], None
        if checkpointer:
            at_the_end.callback(checkpointer.save, run)
        if progress is True:
            bar = at_the_end.enter_context(contextlib.closing(TrainingBar(plan.goal, run.steps)))
        with contextlib.suppress(KeyboardInterrupt):
            evaluate = checked(evaluator) if evaluator else values
            train_in_chunks(run, plan, evaluate, checkpointer, functions, bar, devices, kernels)
    return run


def _as_checkpointer(checkpoint: Any) -> Checkpointer | None:
    if not isinstance(checkpoint, Checkpointer | str | Path | None):
        raise RiskpathError(f"checkpoint must be a folder or a Checkpointer, got {checkpoint!r}")
    return Checkpointer(checkpoint) if isinstance(checkpoint, str | Path) else checkpoint
