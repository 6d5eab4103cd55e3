"""CeSoR's tasks: what simple rules earn, and what cross-entropy sampling of conditions changes.

    python benchmarks/peers/cesor_tasks.py rules       every rule in 100,000 episodes
    python benchmarks/peers/cesor_tasks.py search Servers      look for better parameters of a rule
    python benchmarks/peers/cesor_tasks.py train       agents on the patrolled maze

`rules` and `train` write to `benchmarks/results/cesor_tasks.jsonl`, a line for each rule or agent, and skip lines that
are there. CVaR has the level of the published results: 0.05 in the maze, 0.01 elsewhere. The published numbers are of
one training each, and of its 1,000 test episodes.
"""

import argparse
import functools
import json
import platform
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import riskpath as rp

OUT = Path(__file__).parents[1] / "results" / "cesor_tasks.jsonl"
LEVELS = {"PatrolledMaze": 0.05, "Driving": 0.01, "Servers": 0.01}
PUBLISHED = {"PatrolledMaze": (-6.7, 2.0), "Driving": (-540.6, -311.9), "Servers": (-14.9, -11.3)}
"""CVaR and mean of CeSoR, from the notebooks of github.com/ido90/CeSoR at commit 7fd7327."""
STEPS, NUM_ENVS, SEEDS, SEED, EVALUATION_SEED, EPISODES = 4_000_000, 64, 4, 1, 20_000, 10_000


def around(p: Any, seen: Any) -> Any:
    """Walk the long way around the patrolled maze: up, right, down and left to the goal."""
    (row, col), (up, down, left, right) = seen, range(4)
    return jnp.where(row > p[0], left, jnp.where(col > p[1], down, jnp.where(row < p[2], right, up)))


def follow(p: Any, seen: Any) -> Any:
    """Follow the leader: straighten or change the lane first, else keep the distance."""
    gap, pace, early, late, side = p
    lead, faster, across, heading = seen[0] * 5 - 28, seen[1] * 2, seen[3] * 2, seen[4] / 10
    near = lead + gap + pace * faster
    keep = jnp.where(near > early, 0, jnp.where(near < -late, 4, 2))
    way = jnp.sign(heading)
    straighten = jnp.where(jnp.abs(across + 2 * way) <= jnp.abs(across + 6 * way), jnp.where(way > 0, 3, 1), keep)
    lane = jnp.where(across < -side, 1, jnp.where(across > side, 3, keep))
    return jnp.where(jnp.abs(heading) > 0.1, straighten, lane)


def allocate(p: Any, seen: Any) -> Any:
    """Keep a number of servers, and more of them in proportion to the queue."""
    base, each, slack = p
    servers, queue = 3 + jnp.argmax(seen[:-1]), 30 * seen[-1]
    wanted = jnp.round(base) + jnp.floor(queue / each)
    return jnp.where(wanted > servers, 1, jnp.where(wanted + slack < servers, 2, 0))


RULES: dict[str, Any] = {
    "PatrolledMaze": (around, [5.5, 5.5, 2.2]),
    "Driving": (follow, [18.88, 2.31, 4.54, 1.98, 3.8]),
    "Servers": (allocate, [5.0, 15.0, 0.5]),
}


@functools.partial(jax.jit, static_argnums=(0, 3))
def play(task: str, p: Any, keys: Any, limit: int) -> Any:
    """Return the returns of a rule's episodes."""
    env, rule = rp.make(task), RULES[task][0]

    def one(key: Any) -> Any:
        start, key = jax.random.split(key)
        seen, state = env.reset(start)

        def step(carry: Any) -> Any:
            seen, state, total, _, time = carry
            seen, state, reward, *over = env.step(jax.random.fold_in(key, time), state, rule(p, seen).astype("int32"))
            return seen, state, total + reward, over[0] | over[1], time + 1

        carry = seen, state, jnp.zeros(()), jnp.zeros((), bool), jnp.zeros((), jnp.int32)
        return jax.lax.while_loop(lambda carry: ~carry[3] & (carry[4] < limit), step, carry)[2]

    return jax.lax.map(one, keys, batch_size=500)


def returns_of(task: str, p: Any, episodes: int, seed: int) -> np.ndarray:
    """Return the returns of many episodes of a rule."""
    limit = rp.make(task).spec.max_episode_steps
    return np.asarray(play(task, jnp.asarray(p, jnp.float32), jax.random.split(jax.random.key(seed), episodes), limit))


