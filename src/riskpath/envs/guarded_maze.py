"""A maze whose short way leads past a guard, where the reward has mean 0 and a large variance.

Each of the first steps costs 1, the goal pays 10. Every step that ends on the guard's cell also earns a normal number
with mean 0 and deviation 30. The way past the guard takes 6 steps, the other one 14, so the best returns are
4 + N(0, 30) and −4. This is the guarded maze of the public code of Return Capping (Mead et al., 2025), without its
division of rewards by 256.

The best value is known: before the first visit of the guard nothing is random, and what later visits earn has mean 0,
which only adds to E[(b − Z)⁺] for every b (Jensen). So for CVaR at a level η it is

    max(−4, 4 − 30 φ(z)/η),     z = Φ⁻¹(η),

also for policies that see their rewards.
"""

from statistics import NormalDist
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from riskpath.envs.environment import Environment, Step
from riskpath.errors import RiskpathError
from riskpath.risk.measures import CVaR, Mean, RiskMeasure
from riskpath.types import EnvSpec, Key
from riskpath.validation import as_parameter, fields, require_counts, require_finite, require_no_less_than_zero

MAP = ("########", "#......#", "#.####.#", "#....#.#", "#....#.#", "#....#G#", "#S...X.#", "########")
"""Walls #, start S, goal G and the guard X."""
MOVES = {"right": (0, 1), "down": (1, 0), "left": (0, -1), "up": (-1, 0)}
"""The actions, as changes of row and column."""
CELLS = [(row, col) for row, line in enumerate(MAP) for col, sign in enumerate(line) if sign != "#"]
"""The cells that can be entered; an observation is a number in this list."""
START, GOAL, GUARD = (next(i for i, (row, col) in enumerate(CELLS) if MAP[row][col] == sign) for sign in "SGX")
NEXT = np.array(
    [[CELLS.index(to) if (to := (r + dr, c + dc)) in CELLS else -1 for dr, dc in MOVES.values()] for r, c in CELLS]
)
"""The cell after each action; −1 for a wall."""
SHORT, LONG = 6, 14
"""Steps of the way past the guard and of the other one."""


class Walk(eqx.Module):
    """The state of an episode."""

    cell: Int[Array, ""]
    """The number of the cell in `CELLS`."""
    time: Int[Array, ""]


class GuardedMaze(Environment):
    """Reach the goal past a guard, or by a longer way without risk; observes the cell."""

    noise: float | Array = eqx.field(converter=as_parameter, default=30.0)
    """The standard deviation of the reward on the guard's cell."""
    goal: float | Array = eqx.field(converter=as_parameter, default=10.0)
    """The reward of reaching the goal."""
    paid_steps: int = eqx.field(static=True, default=32)
    """The number of steps that cost 1 each; later ones cost nothing."""
    max_episode_steps: int = eqx.field(static=True, default=500)
    """The number of steps after which an episode is cut off."""

    def __check_init__(self):
        require_finite(**fields(self, "noise", "goal"))
        require_no_less_than_zero(noise=self.noise)
        require_counts(LONG, **fields(self, "paid_steps", "max_episode_steps"))

    @property
    def spec(self) -> EnvSpec:
        places = tuple((2 * row / 7 - 1, 2 * col / 7 - 1) for row, col in CELLS)
        return EnvSpec(
            num_actions=len(MOVES),
            observation_shape=(),
            num_states=len(CELLS),
            max_episode_steps=self.max_episode_steps,
            state_coordinates=places,
            deterministic=True,
        )

    def reset(self, key: Key) -> tuple[Int[Array, ""], Walk]:
        cell = jnp.asarray(START, jnp.int32)
        return cell, Walk(cell, jnp.zeros((), jnp.int32))

    def step(self, key: Key, state: Walk, action: Int[Array, ""]) -> Step:
        """Move; `key` decides about the guard's reward."""
        return self.move(state, action, jax.random.normal(key))

    def move(self, state: Walk, action: Int[Array, ""], luck: Float[Array, ""]) -> Any:
        """Return the result of `step` for a standard normal number."""
        cell, time = jnp.asarray(NEXT, jnp.int32)[state.cell, action], state.time + 1
        reached = cell == GOAL
        reward = jnp.where(cell == GUARD, self.noise * luck, 0.0) + jnp.where(reached, self.goal, 0.0)
        reward = reward - jnp.where(time <= self.paid_steps, 1.0, 0.0)
        truncated = ~reached & (time >= self.max_episode_steps)
        return cell, Walk(cell, time), reward, reached, truncated

    def action_mask(self, state: Walk) -> Bool[Array, " A"]:
        """Return which moves do not lead into a wall."""
        return jnp.asarray(NEXT >= 0)[state.cell]

    def best(self, risk: RiskMeasure) -> tuple[float, float]:
        """Return the value of the policy with the best mean, and the best value, of the mean or CVaR."""
        if not isinstance(risk, CVaR | Mean):
            raise RiskpathError(f"the optimum of GuardedMaze is known for the mean and CVaR, not for {risk}")
        level = float(risk.level) if isinstance(risk, CVaR) else 1.0
        tail = NormalDist().pdf(NormalDist().inv_cdf(level)) / level if level < 1 else 0.0
        risky = float(self.goal) - SHORT - float(self.noise) * tail
        return risky, max(risky, float(self.goal) - LONG)
