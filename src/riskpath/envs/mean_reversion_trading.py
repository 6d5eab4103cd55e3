"""Trading a price that returns to its mean: an Ornstein–Uhlenbeck price, ten trades, a penalty on what is left.

With the trade u ∈ [−2, 2] at the price S before its move and the inventory q:

    r = −S u − 0.005 u²,   q' = q + u,   S' = θ + (S − θ) e^{−κΔt} + σ √((1 − e^{−2κΔt}) / 2κ) ξ,   ξ normal;

after the last move q S − 0.5 q² is paid as well. The mean-optimal policy holds large inventories. This is the trading
problem of Moghimi and Ku, "Beyond CVaR: Leveraging Static Spectral Risk Measures for Enhanced Decision-Making in
Distributional Reinforcement Learning" (2025).
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from riskpath.envs.market import MarketProblem, known, market_spec, points_at, require_resolution
from riskpath.mdp.grid.problem import GridProblem, normal_noise
from riskpath.types import EnvSpec
from riskpath.validation import as_parameter, fields, require_counts, require_finite, require_positive

WIDTH = 4.4
"""How far the grid of prices reaches to both sides, in stationary standard deviations."""
INVENTORY = 8.0
"""The grid of inventories reaches this far in trades of the largest size, over 2."""


class MeanReversionTrading(MarketProblem):
    """Ten trades of a mean-reverting price; observes price, inventory and step."""

    kappa: float | Array = eqx.field(converter=as_parameter, default=2.0)
    """κ, the speed of the return to the mean."""
    theta: float | Array = eqx.field(converter=as_parameter, default=1.0)
    """θ, the mean price."""
    sigma: float | Array = eqx.field(converter=as_parameter, default=1.0)
    """σ, the volatility."""
    start_price: float | Array = eqx.field(converter=as_parameter, default=1.0)
    """The price at the start."""
    dt: float | Array = eqx.field(converter=as_parameter, default=0.1)
    """Δt, the time of a step."""
    max_trade: float | Array = eqx.field(converter=as_parameter, default=2.0)
    """The largest trade."""
    cost: float | Array = eqx.field(converter=as_parameter, default=0.005)
    """The cost of a trade u is this times u²."""
    penalty: float | Array = eqx.field(converter=as_parameter, default=0.5)
    """The cost of the last inventory q is this times q²."""
    trades: int = eqx.field(static=True, default=21)
    """The number of different trades; an odd one contains 0."""
    continuous: bool = eqx.field(static=True, default=False)
    """Whether any trade between the largest ones may be chosen."""
    steps: int = eqx.field(static=True, default=10)
    """The number of trades in an episode."""

    def __check_init__(self):
        names = ("kappa", "theta", "sigma", "start_price", "dt", "max_trade", "cost", "penalty")
        require_finite(**fields(self, *names))
        require_positive(kappa=self.kappa, sigma=self.sigma, dt=self.dt, max_trade=self.max_trade)
        require_counts(2, trades=self.trades)
        require_counts(steps=self.steps)

    @property
    def spec(self) -> EnvSpec:
        reach = 6 * known(self.sigma, 1.0) / (2 * known(self.kappa, 2.0)) ** 0.5
        first, mean, largest = known(self.start_price, 1.0), known(self.theta, 1.0), known(self.max_trade, 2.0)
        prices = (min(first, mean) - reach, max(first, mean) + reach)
        return market_spec(self, prices, (-largest * self.steps, largest * self.steps))

    @property
    def first_state(self) -> tuple[Any, Any]:
        return self.start_price, 0.0

    @property
    def num_actions(self) -> int:
        return 0 if self.continuous else self.trades

    @property
    def view(self) -> tuple[float, float]:
        """Three stationary standard deviations to both sides of the mean."""
        reach = 3 * known(self.sigma, 1.0) / (2 * known(self.kappa, 2.0)) ** 0.5
        return known(self.theta, 1.0) - reach, known(self.theta, 1.0) + reach

    def action_value(self, action: Shaped[Array, "*act"]) -> Float[Array, ""]:
        """Return the trade of an action number, or of a continuous action in [−1, 1]."""
        if self.continuous:
            return jnp.clip(action[0], -1.0, 1.0) * self.max_trade
        return self.max_trade * (2 * action.astype(jnp.float32) / (self.trades - 1) - 1)

    def decide(self, time: Any, state: tuple[Any, Any], amount: Any) -> tuple[tuple[Any, Any], Any, bool]:
        price, inventory = state
        return (price, inventory + amount), -price * amount - self.cost * amount**2, False

    def move(self, time: Any, post: tuple[Any, Any], noise: Any) -> tuple[tuple[Any, Any], Any]:
        """Move the price by the exact transition; the last move pays for the inventory."""
        price, inventory = post
        decay = jnp.exp(-self.kappa * self.dt)
        spread = self.sigma * jnp.sqrt((1 - decay**2) / (2 * self.kappa))
        price = self.theta + (price - self.theta) * decay + spread * noise
        worth = inventory * price - self.penalty * inventory**2
        return (price, inventory), jnp.where(self.is_last(time), worth, 0.0)

    def grid_problem(self, resolution: float = 1.0, discount: float = 1.0) -> GridProblem:
        """Return the problem for the grid solver; a larger resolution has more prices and returns.

        Inventories are the multiples of the smallest trade. The continuous problem is solved with 41 trades. The
        tables hold the difference from the value of the inventory at the mean price, so a move pays nothing.
        """
        require_resolution(self, resolution)
        spread = float(self.sigma) / (2 * float(self.kappa)) ** 0.5
        reach = WIDTH * spread + abs(float(self.start_price) - float(self.theta))
        count = 41 if self.continuous else self.trades
        largest = float(self.max_trade)
        unit = 2 * largest / (count - 1)
        lots = round(INVENTORY / 2 * largest / unit)
        actions = np.linspace(-largest, largest, count)

        def potential(time: Any, state: tuple[Any, Any]) -> Array:
            return float(self.theta) * state[1] * jnp.float32(discount) ** (self.steps - jnp.asarray(time, jnp.float32))

        return GridProblem(
            axes={
                "price": float(self.theta) + np.linspace(-reach, reach, points_at(33, resolution)),
                "inventory": unit * np.arange(-lots, lots + 1),
            },
            actions=actions,
            steps=self.steps,
            start=(float(self.start_price), 0.0),
            noise=normal_noise(64),
            decide=self.decide,
            move=self.move,
            potential=potential,
            endless=("inventory",),
            all_actions=not self.continuous,
            discount=discount,
            return_points=points_at(601, resolution),
            action_labels=(actions / largest)[:, None].astype(np.float32) if self.continuous else None,
            name="MeanReversionTrading",
        )
