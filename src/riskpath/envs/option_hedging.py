"""Hedging a call option that was sold: every day a share h of the underlying is held.

The price follows S' = S exp(−σ²/2 Δt + σ √Δt ξ). Choosing the hedge h at the price S costs c S |h − h before|; the move
pays h (S' − S), and the last one also −max(0, S' − K). The return is the profit of the seller without the premium.
The parameters are those of the first example of pfhedge.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.scipy.stats
import numpy as np
from jaxtyping import Array, Float, Shaped

from riskpath.envs.market import MarketProblem, known, market_spec, points_at, require_prices, require_resolution
from riskpath.mdp.grid.problem import GridProblem, normal_noise
from riskpath.types import EnvSpec
from riskpath.validation import (
    as_parameter,
    fields,
    require_counts,
    require_finite,
    require_no_less_than_zero,
    require_positive,
)


class OptionHedging(MarketProblem):
    """Hedge a short call for twenty days; observes price, current hedge and step."""

    sigma: float | Array = eqx.field(converter=as_parameter, default=0.2)
    """σ, the volatility in a year."""
    dt: float | Array = eqx.field(converter=as_parameter, default=1 / 250)
    """Δt, the time of a step in years."""
    start_price: float | Array = eqx.field(converter=as_parameter, default=1.0)
    """The price at the start."""
    strike: float | Array = eqx.field(converter=as_parameter, default=1.0)
    """K, the strike of the call."""
    cost: float | Array = eqx.field(converter=as_parameter, default=1e-4)
    """c, the cost of trading as a fraction of the traded value."""
    hedges: int = eqx.field(static=True, default=21)
    """The number of different hedges from 0 to 1."""
    continuous: bool = eqx.field(static=True, default=False)
    """Whether any hedge from 0 to 1 may be chosen; an action −1 is 0, an action 1 is 1."""
    steps: int = eqx.field(static=True, default=20)
    """The number of decisions in an episode."""

    def __check_init__(self):
        require_finite(**fields(self, "sigma", "dt", "start_price", "strike", "cost"))
        require_positive(sigma=self.sigma, dt=self.dt, start_price=self.start_price, strike=self.strike)
        require_no_less_than_zero(cost=self.cost)
        require_counts(2, hedges=self.hedges)
        require_counts(steps=self.steps)
        require_prices(self, known(self.start_price, 1.0), known(self.strike, 1.0), drift=0.0, spread=self._spread)

    @property
    def spec(self) -> EnvSpec:
        first, reach = known(self.start_price, 1.0), 6 * self._spread
        return market_spec(self, (first * math.exp(-reach), first * math.exp(reach)), (0.0, 1.0))

    @property
    def first_state(self) -> tuple[Any, Any]:
        return self.start_price, 0.0

    @property
    def num_actions(self) -> int:
        return 0 if self.continuous else self.hedges

    @property
    def view(self) -> tuple[float, float]:
        """Two and a half standard deviations of the last price to both sides of the strike."""
        strike = known(self.strike, 1.0)
        return strike * math.exp(-2.5 * self._spread), strike * math.exp(2.5 * self._spread)

    @property
    def _spread(self) -> float:
        """The standard deviation of the logarithm of the last price."""
        return known(self.sigma, 0.2) * (known(self.dt, 1 / 250) * self.steps) ** 0.5

    def action_value(self, action: Shaped[Array, "*act"]) -> Float[Array, ""]:
        """Return the hedge of an action number, or of a continuous action in [−1, 1]."""
        if self.continuous:
            return (jnp.clip(action[0], -1.0, 1.0) + 1) / 2
        return action.astype(jnp.float32) / (self.hedges - 1)

    def decide(self, time: Any, state: tuple[Any, Any], amount: Any) -> tuple[tuple[Any, Any], Any, bool]:
        price, hedge = state
        return (price, amount), -self.cost * price * jnp.abs(amount - hedge), False

    def move(self, time: Any, post: tuple[Any, Any], noise: Any) -> tuple[tuple[Any, Any], Any]:
        """Move the price; the hedge gains with it, and the last move pays the buyer of the option."""
        price, hedge = post
        after = price * jnp.exp(-(self.sigma**2) / 2 * self.dt + self.sigma * jnp.sqrt(self.dt) * noise)
        payoff = jnp.where(self.is_last(time), jnp.maximum(after - self.strike, 0.0), 0.0)
        return (after, hedge), hedge * (after - price) - payoff

    def option_price(self, time: Any, price: Any) -> Any:
        """Return the price of the call before step `time`, by the formula of Black and Scholes without interest."""
        left = (self.steps - jnp.asarray(time, jnp.float32)) * self.dt
        spread = self.sigma * jnp.sqrt(left)
        upper = jnp.log(price / self.strike) / spread + spread / 2
        cdf = jax.scipy.stats.norm.cdf
        return price * cdf(upper) - self.strike * cdf(upper - spread)

    def grid_problem(self, resolution: float = 1.0, discount: float = 1.0) -> GridProblem:
        """Return the problem for the grid solver; a larger resolution has more prices and returns.

        The tables hold the difference from the price of the option, which a hedge keeps small.
        """
        require_resolution(self, resolution)
        count = 41 if self.continuous else self.hedges
        start = float(self.start_price)
        reach = 4.5 * self._spread + abs(np.log(start / float(self.strike)))
        hedges = np.linspace(0.0, 1.0, count)
        return GridProblem(
            axes={
                "price": float(self.strike) * np.exp(np.linspace(-reach, reach, points_at(121, resolution))),
                "hedge": hedges,
            },
            actions=hedges,
            steps=self.steps,
            start=(start, 0.0),
            noise=normal_noise(24),
            decide=self.decide,
            move=self.move,
            potential=lambda time, state: -self.option_price(time, state[0]),
            all_actions=not self.continuous,
            discount=discount,
            return_points=points_at(401, resolution),
            action_labels=(2 * hedges - 1)[:, None].astype(np.float32) if self.continuous else None,
            name="OptionHedging",
        )
