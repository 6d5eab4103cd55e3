"""How a run begins: in an environment, on logged data, or where another call of `train` ended."""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp

from riskpath.agents.experience import Logged
from riskpath.envs.vector import VectorEnvironment
from riskpath.envs.workers import Workers
from riskpath.errors import RiskpathError
from riskpath.training import inputs
from riskpath.training.lane_memory import require_lanes
from riskpath.training.lanes import Lanes, begin_anew, reset_on_host, start
from riskpath.training.logged import logged_experience, with_data
from riskpath.training.notices import LOGGER, notice_random_transitions
from riskpath.training.run import Run
from riskpath.types import EnvSpec


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
    agents, environments, sources = inputs.as_settings(agent, env, data, num_envs)
    experience, vector = None, None
    if workers.on_cluster and (data is not None or not sources):
        raise RiskpathError("workers on a Ray cluster step Gymnasium environments; this one runs in the program itself")
    if data is not None:
        experience, devices = logged_experience(agents[0], environments[0].spec, len(data)), 1
    else:
        require_lanes(agents, environments[0], seeds, num_envs, before=first_seed)
        if sources:
            vector = workers.vector(sources, seeds * num_envs)
    lanes = start(agents, environments, seeds, num_envs, seed, first_seed, devices, experience, vector)
    if data is not None:
        lanes = with_data(lanes, agents, environments[0].spec, data)
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
