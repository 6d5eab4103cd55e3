"""An American put option: hold or exercise, ten times in a year.

The price follows a geometric Brownian motion, S' = S exp((μ − σ²/2) Δt + σ √Δt ξ). Exercising pays max(0, K − S) at the
price that was seen and ends the episode; the last decision exercises in any case. With μ = −0.3 waiting pays on
average, and risks a rise of the price. This is the option of Moghimi and Ku, "Beyond CVaR: Leveraging Static Spectral
Risk Measures for Enhanced Decision-Making in Distributional Reinforcement Learning" (2025).
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from riskpath.envs.market import MarketProblem, known, market_spec, points_at, require_prices, require_resolution
from riskpath.mdp.grid.problem import GridProblem, normal_noise
from riskpath.types import EnvSpec
from riskpath.validation import as_parameter, fields, require_counts, require_finite, require_positive


class AmericanPut(MarketProblem):
    """Hold (0) or exercise (1) a put option; observes price and step."""

    mu: float | Array = eqx.field(converter=as_parameter, default=-0.3)
    """μ, the drift of the price in a year."""
    sigma: float | Array = eqx.field(converter=as_parameter, default=0.3)
    """σ, the volatility."""
    start_price: float | Array = eqx.field(converter=as_parameter, default=1.0)
    """The price at the start."""
    strike: float | Array = eqx.field(converter=as_parameter, default=1.0)
    """K, the price that the option guarantees."""
    years: float | Array = eqx.field(converter=as_parameter, default=1.0)
    """The time of all steps together."""
    steps: int = eqx.field(static=True, default=10)
    """The number of decisions in an episode."""

    def __check_init__(self):
        require_finite(**fields(self, "mu", "sigma", "start_price", "strike", "years"))
        require_positive(sigma=self.sigma, start_price=self.start_price, strike=self.strike, years=self.years)
        require_counts(steps=self.steps)
        prices = known(self.start_price, 1.0), known(self.strike, 1.0)
        require_prices(self, *prices, drift=self._drift, spread=self._spread)

    @property
    def spec(self) -> EnvSpec:
        return market_spec(
            self, (0.0, known(self.start_price, 1.0) * math.exp(max(0.0, self._drift) + 6 * self._spread))
        )

    @property
    def first_state(self) -> tuple[Any]:
        return (self.start_price,)

    @property
    def num_actions(self) -> int:
        return 2

    @property
    def view(self) -> tuple[float, float]:
        """From half of the strike to one and a half."""
        return 0.5 * known(self.strike, 1.0), 1.5 * known(self.strike, 1.0)

    @property
    def _drift(self) -> float:
        """The mean growth of the logarithm of the price, without the part that the volatility takes."""
        return known(self.mu, -0.3) * known(self.years, 1.0)

    @property
    def _spread(self) -> float:
        """The standard deviation of the logarithm of the last price."""
        return known(self.sigma, 0.3) * known(self.years, 1.0) ** 0.5

    def action_value(self, action: Shaped[Array, "*act"]) -> Float[Array, ""]:
        """Return 1 for exercise, 0 for hold."""
        return action.astype(jnp.float32)

    def decide(self, time: Any, state: tuple[Any], amount: Any) -> tuple[tuple[Any], Any, Any]:
        (price,) = state
        exercise = (amount > 0.5) | self.is_last(time)
        return (price,), jnp.where(exercise, jnp.maximum(self.strike - price, 0.0), 0.0), exercise

    def move(self, time: Any, post: tuple[Any], noise: Any) -> tuple[tuple[Any], Any]:
        """Move the price by the exact transition."""
        (price,) = post
        dt = self.years / self.steps
        return (price * jnp.exp((self.mu - self.sigma**2 / 2) * dt + self.sigma * jnp.sqrt(dt) * noise),), 0.0

    def grid_problem(self, resolution: float = 1.0, discount: float = 1.0) -> GridProblem:
        require_resolution(self, resolution)
        spread = float(self.sigma) * float(self.years) ** 0.5
        drift = (float(self.mu) - float(self.sigma) ** 2 / 2) * float(self.years)
        start = float(self.start_price)
        low, high = start * np.exp(min(drift, 0.0) - 4.5 * spread), start * np.exp(max(drift, 0.0) + 4.5 * spread)
        low = min(low, 0.5 * float(self.strike))
        below = np.geomspace(low, float(self.strike), points_at(241, resolution))  # the strike is a point of the grid
        above = np.geomspace(float(self.strike), max(high, 1.5 * float(self.strike)), points_at(81, resolution))
        return GridProblem(
            axes={"price": np.concatenate([below, above[1:]])},
            actions=[0.0, 1.0],
            steps=self.steps,
            start=(start,),
            noise=normal_noise(64),
            decide=self.decide,
            move=self.move,
            discount=discount,
            return_points=points_at(1001, resolution),
            name="AmericanPut",
        )
