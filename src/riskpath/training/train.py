"""`train`: train an agent in an environment for a number of steps, and return a `Run`."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from riskpath.agents.agent import Agent
from riskpath.agents.experience import Logged
from riskpath.envs.vector import VectorEnvironment
from riskpath.envs.workers import LocalWorkers, Workers, as_workers
from riskpath.errors import RiskpathError
from riskpath.training import inputs
from riskpath.training.checkpoint import Checkpointer
from riskpath.training.dataset import Dataset
from riskpath.training.devices import chosen_kernels
from riskpath.training.lane_memory import require_lanes
from riskpath.training.lanes import Lanes, begin_anew, reset_on_host, start
from riskpath.training.logged import LoggedEnvironment, logged_environment, logged_experience, with_data, without_steps
from riskpath.training.notices import LOGGER, notice_random_transitions
from riskpath.training.outer_loop import Callback, checked, train_in_chunks, values
from riskpath.training.plan import Plan
from riskpath.training.progress import TrainingBar, working
from riskpath.training.run import Run, keep
from riskpath.types import EnvSpec
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
    if not isinstance(checkpoint, Checkpointer | str | Path | None):
        raise RiskpathError(f"checkpoint must be a folder or a Checkpointer, got {checkpoint!r}")
    checkpointer = Checkpointer(checkpoint) if isinstance(checkpoint, str | Path) else checkpoint
    continued = isinstance(agent, Run)
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


def begin(
    agent: Any,
    env: Any,
    data: Any,
    seeds: int,
    num_envs: int,
    seed: int,
    first_seed: int,
    devices: int | None,
    workers: Workers,
) -> Run:
    """Return an untrained run; with data, an environment is only for evaluation."""
    agents: list[Agent] = inputs.as_agents(agent)
    if data is not None:
        agents = [without_steps(one) for one in agents]
        if not isinstance(data, Dataset):
            raise RiskpathError(f"data must be a rp.Dataset, got a {type(data).__name__}")
        env = logged_environment(data) if env is None else env
    environments, sources = inputs.as_environments(env, len(agents))
    spec, experience, vector = environments[0].spec, None, None
    if data is None:
        inputs.require_fit(agents[0], spec, num_envs)
    else:
        inputs.require_alike(data.spec, spec)
        agents[0].require_actions(data.spec)
        experience, devices = logged_experience(agents[0], spec, len(data)), 1
        experience.require_fit(num_envs)
    if workers.on_cluster and (data is not None or not sources):
        raise RiskpathError("workers on a Ray cluster step Gymnasium environments; this one runs in the program itself")
    if data is None:
        require_lanes(agents, environments[0], seeds, num_envs, before=first_seed)
    if sources and data is None:
        vector = workers.vector(sources, seeds * num_envs)
    lanes = start(agents, environments, seeds, num_envs, seed, first_seed, devices, experience, vector)
    if data is not None:
        lanes = with_data(lanes, agents, spec, data)
        line = "%s learns from data alone, and may overestimate actions that the data never tried"
        LOGGER.warning(line, type(agents[0]).__name__)
    else:
        notice_random_transitions(agents[0], environments[0], lanes, on_host=bool(sources))
    parts = {"sources": sources, "vector": vector, "workers": workers, "first_seed": first_seed}
    return Run(agents, environments, seeds, lanes, **parts)


def go_on(run: Run, env: Any, seeds: int, num_envs: int, workers: Workers | None) -> Run:
    """Prepare a run for further training; Gymnasium environments that are not at the run's step are reset.

    So are those that other workers step from here on.
    """
    if env is not None:
        raise RiskpathError("a run is continued in the environment it was trained in: give no environment")
    for name, wanted, has in (("seeds", seeds, run.seeds), ("num_envs", num_envs, run.lanes.num_envs)):
        if wanted not in (1, has):
            raise RiskpathError(f"a run is continued with its own {name}, {has}, not {wanted}")
    data = isinstance(run.lanes.experience, Logged)
    workers = workers or run.workers
    if workers.on_cluster and (data or not run.sources):
        raise RiskpathError("workers on a Ray cluster step Gymnasium environments; this run has none")
    if data or not run.sources or (run.vector and run.vector.steps == run.steps and workers == run.workers):
        return run
    if run.vector and not run.sources[0].single_use:
        with contextlib.suppress(Exception):  # it may be broken
            run.vector.close()
        run.vector = None
    vector = run.vector or workers.vector(run.sources, run.seeds * run.lanes.num_envs)
    run.vector, run.workers, run.lanes = vector, workers, _restart(run.lanes, vector, run.spec)
    return run


def _restart(lanes: Lanes, vector: VectorEnvironment, spec: EnvSpec) -> Lanes:
    """Return the same agents with the same experience, at the start of new episodes."""
    keys = jax.vmap(lambda key: jax.random.fold_in(key, lanes.steps))(lanes.keys)
    observation, mask = reset_on_host(vector, keys, lanes.num_envs)
    vector.steps = int(lanes.steps)
    return begin_anew(lanes, spec, jnp.ones(lanes.return_so_far.shape, bool), observation, mask)