def line(task: str, name: str, returns: Any, **more: Any) -> dict[str, Any]:
    """Return CVaR and mean of an agent or a rule, with intervals; returns have an axis of seeds."""
    returns = np.asarray(returns, np.float64)
    evaluation = rp.Evaluation(returns[None], returns[None], [rp.CVaR(LEVELS[task])], 1.0)
    rounded = lambda x: [round(float(v), 3) for v in (x.estimate, x.low, x.high)]
    found = {"task": task, "name": name, "level": LEVELS[task], "cvar": rounded(evaluation.risk()[0])}
    found |= {"mean": rounded(evaluation.mean()[0]), "values": evaluation.values()[0].round(3).tolist()}
    versions = {"riskpath": rp.__version__, "jax": jax.__version__, "python": platform.python_version()}
    return {**found, "episodes": returns.shape[-1], "published": PUBLISHED[task], **more, "versions": versions}


def agents() -> dict[str, Any]:
    """Return the agents that are trained on the maze."""
    risk, network = rp.CVaR(0.05), rp.Network(hidden=(64, 64))
    training = rp.RolloutTraining(length=400, epochs=4, minibatches=8)
    shared: Any = {"network": network, "training": training, "discount": 1.0}
    replay: Any = {"batch_size": 64, "train_freq": 64, "learning_starts": 20_000, "buffer_size": 200_000}
    return {
        "GCVaR": rp.CVaRPolicyGradient(risk, **shared),
        "GCVaR, cross-entropy": rp.CVaRPolicyGradient(risk, cross_entropy=0.8, **shared),
        "GCVaR, soft risk": rp.CVaRPolicyGradient(risk, soft_risk=0.8, **shared),
        "CeSoR": rp.CVaRPolicyGradient(risk, soft_risk=0.8, cross_entropy=0.8, **shared),
        "PPO, mean control": rp.PPO(**shared),
        "IQN": rp.IQN(risk, network=network, training=rp.Training(**replay), discount=1.0),
    }


def train(name: str, steps: int, seeds: int) -> dict[str, Any]:
    """Train an agent on the patrolled maze and return its line."""
    began = time.process_time()
    run = rp.train(agents()[name], "PatrolledMaze", steps=steps, num_envs=NUM_ENVS, seeds=seeds, seed=SEED)
    returns = run.evaluate(EPISODES, seed=EVALUATION_SEED).returns[0]
    state: Any = run.lanes.agent_state
    more: dict[str, Any] = {
        "steps": run.steps,
        "training_episodes": np.asarray(state.episodes.count).astype(int).tolist(),
    }
    if eqx.is_array(getattr(state.initial_memory, "means", None)):
        more["conditions"] = np.asarray(state.initial_memory.means).round(3).tolist()
    seconds = round(time.process_time() - began, 1)
    return line("PatrolledMaze", name, returns, **more, num_envs=NUM_ENVS, cpu_seconds=seconds)


def search(task: str, tries: int) -> None:
    """Print better and better parameters of a rule, judged by the same 2,000 episodes."""
    rng, best, p = np.random.default_rng(0), -np.inf, np.array(RULES[task][1])
    for number in range(tries):
        tried = p * np.exp(rng.normal(0, 0.2, len(p)) * (rng.random(len(p)) < 0.5)) if number else p
        returns = np.sort(returns_of(task, tried, 2_000, seed=1))
        value = returns[: int(LEVELS[task] * len(returns))].mean()
        if value > best:
            best, p = value, tried
            print(f"{number}: CVaR {value:.2f}, mean {returns.mean():.2f}, {p.round(2).tolist()}", flush=True)


def main() -> None:
    """Read the arguments and run."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("what", choices=["rules", "search", "train"])
    parser.add_argument("only", nargs="*", help="some tasks, or some agents")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--episodes", type=int, default=100_000, help="of a rule")
    parser.add_argument("--tries", type=int, default=100, help="of a search")
    parser.add_argument("--steps", type=int, default=STEPS, help="environment steps of each seed")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    args = parser.parse_args()
    done = [json.loads(text) for text in args.out.read_text().splitlines()] if args.out.exists() else []
    names = args.only or list(agents() if args.what == "train" else RULES)
    for name in names:
        if args.what == "search":
            search(name, args.tries)
            continue
        found: Any = ("PatrolledMaze", name) if args.what == "train" else (name, RULES[name][0].__name__)
        if any((old["task"], old["name"]) == found for old in done):
            continue
        if args.what == "train":
            new = train(name, args.steps, args.seeds)
        else:
            returns = returns_of(name, RULES[name][1], args.episodes, EVALUATION_SEED)
            new = line(found[0], found[1], returns[None], parameters=RULES[name][1])
        print(f"{found}: CVaR {new['cvar']}, mean {new['mean']}, seeds {new['values']}", flush=True)
        with args.out.open("a") as file:
            file.write(json.dumps(new) + "\n")


if __name__ == "__main__":
    main()
