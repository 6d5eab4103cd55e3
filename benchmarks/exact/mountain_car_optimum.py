"""Compute a lower bound on the best β of the discounted return in risky mountain-car, random starts pooled.

    python benchmarks/exact/mountain_car_optimum.py  # 6 weights c × 5 measures, minutes on a CPU
    python benchmarks/exact/mountain_car_optimum.py --c 0.5 --risk cvar:0.25 --grid 181 141

The car moves deterministically and the penalty is independent noise, so the mean and the variance of the return
Σ γᵗ r_t from a fixed start both add up over time, and E − λ Var is maximised exactly by dynamic programming with a risk
weight that shrinks over the episode:

    V_t(s) = max_a E r(s, a) − λ γᵗ Var r(s, a) + γ V_{t+1}(s'),        V_T = the solution for λ = 0.

One such problem is solved for each λ = κ / c (standard deviations of rewards are proportional to c); its policy, greedy
by one-step lookahead on V_t, is run in the environment itself. For each measure the policy that is best on one sample
is chosen and evaluated on a fresh one, so that the maximum is not biased upwards. Optima of measures other than
mean-variance may lie a little outside of this family: hence "lower bound".
"""

import argparse
import functools
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import riskpath as rp
from riskpath.envs.finite import as_arrays
from riskpath.envs.mountain_car import GRAVITY, MAX_POSITION, MAX_SPEED, MIN_POSITION, POWER, Car, RiskyMountainCar
from riskpath.types import power

RESULTS = Path(__file__).parents[2] / "src" / "riskpath" / "experiments" / "mountain_car_optimum.json"
WEIGHTS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
MEASURES = ("cvar:0.25", "cpw:0.71", "pow:-2", "wang:0.75", "wang:-0.75")
KAPPAS = (-0.15, -0.07, 0.07, 0.15, 0.25, 0.4)
DISCOUNT, HORIZON, SETTLE = 0.99, 300, 600
ACTIONS = np.linspace(-1, 1, 41)
Policy = Callable[[Car], Array]


class Grid(NamedTuple):
    """The nodes of V; between them it is bilinear."""

    positions: int = 721
    velocities: int = 281

    @property
    def x(self) -> Array:
        return jnp.linspace(MIN_POSITION, MAX_POSITION, self.positions)

    @property
    def v(self) -> Array:
        return jnp.linspace(-MAX_SPEED, MAX_SPEED, self.velocities)

    def read(self, value: Array, x: Array, v: Array) -> Array:
        (i, f), (j, g) = _between(self.x, x), _between(self.v, v)
        low = value[i, j] * (1 - g) + value[i, j + 1] * g
        high = value[i + 1, j] * (1 - g) + value[i + 1, j + 1] * g
        return low * (1 - f) + high * f


def _between(nodes: Array, at: Array) -> tuple[Array, Array]:
    """Return the node before each place, and the share of the way from there to the next node."""
    way = (at - nodes[0]) / (nodes[1] - nodes[0])
    before = jnp.clip(jnp.floor(way), 0, nodes.size - 2)
    return before.astype(jnp.int32), way - before


def stage(env: RiskyMountainCar, risk_weight: Array | float, force: Array) -> Array:
    """Return E r − λ γᵗ Var r of a force, without the reward of the goal."""
    size, prob = env.penalty(force)
    return -0.1 * force**2 - size * prob - risk_weight * size**2 * prob * (1 - prob)


def arrival(env: RiskyMountainCar, grid: Grid, value: Array, x: Array, v: Array) -> Array:
    """Return the value after the car leaves x at the new velocity v: the goal, or γ V(s')."""
    x, v, arrived = env.roll(x, v)
    return jnp.where(arrived, 100.0, DISCOUNT * grid.read(value, x, v))


