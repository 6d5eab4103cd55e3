"""What the trading problems share: an episode of fixed length whose step is a decision and then a move of the price.

A problem of this kind is a `MarketProblem` with `decide` and `move`, as `riskpath.mdp.grid.problem` describes them. The
environment and the grid solver use the same two functions.
"""

import abc
import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from riskpath.envs.environment import Environment, Step
from riskpath.errors import RiskpathError, short_repr
from riskpath.mdp.grid.problem import GridProblem
from riskpath.types import EnvSpec, Key
from riskpath.validation import LARGEST, require_positive


def points_at(points: int, resolution: float) -> int:
    """Return a number of grid points at another resolution."""
    return max(3, round((points - 1) * resolution) + 1)


def require_resolution(env: Environment, resolution: float) -> None:
    """Refuse a resolution that is not a positive number, and parameters that are several numbers."""
    require_positive(resolution=resolution)
    for field in dataclasses.fields(env):
        if np.ndim(value := getattr(env, field.name)):
            raise RiskpathError(f"a grid needs one number for {field.name}, got {short_repr(value)}")


def require_prices(env: Environment, *prices: float, drift: float, spread: float) -> None:
    """Refuse prices that a network cannot represent, up to six standard deviations of their logarithm away."""
    ends = [math.log(price) + sign * (abs(drift) + 6 * spread) for price in prices for sign in (-1, 1)]
    if not max(map(abs, ends)) < (most := math.log(LARGEST)):
        name, reach = type(env).__name__, f"from exp({min(ends):.3g}) to exp({max(ends):.3g})"
        raise RiskpathError(f"prices of {name} would reach {reach}, beyond exp({most:.0f}): use a smaller volatility")


def known(value: Any, otherwise: float) -> float:
    """Return a parameter as a number; `otherwise` where it is an array, whose value may be unknown."""
    return value if isinstance(value, float) else otherwise


class Market(eqx.Module):
    """The state of an episode."""

    state: tuple[Float[Array, ""], ...]
    """The coordinates: the price and, where there is one, the position."""
    time: Int[Array, ""]


class MarketProblem(Environment):
    """An episode of `steps` decisions; the observation is the state and the step."""

    steps: eqx.AbstractVar[int]
    """The number of decisions in an episode."""

    @property
    @abc.abstractmethod
    def first_state(self) -> tuple[Any, ...]:
        """The coordinates at the start of an episode."""

    @property
    @abc.abstractmethod
    def num_actions(self) -> int:
        """The number of actions; 0 if they are continuous."""

    @property
    @abc.abstractmethod
    def view(self) -> tuple[float, float]:
        """The prices that a picture shows."""

    @abc.abstractmethod
    def action_value(self, action: Shaped[Array, "*act"]) -> Float[Array, ""]:
        """Return the amount that an action of an agent stands for."""

    @abc.abstractmethod
    def decide(self, time: Any, state: tuple[Any, ...], amount: Any) -> tuple[tuple[Any, ...], Any, Any]:
        """Return post-state, reward and whether the episode ends."""

    @abc.abstractmethod
    def move(self, time: Any, post: tuple[Any, ...], noise: Any) -> tuple[tuple[Any, ...], Any]:
        """Return next state and reward after a standard normal noise."""

    @abc.abstractmethod
    def grid_problem(self, resolution: float = 1.0, discount: float = 1.0) -> GridProblem:
        """Return the problem for the grid solver; a larger resolution has more points."""

    def reset(self, key: Key) -> tuple[Float[Array, " n"], Market]:
        market = Market(tuple(jnp.asarray(x, jnp.float32) for x in self.first_state), jnp.zeros((), jnp.int32))
        return _observe(market), market

    def step(self, key: Key, state: Market, action: Shaped[Array, "*act"]) -> Step:
        """Decide, then move the price; the last step terminates the episode."""
        post, paid, ends = self.decide(state.time, state.state, self.action_value(action))
        following, gained = self.move(state.time, post, jax.random.normal(key))
        ends = jnp.asarray(ends, bool)
        coordinates = tuple(jnp.where(ends, a, b) for a, b in zip(post, following, strict=True))
        reward = jnp.asarray(paid, jnp.float32) + jnp.where(ends, 0.0, gained)
        market = Market(coordinates, state.time + 1)
        return _observe(market), market, reward, ends | (market.time >= self.steps), jnp.zeros((), bool)

    def action_mask(self, state: Any) -> Bool[Array, " A"]:
        return jnp.ones((self.num_actions,), bool)

    def is_last(self, time: Any) -> Any:
        """Tell whether this is the last step."""
        return time == self.steps - 1


def market_spec(env: MarketProblem, *bounds: tuple[float, float]) -> EnvSpec:
    """Return the specification of a market; the bounds of the state are wide, so that no episode leaves them."""
    listed = (*bounds, (0.0, float(env.steps)))
    return EnvSpec(
        num_actions=env.num_actions,
        observation_shape=(len(listed),),
        max_episode_steps=env.steps,
        action_size=0 if env.num_actions else 1,
        observation_bounds=listed,
    )


def _observe(market: Market) -> Float[Array, " n"]:
    return jnp.stack([*market.state, market.time.astype(jnp.float32)])
