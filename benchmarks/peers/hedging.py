"""Hedge a call that was sold: Riskpath beside pfhedge's deep hedging, for CVaR 0.1 of the seller's profit, in one run.

    make bench-peers-install                            pfhedge and PyTorch, in .venv-peers
    .venv-peers/bin/python benchmarks/peers/hedging.py  ours on a GPU, minutes; the peers hours; --quick: minutes

The problem is `rp.OptionHedging`, with the parameters of pfhedge's first example: an at-the-money call, 20 daily
rebalancings, σ = 0.2, Δt = 1/250, cost 1e-4 of the traded value. pfhedge minimises the expected shortfall by
differentiating through the simulated market. Our agents see a price, a hedge and a reward at a time and know nothing of
the market.

Every program may simulate the same number of price paths before its policy is final, validation included: an episode of
ours is a path. All policies then hedge the same evaluation paths, and one NumPy function computes their profits. These
differences remain:

- pfhedge makes one gradient step with all paths of an epoch. Its example has 1,000 of them; a second row has 100, that
  is ten times as many gradient steps with the same paths. "Band" is another network of its documentation: it keeps the
  hedge within a learned band around the delta of Black and Scholes, so it knows the model. Two rows (not with
  --quick) are not bound by the budget: its example for the expected shortfall as it is, 200 epochs of 10,000 paths,
  and the same number of paths in 10,000 epochs.
- Ours have the networks and the training of large problems in `riskpath bench suite`, with at most one gradient step in
  four environment steps: 31,000 with the full budget, for which a GPU is needed.
- pfhedge may hold any hedge, ours are from 0 to 1 (`Adaptive`: 21 of them).
- IQTD3 is trained for the mean, and for CVaR at every step, as controls.

pfhedge 0.23 asks for NumPy 1; none of its modules imports NumPy, so it is installed beside NumPy 2 without its
dependencies. Results go to benchmarks/results/hedging.json and .png, with --quick to the folder `runs`, after every
row. A second call with the same budget goes on after the rows that are there, which may come from another machine.
"""

import argparse
import dataclasses
import importlib
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from market_paths import (
    EVALUATION_SEED,
    add_options,
    budget_of,
    draw_noise,
    missing,
    play,
    sized_like,
    stored_rows,
    summarise,
    table,
    train_ours,
    versions,
)
from scipy.special import ndtr

import riskpath as rp
from riskpath import plot
from riskpath.experiments.bench_suite import SIZES
from riskpath.experiments.records import write_json

STEPS = 8_000_000
"""Environment steps of each seed, 20 for a path."""
LEVEL, MEASURE = 0.1, "cvar:0.1"
FEATURES = ["log_moneyness", "expiry_time", "volatility", "prev_hedge"]
"""The inputs of pfhedge's example."""
WITHIN_BUDGET = {
    "pfhedge, 1,000 paths an epoch": (1_000, False),
    "pfhedge, 100 paths an epoch": (100, False),
    "pfhedge band, 100 paths an epoch": (100, True),
}
"""Paths of an epoch, and whether the network is a band around the delta."""
BEYOND_BUDGET = {
    "pfhedge, 200 epochs of 10,000 paths": (200, 10_000),
    "pfhedge, 10,000 epochs of 200 paths": (10_000, 200),
}
"""Epochs and paths of an epoch."""


def price_paths(env: rp.OptionHedging, noise: np.ndarray) -> np.ndarray:
    """Return the prices before every decision and at the end, [paths, steps + 1]."""
    sigma, dt = float(env.sigma), float(env.dt)
    moves = -(sigma**2) / 2 * dt + sigma * dt**0.5 * noise.astype(np.float64)
    start = np.zeros((len(noise), 1))
    return float(env.start_price) * np.exp(np.cumsum(np.concatenate([start, moves], axis=1), axis=1))


def profits(env: rp.OptionHedging, prices: np.ndarray, hedges: np.ndarray) -> np.ndarray:
    """Return −payoff + gains − costs of every path, for the hedges [paths, steps] that were chosen at these prices."""
    payoff = np.maximum(prices[:, -1] - float(env.strike), 0.0)
    gains = (hedges * np.diff(prices, axis=1)).sum(axis=1)
    traded = np.abs(np.diff(hedges, axis=1, prepend=0.0))
    return -payoff + gains - float(env.cost) * (prices[:, :-1] * traded).sum(axis=1)


