"""`rp.PPO` beside Stable-Baselines3's PPO, both with the hyperparameters of RL Zoo, in one run on one machine.

    pip install stable-baselines3 torch box2d pygame
    python benchmarks/peers/ppo_peers.py                         every job that the file of results does not hold yet
    python benchmarks/peers/ppo_peers.py --only CartPole         one environment
    python benchmarks/peers/ppo_peers.py --draw                  table and figure of the results so far

A job is an environment, an agent and its seeds, `CartPole/ours/0-4`. Jobs run one after the other, the two agents in
turn, each in a process of its own; a job appends one line to benchmarks/results/ppo_peers.jsonl. Wall time and
processor time are those of the training alone, compilation included. Torch has one thread, which is its fastest
setting for networks of this size; JAX is left as it is. A seed is judged by 100 greedy episodes after training.

RL Zoo (rl-baselines3-zoo, `hyperparams/ppo.yml`) tunes its settings for each environment. rp.PPO has the same numbers
where it has the same field. It has no decay of the clip range (CartPole) and no state-dependent exploration (Pendulum);
it always normalises observations and scales the critic, Stable-Baselines3 does so where RL Zoo says so (Acrobot).
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

OUT = Path(__file__).parents[1] / "results" / "ppo_peers.jsonl"
EPISODES = 100
OURS, ONE, THEIRS = "ours", "ours, one seed", "Stable-Baselines3"
PLAIN = "Stable-Baselines3 without gSDE"
"""With independent noise at every step, as rp.PPO has it."""
OWN = "ours, own settings"
"""Many short rollouts in place of a few long ones: the settings of rp.PPO's page."""
SMALLER = "ours, smaller steps"
"""RL Zoo's numbers, but for a learning rate of 0.0003."""


@dataclass(frozen=True)
class Task:
    """An environment with the hyperparameters of RL Zoo."""

    env: str
    target: float
    """The mean return that counts as solved."""
    steps: int
    num_envs: int
    length: int
    batch_size: int
    epochs: int
    discount: float
    gae_lambda: float
    learning_rate: float = 3e-4
    entropy: float = 0.0
    linear: bool = False
    """Whether the learning rate falls to zero, and Stable-Baselines3's clip range with it."""
    normalize: bool = False
    """Whether Stable-Baselines3 normalises observations and rewards."""
    own: dict[str, Any] = field(default_factory=dict)
    """What rp.PPO's own settings change."""
    peer: dict[str, Any] = field(default_factory=dict)
    """Fields that only Stable-Baselines3 has."""


SHORT_ROLLOUTS = {"num_envs": 8, "length": 128, "batch_size": 128, "linear": True}
SDE = {"use_sde": True, "sde_sample_freq": 4}
TASKS = {
    "CartPole": Task("CartPole-v1", 500, 100_000, 8, 32, 256, 20, 0.98, 0.8, 1e-3, linear=True),
    "Pendulum": Task("Pendulum-v1", -200, 100_000, 4, 1024, 64, 10, 0.9, 0.95, 1e-3, own=SHORT_ROLLOUTS, peer=SDE),
    "Acrobot": Task("Acrobot-v1", -85, 300_000, 16, 256, 64, 4, 0.99, 0.94, normalize=True),
    "LunarLander": Task("LunarLander-v3", 200, 1_000_000, 16, 1024, 64, 4, 0.999, 0.98, entropy=0.01),
}


def job_names(seeds: int) -> list[str]:
    """Return all jobs, the two agents in turn."""
    names = []
    for name in TASKS:
        names += [f"{name}/{OURS}/0-{seeds - 1}", f"{name}/{THEIRS}/0-0", f"{name}/{ONE}/0-0"]
        names += [f"{name}/{THEIRS}/{seed}-{seed}" for seed in range(1, seeds)]
        names += [f"{name}/{agent}/0-{seeds - 1}" for agent in (OWN, SMALLER) if TASKS[name].own]
        names += [f"{name}/{PLAIN}/{seed}-{seed}" for seed in range(seeds) if TASKS[name].peer]
    return names


