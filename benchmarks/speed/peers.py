"""The peers of the throughput benchmark: Rejax' IQN and sb3-contrib's QR-DQN, each in a virtual environment of its own.

    python benchmarks/speed/peers.py install --into .peers  both, with what they depend on (PyTorch is large)
    python benchmarks/speed/throughput.py --peers .peers    ours and theirs, in one run on one core

They are not dependencies of riskpath: delete the folder afterwards. `throughput.py` starts this file with the
interpreter of each environment, where it imports nothing but that peer and prints its rates as JSON.

Both learn CartPole-v1 with one environment, one gradient step for each environment step, and the given sizes. These
differences to our agents remain:

- Rejax draws levels for every sample, so it embeds batch × levels of them; our levels are shared within the batch. It
  embeds them with as many cosines as the network is wide (ours: 64, as published), has a hidden layer of 64 units after
  the product (ours: none in the default "factored" head, one as wide as the network in the "deep" head), evaluates an
  action at 32 levels (ours: 64), and draws batches without replacement, a pass over the replay buffer that costs 0.2 ms
  of an update.
- QR-DQN has no levels as inputs, only an output for each of them: less work in an update than IQN. It cannot train
  seeds side by side; eight, one after the other, take eight times as long, so its total rate is that of one seed.
"""

import argparse
import importlib.metadata
import json
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGES = {
    "rejax": ["rejax==0.1.3", "gymnax==0.0.9"],
    "sb3": ["sb3-contrib==2.9.2", "torch"],
}
REPORTED = {
    "rejax": ["rejax", "gymnax", "jax", "jaxlib", "flax", "optax", "distrax"],
    "sb3": ["sb3-contrib", "stable-baselines3", "torch", "gymnasium", "numpy"],
}


def measure(work: Iterator[int], seconds: float, repeats: int) -> dict[str, Any]:
    """Return updates per second in several spells of at least `seconds`, and their median, for all programs alike.

    `work` yields how many updates it made since the last time; the first one, which includes the compilation, is not
    counted. `cores_used` distinguishes an idle machine (1.0 on one core) from a busy one.
    """
    next(work)
    rates, spent, busy = [], 0.0, time.process_time()
    for _ in range(repeats):
        done, began = 0, time.perf_counter()
        while (spell := time.perf_counter() - began) < seconds:
            done += next(work)
        rates.append(done / spell)
        spent += spell
    busy = time.process_time() - busy
    return {"updates_per_second": statistics.median(rates), "rates": rates, "cores_used": round(busy / spent, 2)}


def take_turns(work: Iterator[int], **about: Any) -> None:
    """Compile, print `about`, then work for as many seconds as each line of the input says and print the rates."""
    next(work)
    print("ANSWER " + json.dumps(about), flush=True)
    for line in sys.stdin:
        seconds, done = float(line), 0
        began, busy = time.perf_counter(), time.process_time()
        while time.perf_counter() - began < seconds:
            done += next(work)
        spent, busy = time.perf_counter() - began, time.process_time() - busy
        print("ANSWER " + json.dumps({"rate": done / spent, "cpu_rate": done / busy}), flush=True)