def delta_hedges(env: rp.OptionHedging, prices: np.ndarray) -> np.ndarray:
    """Return the hedge of Black and Scholes at every decision."""
    left = (env.steps - np.arange(env.steps)) * float(env.dt)
    spread = float(env.sigma) * np.sqrt(left)
    return ndtr(np.log(prices[:, :-1] / float(env.strike)) / spread + spread / 2)


def our_agents(quick: bool) -> dict[str, Any]:
    """Return the agents of this library: with their own sizes, or with those of large problems of the benchmark."""
    kinds = {
        "AdaptiveContinuous": rp.AdaptiveContinuous(MEASURE),
        "Adaptive, 21 hedges": rp.Adaptive(MEASURE),
        "IQTD3": rp.IQTD3(MEASURE),
        "IQTD3 for the mean": rp.IQTD3("mean"),
    }
    return kinds if quick else {name: sized_like(agent, SIZES["large"]) for name, agent in kinds.items()}


def option(env: rp.OptionHedging) -> tuple[Any, Any]:
    """Return the stock and the call as pfhedge's instruments."""
    instruments = importlib.import_module("pfhedge.instruments")
    stock = instruments.BrownianStock(sigma=float(env.sigma), cost=float(env.cost), dt=float(env.dt))
    call = instruments.EuropeanOption(stock, strike=float(env.strike), maturity=env.steps * float(env.dt))
    return stock, call