def backup(env: RiskyMountainCar, grid: Grid, value: Array, risk_weight: Array) -> Array:
    """Return V_t from V_{t+1}.

    The force changes only the velocity, so the value after a step is computed once for each pair of position and new
    velocity. A force is then a shift along the velocities, the same for a whole row: linear interpolation is a matrix
    product.
    """
    x, v, forces = grid.x, grid.v, jnp.asarray(ACTIONS, jnp.float32)
    step = 2 * MAX_SPEED / (grid.velocities - 1)
    reach = math.ceil((POWER + GRAVITY) / step)
    following = outer(functools.partial(arrival, env, grid, value))(x, v)
    padded = jnp.pad(following, ((0, 0), (reach, reach)), mode="edge")  # beyond the speed limit is at the limit
    near = jnp.stack([padded[:, k : k + grid.velocities] for k in range(2 * reach + 1)], axis=1)
    shift = outer(lambda x, force: env.accelerate(x, jnp.zeros(()), force))(x, forces) / step
    weight = jnp.maximum(0, 1 - jnp.abs(shift[:, :, None] - jnp.arange(-reach, reach + 1.0)[None, None, :]))
    reward = jax.vmap(functools.partial(stage, env, risk_weight))(forces)
    return (jnp.einsum("xak,xkv->xav", weight, near) + reward[None, :, None]).max(axis=1)


