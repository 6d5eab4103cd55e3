"""Trade a mean-reverting price: Riskpath beside the public code of QR-SRM, for CVaR 0.25 and 0.5, in one run.

    make bench-peers-install                                             PyTorch and Stable-Baselines3, in .venv-peers
    git clone … QRSRM  the code of Moghimi and Ku, "Beyond CVaR" (2025)
    .venv-peers/bin/python benchmarks/peers/qrsrm_peer.py --qrsrm QRSRM  --quick: minutes

Their script `qrsrm.py` is run as it is, with its own hyperparameters but no discount, on its own `TradingEnv`. Ours are
`rp.Adaptive` and `rp.QRSRM` on `rp.MeanReversionTrading`, which is meant to be the same problem; the benchmark first
plays both with the same noise and actions and reports the largest difference of a reward. Every program gets the same
number of environment steps, held-out episodes included. All final policies then trade on the same price paths, and one
NumPy function computes their returns.

What is arranged around their script, without a change to it: it was written for Gymnasium 0.29, so vector environments
reset in the step that ends an episode and report it as they did then; TensorBoard is replaced by a writer that writes
nothing; `distutils`, which Python 3.12 no longer has, by the one function that it needs. Ours have the sizes of theirs:
four hidden layers of 64 units, and one gradient step with 256 transitions in ten environment steps. In all else every
program has its own hyperparameters.

Results go to benchmarks/results/qrsrm_peer.json, with --quick to the folder `runs`, after every row. A second call with
the same budget goes on after the rows that are there.
"""

import argparse
import contextlib
import dataclasses
import functools
import importlib
import itertools
import json
import runpy
import shlex
import sys
import time
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from market_paths import (
    EVALUATION_SEED,
    PIECE,
    add_options,
    budget_of,
    draw_noise,
    missing,
    play,
    stored_rows,
    summarise,
    table,
    train_ours,
    versions,
)

import riskpath as rp
from riskpath.experiments.records import write_json

STEPS = 500_000
"""Environment steps of each seed, as in their code."""
OPTIMA = Path(__file__).parents[2] / "results" / "suite_optima.json"
LEVELS = (0.25, 0.5)
THEIRS = "QR-SRM, public code"
OURS: dict[str, Any] = {"Riskpath QRSRM": rp.QRSRM, "Riskpath Adaptive": rp.Adaptive}


def price_paths(env: rp.MeanReversionTrading, noise: np.ndarray) -> np.ndarray:
    """Return the prices before every trade and at the end, [episodes, steps + 1]."""
    kappa, theta, decay = float(env.kappa), float(env.theta), np.exp(-float(env.kappa) * float(env.dt))
    spread = float(env.sigma) * np.sqrt((1 - decay**2) / (2 * kappa))
    prices = [np.full(len(noise), float(env.start_price))]
    for chance in noise.astype(np.float64).T:
        prices.append(theta + (prices[-1] - theta) * decay + spread * chance)
    return np.stack(prices, axis=1)


def rewards(env: rp.MeanReversionTrading, prices: np.ndarray, trades: np.ndarray) -> np.ndarray:
    """Return the rewards of trades [episodes, steps] at these prices; the last one pays for the inventory."""
    paid = -prices[:, :-1] * trades - float(env.cost) * trades**2
    inventory = trades.sum(axis=1)
    paid[:, -1] += inventory * prices[:, -1] - float(env.penalty) * inventory**2
    return paid


class Writer:
    """Stands for TensorBoard's writer and writes nothing."""

    def __init__(self, *_: Any, **__: Any):
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def stubs() -> dict[str, types.ModuleType]:
    """Return modules that their script imports and that may be missing."""
    board, distutils, util = (types.ModuleType(n) for n in ("torch.utils.tensorboard", "distutils", "distutils.util"))
    board.__dict__["SummaryWriter"] = Writer
    util.__dict__["strtobool"] = lambda text: str(text).lower() in ("1", "true", "yes", "on", "y", "t")
    distutils.__dict__["util"] = util
    return {module.__name__: module for module in (board, distutils, util)}


def vector_like_before() -> Any:
    """Return Gymnasium's vector environment with the resets and the reports of version 0.29."""
    import gymnasium
    from gymnasium.vector import AutoresetMode

    class SyncVectorEnv(gymnasium.vector.SyncVectorEnv):
        def __init__(self, env_fns: Any):
            super().__init__(env_fns, autoreset_mode=AutoresetMode.SAME_STEP)

        def step(self, actions: Any) -> Any:
            observation, reward, terminated, truncated, infos = super().step(actions)
            if final := infos.pop("final_info", None):
                episode = final["episode"]
                one = lambda i: {"episode": {key: value[i] for key, value in episode.items()}}
                infos["final_info"] = [one(i) if terminated[i] or truncated[i] else {} for i in range(self.num_envs)]
                infos["final_observation"] = infos.pop("final_obs")
            return observation, reward, terminated, truncated, infos

    return SyncVectorEnv