def parse(job: str) -> tuple[str, str, range]:
    """Return environment, agent and seeds of a job."""
    name, agent, seeds = job.split("/")
    first, last = map(int, seeds.split("-"))
    return name, agent, range(first, last + 1)


def train_ours(task: Task, seeds: range, steps: int) -> tuple[Any, Any]:
    """Train all seeds side by side; return seconds (wall, processor) and the mean return of each."""
    import riskpath as rp

    training = rp.RolloutTraining(
        learning_rate=task.learning_rate,
        final_learning_rate=0.0 if task.linear else task.learning_rate,
        length=task.length,
        epochs=task.epochs,
        minibatches=task.length * task.num_envs // task.batch_size,
        gae_lambda=task.gae_lambda,
        entropy_weight=task.entropy,
    )
    agent = rp.PPO(discount=task.discount, training=training)
    began = time.perf_counter(), time.process_time()
    run = rp.train(agent, task.env, steps=steps, seeds=len(seeds), first_seed=seeds.start, num_envs=task.num_envs)
    seconds = time.perf_counter() - began[0], time.process_time() - began[1]
    returns = run.evaluate(EPISODES, seed=1).returns
    return seconds, np.asarray(returns).reshape(len(seeds), -1).mean(axis=1)


def train_theirs(task: Task, seeds: range, steps: int) -> tuple[Any, Any]:
    """Train one seed of Stable-Baselines3's PPO; return seconds (wall, processor) and its mean return."""
    import torch  # pyright: ignore[reportMissingImports]
    from stable_baselines3 import PPO  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.env_util import make_vec_env  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.evaluation import evaluate_policy  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.vec_env import VecNormalize  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    (seed,) = seeds
    env, test = make_vec_env(task.env, task.num_envs, seed=seed), make_vec_env(task.env, 8, seed=10_000 + seed)
    if task.normalize:
        env = VecNormalize(env, gamma=task.discount)
        test = VecNormalize(test, training=False, norm_reward=False)
        test.obs_rms = env.obs_rms
    rate, clip = task.learning_rate, 0.2
    model = PPO(
        "MlpPolicy",
        env,
        learning_rate=(lambda left: left * rate) if task.linear else rate,
        clip_range=(lambda left: left * clip) if task.linear else clip,
        n_steps=task.length,
        batch_size=task.batch_size,
        n_epochs=task.epochs,
        gamma=task.discount,
        gae_lambda=task.gae_lambda,
        ent_coef=task.entropy,
        seed=seed,
        device="cpu",
        **task.peer,
    )
    began = time.perf_counter(), time.process_time()
    model.learn(steps)
    seconds = time.perf_counter() - began[0], time.process_time() - began[1]
    return seconds, np.array([evaluate_policy(model, test, EPISODES)[0]])


def work(job: str, share: float, out: Path) -> None:
    """Run one job in this process and append its line."""
    name, agent, seeds = parse(job)
    task, steps = TASKS[name], int(TASKS[name].steps * share)
    changed = {PLAIN: {"peer": {}}, OWN: task.own, SMALLER: {"learning_rate": 3e-4}}
    task = replace(task, **changed.get(agent, {}))
    (wall, cpu), means = (train_theirs if agent in (THEIRS, PLAIN) else train_ours)(task, seeds, steps)
    total = steps * len(seeds)
    line = {
        "env": name,
        "agent": agent,
        "seeds": list(seeds),
        "steps": steps,
        "means": np.round(means, 2).tolist(),
        "wall_s": round(wall, 1),
        "cpu_s": round(cpu, 1),
        "steps_per_s": round(total / wall),
        "steps_per_cpu_s": round(total / cpu),
    }
    print(json.dumps(line), flush=True)
    with out.open("a") as file:
        file.write(json.dumps(line) + "\n")


