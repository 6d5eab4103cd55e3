"""Train our agents in public environments, Gymnasium's and MiniGrid's, for the mean and for CVaR 0.25.

    pip install box2d minigrid pygame
    python benchmarks/public_environments.py                     every job, as many at a time as there are cores
    python benchmarks/public_environments.py --only Lunar --at-once 2
    python benchmarks/public_environments.py --draw              table and figure of the results so far

A job is one environment, one agent and one measure, with five seeds side by side. It trains with `rp.train`, then rolls
out 100 greedy episodes of each seed's final policy (no checkpoint is selected). Its result goes to a file of its own in
the folder `runs`, so that an interrupted benchmark is continued; all results together make
benchmarks/results/public_environments.json, .md and .png.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from public_tasks import TASKS, Task

RESULTS = Path(__file__).parent / "results"
MEASURES = ("mean", "cvar:0.25")
EPISODES = 100
DISCRETE, CONTINUOUS = ("IQN", "TQL convolved"), ("IQTD3", "TQL convolved")
WINDOW = 4
"""Number of observations in a history: these problems are Markov, or nearly so."""


def jobs() -> list[tuple[str, str, str]]:
    """Return environment, agent and measure of every job, the longest first."""
    listed = [(env, agent, m) for env, task in TASKS.items() for agent in _agents(task) for m in MEASURES]
    return sorted(listed, key=lambda job: (-TASKS[job[0]].steps, job[1] != "TQL convolved"))


def _agents(task: Task) -> tuple[str, ...]:
    return CONTINUOUS if task.continuous else DISCRETE


def make_agent(name: str, task: Task, measure: str) -> Any:
    import riskpath as rp

    kind = rp.ActorCriticTraining if task.continuous else rp.Training
    common: dict[str, Any] = {"discount": task.discount, "training": kind(**task.training)}
    risk = rp.parse_risk(measure)
    if name in ("IQN", "IQTD3"):
        return (rp.IQTD3 if task.continuous else rp.IQN)(risk, network=rp.Network(**task.network), **common)
    network = rp.Network(**task.network, window=WINDOW)
    return (rp.TQLContinuous if task.continuous else rp.TQL)(
        risk, critic="convolved", convolved_taus=8, network=network, **common
    )


def environment(name: str, limit: int | None = None) -> Any:
    """Return the environment, or a function that makes it."""
    import gymnasium

    name, *continuous = name.split(", ")
    if continuous:
        return lambda: gymnasium.make(name, continuous=True)
    if not name.startswith("MiniGrid"):
        return name if limit is None else lambda: gymnasium.make(name, max_episode_steps=limit)
    from minigrid.wrappers import ImgObsWrapper  # pyright: ignore[reportMissingImports]

    return lambda: ImgObsWrapper(gymnasium.make(name))  # the image without the text of the mission


def work(env: str, agent: str, measure: str, seeds: int, share: float, target: Path) -> None:
    """Run one job in this process."""
    import jax

    import riskpath as rp

    task, began = TASKS[env], time.monotonic()
    steps = int(task.steps * share)
    test = environment(env)

    def evaluator(run: Any) -> dict[str, Any]:
        sample = run.evaluate(8, env=test)  # side by side
        print(f"{env}, {agent}, {measure}: step {run.steps:,}, {np.median(sample.returns):.1f}", flush=True)
        return {"means": np.round(sample.returns[0].mean(axis=1), 2).tolist()}

    run = rp.train(
        make_agent(agent, task, measure),
        environment(env, task.training_limit),
        steps=steps,
        seeds=seeds,
        num_envs=task.num_envs,
        evaluate_every=steps // 12,
        evaluator=evaluator,
    )
    trained = time.monotonic() - began
    returns = run.evaluate(EPISODES, seed=1, env=test).returns[0]
    lower = rp.CVaR(0.25)
    record = {
        "env": env,
        "agent": agent,
        "risk": measure,
        "steps": steps,
        "device": f"one core of {jax.devices()[0].device_kind}",
        "seconds": round(trained, 1),
        "means": np.round(returns.mean(axis=1), 3).tolist(),
        "cvars": [round(float(lower.value(lane)), 3) for lane in returns],
        "curve": [[point["step"], *point["means"]] for point in run.curve],
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.with_suffix(".part").write_text(json.dumps(record))
    os.replace(target.with_suffix(".part"), target)
    print(f"{env}, {agent}, {measure}: {trained:.0f} s, means {record['means']}, CVaR {record['cvars']}", flush=True)


def run_all(wanted: list[tuple[str, str, str]], options: argparse.Namespace) -> None:
    """Run every job in a process and on a core of its own."""
    cores = sorted(os.sched_getaffinity(0))[: options.at_once]
    running: dict[int, subprocess.Popen[bytes]] = {}
    waiting = [(job, _file(options.out, job)) for job in wanted if not _file(options.out, job).exists()]
    while waiting or running:
        for core in [core for core in cores if core not in running and waiting]:
            job, target = waiting.pop(0)
            command = [sys.executable, __file__, "--job", *job, "--seeds", str(options.seeds), "--share"]
            running[core] = subprocess.Popen(
                [*command, str(options.share), "--file", str(target)],
                env={**os.environ, "JAX_PLATFORMS": "cpu"},
                preexec_fn=lambda core=core: os.sched_setaffinity(0, {core}),
            )
        time.sleep(0.2)
        running = {core: process for core, process in running.items() if process.poll() is None}


def _file(out: Path, job: tuple[str, str, str]) -> Path:
    return out / ("_".join(job).replace(" ", "-").replace(":", "-") + ".json")


def collect(out: Path) -> list[dict[str, Any]]:
    """Return earlier results, replaced by those in the folder."""
    path = RESULTS / "public_environments.json"
    earlier: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    latest = {(r["env"], r["agent"], r["risk"]): r for r in earlier.get("records", [])}
    latest |= {(r["env"], r["agent"], r["risk"]): r for r in (json.loads(f.read_text()) for f in out.glob("*.json"))}
    records = [latest[job] for job in jobs() if job in latest]
    command = "python benchmarks/public_environments.py"
    kept = {"command": command, "note": earlier.get("note", ""), "episodes": EPISODES, "records": records}
    path.write_text(json.dumps(kept) + "\n")
    return records


def write_table(records: list[dict[str, Any]]) -> str:
    """Write a table with a row for each environment and agent: medians over seeds, lowest to highest."""
    lines = [
        "# Public environments",
        "",
        f"`python benchmarks/public_environments.py`: final policies after so many steps, {EPISODES} greedy episodes",
        "of each of five seeds, undiscounted returns, median over seeds (lowest to highest). Trained for the mean:",
        "its mean and CVaR 0.25; then those of the same agent trained for CVaR 0.25.",
        "",
        "| environment | steps | agent | mean | CVaR | mean, for CVaR | CVaR, for CVaR |",
        "|---|---:|---|---:|---:|---:|---:|",
    ]
    by_key = {(r["env"], r["agent"], r["risk"]): r for r in records}
    for env, task in TASKS.items():
        for agent in _agents(task):
            cells = []
            for measure in MEASURES:
                record = by_key.get((env, agent, measure))
                cells += [_spread(record[key]) if record else "not run" for key in ("means", "cvars")]
            lines.append(f"| {env} | {task.steps:,} | {agent} | " + " | ".join(cells) + " |")
    text = "\n".join(lines) + "\n"
    (RESULTS / "public_environments.md").write_text(text)
    return text


def _spread(values: list[float]) -> str:
    digits = 2 if max(map(abs, values)) < 2 else 1
    low, middle, high = (f"{x:.{digits}f}".replace("-", "−") for x in (min(values), np.median(values), max(values)))
    return f"{middle} ({low} to {high})"


def draw(records: list[dict[str, Any]]) -> Path:
    """Draw a panel for each environment: the mean return of greedy episodes while training for the mean."""
    from riskpath import plot

    figure, axes = plot.panels(3, 3, width=3.4)
    for axis, (env, task) in zip(axes.ravel(), TASKS.items(), strict=True):
        for record in (r for r in records if r["env"] == env and r["risk"] == "mean"):
            steps, *seeds = np.array(record["curve"]).T
            plot.seeds_curve(axis, steps / 1_000, np.array(seeds), record["agent"], plot.COLOURS[record["agent"]])
        if task.goal is not None:
            plot.reference_line(axis, task.goal, f"{task.goal:g}")
        axis.set_title(env, fontsize=9)
        axis.legend(fontsize=7, frameon=False)
    figure.supxlabel("environment steps of each seed (thousands)", fontsize=9)
    figure.supylabel("mean return of the greedy policy", fontsize=9)
    return plot.save(figure, RESULTS / "public_environments.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="environments or agents with this text in their name")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--share", type=float, default=1.0, help="share of the steps, for a quick look")
    parser.add_argument("--at-once", type=int, default=os.cpu_count(), help="jobs side by side, one core each")
    parser.add_argument("--out", type=Path, default=Path("runs/public_environments"))
    parser.add_argument("--draw", action="store_true", help="make table and figure only")
    parser.add_argument("--job", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        env, agent, measure = options.job
        work(env, agent, measure, options.seeds, options.share, options.file)
        return
    if not options.draw:
        run_all([job for job in jobs() if options.only in " ".join(job)], options)
    if options.draw or (options.share == 1.0 and options.seeds == 5):
        records = collect(options.out)
        print(write_table(records))
        print(draw(records))


if __name__ == "__main__":
    main()