@contextlib.contextmanager
def their_modules(checkout: Path) -> Iterator[None]:
    """Let their modules be imported from a checkout, with what they need around them; no bars, no warnings."""
    import gymnasium

    tqdm, replaced = importlib.import_module("tqdm"), stubs()
    before = {name: sys.modules.get(name) for name in replaced}
    with (
        mock.patch.object(sys, "path", [str(checkout), *sys.path]),
        mock.patch.object(gymnasium.vector, "SyncVectorEnv", vector_like_before()),
        mock.patch.object(tqdm, "tqdm", functools.partial(tqdm.tqdm, disable=True)),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        sys.modules.update(replaced)
        try:
            yield
        finally:  # what else was imported stays: PyTorch cannot be imported twice
            for name, module in before.items():
                sys.modules.pop(name)
                if module is not None:
                    sys.modules[name] = module


def train_theirs(checkout: Path, level: float, steps: int, seed: int) -> dict[str, Any]:
    """Run their script and return its variables: the network, the utility and its knots among them."""
    arguments = ["--env-id", "TradingEnv-v0", "--risk-measure", "CVaR", "--alpha", str(level), "--gamma", "1.0"]
    script = str(checkout / "qrsrm.py")
    given = [script, *arguments, "--total-timesteps", str(steps), "--seed", str(seed)]
    with their_modules(checkout), mock.patch.object(sys, "argv", given):
        return runpy.run_path(script, run_name="__main__")


def their_trades(env: rp.MeanReversionTrading, trained: dict[str, Any], prices: np.ndarray) -> np.ndarray:
    """Return the trades of their trained network on given price paths, [episodes, steps]."""
    torch = importlib.import_module("torch")
    mu, knots = trained["mu"].detach(), trained["theta_0"].detach()
    bends = mu[:-1] != 0  # the others do not count; CVaR has one
    mu, knots = torch.cat([mu[:-1][bends], mu[-1:]]), knots[bends]
    amounts = np.linspace(-float(env.max_trade), float(env.max_trade), env.num_actions)
    trades, so_far = np.zeros((len(prices), env.steps)), np.zeros(len(prices))
    for time_step in range(env.steps):
        # as their environment shows it: the state in single precision, then the return so far and the discount
        state = np.stack([prices[:, time_step], trades.sum(axis=1), np.full(len(prices), time_step)], axis=1)
        seen = np.concatenate([state.astype(np.float32), so_far[:, None], np.ones((len(prices), 1))], axis=1)
        chosen = []
        with torch.no_grad():
            for first in range(0, len(prices), PIECE):
                piece = torch.tensor(seen[first : first + PIECE])
                chosen.append(trained["q_network"].get_action(piece, mu=mu, theta_0=knots)[0].numpy())
        trades[:, time_step] = amounts[np.concatenate(chosen)]
        so_far += -prices[:, time_step] * trades[:, time_step] - float(env.cost) * trades[:, time_step] ** 2
    return trades


def compare_dynamics(checkout: Path, env: rp.MeanReversionTrading, episodes: int = 200) -> dict[str, float]:
    """Play random trades with the same noise in their environment, in ours and in NumPy: the largest differences."""
    rng = np.random.default_rng(0)
    noise, actions = draw_noise(episodes, env.steps, 1), rng.integers(env.num_actions, size=(episodes, env.steps))
    trades = np.linspace(-float(env.max_trade), float(env.max_trade), env.num_actions)[actions]
    plain = rewards(env, price_paths(env, noise), trades)
    differences = {"reward": 0.0, "observation": 0.0, "reward_numpy": 0.0}
    with their_modules(checkout):
        theirs = importlib.import_module("custom_envs").TradingEnv()
    move = jax.jit(lambda time, state, amount, chance: _step(env, time, state, amount, chance))
    for episode in range(episodes):
        seen, _ = theirs.reset()
        state: Any = tuple(jnp.float32(x) for x in env.first_state)
        for t in range(env.steps):
            shown = np.array([*map(float, state), t])
            differences["observation"] = max(differences["observation"], float(np.abs(seen - shown).max()))
            with mock.patch("numpy.random.normal", lambda chance=float(noise[episode, t]): chance):
                seen, reward, ended, _, _ = theirs.step(actions[episode, t])
            state, ours = move(t, state, trades[episode, t], noise[episode, t])
            assert ended == (t == env.steps - 1)
            differences["reward"] = max(differences["reward"], abs(float(reward) - float(ours)))
            gap = abs(float(reward) - float(plain[episode, t]))
            differences["reward_numpy"] = max(differences["reward_numpy"], gap)
    return differences


def _step(env: rp.MeanReversionTrading, time: Any, state: Any, amount: Any, chance: Any) -> tuple[Any, Any]:
    post, paid, _ = env.decide(time, state, amount)
    state, gained = env.move(time, post, chance)
    return state, paid + gained


def references(level: float) -> dict[str, float]:
    """Return the exact values of the mean-optimal and of the best policy, if they were computed."""
    if not OPTIMA.exists():
        return {}
    records = {record["problem"]: record for record in json.loads(OPTIMA.read_text())["records"]}
    cells = {(c["policies"], c["risk"]): c.get("value") for c in records["MeanReversionTrading"]["cells"]}
    names = {"mean-optimal": "mean-optimal", "best": "adaptive"}
    return {name: round(cells[policies, f"cvar:{level:g}"], 4) for name, policies in names.items()}


def run_theirs(checkout: Path, prices: np.ndarray, level: float, steps: int, seeds: int) -> dict[str, Any]:
    """Train their agent for each seed and return a row."""
    env, began, returns, seconds, updates = rp.MeanReversionTrading(), 0.0, [], 0.0, 0
    for seed in range(1, seeds + 1):
        began = time.perf_counter()
        trained = train_theirs(checkout, level, steps, seed)
        seconds += time.perf_counter() - began
        given = trained["args"]
        updates = max(0, steps - given.learning_starts - 1) // given.train_frequency
        returns.append(rewards(env, prices, their_trades(env, trained, prices)).sum(axis=1))
    return {"agent": THEIRS, "updates": updates, "seconds": round(seconds, 1)} | summarise(returns, level)


def run_ours(name: str, noise: np.ndarray, level: float, steps: int, seeds: int) -> dict[str, Any]:
    """Train an agent of ours with the sizes of theirs, and return a row."""
    env, agent = rp.MeanReversionTrading(), OURS[name](f"cvar:{level:g}")
    training = dataclasses.replace(agent.training, train_freq=10, batch_size=256)
    agent = dataclasses.replace(agent, training=training, network=rp.Network(hidden=(64, 64, 64, 64)))
    run, took = train_ours(agent, env, steps, seeds, num_envs=10)
    prices = price_paths(env, noise)
    returns = [rewards(env, prices, play(run, noise, seed)[0]).sum(axis=1) for seed in range(seeds)]
    return {"agent": name, **took} | summarise(returns, level)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qrsrm", type=Path, required=True, help="a checkout of the public code of QR-SRM")
    parser.add_argument("--only", default="", help="agents with this text in their name")
    add_options(parser, STEPS, "20,000 steps, one seed, CVaR 0.25 alone, 20,000 evaluation episodes")
    options = parser.parse_args()
    if line := missing("torch", "stable_baselines3", "gymnasium", "pandas", "tqdm"):
        sys.exit(line)
    if not (options.qrsrm / "qrsrm.py").exists():
        sys.exit(f"there is no qrsrm.py in {options.qrsrm}: give --qrsrm a checkout of the public code of QR-SRM")
    importlib.import_module("torch").set_num_threads(1)
    steps, seeds, episodes, out = budget_of(options, STEPS, "qrsrm_peer.json")

    env = rp.MeanReversionTrading()
    dynamics = compare_dynamics(options.qrsrm, env)
    print("largest differences of both environments with the same noise:", dynamics, flush=True)
    noise = draw_noise(episodes, env.steps, EVALUATION_SEED)
    budget = {"steps": steps, "evaluation_episodes": episodes}
    prices, rows = price_paths(env, noise), stored_rows(out, budget)
    levels = LEVELS[:1] if options.quick else LEVELS
    for agent, level in itertools.product((THEIRS, *OURS), levels):
        if options.only not in agent or any((row["agent"], row["level"]) == (agent, level) for row in rows):
            continue
        if agent == THEIRS:
            row = run_theirs(options.qrsrm, prices, level, steps, seeds)
        else:
            row = run_ours(agent, noise, level, steps, seeds)
        rows.append({"level": level, "paths": steps // env.steps, **row, "device": jax.devices()[0].device_kind})
        print(f"{_heading(rows[-1])}: {np.mean(rows[-1]['cvars']):.4f}, {rows[-1]['seconds']:.0f} s", flush=True)
        command = f"python benchmarks/peers/qrsrm_peer.py --qrsrm QRSRM {shlex.join(_others(sys.argv[1:]))}"
        report = {
            "command": command.strip(),
            "versions": versions("jax", "jaxlib", "numpy", "torch", "stable-baselines3", "gymnasium"),
            "budget": budget,
            "dynamics": dynamics,
            "exact": {f"{level:g}": references(level) for level in levels},
            "rows": rows,
        }
        write_json(out, report)
    rows.sort(key=lambda row: row["level"])
    print(f"\nreturns on the same {episodes:,} paths; means over seeds\n")
    print(table(rows, _heading, 4))
    for level in levels:
        print(f"exact, CVaR {level:g}:", references(level))
    print(out)


def _heading(row: dict[str, Any]) -> str:
    return f"CVaR {row['level']:g}, {row['agent']}"


def _others(arguments: list[str]) -> list[str]:
    """Return the arguments without the path of the checkout, which is particular to a machine."""
    at = next((i for i, argument in enumerate(arguments) if argument.startswith("--qrsrm")), len(arguments))
    return arguments[:at] + arguments[at + (1 if "=" in "".join(arguments[at : at + 1]) else 2) :]


if __name__ == "__main__":
    main()