def read(out: Path) -> list[dict[str, Any]]:
    """Return the lines of the file of results."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


LABELS = {
    OURS: "rp.PPO, {} seeds at once",
    ONE: "rp.PPO, one seed",
    OWN: "rp.PPO with its own settings, {} seeds at once",
    SMALLER: "rp.PPO with learning rate 0.0003, {} seeds at once",
    THEIRS: "Stable-Baselines3, {} in turn",
    PLAIN: "Stable-Baselines3 without gSDE, {} in turn",
}
SHORT = {
    OURS: "rp.PPO",
    ONE: "rp.PPO,\none seed",
    OWN: "rp.PPO,\nown",
    SMALLER: "rp.PPO,\n0.0003",
    THEIRS: "SB3",
    PLAIN: "SB3, no\ngSDE",
}
"""Names of the agents in the table and in the figure."""


def draw(lines: list[dict[str, Any]], out: Path) -> None:
    """Write a table and a figure beside the file of results."""
    import matplotlib.pyplot as plt

    heads = ("environment", "steps", "agent", "median return", "each seed", "steps per CPU second", "wall, CPU seconds")
    rows = ["| " + " | ".join(heads) + " |", "|---|---:|---|---:|---|---:|---:|"]
    tasks = [name for name in TASKS if any(line["env"] == name for line in lines)]
    figure, axes = plt.subplots(2, len(tasks), figsize=(4.2 * len(tasks), 5.2), squeeze=False)
    for place, name in enumerate(tasks):
        found = {agent: [r for r in lines if (r["env"], r["agent"]) == (name, agent)] for agent in LABELS}
        found = {agent: own for agent, own in found.items() if own}
        for column, (agent, own) in enumerate(found.items()):
            means = [x for line in own for x in line["means"]]
            wall, cpu = _total(own, "wall_s"), _total(own, "cpu_s")
            rate = sum(line["steps"] * len(line["seeds"]) for line in own) / cpu
            each = ", ".join(f"{x:.0f}" for x in means)
            figures = f"{np.median(means):.0f} | {each} | {rate:,.0f} | {wall:.0f}, {cpu:.0f}".replace("-", "−")
            rows.append(f"| {name} | {own[0]['steps']:,} | {LABELS[agent].format(len(means))} | {figures} |")
            colour = f"C{list(LABELS).index(agent)}"
            axes[0][place].scatter([column] * len(means), means, color=colour, s=24)
            axes[1][place].bar(column, rate, color=colour, width=0.7)
        axes[0][place].axhline(TASKS[name].target, color="0.6", lw=0.8, ls="--")
        axes[0][place].set_title(name)
        for axis in axes[:, place]:
            axis.set(xticks=range(len(found)), xlim=(-0.6, len(found) - 0.4))
            axis.set_xticklabels([SHORT[agent] for agent in found], fontsize=8)
    axes[0][0].set_ylabel("mean return of a seed")
    axes[1][0].set_ylabel("steps per CPU second")
    figure.tight_layout()
    figure.savefig(out.with_suffix(".png"), dpi=160)
    out.with_suffix(".md").write_text("\n".join(rows) + "\n")


def _total(lines: list[dict[str, Any]], key: str) -> float:
    return sum(line[key] for line in lines)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[""], help="jobs with one of these texts in their name")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--share", type=float, default=1.0, help="share of the steps, for a quick look")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--draw", action="store_true", help="table and figure of the results so far")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        work(options.job, options.share, options.out)
        return
    if options.draw:
        draw(read(options.out), options.out)
        return
    for job in job_names(options.seeds):
        name, agent, seeds = parse(job)
        done = any((r["env"], r["agent"], r["seeds"]) == (name, agent, list(seeds)) for r in read(options.out))
        if not done and any(text in job for text in options.only):
            command = [sys.executable, __file__, "--job", job, "--share", str(options.share), "--out", str(options.out)]
            subprocess.run(command, check=False)


if __name__ == "__main__":
    main()
