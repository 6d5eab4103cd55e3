"""The environments of `public_environments.py`, and how one job is trained: our agents, or Stable-Baselines3's.

Our agents have their defaults everywhere: a measure is all that they are given. Stable-Baselines3 has the published
hyperparameters of RL Zoo (rl-baselines3-zoo, `hyperparams/dqn.yml` and `td3.yml`) or of highway-env where there are
any, and its own defaults elsewhere.
"""

import functools
import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

NUM_ENVS = 4
"""Environments of each seed of our agents. Stable-Baselines3's have one."""
PEERS = ("DQN", "TD3")
"""Agents of Stable-Baselines3: they are trained for the mean, one seed in each job."""
WIDE = {"policy_kwargs": {"net_arch": [256, 256]}}
ZOO_DQN = {"learning_rate": 6.3e-4, "batch_size": 128, "buffer_size": 50_000, "learning_starts": 0, "train_freq": 4}
ZOO_DQN |= {"target_update_interval": 250, "gradient_steps": -1, "exploration_fraction": 0.12, **WIDE}
ZOO_DQN |= {"exploration_final_eps": 0.1}
ZOO_TD3 = {"gamma": 0.98, "buffer_size": 200_000, "learning_starts": 10_000, "learning_rate": 1e-3, "train_freq": 1}
ZOO_TD3 |= {"gradient_steps": 1, "policy_kwargs": {"net_arch": [400, 300]}, "noise": 0.1}
ZOO_CARTPOLE = {"learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1_000, **WIDE}
ZOO_CARTPOLE |= {"target_update_interval": 10, "train_freq": 256, "gradient_steps": 128}
ZOO_CARTPOLE |= {"exploration_fraction": 0.16, "exploration_final_eps": 0.04}
HIGHWAY = {"learning_rate": 5e-4, "buffer_size": 15_000, "learning_starts": 200, "batch_size": 32, "gamma": 0.8}
HIGHWAY |= {"train_freq": 1, "gradient_steps": 1, "target_update_interval": 50, **WIDE}


@dataclass(frozen=True)
class Task:
    """An environment, and how long agents are trained in it."""

    steps: int
    """Environment steps of each seed."""
    make: Callable[[], Any]
    """Makes the environment; packages that only it needs are imported there."""
    peer: dict[str, Any] = field(default_factory=dict)
    """Hyperparameters of Stable-Baselines3's agent, where they are not its defaults."""
    source: str = "defaults"
    """Where they were published."""
    continuous: bool = False
    """Whether actions are continuous."""
    episodes: int = 100
    """Greedy episodes of each seed after training."""

    @property
    def agents(self) -> tuple[str, str, str]:
        """Return the agents that are trained here; the last one is Stable-Baselines3's."""
        return ("AdaptiveContinuous", "IQTD3", "TD3") if self.continuous else ("Adaptive", "IQN", "DQN")


def _gymnasium(name: str, **options: Any) -> Any:
    import gymnasium

    return gymnasium.make(name, **options)


def _minigrid(name: str) -> Any:
    from minigrid.wrappers import ImgObsWrapper  # pyright: ignore[reportMissingImports]

    return ImgObsWrapper(_gymnasium(name))  # the image without the text of the mission


def _highway(name: str) -> Any:
    importlib.import_module("highway_env")  # registers the name
    return _gymnasium(name)


def _gymnax(name: str) -> Any:
    import gymnax  # pyright: ignore[reportMissingImports]

    import riskpath as rp

    return rp.from_gymnax(*gymnax.make(name))


def _lander(**options: Any) -> Any:
    return functools.partial(_gymnasium, "LunarLander-v3", **options)


TASKS = {
    "LunarLander": Task(240_000, _lander(), ZOO_DQN, "RL Zoo"),
    "LunarLander windy": Task(240_000, _lander(enable_wind=True), ZOO_DQN, "RL Zoo"),
    "LunarLander continuous": Task(240_000, _lander(continuous=True), ZOO_TD3, "RL Zoo", continuous=True),
    "LunarLander continuous windy": Task(
        240_000, _lander(continuous=True, enable_wind=True), ZOO_TD3, "RL Zoo", continuous=True
    ),
    "CartPole": Task(40_000, functools.partial(_gymnasium, "CartPole-v1"), ZOO_CARTPOLE, "RL Zoo"),
    "Acrobot": Task(100_000, functools.partial(_gymnasium, "Acrobot-v1"), ZOO_DQN, "RL Zoo"),
    "Pendulum": Task(30_000, functools.partial(_gymnasium, "Pendulum-v1"), ZOO_TD3, "RL Zoo", continuous=True),
    "FrozenLake": Task(60_000, functools.partial(_gymnasium, "FrozenLake-v1")),
    "MiniGrid LavaGapS5": Task(60_000, functools.partial(_minigrid, "MiniGrid-LavaGapS5-v0")),
    "highway-fast": Task(
        20_000, functools.partial(_highway, "highway-fast-v0"), HIGHWAY, "highway-env's script", episodes=50
    ),
    "MinAtar Breakout": Task(500_000, functools.partial(_gymnax, "Breakout-MinAtar")),
}


def train_ours(
    names: list[str], agent: str, measure: str, seeds: range, steps: int, folder: Path
) -> list[dict[str, Any]] | None:
    """Train seeds of our agent in one or several environments of equal sizes, all of them side by side.

    Return the figures of each environment, or None if it was interrupted (Ctrl-C).
    """
    import riskpath as rp

    made = [TASKS[name].make() if name.startswith("MinAtar") else TASKS[name].make for name in names]
    if folder.exists():
        run = rp.load(folder, env=made)
        run = run if run.finished else rp.train(run, checkpoint=folder)
    else:
        run = rp.train(
            [getattr(rp, agent)(measure) for _ in names],
            made,
            steps=steps,
            seeds=len(seeds),
            first_seed=seeds.start,
            num_envs=NUM_ENVS,
            checkpoint=folder,
        )
    if not run.finished:
        print(f"{' and '.join(names)}, {agent}, {measure}: interrupted at step {run.steps:,}", flush=True)
        return None
    sample, seen = run.evaluate(TASKS[names[0]].episodes, seed=1), run.lanes.agent_state.episodes
    assert seen is not None
    figures = {
        "estimates": run.estimates(),
        "earned": sample.values(discounted=True),
        "ranges": (np.asarray(seen.high) - np.asarray(seen.low)).reshape(len(names), len(seeds)),
    }
    own = [{key: np.round(x[i], 4).tolist() for key, x in figures.items()} for i in range(len(names))]
    return [_figures(returns) | one for returns, one in zip(sample.returns, own, strict=True)]


def train_peer(name: str, agent: str, seed: int, steps: int, folder: Path) -> list[dict[str, Any]] | None:
    """Train one seed of Stable-Baselines3's agent; return its figures, or None if it was interrupted."""
    import gymnasium
    import stable_baselines3 as sb3  # pyright: ignore[reportMissingImports]
    import torch  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.evaluation import evaluate_policy  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.monitor import Monitor  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.noise import NormalActionNoise  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    task, options = TASKS[name], dict(TASKS[name].peer)

    def make() -> Any:
        env = task.make()
        if not isinstance(env, gymnasium.Env):
            from riskpath.envs.gymnasium_env import GymnasiumEnv

            env = GymnasiumEnv(env)
        images = len(env.observation_space.shape or ()) == 3  # small ones, which its convolutions do not accept
        return Monitor(gymnasium.wrappers.FlattenObservation(env) if images else env)

    env = make()
    if "noise" in options:
        size = env.action_space.shape
        options["action_noise"] = NormalActionNoise(np.zeros(size), options.pop("noise") * np.ones(size))
    options["buffer_size"] = min(options.get("buffer_size", steps), steps)  # its default would hold a million
    kind, model_file, buffer_file = getattr(sb3, agent), folder / "model.zip", folder / "buffer.pkl"
    if buffer_file.exists():
        model = kind.load(model_file, env, device="cpu")
        model.load_replay_buffer(buffer_file)
    else:
        model = kind("MlpPolicy", env, seed=seed, device="cpu", **options)
    try:
        model.learn(steps - model.num_timesteps, reset_num_timesteps=False)
    except KeyboardInterrupt:
        folder.mkdir(parents=True, exist_ok=True)
        model.save(model_file)
        model.save_replay_buffer(buffer_file)
        print(f"{name}, {agent}: interrupted at step {model.num_timesteps:,}", flush=True)
        return None
    test = make()
    test.reset(seed=10_000 + seed)
    returns, _ = evaluate_policy(model, test, task.episodes, return_episode_rewards=True)
    return [_figures(np.array(returns)[None])]


def _figures(returns: np.ndarray) -> dict[str, Any]:
    """Return mean and CVaR 0.25 of the returns of every seed."""
    import riskpath as rp

    cvar = rp.CVaR(0.25)
    return {
        "means": np.round(returns.mean(axis=1), 4).tolist(),
        "cvars": [round(float(cvar.value(one)), 4) for one in returns],
    }


def train(names: list[str], agent: str, measure: str, seeds: range, steps: int, folder: Path) -> list[dict[str, Any]]:
    """Run one job in this process, and return the record of each environment; none if it was interrupted."""
    began, device = time.monotonic(), "cpu"
    if agent in PEERS:
        (name,), (seed,) = names, seeds
        found = train_peer(name, agent, seed, steps, folder)
    else:
        import jax

        found, device = train_ours(names, agent, measure, seeds, steps, folder), jax.devices()[0].device_kind
    about = {"agent": agent, "risk": measure, "seeds": list(seeds), "steps": steps, "device": device}
    about["seconds"] = round(time.monotonic() - began, 1)
    return [{"env": name, **about, **one} for name, one in zip(names, found or [], strict=bool(found))]