def outer(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Return a function of two numbers on all pairs from two lists."""
    return jax.vmap(jax.vmap(function, (None, 0)), (0, None))


@functools.partial(jax.jit, static_argnames="grid")
def neutral(env: RiskyMountainCar, grid: Grid) -> Array:
    """Return V for λ = 0, which does not depend on time."""
    start = jnp.zeros((grid.positions, grid.velocities))
    return jax.lax.fori_loop(0, SETTLE, lambda _, value: backup(env, grid, value, jnp.zeros(())), start)


@functools.partial(jax.jit, static_argnames="grid")
def averse(env: RiskyMountainCar, grid: Grid, last: Array, risk_weight: Array) -> Array:
    """Return V_1, …, V_T for a λ of either sign."""

    def before(value: Array, t: Array) -> tuple[Array, Array]:
        return backup(env, grid, value, risk_weight * DISCOUNT**t), value

    return jax.lax.scan(before, last, jnp.arange(HORIZON, dtype=jnp.float32), reverse=True)[1]


def greedy(env: RiskyMountainCar, grid: Grid, values: Array, risk_weight: Array, car: Car) -> Array:
    """Return argmax_a of the equation above, at a state between the nodes."""
    value = values[jnp.minimum(car.time, values.shape[0] - 1)]
    weight, forces = risk_weight * power(DISCOUNT, car.time), jnp.asarray(ACTIONS, jnp.float32)

    def q(force: Array) -> Array:
        velocity = env.accelerate(car.position, car.velocity, force)
        return stage(env, weight, force) + arrival(env, grid, value, car.position, velocity)

    return forces[jnp.argmax(jax.vmap(q)(forces))]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def greedy_returns(starts: int, draws: int, grid: Grid, env, values: Array, risk_weight: Array, seed: int) -> Array:
    return returns(starts, draws, functools.partial(greedy, env, grid, values, risk_weight), env, seed)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def simple_returns(starts: int, draws: int, policy: Policy, env, seed: int) -> Array:
    return returns(starts, draws, policy, env, seed)


def returns(starts: int, draws: int, policy: Policy, env: RiskyMountainCar, seed: int) -> Array:
    """Return discounted and plain returns [2, starts · draws]: random starts, several draws of the penalty for each.

    The path of the car depends on its start alone, so the draws share it.
    """
    start_key, key = jax.random.split(jax.random.key(seed))
    _, cars = jax.vmap(env.reset)(jax.random.split(start_key, starts))

    def one(keys: Array, car: Car) -> tuple[Array, Car, Array]:
        action = policy(car)[None]
        _, after, reward, done, _ = jax.vmap(env.step, (0, None, None))(keys, car, action)
        return reward, jax.tree.map(lambda x: x[0], after), done[0]

    def move(carry):
        t, cars, alive, total = carry
        keys = jax.random.split(jax.random.fold_in(key, t), (starts, draws))
        reward, cars, done = jax.vmap(one)(keys, cars)
        worth = jnp.stack([power(DISCOUNT, t), jnp.ones(())])[:, None, None]
        return t + 1, cars, alive & ~done, total + worth * jnp.where(alive[:, None], reward, 0.0)[None]

    def going(carry):
        return (carry[0] < env.max_episode_steps) & carry[2].any()

    begin = (jnp.zeros((), jnp.int32), cars, jnp.ones(starts, bool), jnp.zeros((2, starts, draws)))
    return jax.lax.while_loop(going, move, begin)[3].reshape(2, -1)


def do_nothing(car: Car) -> Array:
    return jnp.zeros(())


def bang_bang(car: Car) -> Array:
    return jnp.sign(car.velocity)


class Scores(NamedTuple):
    """β of one policy for every measure: [measures, 2], discounted and plain."""

    chosen: np.ndarray
    """On the sample by which policies are chosen."""
    fresh: np.ndarray
    """On another sample."""


def score(risks: list[rp.RiskMeasure], sample: Callable[[int], Array]) -> Scores:
    both = (np.asarray(sample(seed), np.float64) for seed in (1, 2))
    return Scores(*(np.array([[risk.value(row) for row in rows] for risk in risks]) for rows in both))


def cells(c: float, texts: list[str], grid: Grid, kappas: list[float], starts: int, draws: int) -> list[dict]:
    """Return the records of all measures at one weight of the penalty."""
    env = as_arrays(RiskyMountainCar(c=c))
    risks = [rp.parse_risk(text) for text in texts]
    settled = neutral(env, grid)
    lambdas = [kappa / c for kappa in kappas] if c else [0.0]
    assert lambdas[0] == 0, "the first policy is the mean-optimal control"
    family = []
    for weight in map(jnp.float32, lambdas):
        values = averse(env, grid, settled, weight)
        family.append(score(risks, functools.partial(greedy_returns, starts, draws, grid, env, values, weight)))
    nothing, bang = (
        score(risks, functools.partial(simple_returns, starts, draws, policy, env)).fresh
        for policy in (do_nothing, bang_bang)
    )
    chosen, fresh = (np.stack([getattr(scores, name) for scores in family]) for name in Scores._fields)
    best = chosen.argmax(axis=0)
    return [
        {
            "c": c,
            "risk": text,
            "best": fresh[best[m, 0], m, 0],
            "best_undiscounted": fresh[best[m, 1], m, 1],
            "mean_control": fresh[0, m, 0],
            "do_nothing": nothing[m, 0],
            "bang_bang": bang[m, 0],
            "lambda": lambdas[best[m, 0]],
            "episodes": starts * draws,
        }
        for m, text in enumerate(texts)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--c", type=float, nargs="+", default=WEIGHTS)
    parser.add_argument("--risk", nargs="+", default=MEASURES)
    parser.add_argument("--grid", type=int, nargs=2, default=Grid(), help="nodes of position and velocity")
    parser.add_argument("--kappa", type=float, nargs="+", default=KAPPAS, help="risk weights λ · c to try besides 0")
    parser.add_argument("--starts", type=int, default=8192)
    parser.add_argument("--draws", type=int, default=8, help="of the penalty, for each start")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    grid, records, began = Grid(*options.grid), [], time.perf_counter()
    for c in options.c:
        kappas = list(dict.fromkeys([0.0, *options.kappa]))
        for record in cells(c, options.risk, grid, kappas, options.starts, options.draws):
            records.append({k: round(v, 3) if isinstance(v, float) else v for k, v in record.items()})
            print("  ".join(f"{k} {v}" for k, v in records[-1].items()), flush=True)
    about = {"discount": DISCOUNT, "grid": list(grid), "actions": len(ACTIONS), "kappas": list(options.kappa)}
    about |= {"device": jax.devices()[0].device_kind, "seconds": round(time.perf_counter() - began)}
    options.out.parent.mkdir(exist_ok=True, parents=True)
    options.out.write_text(json.dumps({**about, "cells": records}, indent=2) + "\n")


if __name__ == "__main__":
    main()
