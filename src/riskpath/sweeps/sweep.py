"""`sweep`: an agent with every combination of some hyperparameters, several seeds of each, as few programs as possible.

    result = rp.sweep(agent, "BettingGame", over={"risk.level": [0.1, 0.25]}, steps=20_000, seeds=8, out="runs/sweep")
    print(result.table())

Combinations that differ in numbers only are lanes of one compiled program, on all local devices. Others are trained one
after another, or on a Ray cluster.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from riskpath.agents.agent import Agent
from riskpath.errors import RiskpathError
from riskpath.sweeps.axes import as_axes
from riskpath.sweeps.jobs import Progress, run_jobs
from riskpath.sweeps.ray_engine import engine
from riskpath.sweeps.result import Sweep
from riskpath.sweeps.store import TABLE, SweepFolder
from riskpath.sweeps.sweep_cells import SweepCell
from riskpath.sweeps.sweep_plan import SweepPlan, unfinished
from riskpath.training import inputs
from riskpath.validation import given, require_counts, require_whole


def sweep(
    agent: Agent,
    env: Any,
    over: Mapping[str, Sequence[Any]],
    *,
    steps: int,
    seeds: int = 1,
    num_envs: int = 1,
    seed: int = 0,
    out: str | Path | None = None,
    evaluate_every: int | None = None,
    episodes: int | None = None,
    max_lanes: int | None = None,
    retries: int = 1,
    ray: str | None = None,
    progress: Progress = False,
) -> Sweep:
    """Train every combination of some hyperparameters with several seeds, and evaluate every policy.

    Ctrl-C ends the sweep early and returns the finished part. With `out`, the same call continues from there, also
    after a kill: every finished cell is stored immediately. A failing cell is tried again, then in halves, so that a
    diverging combination does not affect others; remaining failures are in the `failed` of the result.

    Args:
        agent: The agent; the axes replace fields of it.
        env: The environment, as for `train`.
        over: The values of each axis: a field of the agent such as "risk.level", "training.learning_rate" or
            "network.hidden", the whole "risk", a field of the environment such as "env.p_win", or the whole "env".
        steps: Environment steps for each lane.
        seeds: Seeds of each combination.
        num_envs: Environments for each lane.
        seed: Seed of all randomness. Lanes with the same number of their seed start alike in all combinations.
        out: A folder for the results.
        evaluate_every: Steps between evaluations of the greedy policies, kept as learning curves.
        episodes: Episodes for the value of a lane where there is no exact one; by default 1,000, and 100 in Gymnasium.
        max_lanes: The most lanes that a device trains at a time; by default all that fit into its memory. With the
            same number given, lanes have the same bits on one device and on Ray.
        retries: Number of further attempts for a failing cell.
        ray: The address of a Ray cluster on which cells are trained: "auto" for the one of this machine, or
            "HOST:PORT". By default they are trained in this process.
        progress: True for one progress bar over all cells, or a function of a line that is called after each cell.
    """
    (agent,) = inputs.as_agents(agent)
    counts = given(evaluate_every=evaluate_every, episodes=episodes, max_lanes=max_lanes)
    require_counts(steps=steps, seeds=seeds, num_envs=num_envs, **counts)
    require_counts(0, retries=retries)
    require_whole(seed=seed)
    plan = SweepPlan(agent, env, as_axes(over), steps, seeds, num_envs, seed, evaluate_every, episodes, max_lanes)
    return run_plan(plan, out, retries=retries, ray=ray, progress=progress)


def run_plan(
    plan: SweepPlan,
    out: str | Path | None,
    *,
    retries: int = 1,
    ray: str | None = None,
    progress: Progress = False,
) -> Sweep:
    """Train the unfinished part of a sweep."""
    if ray is not None and not isinstance(ray, str):
        raise RiskpathError(f'ray must be an address such as "auto" or "10.0.0.1:6379", got {ray!r}')
    plan.groups()  # every mistake is reported before anything is written
    worker = engine(ray)
    try:
        store = None if out is None else SweepFolder(out)
        best = lambda: plan.width(worker.devices, worker.slots)
        width = best() if store is None else store.begin(plan.configuration(), best)
        lanes = {} if store is None else store.lanes()
        cells = plan.cells(width, worker.devices)
        left = [part for cell in cells for part in unfinished(cell, lanes)]
    except BaseException:
        worker.close()
        raise

    def finish(cell: SweepCell, content: dict[str, Any]) -> str:
        if store is not None:
            store.add(cell.file, content)
        lanes.update({(lane["combination"], lane["seed"]): lane for lane in content["lanes"]})
        return f"{content['lanes'][0]['seconds']:.0f} s"

    failed = run_jobs(left, finish, worker, retries=retries, progress=progress, done=len(cells) - len(left))
    missing = len(plan.combinations) * plan.seeds - len(lanes)
    result = Sweep(list(plan.over), [lanes[lane] for lane in sorted(lanes)], failed, missing)
    if store is not None and (left or not (store.path / TABLE).exists()):  # the folder may be read-only now
        store.set_failed(failed)
        result.to_csv(store.path / TABLE)
    return result
