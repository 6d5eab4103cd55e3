"""Environment steps per second of PPO on CartPole: ours beside plain JAX, Rejax and Stable-Baselines3, in one run.

    python benchmarks/speed/peers.py install --into .peers          Rejax and Stable-Baselines3 (PyTorch is large)
    python benchmarks/speed/ppo_speed.py --peers .peers             one core of this machine
    python benchmarks/speed/ppo_speed.py --num-envs 2048 --seeds 1 8 --programs plain PPO AdaptivePPO    a GPU

All have two networks of 64-64 with tanh, rollouts of 128 steps, 4 epochs of 4 minibatches. `plain_ppo.py` and ours step
the environment of `cart_pole.py`, Rejax steps gymnax's, Stable-Baselines3 Gymnasium's; "PPO, Gymnasium" is ours on
Gymnasium's. Each program is a process; they train in turn, spell by spell, so that a change in the load of the machine
meets all of them. Ratios are medians over rounds of neighbouring spells, relative to plain JAX, and to
Stable-Baselines3 on Gymnasium's environment. What ours do beyond plain JAX: normalised observations, a critic in units
of the returns, the value after a time limit, the account of episodes, checks of rewards and observations.
"""

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import peers
import workload
from cart_pole import CartPole
from plain_ppo import Sizes, make
from workers import Failed, in_turns

import riskpath as rp
from riskpath.training import fused_loop
from riskpath.training.lanes import start

RESULTS = Path(__file__).parents[1] / "results"
PROGRAMS = ("plain", "PPO", "AdaptivePPO", "rejax-ppo", "PPO, Gymnasium", "sb3-ppo")
THEIRS = {"rejax-ppo": "rejax", "sb3-ppo": "sb3"}
ONE_SEED = ("sb3-ppo",)
STEPS = 40_000
"""Environment steps of all seeds between two looks at the clock, about."""


def plain(seeds: int, sizes: Sizes) -> Iterator[int]:
    """Train the plain program; seeds side by side by `vmap`."""
    init, iteration = make(sizes)
    each = sizes.num_envs * sizes.length
    times = max(1, STEPS // (each * seeds))
    several = lambda state: jax.lax.scan(lambda s, _: iteration(s), state, None, length=times)[0]
    if seeds == 1:
        state, train = init(jax.random.key(0)), jax.jit(several)
    else:
        state, train = jax.vmap(init)(jax.random.split(jax.random.key(0), seeds)), jax.jit(jax.vmap(several))
    while True:
        state = jax.block_until_ready(train(state))
        yield times * each * seeds


def agent_of(name: str, sizes: Sizes) -> rp.Agent:
    """Return our agent with these sizes."""
    training = rp.RolloutTraining(length=sizes.length, epochs=sizes.epochs, minibatches=sizes.minibatches)
    kind = rp.AdaptivePPO if name == "AdaptivePPO" else rp.PPO
    return kind(network=rp.Network(hidden=sizes.hidden), training=training)


def ours(name: str, seeds: int, sizes: Sizes) -> Iterator[int]:
    """Train our agent in the compiled loop that `rp.train` runs."""
    env = CartPole()
    lanes = start([agent_of(name, sizes)], [env], seeds, sizes.num_envs, 0)
    rounds = max(1, STEPS // (lanes.round.steps * seeds))
    while True:
        done = lanes.round.steps * rounds * seeds
        lanes, _ = jax.block_until_ready(fused_loop.chunk(lanes, env.spec, jnp.asarray(rounds, jnp.int32)))
        yield done


def on_gymnasium(seeds: int, sizes: Sizes) -> Iterator[int]:
    """Train our PPO on Gymnasium's environment, as a user does."""
    chunk = 10 * sizes.num_envs * sizes.length
    run = rp.train(agent_of("PPO", sizes), "CartPole-v1", steps=chunk, seeds=seeds, num_envs=sizes.num_envs)
    while True:
        before = run.steps
        run = rp.train(run, steps=chunk)
        yield (run.steps - before) * seeds


def work(name: str, seeds: int, sizes: Sizes) -> Iterator[int]:
    """Return what trains a program of ours, or the plain one."""
    if name == "plain":
        return plain(seeds, sizes)
    return on_gymnasium(seeds, sizes) if name == "PPO, Gymnasium" else ours(name, seeds, sizes)


def command(name: str, seeds: int, sizes: Sizes, peers_folder: Path | None) -> list[str]:
    """Return the command of a program's process."""
    size = {**sizes._asdict(), "seeds": seeds}
    if name in THEIRS:
        assert peers_folder is not None
        return peers.take_turns_command(peers_folder, THEIRS[name], size, name)
    return [sys.executable, "-W", "ignore", str(Path(__file__).resolve()), "--work", name, json.dumps(size)]


def rows(names: list[str], rounds: list[list[dict[str, float]]], seeds: int) -> list[dict[str, Any]]:
    """Return rates and ratios of all programs."""
    rates = {name: [spells[i]["rate"] for spells in rounds] for i, name in enumerate(names)}
    result = []
    for name, own in rates.items():
        base = "sb3-ppo" if name in ("sb3-ppo", "PPO, Gymnasium") else "plain"
        row: dict[str, Any] = {"program": name, "seeds": seeds, "steps_per_second": statistics.median(own)}
        if base in rates:
            ratios = [one / other for one, other in zip(own, rates[base], strict=True)]
            row |= {"beside": base, "ratio": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}
        result.append(row | {"rates": own})
    return result


def main() -> None:
    """Measure all programs with every number of seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=None, help="the folder of peers.py; without it only ours")
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--work", nargs=2, default=None, help="called by this program")
    options = parser.parse_args()
    if options.work:
        size = json.loads(options.work[1])
        seeds, hidden = size.pop("seeds"), tuple(size.pop("hidden"))
        return peers.take_turns(work(options.work[0], seeds, Sizes(**size, hidden=hidden)))
    workload.on_one_core()
    sizes, found = Sizes(num_envs=options.num_envs), []
    names = [name for name in options.programs if options.peers or name not in THEIRS]
    out = options.out or RESULTS / f"ppo-speed-{workload.machine()['device'].lower().replace(' ', '-')}.json"
    versions: dict[str, str] = {}
    for seeds in options.seeds:
        own = [name for name in names if seeds == 1 or name not in ONE_SEED]
        try:
            about, rounds = in_turns(
                [command(name, seeds, sizes, options.peers) for name in own], options.seconds, options.repeats
            )
        except Failed as failure:
            sys.exit(f"{failure}")
        for one in about:
            versions |= one.get("versions", {})
        for row in rows(own, rounds, seeds):
            beside = f"{row['ratio']:.2f} × {row['beside']} ({row['lowest']:.2f} to {row['highest']:.2f})"
            print(f"{row['program']:16}{seeds:3} seeds {row['steps_per_second']:12,.0f} steps/s  {beside}", flush=True)
            found.append(row)
        machine = workload.machine()
        machine["versions"] |= versions
        about = {"command": shlex.join(["python", *sys.argv]), **machine, "size": sizes._asdict(), "rows": found}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(about, indent=2) + "\n")
    return None


if __name__ == "__main__":
    main()