def band_network(call: Any) -> Any:
    """Return the no-transaction band of pfhedge's documentation: the last hedge, moved into a band around the delta."""
    torch, modules = importlib.import_module("torch"), importlib.import_module("pfhedge.nn")

    class Band(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.delta, self.clamp = modules.BlackScholes(call), modules.Clamp()
            self.widths = modules.MultiLayerPerceptron(out_features=2)

        def forward(self, features: Any) -> Any:
            market, hedge = features[..., :-1], features[..., -1:]
            delta, widths = self.delta(market), torch.nn.functional.leaky_relu(self.widths(market))
            return self.clamp(hedge, min=delta - widths[..., :1], max=delta + widths[..., 1:])

    return Band()


def deep_hedger(env: rp.OptionHedging, epochs: int, paths: int, seed: int, band: bool = False) -> Any:
    """Train pfhedge's example with the expected shortfall; without validation, which would simulate further paths."""
    torch, modules = importlib.import_module("torch"), importlib.import_module("pfhedge.nn")
    torch.manual_seed(seed)
    _, call = option(env)
    model = band_network(call) if band else modules.MultiLayerPerceptron()
    inputs = [*model.delta.inputs(), "prev_hedge"] if band else FEATURES
    hedger = modules.Hedger(model, inputs, criterion=modules.ExpectedShortfall(LEVEL))
    hedger.fit(call, n_paths=paths, n_epochs=epochs, verbose=False, validation=False)
    return hedger


def deep_hedges(env: rp.OptionHedging, hedger: Any, prices: np.ndarray) -> np.ndarray:
    """Return the hedges of a trained hedger on given price paths, [paths, steps]."""
    torch = importlib.import_module("torch")
    stock, call = option(env)
    stock.register_buffer("spot", torch.tensor(prices, dtype=torch.float32))
    with torch.no_grad():
        return hedger.compute_hedge(call)[:, 0, :-1].double().numpy()


def run_pfhedge(
    name: str, env: rp.OptionHedging, prices: np.ndarray, epochs: int, paths: int, seeds: int, band: bool = False
) -> dict[str, Any]:
    """Train one hedger for each seed and return a row."""
    began = time.perf_counter()
    hedgers = [deep_hedger(env, epochs, paths, seed, band) for seed in range(seeds)]
    seconds = time.perf_counter() - began
    returns = [profits(env, prices, deep_hedges(env, hedger, prices)) for hedger in hedgers]
    row = {"policy": name, "paths": epochs * paths, "updates": epochs, "seconds": round(seconds, 1)}
    return row | summarise(returns, LEVEL)


def run_ours(name: str, agent: Any, noise: np.ndarray, steps: int, seeds: int, num_envs: int) -> dict[str, Any]:
    """Train an agent of ours and return a row."""
    env = rp.OptionHedging(continuous=agent.actions == "continuous")
    agent = dataclasses.replace(agent, training=dataclasses.replace(agent.training, train_freq=max(4, num_envs)))
    run, took = train_ours(agent, env, steps, seeds, num_envs)
    prices = price_paths(env, noise)
    returns = [profits(env, prices, play(run, noise, seed)[0]) for seed in range(seeds)]
    return {"policy": name, "paths": steps // env.steps, **took} | summarise(returns, LEVEL)


def draw(rows: list[dict[str, Any]], path: Path) -> Path:
    """Draw the distribution functions of the profits, from their quantiles."""
    figure, axes = plot.panels(1, 1, 6.4, 4.2)
    axis, levels = axes[0, 0], (np.arange(100) + 0.5) / 100
    for row, colour in zip(rows, (*plot.PALETTE, plot.EXACT, "#b8860b"), strict=False):
        label = f"{row['policy']} (CVaR {np.mean(row['cvars']):.4f})"
        style = "--" if row["policy"].startswith(("pfhedge", "delta")) else "-"
        axis.plot(row["quantiles"], levels, style, color=colour, label=label, linewidth=1.6)
    hedged = [row["quantiles"] for row in rows if row["policy"] != "IQTD3 for the mean"]
    axis.set_xlim(max(-0.08, min(q[0] for q in hedged)) - 0.002, min(0.04, max(q[-1] for q in hedged)) + 0.002)
    axis.set_xlabel("profit of the seller without the premium", fontsize=9)
    axis.set_ylabel("probability of at most this profit", fontsize=9)
    axis.legend(fontsize=7, frameon=False, loc="upper left")
    return plot.save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="policies with this text in their name; ours need no peer")
    add_options(parser, STEPS, "20,000 steps, one seed, 20,000 evaluation episodes")
    options = parser.parse_args()
    needed = any(options.only in name for name in (*WITHIN_BUDGET, *BEYOND_BUDGET))
    if needed and (line := missing("torch", "pfhedge")):
        sys.exit(line)
    if needed:
        importlib.import_module("torch").set_num_threads(1)
    steps, seeds, episodes, out = budget_of(options, STEPS, "hedging.json")

    env = rp.OptionHedging()
    noise = draw_noise(episodes, env.steps, EVALUATION_SEED)
    prices, budget = price_paths(env, noise), steps // env.steps
    given = {"steps": steps, "paths": budget, "evaluation_paths": episodes}
    jobs: dict[str, Any] = {
        "delta hedge": lambda name: (
            {"policy": name} | summarise([profits(env, prices, delta_hedges(env, prices))], LEVEL)
        )
    }
    for name, (paths, band) in WITHIN_BUDGET.items():
        within = (max(1, budget // paths), paths, seeds, band)
        jobs[name] = lambda name, within=within: run_pfhedge(name, env, prices, *within)
    for name, (epochs, paths) in BEYOND_BUDGET.items() if not options.quick else ():
        jobs[name] = lambda name, beyond=(epochs, paths, seeds): run_pfhedge(name, env, prices, *beyond)
    num_envs = 4 if options.quick else SIZES["large"]["num_envs"]
    for name, agent in our_agents(options.quick).items():
        jobs[name] = lambda name, agent=agent: run_ours(name, agent, noise, steps, seeds, num_envs)
    rows = stored_rows(out, given)
    for name, job in jobs.items():
        if options.only not in name or any(row["policy"] == name for row in rows):
            continue
        rows.append(job(name) | {"device": jax.devices()[0].device_kind})
        print(f"{name}: CVaR {np.mean(rows[-1]['cvars']):.5f}, {rows[-1].get('seconds', 0.0):.0f} s", flush=True)
        report = {
            "command": shlex.join(["python", "benchmarks/peers/hedging.py", *sys.argv[1:]]),
            "versions": versions("jax", "jaxlib", "numpy", "torch", "pfhedge"),
            "level": LEVEL,
            "budget": given,
            "rows": rows,
        }
        write_json(out, report)
    rows.sort(key=lambda row: list(jobs).index(row["policy"]))
    print(f"\nprofit on the same {episodes:,} paths, CVaR {LEVEL:g}; means over seeds\n")
    print(table(rows, lambda row: row["policy"], 5))
    print(f"\n{out}, {draw(rows, out.with_suffix('.png'))}")


if __name__ == "__main__":
    main()
