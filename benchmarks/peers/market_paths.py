"""Shared by the benchmarks against peers on markets: budgets, policies on given paths, rows of results.

The price of a market does not depend on what a policy does. So the noise of all evaluation episodes is drawn once,
every program plays its policy on the same paths, and NumPy computes the returns from the amounts that it chose.
"""

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import json
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import riskpath as rp
from riskpath.agents.abilities import Population
from riskpath.agents.adaptive.elimination import blocks_of_selection
from riskpath.agents.agent import act_greedily
from riskpath.envs.market import Market, MarketProblem
from riskpath.training.rounds import Round
from riskpath.types import TimeStep

RESULTS = Path(__file__).parents[1] / "results"
EVALUATION_SEED = 20_000
PIECE = 2_000
"""Episodes that are played side by side."""
INSTALL = "make bench-peers-install, then run it by .venv-peers/bin/python"


class Budget(NamedTuple):
    """How much is trained and evaluated, and where the result goes."""

    steps: int
    seeds: int
    episodes: int
    out: Path


def add_options(parser: argparse.ArgumentParser, steps: int, quick: str) -> None:
    """Add the options that both benchmarks share; `steps` is the full number, `quick` says what `--quick` runs."""
    parser.add_argument("--steps", type=int, help=f"environment steps of each seed (default: {steps:,})")
    parser.add_argument("--seeds", type=int, help="default: 3")
    parser.add_argument("--episodes", type=int, help="evaluation episodes (default: 100,000)")
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--out", type=Path, help="the JSON file; figures lie beside it")


def budget_of(options: argparse.Namespace, steps: int, name: str) -> Budget:
    """Return what the options ask for; a quick result goes to runs/, and does not replace a full one."""
    full, quick = (steps, 3, 100_000, RESULTS), (20_000, 1, 20_000, Path("runs"))
    steps, seeds, episodes, folder = quick if options.quick else full
    chosen = options.steps or steps, options.seeds or seeds, options.episodes or episodes
    return Budget(*chosen, options.out or folder / name)


def stored_rows(out: Path, budget: dict[str, int]) -> list[dict[str, Any]]:
    """Return the rows of an earlier run with the same budget, which are not computed again."""
    if not out.exists():
        return []
    stored = json.loads(out.read_text())
    return stored["rows"] if stored["budget"] == budget else []


def missing(*modules: str) -> str | None:
    """Return a line that says how to install what is not installed."""
    absent = [name for name in modules if importlib.util.find_spec(name) is None]
    return f"{', '.join(absent)} not installed: {INSTALL}" if absent else None


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of packages; a package that is not installed is left out."""
    found = {"python": platform.python_version(), "riskpath": rp.__version__}
    for name in packages:
        if importlib.util.find_spec(name.replace("-", "_")) is not None:
            found[name] = importlib.metadata.version(name)
    return found


def draw_noise(episodes: int, steps: int, seed: int) -> np.ndarray:
    """Return standard normal noise, [episodes, steps]; single precision, which every program can represent."""
    return np.random.default_rng(seed).normal(size=(episodes, steps)).astype(np.float32)


def _population(agent: Any) -> tuple[int, int | None]:
    return agent.population() if isinstance(agent, Population) else (1, 0)


def fit_to_budget(agent: Any, steps: int, length: int, num_envs: int) -> tuple[Any, int]:
    """Return an agent whose schedules end with the budget, and the steps that are left for its training.

    Held-out episodes by which an agent chooses among its candidates are part of the budget; they take at most a tenth.
    Training goes on until an update of the target networks, the last one within the budget.
    """
    candidates, wanted = _population(agent)
    blocks = blocks_of_selection(candidates)
    held_out = steps // (10 * blocks * length) if blocks else 0
    held_out = held_out if wanted is None else min(wanted, held_out)
    if held_out:
        agent = dataclasses.replace(agent, selection_episodes=held_out)
    left = steps - blocks * held_out * length
    experience = agent.experience(rp.EnvSpec(1, (1,), max_episode_steps=length))
    warm_up = -(-agent.training.learning_starts // num_envs) * num_envs
    left -= max(0, left - warm_up) % Round.of(agent, experience, num_envs).steps
    return dataclasses.replace(agent, training=dataclasses.replace(agent.training, decay_ends=1.0)), left


def sized_like(agent: Any, size: dict[str, Any]) -> Any:
    """Return an agent with the network and the training of a size of the benchmark."""
    names, own = ("train_freq", "learning_starts", "buffer_size", "batch_size"), agent.training
    sizes: dict[str, Any] = {name: size[name] for name in names}
    sizes["final_learning_rate"] = 0.01 * own.learning_rate
    parts: dict[str, Any] = {"training": dataclasses.replace(own, **sizes)}
    if isinstance(agent, rp.IQTD3 | rp.AdaptiveContinuous):
        final = 0.01 * agent.actor.learning_rate
        parts["actor"] = dataclasses.replace(agent.actor, final_learning_rate=final)
    return dataclasses.replace(agent, network=rp.Network(hidden=size["hidden"]), **parts)


def train_ours(agent: Any, env: MarketProblem, steps: int, seeds: int, num_envs: int) -> tuple[rp.Run, dict[str, Any]]:
    """Train seeds side by side; return the run and what it took."""
    agent, left = fit_to_budget(agent, steps, env.steps, num_envs)
    began = time.perf_counter()
    run = rp.train(agent, env, steps=left, seeds=seeds, num_envs=num_envs)
    candidates, episodes = _population(agent)
    held_out = blocks_of_selection(candidates) * (episodes or 0)
    return run, {
        "seconds": round(time.perf_counter() - began, 1),
        "training_steps": run.steps,
        "selection_steps": held_out * env.steps,
        "updates": int(run.lanes.clock.updates),
    }


def play(run: rp.Run, noise: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the amounts that a trained policy chooses on the paths of this noise, and the environment's own returns.

    Both arrays are in double precision: [episodes, steps] and [episodes].
    """
    policy = run.policy(seed)
    assert isinstance(policy.environment, MarketProblem)
    keys = jax.random.split(jax.random.key(seed), len(noise))
    amounts, rewards = _play(policy.agent, policy.state, policy.environment, jnp.asarray(noise), keys)
    return np.asarray(amounts, np.float64), np.asarray(rewards, np.float64).sum(axis=1)


