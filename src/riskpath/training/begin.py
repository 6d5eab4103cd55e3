"""How a run begins: in an environment, on logged data, or where another call of `train` ended."""

import contextlib
from typing import Any

from riskpath.agents.experience import Logged
from riskpath.errors import RiskpathError
from riskpath.training import host_loop, inputs
from riskpath.training.dataset import Dataset
from riskpath.training.lane_memory import require_lanes
from riskpath.training.lanes import start
from riskpath.training.logged import logged_environment, logged_experience, start_logged, without_steps
from riskpath.training.notices import LOGGER, notice_random_transitions
from riskpath.training.run import Run


def begin(
    agent: Any, env: Any, seeds: int, num_envs: int, seed: int, first_seed: int, devices: int | None, workers: bool
) -> Run:
    """Return an untrained run in environments of the compiled program, or in those that the host steps."""
    agents, environments, sources = inputs.as_settings(agent, env, num_envs)
    require_lanes(agents, environments[0], seeds, num_envs, before=first_seed)
    if sources:
        vector = inputs.gymnasium_module().GymnasiumVector(sources, seeds * num_envs, workers)
        lanes = host_loop.start(agents, environments[0], vector, seeds, num_envs, seed, first_seed)
    else:
        vector, lanes = None, start(agents, environments, seeds, num_envs, seed, first_seed, devices)
    notice_random_transitions(agents[0], environments[0], lanes, on_host=bool(sources))
    return Run(agents, environments, seeds, lanes, sources=sources, vector=vector, first_seed=first_seed)


def begin_with_data(agent: Any, env: Any, data: Any, seeds: int, num_envs: int, seed: int, first_seed: int) -> Run:
    """Return an untrained run that learns from logged episodes; an environment is only for evaluation."""
    agents: list[Any] = [without_steps(one) for one in inputs.as_agents(agent)]
    if not isinstance(data, Dataset):
        raise RiskpathError(f"data must be a rp.Dataset, got a {type(data).__name__}")
    stand_in, sources = logged_environment(data), []
    environments: Any = [stand_in] * len(agents)
    if env is not None:
        environments, sources = inputs.as_environments(env, len(agents))
        inputs.require_alike(data.spec, environments[0].spec)
    agents[0].require_actions(data.spec)
    logged_experience(agents[0], data.spec, len(data)).require_fit(num_envs)
    lanes = start_logged(agents, environments, data, seeds, seed, first_seed)
    LOGGER.warning(
        "%s learns from data alone: nothing guards it against actions that the data never tried",
        type(agents[0]).__name__,
    )
    return Run(agents, environments, seeds, lanes, sources=sources, first_seed=first_seed)


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
    run.vector, run.lanes = vector, host_loop.restart(run.lanes, vector, run.spec)
    return run
