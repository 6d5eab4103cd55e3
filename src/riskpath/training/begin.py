"""How a run begins: in an environment, on logged data, or where another call of `train` ended."""

import contextlib
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from riskpath.agents.experience import Logged
from riskpath.envs.vector import VectorEnvironment
from riskpath.errors import RiskpathError
from riskpath.evaluation.rollout import repeat_memory
from riskpath.training import inputs
from riskpath.training.lane_memory import require_lanes
from riskpath.training.lanes import Lanes, reset_on_host, start
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
    workers: bool,
) -> Run:
    """Return an untrained run; with data, an environment is only for evaluation."""
    agents, environments, sources = inputs.as_settings(agent, env, data, num_envs)
    experience, vector = None, None
    if data is not None:
        experience, devices = logged_experience(agents[0], environments[0].spec, len(data)), 1
    else:
        require_lanes(agents, environments[0], seeds, num_envs, before=first_seed)
        if sources:
            vector = inputs.gymnasium_module().GymnasiumVector(sources, seeds * num_envs, workers)
    lanes = start(agents, environments, seeds, num_envs, seed, first_seed, devices, experience, vector)
    if data is not None:
        lanes = with_data(lanes, agents, environments[0].spec, data)
        line = "%s learns from data alone, and may overestimate actions that the data never tried"
        LOGGER.warning(line, type(agents[0]).__name__)
    else:
        notice_random_transitions(agents[0], environments[0], lanes, on_host=bool(sources))
    return Run(agents, environments, seeds, lanes, sources=sources, vector=vector, first_seed=first_seed)


def go_on(run: Run, env: Any, seeds: int, num_envs: int, workers: bool) -> Run:
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
    run.vector, run.lanes = vector, _restart(run.lanes, vector, run.spec)
    return run


def _restart(lanes: Lanes, vector: VectorEnvironment, spec: EnvSpec) -> Lanes:
    """Return the same agents with the same experience, at the start of new episodes."""
    keys = jax.vmap(lambda key: jax.random.fold_in(key, lanes.steps))(lanes.keys)
    observation, mask = reset_on_host(vector, keys, lanes.num_envs)
    vector.steps = int(lanes.steps)
    time_step = jax.vmap(jax.vmap(spec.first_time_step))(observation, mask)
    memory = repeat_memory(lanes.agent_state.initial_memory, lanes.num_envs)
    nothing = jnp.zeros_like(lanes.return_so_far)
    state = eqx.tree_at(lambda s: s.episodes.recent, lanes.agent_state, nothing)
    recent = replace(lanes.recent, so_far=nothing)
    return replace(lanes, agent_state=state, time_step=time_step, memory=memory, return_so_far=nothing, recent=recent)