def rejax(size: dict[str, int]) -> Iterator[int]:
    """Train Rejax' IQN; several seeds side by side by `vmap`, as its documentation shows."""
    import jax  # the peer's own, not ours
    from rejax import IQN  # pyright: ignore[reportMissingImports]

    steps = size["target_update_interval"]
    algorithm = IQN.create(
        env="CartPole-v1",
        agent_kwargs={"hidden_layer_sizes": (size["width"],), "activation": "relu"},
        num_envs=1,
        num_epochs=1,
        num_tau_samples=size["quantiles"],
        num_tau_prime_samples=size["quantiles"],
        batch_size=size["batch"],
        buffer_size=size["buffer_size"],
        fill_buffer=size["learning_starts"],
        target_update_freq=size["target_update_interval"],
        polyak=0.0,
        total_timesteps=steps,
        eval_freq=steps,
        skip_initial_evaluation=True,
    ).replace(eval_callback=lambda algorithm, state, rng: ())  # evaluation is not measured

    def train(state: Any) -> Any:
        return algorithm.train(train_state=state)[0]

    if size["seeds"] == 1:  # without vmap, which would turn its branches into selections between both
        train, state = jax.jit(train), algorithm.init_state(jax.random.key(0))
    else:
        train = jax.jit(jax.vmap(train))
        state = jax.vmap(algorithm.init_state)(jax.random.split(jax.random.key(0), size["seeds"]))
    for _ in range(size["learning_starts"] // steps + 1):
        state = train(state)
    while True:
        state = jax.block_until_ready(train(state))
        yield steps * size["seeds"]


def sb3(size: dict[str, Any]) -> Iterator[int]:
    """Train QR-DQN of sb3-contrib, one seed; `hidden` lists the widths of several layers."""
    import torch  # pyright: ignore[reportMissingImports]
    from sb3_contrib import QRDQN  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    model = QRDQN(
        "MlpPolicy",
        "CartPole-v1",
        policy_kwargs={"net_arch": [*size.get("hidden", [size.get("width")])], "n_quantiles": size["quantiles"]},
        batch_size=size["batch"],
        buffer_size=size["buffer_size"],
        learning_starts=size["learning_starts"],
        target_update_interval=size["target_update_interval"],
        train_freq=1,
        gradient_steps=1,
        device="cpu",
        seed=0,
    )
    model.learn(size["learning_starts"] + 1)
    while True:
        before = model._n_updates
        model.learn(5 * size["target_update_interval"], reset_num_timesteps=False)
        yield model._n_updates - before


def rejax_ppo(size: dict[str, Any]) -> Iterator[int]:
    """Train Rejax' PPO; several seeds side by side by `vmap`."""
    import jax  # the peer's own, not ours
    from rejax import PPO  # pyright: ignore[reportMissingImports]

    steps = 5 * size["num_envs"] * size["length"]
    algorithm = PPO.create(
        env="CartPole-v1",
        agent_kwargs={"hidden_layer_sizes": tuple(size["hidden"]), "activation": "tanh"},
        num_envs=size["num_envs"],
        num_steps=size["length"],
        num_epochs=size["epochs"],
        num_minibatches=size["minibatches"],
        total_timesteps=steps,
        eval_freq=steps,
        skip_initial_evaluation=True,
    ).replace(eval_callback=lambda algorithm, state, rng: ())  # evaluation is not measured

    def train(state: Any) -> Any:
        return algorithm.train(train_state=state)[0]

    if size["seeds"] == 1:
        train, state = jax.jit(train), algorithm.init_state(jax.random.key(0))
    else:
        train = jax.jit(jax.vmap(train))
        state = jax.vmap(algorithm.init_state)(jax.random.split(jax.random.key(0), size["seeds"]))
    while True:
        state = jax.block_until_ready(train(state))
        yield steps * size["seeds"]


def sb3_ppo(size: dict[str, Any]) -> Iterator[int]:
    """Train PPO of Stable-Baselines3, one seed."""
    import torch  # pyright: ignore[reportMissingImports]
    from stable_baselines3 import PPO  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.env_util import make_vec_env  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    rollout = size["num_envs"] * size["length"]
    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", size["num_envs"]),
        policy_kwargs={"net_arch": [*size["hidden"]]},
        n_steps=size["length"],
        n_epochs=size["epochs"],
        batch_size=rollout // size["minibatches"],
        device="cpu",
        seed=0,
    )
    while True:
        before = model.num_timesteps
        model.learn(10 * rollout, reset_num_timesteps=False)
        yield model.num_timesteps - before


PEERS = {"rejax": rejax, "sb3": sb3, "rejax-ppo": rejax_ppo, "sb3-ppo": sb3_ppo}


def install(into: Path) -> None:
    """Make a virtual environment for each peer: their dependencies may conflict."""
    into.mkdir(parents=True, exist_ok=True)
    (into / ".gitignore").write_text("*\n")  # it never becomes part of a repository
    for peer, packages in PACKAGES.items():
        venv.create(into / peer, with_pip=True)
        subprocess.run([_python(into, peer), "-m", "pip", "install", "--quiet", *packages], check=True)


def ask(peers: Path, peer: str, size: dict[str, int], seconds: float, repeats: int) -> dict[str, Any]:
    """Run a peer in its environment, on the cores of this process, and return what it prints."""
    request = json.dumps({"size": size, "seconds": seconds, "repeats": repeats})
    # -I isolates the peer from our own packages; its warnings are not ours.
    command = [_python(peers, peer), "-I", "-W", "ignore", str(Path(__file__).resolve()), "measure", peer, request]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def take_turns_command(peers: Path, peer: str, size: dict[str, Any], program: str | None = None) -> list[str]:
    """Return the command that lets a peer, or another program of its environment, `take_turns` with others."""
    script = str(Path(__file__).resolve())
    return [_python(peers, peer), "-I", "-W", "ignore", script, "take-turns", program or peer, json.dumps(size)]


def versions(peer: str) -> dict[str, str]:
    """Return the versions of a peer and of what it depends on, in its own environment."""
    return {package: importlib.metadata.version(package) for package in REPORTED[peer]}


def _python(peers: Path, peer: str) -> str:
    return str(peers.absolute() / peer / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install").add_argument("--into", type=Path, required=True)
    measuring = commands.add_parser("measure", help="called by throughput.py")
    measuring.add_argument("peer", choices=PEERS)
    measuring.add_argument("request", type=json.loads)
    turns = commands.add_parser("take-turns", help="called by gymnasium_speed.py and ppo_speed.py")
    turns.add_argument("peer", choices=PEERS)
    turns.add_argument("size", type=json.loads)
    options = parser.parse_args()
    if options.command == "install":
        return install(options.into)
    if options.command == "take-turns":
        return take_turns(PEERS[options.peer](options.size), versions=versions(options.peer.removesuffix("-ppo")))
    work = PEERS[options.peer](options.request.pop("size"))
    print(json.dumps({**measure(work, **options.request), "versions": versions(options.peer)}))
    return None


if __name__ == "__main__":
    main()