@eqx.filter_jit
def _play(agent: Any, state: Any, env: MarketProblem, noise: Any, keys: Any) -> tuple[Any, Any]:
    def episode(inputs: tuple[Any, Any]) -> tuple[Any, Any]:
        noise, key = inputs
        observation, market = env.reset(key)
        first = env.spec.first_time_step(observation, env.action_mask(market))

        def step(carry: Any, inputs: Any) -> tuple[Any, tuple[Any, Any]]:
            market, time_step, memory = carry
            chance, key = inputs
            output = act_greedily(agent, state, memory, time_step, key=key)
            amount = env.action_value(output.action)
            post, paid, _ = env.decide(market.time, market.state, amount)
            following, gained = env.move(market.time, post, chance)
            market, reward = Market(following, market.time + 1), paid + gained
            observation = jnp.stack([*following, market.time.astype(jnp.float32)])
            time_step = TimeStep(observation, reward, time_step.action_mask, output.action, time_step.time + 1)
            return (market, time_step, output.memory), (amount, reward)

        keys = jax.random.split(key, env.steps)
        return jax.lax.scan(step, (market, first, state.initial_memory), (noise, keys))[1]

    return jax.lax.map(episode, (noise, keys), batch_size=PIECE)


def summarise(returns: Sequence[np.ndarray], level: float) -> dict[str, Any]:
    """Return mean and CVaR of every seed, the standard error of the latter, and quantiles of all seeds together."""
    measure = rp.CVaR(level)
    cvars = [float(measure.value(one)) for one in returns]
    errors = [cvar_error(one, level) for one in returns]
    pooled = np.quantile(np.concatenate(list(returns)), (np.arange(100) + 0.5) / 100)
    return {
        "means": [round(float(one.mean()), 6) for one in returns],
        "cvars": [round(value, 6) for value in cvars],
        "cvar_errors": [round(value, 6) for value in errors],
        "quantiles": [round(float(value), 5) for value in pooled],
    }


def cvar_error(returns: np.ndarray, level: float) -> float:
    """Return the standard error of CVaR: that of the mean of b + min(z − b, 0)/η at the quantile b."""
    threshold = np.quantile(returns, level)
    return float((np.minimum(returns - threshold, 0.0) / level).std() / len(returns) ** 0.5)


def table(rows: Sequence[dict[str, Any]], heading: Callable[[dict[str, Any]], str], digits: int) -> str:
    """Return a table with a line for each row: means over seeds, lowest and highest CVaR, episodes and seconds."""
    width = max(len(heading(row)) for row in rows)
    lines = [f"{'':{width}}{'mean':>10}{'CVaR':>10}{'lowest':>10}{'highest':>10}{'paths':>12}{'seconds':>9}"]
    for row in rows:
        figures = (np.mean(row["means"]), np.mean(row["cvars"]), min(row["cvars"]), max(row["cvars"]))
        numbers = "".join(f"{x:10.{digits}f}" for x in figures)
        lines.append(f"{heading(row):{width}}{numbers}{row.get('paths', 0):12,}{row.get('seconds', 0.0):9.1f}")
    return "\n".join(lines)
