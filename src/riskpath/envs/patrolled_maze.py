"""A maze with a patrol on the short way: in a fifth of the episodes it is there, and costs 32 on average.

The place moves by one cell in the chosen direction and by normal noise; walls block. Each of the first 32 steps costs
1, the goal pays 16. Whoever comes through the patrolled cell pays 16 times a cost, once, if the patrol is there.
Whether it is there, and its cost, are drawn when an episode starts and are not observed. This is the guarded maze of
the public code of CeSoR (Greenberg et al., 2022), which calls patrol and cost the conditions of an episode.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlog1py, xlogy
from jaxtyping import Array, Bool, Float, Int

from riskpath.envs.environment import Conditioned, Step
from riskpath.errors import RiskpathError
from riskpath.types import EnvSpec, Key
from riskpath.validation import as_parameter, fields, require_counts, require_no_less_than_zero, require_share

MAP = ("########", "#......#", "#......#", "#....#.#", "#....#.#", "#X####.#", "#.G....#", "########")
"""Walls #, goal G and the patrolled cell X; the first coordinate of a place counts the lines."""
WALL, PATROL, GOAL = (np.array([[sign == which for sign in line] for line in MAP]) for which in "#XG")
MOVES = ((-1.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.0, 1.0))
"""The directions of the actions: up, down, left, right on the map."""
SCALE = 16
"""The reward of the goal, and the unit of costs."""


class Patrolled(eqx.Module):
    """The state of an episode."""

    place: Float[Array, "2"]
    cost: Float[Array, ""]
    """The cost of the patrol, in units of `SCALE`; 0 where it is absent or paid already."""
    time: Int[Array, ""]
    """Steps taken."""


class PatrolledMaze(Conditioned):
    """Reach the goal through a cell that may be patrolled, or by a long way around; observes the place."""

    p_patrol: float | Array = eqx.field(converter=as_parameter, default=0.2)
    """The probability that the patrol is there."""
    mean_cost: float | Array = eqx.field(converter=as_parameter, default=2.0)
    """The mean of the exponential cost, in units of 16."""
    random_cost: bool = eqx.field(static=True, default=True)
    """Whether the cost is random; otherwise it is always the mean."""
    action_noise: float | Array = eqx.field(converter=as_parameter, default=0.2)
    """The standard deviation of the noise of a move."""
    start_low: float | Array = eqx.field(converter=as_parameter, default=0.6)
    """Both coordinates of the start are uniform between this …"""
    start_high: float | Array = eqx.field(converter=as_parameter, default=3.6)
    """… and this."""
    paid_steps: int = eqx.field(static=True, default=32)
    """The number of steps that cost 1 each."""
    max_episode_steps: int = eqx.field(static=True, default=161)
    """The number of steps after which an episode is cut off."""

    def __check_init__(self):
        require_share(p_patrol=self.p_patrol)
        require_no_less_than_zero(**fields(self, "mean_cost", "action_noise", "start_low", "start_high"))
        require_counts(**fields(self, "paid_steps", "max_episode_steps"))
        ends = self.start_low, self.start_high
        if all(isinstance(end, float) for end in ends) and not ends[0] <= ends[1] <= 7:
            raise RiskpathError(
                f"start_low must be at most start_high, and that at most 7; got {ends[0]:g}, {ends[1]:g}"
            )

    @property
    def spec(self) -> EnvSpec:
        bounds = ((0.0, 7.0), (0.0, 7.0))
        return EnvSpec(len(MOVES), (2,), None, self.max_episode_steps, observation_bounds=bounds, conditions=2)

    @property
    def usual(self) -> Float[Array, "2"]:
        return jnp.stack([jnp.asarray(self.p_patrol), jnp.asarray(self.mean_cost)])

    def draw(self, means: Float[Array, "2"], *, key: Key) -> tuple[Float[Array, "2"], Float[Array, "2"]]:
        """Draw whether the patrol is there, and what it costs or would cost."""
        patrol_key, cost_key = jax.random.split(key)
        there = jax.random.uniform(patrol_key) < means[0]
        cost = means[1] * jax.random.exponential(cost_key) if self.random_cost else jnp.asarray(self.mean_cost)
        drawn = jnp.stack([there.astype(jnp.float32), cost])
        return drawn, drawn

    def log_density(self, statistics: Float[Array, "2"], means: Float[Array, "2"]) -> Float[Array, ""]:
        """Return the logarithm of a Bernoulli probability times an exponential density."""
        (there, cost), chance, mean = statistics, jnp.clip(means[0], 0.0, 1.0), jnp.maximum(means[1], 1e-9)
        log_cost = -jnp.log(mean) - cost / mean if self.random_cost else 0.0
        return xlogy(there, chance) + xlog1py(1.0 - there, -chance) + log_cost

    def start(self, condition: Float[Array, "2"], *, key: Key) -> tuple[Float[Array, "2"], Patrolled]:
        place = jax.random.uniform(key, (2,), minval=self.start_low, maxval=self.start_high)
        return place, Patrolled(place, condition[0] * condition[1], jnp.zeros((), jnp.int32))

    def step(self, key: Key, state: Patrolled, action: Int[Array, ""]) -> Step:
        """Move; `key` decides about the noise."""
        return self.move(state, action, self.action_noise * jax.random.normal(key, (2,)))

    def move(self, state: Patrolled, action: Int[Array, ""], noise: Float[Array, "2"]) -> Any:
        """Return the result of `step` for the noise of the move."""
        wanted = jnp.clip(state.place + jnp.asarray(MOVES)[action] + noise, 0.0, 7.0)
        middle = 0.5 * (state.place + wanted)
        place = jnp.where(_on(WALL, wanted) | _on(WALL, middle), state.place, wanted)
        met = (_on(PATROL, place) | _on(PATROL, middle)) & (state.cost > 0)
        reached = _on(GOAL, place)
        step_cost = jnp.where(state.time < self.paid_steps, -1.0, 0.0)
        reward = jnp.where(reached, float(SCALE), step_cost) - jnp.where(met, SCALE * state.cost, 0.0)
        time = state.time + 1
        truncated = ~reached & (time >= self.max_episode_steps)
        return place, Patrolled(place, jnp.where(met, 0.0, state.cost), time), reward, reached, truncated

    def action_mask(self, state: Patrolled) -> Bool[Array, " A"]:
        return jnp.ones((len(MOVES),), bool)


def _on(cells: np.ndarray, place: Float[Array, "2"]) -> Bool[Array, ""]:
    row, col = jnp.round(place).astype(jnp.int32)
    return jnp.asarray(cells)[row, col]
